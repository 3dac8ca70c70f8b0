"""How is a program started, watched and ended, with everything it has started itself? (SPEC W1, W3, W8)

Every program leads a session of its own; what leaves it, or outlives its parent, is a stray (see `strays`). A process
that holds a `Processes` starts no other children meanwhile.

    start ─► running ─► ended ─► strays, if any, are gone ─► on_end
               └─ kill: SIGTERM, grace, then stop and SIGKILL all; without grace where the program does damage
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from wakugumi.adapters.programs.marks import MARK_VARIABLE, Mark
from wakugumi.adapters.programs.output_files import Capture
from wakugumi.adapters.programs.process_tree import (
    kill_with_all_below,
    send,
    send_to_group,
    usage_of,
    with_all_below,
)
from wakugumi.adapters.programs.program_rules import RULES, ProgramRules, environment_for
from wakugumi.adapters.programs.resource_limits import LOOK_S, JobBounds, stub_command
from wakugumi.adapters.programs.spawn import Spawner
from wakugumi.adapters.programs.start_errors import not_started, stub_error
from wakugumi.adapters.programs.strays import Strays
from wakugumi.limits.runner import KILL_GRACE_S, OUTPUT_BYTES_MAX
from wakugumi.limits.units import KIB

log = logging.getLogger("wakugumi.process")

WATCH_S: Final = 0.2
"""How often what programs write is measured. A fast one writes some 100 MB meanwhile."""
_POLL_S: Final = 0.005
"""How often to ask whether a program has ended, on a kernel that does not tell."""
_HUNT_FIRST_S: Final = 0.001
_HUNT_MAX_S: Final = 0.05
HUNT_ROUNDS: Final = 100
"""Some five seconds, then strays that do not die (the kernel holds them) are waited for no longer."""
_STDERR_READ_BYTES: Final = 64 * KIB


class RunningProgram:
    """One started program."""

    __slots__ = (
        "abandoned",
        "bounds",
        "capture",
        "cpu_s",
        "deadline",
        "ended_at",
        "exit_code",
        "job",
        "kill_at",
        "pid",
        "pidfd",
        "reason",
        "signal",
        "started_at",
        "status_file",
        "why",
    )

    def __init__(
        self, job: str, capture: Capture, started_at: float, deadline: float, bounds: JobBounds | None
    ) -> None:
        self.job = job
        self.capture = capture
        self.started_at = started_at
        self.deadline = deadline
        self.bounds = bounds
        self.pid = 0
        self.pidfd = -1
        self.status_file = -1
        """Says whether the exec stub has become the program; -1 if there was no stub or it has."""
        self.kill_at = float("inf")
        self.reason = ""
        """A code of the error table if it did not simply end by itself."""
        self.why = ""
        self.exit_code = 0
        """128 and the number if a signal ended it, as a shell tells it."""
        self.signal = 0
        self.cpu_s = 0.0
        self.ended_at = 0.0
        self.abandoned = False
        """It has ended, and surely nothing of it is left."""


class Processes:
    """All programs that this process runs."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_end: Callable[[RunningProgram], None],
        *,
        output_bytes_max: int = OUTPUT_BYTES_MAX,
        kill_grace_s: float = KILL_GRACE_S,
        mark: Mark | None = None,
        rules: ProgramRules = RULES,
        by_libc: bool = True,
        by_pidfd: bool = True,
    ) -> None:
        self._loop = loop
        self._on_end = on_end
        self._output_bytes_max = output_bytes_max
        self._kill_grace_s = kill_grace_s
        self._user = rules.user
        environment = environment_for(rules)
        if mark is not None:
            environment[MARK_VARIABLE.encode()] = mark.text.encode()
        self._spawner = Spawner(environment, resident_set=None if mark is None else mark.number, by_libc=by_libc)
        self._by_pid: dict[int, RunningProgram] = {}
        self._by_pidfd: dict[int, RunningProgram] = {}
        self._by_job: dict[str, RunningProgram] = {}
        self._strays = Strays(self._by_pid, self._by_job)
        self._hunts = 0
        self._ended_cpu_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._all_ended: asyncio.Future[None] | None = None
        self._by_pidfd_too = by_pidfd and hasattr(os, "pidfd_open")
        # One file in the loop for all programs: to add and take out one for each costs the loop several calls.
        self._exits = select.epoll()
        loop.add_reader(self._exits.fileno(), self._see_exits)

    @property
    def running(self) -> int:
        return len(self._by_pid)

    def start(
        self,
        job: str,
        command: Sequence[bytes],
        cwd: str,
        capture: Capture,
        *,
        timeout_s: float,
        bounds: JobBounds | None = None,
        env: Mapping[str, str] = {},
    ) -> RunningProgram:
        """Start a program; `on_end` will be called with what this returns, its capture measured. What `env` has goes
        before what all programs get. Raises Refused."""
        now = self._loop.time()
        child = RunningProgram(job, capture, now, now + timeout_s, bounds)
        try:
            own = {os.fsencode(name): os.fsencode(value) for name, value in env.items()} if env else None
            child.pid = self._spawn(child, command, os.fsencode(cwd), own)
        except (OSError, ValueError) as error:
            raise not_started(error, command[0]) from None
        self._by_pid[child.pid] = self._by_job[job] = child
        if self._by_pidfd_too:
            try:
                child.pidfd = os.pidfd_open(child.pid)
                self._exits.register(child.pidfd, select.EPOLLIN)
                self._by_pidfd[child.pidfd] = child
            except OSError:  # an old kernel, or no file descriptor left: then it is asked for
                self._close_pidfd(child)
        self._wake(min(now + self._interval(child), child.deadline))
        return child

    def kill(self, child: RunningProgram, reason: str, why: str, *, at_once: bool = False) -> None:
        """End it with everything below. The first reason stands."""
        if child.reason or child.pid not in self._by_pid:
            return
        child.reason, child.why = reason, why
        if at_once:
            self._kill_hard(child)
            return
        child.kill_at = self._loop.time() + self._kill_grace_s
        self._wake(child.kill_at)
        send_to_group(child.pid, signal.SIGTERM)
        for pid in self._strays.of(child.pid, child.job):
            send(pid, signal.SIGTERM)

    def cpu_s(self) -> float:
        """CPU seconds of all programs so far, ended and running."""
        running = with_all_below([*self._by_pid, *self._strays.find()])
        return (
            self._ended_cpu_s
            + self._strays.cpu_s
            + sum(usage.cpu_s for pid in running if (usage := usage_of(pid)) is not None)
        )

    async def close(self) -> None:
        """End all programs, with grace, and reap everything."""
        for child in list(self._by_pid.values()):
            self.kill(child, "cancelled", "the worker is stopping")
        if self._by_pid or self._hunts:
            self._all_ended = self._loop.create_future()
            await self._all_ended
        if self._timer is not None:
            self._timer.cancel()
        for _ in range(HUNT_ROUNDS):
            if not self._strays.reap():
                break
            await asyncio.sleep(_HUNT_FIRST_S)
        self._loop.remove_reader(self._exits.fileno())
        self._exits.close()
        self._strays.close()
        self._spawner.close()

    # Starting.

    def _spawn(
        self, child: RunningProgram, command: Sequence[bytes], cwd: bytes, env: Mapping[bytes, bytes] | None
    ) -> int:
        out, err = child.capture.out, child.capture.err
        if child.bounds is None and self._user is None:
            return self._spawner.start(command, cwd, out, err, child.job, env)
        child.status_file, status = os.pipe()
        os.set_blocking(child.status_file, False)
        try:
            if self._user is None:
                stub = stub_command(status, None, child.bounds, None, command)
                return self._spawner.start_with(stub, cwd, out, err, child.job, env, (status,))
            variables = self._spawner.variables({b"PWD": cwd, **(env or {})}, child.job)
            try:
                stub = stub_command(status, variables, child.bounds, self._user, command)
                return self._spawner.start_stub(stub, cwd, out, err, child.job, (status, variables))
            finally:
                os.close(variables)
        except BaseException:
            os.close(child.status_file)
            raise
        finally:
            os.close(status)

    # Watching.

    def _wake(self, at: float) -> None:
        if at < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = at
            self._timer = self._loop.call_at(at, self._watch)

    def _interval(self, child: RunningProgram) -> float:
        return _POLL_S if child.pidfd < 0 else WATCH_S if child.bounds is None else LOOK_S

    def _watch(self) -> None:
        self._timer_at = float("inf")
        now = self._loop.time()
        for child in list(self._by_pid.values()):
            try:
                self._look_at(child, now)
            except Exception:
                log.exception("job=%s could not be watched", child.job)
            if child.pid in self._by_pid:
                self._wake(min(now + self._interval(child), child.kill_at if child.reason else child.deadline))
        try:
            self._strays.reap()
        except Exception:
            log.exception("what jobs left running could not be looked for")

    def _look_at(self, child: RunningProgram, now: float) -> None:
        if child.pidfd < 0 and os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            self._ended(child)
        elif child.reason:
            if now >= child.kill_at:
                self._kill_hard(child)
        elif now >= child.deadline:
            self.kill(
                child, "timeout", f"the job took longer than its timeout of {child.deadline - child.started_at:g} s"
            )
        elif child.capture.measure() > self._output_bytes_max:
            self.kill(child, "output-limit", self._too_much_output(), at_once=True)
        elif child.bounds is not None and self._has_become_program(child):
            breach = child.bounds.look(with_all_below([child.pid, *self._strays.of(child.pid, child.job)]))
            if breach is not None:
                self.kill(child, breach.code, breach.text, at_once=True)

    def _too_much_output(self) -> str:
        return f"the program wrote more than {self._output_bytes_max} bytes to stdout or stderr"

    def _has_become_program(self, child: RunningProgram) -> bool:
        """What the stub itself uses is not the program's. What it wrote, if it failed, is read in the end."""
        if child.status_file < 0:
            return True
        look = select.poll()  # not `select`, which knows no file above 1 023
        look.register(child.status_file, select.POLLIN)
        return bool(look.poll(0))

    # Ending.

    def _see_exits(self) -> None:
        for pidfd, _ in self._exits.poll(0):
            child = self._by_pidfd.get(pidfd)
            if child is None:
                continue
            try:
                self._ended(child)
            except Exception:
                log.exception("job=%s ended, and that could not be handled", child.job)

    def _ended(self, child: RunningProgram) -> None:
        """The program is a zombie still: so its group's number is not used anew before its members are killed.

        Until it is reaped, `_watch` comes again if this fails. From then on its end is told, whatever fails.
        """
        self._close_pidfd(child)
        strays = True  # as long as nobody knows
        try:
            strays = bool(self._strays.find())
            if strays or not self._strays.all_known:
                send_to_group(child.pid, signal.SIGKILL)
        except Exception:
            log.exception("job=%s ended, and its group could not be killed", child.job)
        try:
            _, status, usage = os.wait4(child.pid, 0)
            code = os.waitstatus_to_exitcode(status)
            child.cpu_s = usage.ru_utime + usage.ru_stime
        except ChildProcessError:  # someone took note of its end before us, and knows how it was
            code = -signal.SIGKILL
        child.signal = max(-code, 0)
        child.exit_code = code if code >= 0 else 128 - code
        child.ended_at = self._loop.time()
        self._ended_cpu_s += child.cpu_s
        del self._by_pid[child.pid]
        del self._by_job[child.job]
        if child.status_file >= 0:
            try:
                self._explain(child)
            except Exception:
                log.exception("job=%s ended, and its limits could not be checked", child.job)
        if strays:
            self._hunts += 1
            self._hunt(child, 0)
        else:
            child.abandoned = self._strays.all_known
            self._tell(child)

    def _tell(self, child: RunningProgram) -> None:
        try:
            if child.capture.measure() > self._output_bytes_max and not child.reason:  # all of it since the last look
                child.reason, child.why = "output-limit", self._too_much_output()
        except Exception:
            log.exception("job=%s ended, and its output could not be measured", child.job)
        try:
            self._on_end(child)
        except Exception:
            log.exception("job=%s ended, and that could not be handled", child.job)
        if self._all_ended is not None and not self._by_pid and not self._hunts and not self._all_ended.done():
            self._all_ended.set_result(None)

    def _explain(self, child: RunningProgram) -> None:
        """What the stub and the limits have to say to its end."""
        failed = ""
        with contextlib.suppress(BlockingIOError):
            failed = os.read(child.status_file, 16).decode()
        os.close(child.status_file)
        child.status_file = -1
        if child.reason or not child.exit_code:
            return
        error = stub_error(failed, "" if self._user is None else self._user.name)
        if error is not None:
            child.reason, child.why = error
            return
        bounds = child.bounds
        if bounds is None:
            return

        def stderr() -> bytes:
            child.capture.measure()
            size = child.capture.err_bytes
            return os.pread(child.capture.err, _STDERR_READ_BYTES, max(0, size - _STDERR_READ_BYTES))

        if breach := bounds.explain(child.exit_code, child.cpu_s, stderr):
            child.reason, child.why = breach

    def _close_pidfd(self, child: RunningProgram) -> None:
        if child.pidfd >= 0:
            pidfd, child.pidfd = child.pidfd, -1
            self._by_pidfd.pop(pidfd, None)
            os.close(pidfd)

    def _kill_hard(self, child: RunningProgram) -> None:
        """All of it at once; and again after a while, should anything have slipped through."""
        child.kill_at = self._loop.time() + self._kill_grace_s
        self._wake(child.kill_at)
        send_to_group(child.pid, signal.SIGSTOP)
        kill_with_all_below([child.pid, *self._strays.of(child.pid, child.job)])
        send_to_group(child.pid, signal.SIGKILL)

    def _hunt(self, child: RunningProgram, rounds: int) -> None:
        """After its end: kill what is left of a job, as often as something is left, then tell."""
        try:
            some_left, failed = self._strays.reap() > 0, False
        except Exception:
            some_left = failed = True
            if rounds in (0, HUNT_ROUNDS):
                log.exception("job=%s ended, and what it left running could not be looked for", child.job)
        if some_left and rounds < HUNT_ROUNDS:
            pause = min(_HUNT_FIRST_S * 2**rounds, _HUNT_MAX_S)
            self._loop.call_later(pause, self._hunt, child, rounds + 1)
            return
        if rounds >= HUNT_ROUNDS:
            log.warning("job=%s left processes behind that cannot be killed", child.job)
            try:
                self._strays.give_up()
            except Exception:
                failed = True
                log.exception("job=%s left processes behind that cannot be listed", child.job)
        self._hunts -= 1
        child.abandoned = not failed and self._strays.all_known and not self._strays.some_remain
        self._tell(child)
