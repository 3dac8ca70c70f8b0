"""How is a program started, watched and ended, with everything it has started itself? (SPEC W1, W3, W8)

Every program leads a session of its own; what leaves it, or outlives its parent, is a stray (see `strays`). A process
that holds a `Processes` starts no other children meanwhile.

    start ─► running ─► ended ─► strays, if any, are gone ─► on_end
               └─ kill: SIGTERM, grace, then stop and SIGKILL all; without grace where the program does damage
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import select
import signal
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from wakugumi.adapters.files import READ, READ_FOLDER, USED_UP, open_beneath
from wakugumi.adapters.programs.default_command import DefaultCommand
from wakugumi.adapters.programs.marks import MARK_VARIABLE, Mark
from wakugumi.adapters.programs.output_files import Capture
from wakugumi.adapters.programs.process_tree import (
    JOB_VARIABLE,
    kill_with_all_below,
    send,
    send_to_group,
    usage_of,
    with_all_below,
)
from wakugumi.adapters.programs.resource_limits import LOOK_S, JobBounds, stub_command
from wakugumi.adapters.programs.run_as import User, users_environment
from wakugumi.adapters.programs.set_limits import NOT_THE_USER
from wakugumi.adapters.programs.spawn import Spawner
from wakugumi.adapters.programs.strays import Strays
from wakugumi.core.environment import EnvRules, held_back, is_passed_by_name
from wakugumi.core.names import check_exec_name
from wakugumi.errors import Refused, Sick
from wakugumi.limits.runner import KILL_GRACE_S, OUTPUT_BYTES_MAX
from wakugumi.limits.units import KIB

log = logging.getLogger("wakugumi.process")

WATCH_S: Final = 0.2
"""How often what programs write is measured. A fast one writes some 100 MB meanwhile."""
_POLL_S: Final = 0.005
"""How often to ask whether a program has ended, on a kernel that does not tell."""
_HUNT_FIRST_S: Final = 0.001
_HUNT_MAX_S: Final = 0.05
_HUNT_ROUNDS: Final = 100
"""Some five seconds, then strays that do not die (the kernel holds them) are waited for no longer."""
_STDERR_READ_BYTES: Final = 64 * KIB


class ProgramRules(NamedTuple):
    """What programs get of us, and as whom they run."""

    env: EnvRules = EnvRules()
    user: User | None = None
    """None: as we do."""

    @property
    def runs_as_root(self) -> bool:
        """Programs of others have the rights of root here. Those of a grid that is root's own are not others'."""
        return self.user is None and os.geteuid() == 0 and not self.env.whole


RULES: Final = ProgramRules()
"""Nothing was said."""


class Programs:
    """The programs that jobs may name: those of the exec directory, and those named one by one."""

    def __init__(
        self, folder: Path | None, named: Mapping[str, Path] = {}, default: DefaultCommand | None = None
    ) -> None:
        """Without a `default`, every job has to name one."""
        self.default = default
        self._folder = None if folder is None else os.path.realpath(folder)
        self._named = {name: os.path.abspath(path) for name, path in named.items()}
        self._checked: dict[str, str] = {}
        """Names that were good and led to a file once: a name is checked once, the file each time."""

    @property
    def folders(self) -> list[str]:
        """Where they are."""
        named = [os.path.dirname(path) for path in self._named.values()]
        return [*([] if self._folder is None else [self._folder]), *named]

    def resolve(self, exec_name: str) -> str:
        """The absolute path to start. Raises Refused.

        A link that leads out of the exec directory is not followed: "nothing outside it can be started" is worth more
        as a rule without exception, and whoever wants that program can name it.
        """
        path = self._checked.get(exec_name)
        if path is not None and _is_file(path):
            return path
        if not exec_name and self.default is not None:
            return self.resolve(self.default.exec_name)
        check_exec_name(exec_name)
        if exec_name in self._named:
            return self._named[exec_name]
        if self._folder is not None:
            for path in (f"{self._folder}/{exec_name}", f"{self._folder}/{exec_name}.exe"):
                if _is_file(path):
                    self._checked[exec_name] = path
                    return path
                if os.path.islink(path) and self._leads_to_file(path, exec_name):
                    return path
        raise Refused("unknown-program", f"this worker has no program {exec_name!r}")

    def open(self, path: str) -> int:
        """What `resolve` said, to be copied. A link that came since then leads nowhere else than one that was there.
        Raises Refused, and OSError."""
        target = os.path.realpath(path) if os.path.islink(path) else path
        if self._folder is None or path in self._named.values():
            return os.open(target, READ)
        if not target.startswith(f"{self._folder}/"):
            raise Refused(
                "unknown-program", f"{os.path.basename(path)!r} is a link that leads out of the exec directory"
            )
        folder = os.open(self._folder, READ_FOLDER)
        try:
            return open_beneath(folder, target[len(self._folder) + 1 :], READ)
        finally:
            os.close(folder)

    def _leads_to_file(self, path: str, exec_name: str) -> bool:
        target = os.path.realpath(path)
        if not target.startswith(f"{self._folder}/"):
            raise Refused(
                "unknown-program",
                f"{exec_name!r} is a link that leads out of the exec directory: copy the program there, or name it",
            )
        return _is_file(target)


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
        environment = _environment(rules)
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
            raise _not_started(error, command[0]) from None
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
        for _ in range(_HUNT_ROUNDS):
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
        if failed.startswith(NOT_THE_USER):
            why = os.strerror(int(failed.removeprefix(NOT_THE_USER)))
            name = "" if self._user is None else self._user.name
            child.reason, child.why = "worker-error", f"the program cannot be run as {name}: {why}"
            return
        if failed and int(failed) == errno.E2BIG:
            child.reason, child.why = "bad-request", "the program cannot get so many or so long arguments and variables"
            return
        if failed and int(failed) != errno.ENOMEM:
            child.reason, child.why = "not-executable", _exec_error(int(failed))
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
            if rounds in (0, _HUNT_ROUNDS):
                log.exception("job=%s ended, and what it left running could not be looked for", child.job)
        if some_left and rounds < _HUNT_ROUNDS:
            pause = min(_HUNT_FIRST_S * 2**rounds, _HUNT_MAX_S)
            self._loop.call_later(pause, self._hunt, child, rounds + 1)
            return
        if rounds >= _HUNT_ROUNDS:
            log.warning("job=%s left processes behind that cannot be killed", child.job)
            try:
                self._strays.give_up()
            except Exception:
                failed = True
                log.exception("job=%s left processes behind that cannot be listed", child.job)
        self._hunts -= 1
        child.abandoned = not failed and self._strays.all_known and not self._strays.some_remain
        self._tell(child)


def _environment(rules: ProgramRules) -> dict[bytes, bytes]:
    """What programs get of our own. What they do not get is logged, by name."""
    held = held_back(os.environ, rules.env)
    if held:
        log.info("programs do not get these variables of the environment: %s", ", ".join(held))
    ours = {JOB_VARIABLE, MARK_VARIABLE}  # Of a job that started us, if one did.
    left_out = {os.fsencode(name) for name in ours.union(held)}
    passed = {name: value for name, value in os.environb.items() if name not in left_out}
    if rules.user is None:
        return passed
    said = frozenset(name for name in passed if is_passed_by_name(os.fsdecode(name), rules.env))
    return users_environment(rules.user, passed, said)


def _is_file(path: str) -> bool:
    """And not a link to one."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def _not_started(error: OSError | ValueError, program: bytes) -> Refused:
    name = os.path.basename(os.fsdecode(program))
    if isinstance(error, ValueError):
        return Refused("bad-request", f"{name!r} cannot get such arguments: {error}")
    if error.errno == errno.E2BIG:
        return Refused("bad-request", f"{name!r} cannot get so many or so long arguments")
    if error.errno in USED_UP:
        return Sick("worker-error", f"{name!r} could not be started: {error.strerror}")
    return Refused("not-executable", f"{name!r} could not be started: {_exec_error(error.errno or 0)}")


def _exec_error(number: int) -> str:
    known = {
        errno.ENOEXEC: "it is no program for this machine, or a script without a #! line",
        errno.ENOENT: "it, or the interpreter it names, is not there",
        errno.EACCES: "it, or the interpreter it names, may not be run",
    }
    return known.get(number, os.strerror(number))
