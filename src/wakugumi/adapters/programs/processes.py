"""How is a program started, watched and ended, with all of its descendants? (SPEC W1, W3, W8)

Every program leads its own session; a process that leaves it, or outlives its parent, is a stray (see `strays`). A
process with a `Processes` starts no other children meanwhile.

    start ─► running ─► ended ─► strays, if any, are gone ─► on_end
               └─ kill: SIGTERM, grace, then stop and SIGKILL all; without grace if the program breaks a limit
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
"""Seconds between two looks at a program's output. A fast one writes some 100 MB meanwhile."""
_POLL_S: Final = 0.005
"""Seconds between two looks for a program's end, on a kernel without pidfds."""
_HUNT_FIRST_S: Final = 0.001
_HUNT_MAX_S: Final = 0.05
HUNT_ROUNDS: Final = 100
"""Some five seconds; strays that survive them (the kernel holds them) are no longer waited for."""
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
        """Pipe that shows whether the exec stub has become the program; -1 if there was no stub or it is closed."""
        self.kill_at = float("inf")
        self.reason = ""
        """A code of the error table, unless the program ended by itself."""
        self.why = ""
        self.exit_code = 0
        """128 plus the number if a signal ended the program, as in a shell."""
        self.signal = 0
        self.cpu_s = 0.0
        self.ended_at = 0.0
        self.abandoned = False
        """The program has ended, and surely none of its processes is left."""


class Processes:
    """All programs of this process."""

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
        self._cgroups = rules.cgroups
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
        # One file in the loop for all programs: to add and remove one for each would cost the loop several calls.
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
        """Start a program; `on_end` is called with the returned object, its capture measured. `env` overrides variables
        of all programs. Raises Refused."""
        now = self._loop.time()
        child = RunningProgram(job, capture, now, now + timeout_s, bounds)
        try:
            own = {os.fsencode(name): os.fsencode(value) for name, value in env.items()} if env else None
            if bounds is not None and self._cgroups is not None:
                bounds.make_cgroup(self._cgroups, job)
            child.pid = self._spawn(child, command, os.fsencode(cwd), own)
        except (OSError, ValueError) as error:
            self._leave_cgroup(bounds)
            raise not_started(error, command[0]) from None
        if bounds is not None and bounds.cgroup is not None:
            try:
                bounds.cgroup.add(child.pid)
            except OSError as error:  # The looks bound the job all the same.
                log.warning("program not moved to its cgroup job=%s: %s", job, error.strerror)
        self._by_pid[child.pid] = self._by_job[job] = child
        if self._by_pidfd_too:
            try:
                child.pidfd = os.pidfd_open(child.pid)
                self._exits.register(child.pidfd, select.EPOLLIN)
                self._by_pidfd[child.pidfd] = child
            except OSError:  # An old kernel, or no file descriptor left: the end is polled for.
                self._close_pidfd(child)
        self._wake(min(now + self._interval(child), child.deadline))
        return child

    def kill(self, child: RunningProgram, reason: str, why: str, *, at_once: bool = False) -> None:
        """End a program with all of its descendants. The first reason stands."""
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
        """End all programs, with grace, and reap all processes."""
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
        out, err, bounds = child.capture.out, child.capture.err, child.bounds
        if self._user is None and (bounds is None or not bounds.needs_stub):
            pid = self._spawner.start(command, cwd, out, err, child.job, env)
            if bounds is not None:
                bounds.set_on(pid)
            return pid
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
                self._check(child, now)
            except Exception:
                log.exception("watch failed job=%s", child.job)
            if child.pid in self._by_pid:
                self._wake(min(now + self._interval(child), child.kill_at if child.reason else child.deadline))
        try:
            self._strays.reap()
        except Exception:
            log.exception("search for strays failed")

    def _check(self, child: RunningProgram, now: float) -> None:
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
        """Whether resource limits apply yet: the stub's own usage does not count. Its error is read at the end."""
        if child.status_file < 0:
            return True
        poll = select.poll()  # `select` knows no file above 1023.
        poll.register(child.status_file, select.POLLIN)
        return bool(poll.poll(0))

    # Ending.

    def _see_exits(self) -> None:
        for pidfd, _ in self._exits.poll(0):
            child = self._by_pidfd.get(pidfd)
            if child is None:
                continue
            try:
                self._ended(child)
            except Exception:
                log.exception("end of program not handled job=%s", child.job)

    def _ended(self, child: RunningProgram) -> None:
        """Kill the group of a program that is a zombie still, so that the group's id is not reused, then reap it.

        If this fails before the reaping, `_watch` calls it again. Afterwards the end is always reported.
        """
        self._close_pidfd(child)
        strays = True  # Until it is known.
        try:
            if child.bounds is not None and child.bounds.cgroup is not None:
                child.bounds.cgroup.kill()
            strays = bool(self._strays.find())
            if strays or not self._strays.all_known:
                send_to_group(child.pid, signal.SIGKILL)
        except Exception:
            log.exception("group not killed job=%s", child.job)
        try:
            _, status, usage = os.wait4(child.pid, 0)
            code = os.waitstatus_to_exitcode(status)
            child.cpu_s = usage.ru_utime + usage.ru_stime
        except ChildProcessError:  # Another part of this process has reaped it: its status is unknown.
            code = -signal.SIGKILL
        child.signal = max(-code, 0)
        child.exit_code = code if code >= 0 else 128 - code
        child.ended_at = self._loop.time()
        self._ended_cpu_s += child.cpu_s
        del self._by_pid[child.pid]
        del self._by_job[child.job]
        if child.status_file >= 0 or child.bounds is not None:
            try:
                self._explain(child)
            except Exception:
                log.exception("limits not checked job=%s", child.job)
        if strays:
            self._hunts += 1
            self._hunt(child, 0)
        else:
            child.abandoned = self._strays.all_known
            self._report(child)

    def _leave_cgroup(self, bounds: JobBounds | None) -> None:
        if bounds is not None and bounds.cgroup is not None and self._cgroups is not None:
            self._cgroups.give_back(bounds.cgroup)

    def _report(self, child: RunningProgram) -> None:
        self._leave_cgroup(child.bounds)
        try:
            if child.capture.measure() > self._output_bytes_max and not child.reason:  # Written since the last look.
                child.reason, child.why = "output-limit", self._too_much_output()
        except Exception:
            log.exception("output not measured job=%s", child.job)
        try:
            self._on_end(child)
        except Exception:
            log.exception("end of program not handled job=%s", child.job)
        if self._all_ended is not None and not self._by_pid and not self._hunts and not self._all_ended.done():
            self._all_ended.set_result(None)

    def _explain(self, child: RunningProgram) -> None:
        """Set the reason of a failure from the stub's error and the limits."""
        failed = ""
        if child.status_file >= 0:
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
        """Kill everything now, and again after a while in case a process escaped."""
        child.kill_at = self._loop.time() + self._kill_grace_s
        self._wake(child.kill_at)
        if child.bounds is not None and child.bounds.cgroup is not None:
            child.bounds.cgroup.kill()
        send_to_group(child.pid, signal.SIGSTOP)
        kill_with_all_below([child.pid, *self._strays.of(child.pid, child.job)])
        send_to_group(child.pid, signal.SIGKILL)

    def _hunt(self, child: RunningProgram, rounds: int) -> None:
        """Kill processes that a job left until none remain, then report its end."""
        try:
            some_left, failed = self._strays.reap() > 0, False
        except Exception:
            some_left = failed = True
            if rounds in (0, HUNT_ROUNDS):
                log.exception("search for strays failed job=%s", child.job)
        if some_left and rounds < HUNT_ROUNDS:
            pause = min(_HUNT_FIRST_S * 2**rounds, _HUNT_MAX_S)
            self._loop.call_later(pause, self._hunt, child, rounds + 1)
            return
        if rounds >= HUNT_ROUNDS:
            log.warning("processes left that cannot be killed job=%s", child.job)
            try:
                self._strays.give_up()
            except Exception:
                failed = True
                log.exception("left processes not listed job=%s", child.job)
        self._hunts -= 1
        child.abandoned = not failed and self._strays.all_known and not self._strays.some_remain
        self._report(child)
