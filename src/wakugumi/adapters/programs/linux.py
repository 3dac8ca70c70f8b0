"""What does Linux alone offer, and how do we live where it is missing?

    /proc        who is whose child, which job it belongs to, what it uses     missing: nobody is known
    prctl        orphans come to us; we learn of our parent's death; programs  missing: False
                 of the same user cannot read our memory and environment
    posix_spawn  starts a program for 60 µs less of our time than `Popen`      missing: `Popen`
    boot_id      which start of the machine this is                            missing: empty
    rlimits      how many files we may open                                    missing: as many as we like

A process id may be used anew as soon as its parent has taken note of its death. So only two kinds of ids are ever
signalled here: children of our own, which nobody but us can reap, and what is below a process that was stopped first.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from wakugumi.adapters.files import write_all
from wakugumi.limits.wire import CONNECTION_FILES_SHARE, CONNECTIONS_MAX

log = logging.getLogger("wakugumi.process")

JOB_VARIABLE: Final = "WAKU_JOB_ID"
"""In the environment of every program of a job: programs may want it, and strays are found by it."""
_LIBRARIES: Final = b"LD_LIBRARY_PATH"

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_CHILD_SUBREAPER: Final = 36
_GENERATIONS_MAX: Final = 100
"""A deeper tree is killed as far as this; the rest becomes ours, and is found by the next look."""
_ENVIRON_BYTES_MAX: Final = 4 * 1024 * 1024
"""The kernel takes no larger environment with its arguments."""
_TICK_S: Final = 1.0 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


_open_files_of_programs: tuple[int, int] | None = None
"""RLIMIT_NOFILE as it was before we raised our own: programs start with that, for some expect a low one."""


class Usage(NamedTuple):
    """What a process and the children it has waited for use."""

    cpu_s: float
    resident_bytes: int
    """Memory of its own: what it shares with files is not counted."""
    data_bytes: int
    """What RLIMIT_DATA counts."""


def become_subreaper() -> bool:
    """From now on orphans below this process become its children, instead of init's."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def stop_being_subreaper() -> bool:
    return _prctl(_PR_SET_CHILD_SUBREAPER, 0)


def ask_for_parent_death(number: int) -> bool:
    """This signal comes to us when our parent dies."""
    return _prctl(_PR_SET_PDEATHSIG, number)


def hide_from_programs() -> bool:
    """Processes of the same user cannot read our memory, our open files and what we were started with; root can.

    It holds for what we fork, and no longer for a program that we start. Of our own /proc files only those that
    everybody may read are left to us, and our open files.
    """
    return _prctl(_PR_SET_DUMPABLE, 0)


def boot_id() -> str:
    """Of this start of the machine, the same to all of its processes and never again; empty if nobody knows."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def raise_open_files() -> int:
    """Let this process open as many files as the hard limit allows. Returns how many that are, and logs it.

    The usual soft limit is 1 024: the connections of a larger fleet, or the programs of many slots, would reach it.
    """
    global _open_files_of_programs
    before = open_files_max()
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            if _open_files_of_programs is None:
                _open_files_of_programs = (soft, hard)
    now = open_files_max()
    log.info("open files: at most %d (%d before), so at most %d connections", now, before, connections_max())
    return now


def open_files_max() -> int:
    """How many files this process may have open at once."""
    try:
        import resource
    except ImportError:
        return 1 << 30
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 30 if soft == resource.RLIM_INFINITY else soft


def connections_max(parts: int = 1) -> int:
    """How many connections a port may hold, if so many parts of this process share what it may open."""
    return max(1, min(CONNECTIONS_MAX, int(open_files_max() * CONNECTION_FILES_SHARE) // parts))


class OwnChildren:
    """The children of this process, its adopted orphans included, for the price of one small read."""

    def __init__(self) -> None:
        pid = os.getpid()
        try:
            self._file = os.open(f"/proc/{pid}/task/{pid}/children", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = -1

    @property
    def known(self) -> bool:
        return self._file >= 0

    def pids(self) -> list[int]:
        """Who is there now. Empty where it cannot be known."""
        if self._file < 0:
            return []
        data = os.pread(self._file, 4096, 0)
        if len(data) > 4000:  # the kernel stops short of a full page, never inside a number
            while more := os.pread(self._file, 4096, len(data)):
                data += more
        return [*map(int, data.split())]

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def children_of(pid: int) -> list[int]:
    """Empty for a process that is gone."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found.extend(map(int, file.read().split()))
    return found


def with_all_below(roots: Iterable[int]) -> list[int]:
    """The processes themselves and all their descendants."""
    found = list(roots)
    seen = set(found)
    for pid in found:  # grows while it is read
        for child in children_of(pid):
            if child not in seen:
                seen.add(child)
                found.append(child)
    return found


def kill_with_all_below(roots: Iterable[int]) -> int:
    """Stop them, generation by generation, then kill them all. Returns how many there were.

    What is stopped can neither fork away nor reap, so nothing escapes and no id below it is used anew meanwhile.
    """
    new = list(roots)
    stopped: dict[int, None] = {}
    for _ in range(_GENERATIONS_MAX):
        if not new:
            break
        for pid in new:
            send(pid, signal.SIGSTOP)
        stopped.update(dict.fromkeys(new))
        new = [child for pid in stopped for child in children_of(pid) if child not in stopped]
    for pid in stopped:
        send(pid, signal.SIGKILL)
    return len(stopped)


def send(pid: int, number: int) -> bool:
    """False if it is gone, or not ours to signal."""
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True


def send_to_group(pid: int, number: int) -> bool:
    try:
        os.killpg(pid, number)
    except OSError:
        return False
    return True


def session_of(pid: int) -> int:
    """The process that began its session; 0 if it is gone."""
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def state_of(pid: int) -> str:
    """`Z` for a zombie, as in /proc; empty for one that is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except OSError:
        return ""


def start_of(pid: int) -> int:
    """When it began, in ticks: with its number it is this process and no other. 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except OSError:
        return 0


def read_environment(pid: int) -> bytes | None:
    """As it was when the program began; empty if we may not look. None for one that is gone."""
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            return file.read(_ENVIRON_BYTES_MAX) or b""
    except PermissionError:
        return b""
    except OSError:
        return None


def job_of(pid: int) -> str | None:
    """The job it was started for, empty if its environment does not tell. None for one that is gone or a zombie."""
    environment = read_environment(pid)
    if environment is None:
        return None
    wanted = JOB_VARIABLE.encode() + b"="
    for line in environment.split(b"\0"):
        if line.startswith(wanted):
            return line[len(wanted) :].decode("ascii", "replace")
    return ""


def usage_of(pid: int) -> Usage | None:
    """None for a process that is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        with open(f"/proc/{pid}/statm", "rb") as file:
            pages = file.read().split()
    except OSError:
        return None
    cpu_s = sum(map(int, fields[11:15])) * _TICK_S
    return Usage(cpu_s, (int(pages[1]) - int(pages[2])) * _PAGE_BYTES, int(pages[5]) * _PAGE_BYTES)


def tasks_of_user(uid: int) -> int:
    """How many threads a user runs: what RLIMIT_NPROC counts."""
    count = 0
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit():
            with contextlib.suppress(OSError):
                owner = os.stat(f"/proc/{name}").st_uid
                if owner == uid or (owner == 0 and _real_user_of(name) == uid):
                    count += len(os.listdir(f"/proc/{name}/task"))
    return count


def _real_user_of(pid: str) -> int:
    """Also of a process that hides: its files in /proc are root's."""
    with open(f"/proc/{pid}/status", "rb") as file:
        return next((int(line.split()[1]) for line in file if line.startswith(b"Uid:")), -1)


class Spawner:
    """Starts programs in sessions of their own, with the same environment for all but the job's id."""

    def __init__(
        self, environment: Mapping[bytes, bytes], *, resident_set: int | None = None, by_libc: bool = True
    ) -> None:
        """`resident_set` is the soft limit of that name which programs get: Linux does not enforce it."""
        self._environment = dict(environment)
        self._null = above_stdio(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
        self._libc = _Libc.load() if by_libc else None
        strings = [name + b"=" + value for name, value in environment.items()]
        self._job_at = len(strings)
        self._strings = (ctypes.c_char_p * (len(strings) + 2))(*strings, None, None)
        self._limit = _limiter()
        self._resident_set = _ResidentSet(resident_set)

    def start(
        self,
        argv: Sequence[bytes],
        cwd: bytes,
        stdout: int,
        stderr: int,
        job: str,
        env: Mapping[bytes, bytes] | None = None,
    ) -> int:
        """The new process's id. What `env` has goes before what all programs get. Raises OSError as exec does, and
        ValueError for arguments no program can get."""
        if self._libc is None:
            return self.start_with(argv, cwd, stdout, stderr, job, env)
        for argument in argv:
            if b"\0" in argument:
                raise ValueError("an argument has a NUL")
        strings = self._strings
        if env:
            own = [name + b"=" + value for name, value in self._with(env, job).items()]
            strings = (ctypes.c_char_p * (len(own) + 1))(*own, None)
        else:
            strings[self._job_at] = f"{JOB_VARIABLE}={job}".encode()
        with self._resident_set:
            pid = self._libc.spawn(argv, strings, cwd, (self._null, stdout, stderr))
        if self._limit is not None:
            self._limit(pid)
        return pid

    def start_with(
        self,
        argv: Sequence[bytes],
        cwd: bytes,
        stdout: int,
        stderr: int,
        job: str,
        env: Mapping[bytes, bytes] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> int:
        """The same by the standard library: slower, everywhere, and open files can be handed on."""
        return self._start_alone(argv, cwd, stdout, stderr, self._with(env or {}, job), pass_fds)

    def start_stub(
        self, argv: Sequence[bytes], cwd: bytes, stdout: int, stderr: int, job: str, pass_fds: Sequence[int]
    ) -> int:
        """The same for a program of ours with more rights than the job's: no variable of it is one that a job sets."""
        env = {JOB_VARIABLE.encode(): job.encode()}
        # What the interpreter may need to start at all. A folder that is named relatively would be the job's.
        libraries = [path for path in os.environb.get(_LIBRARIES, b"").split(b":") if path.startswith(b"/")]
        if libraries:
            env[_LIBRARIES] = b":".join(libraries)
        return self._start_alone(argv, cwd, stdout, stderr, env, pass_fds)

    def variables(self, env: Mapping[bytes, bytes], job: str) -> int:
        """What a program of this job gets, as an open file without a name. Raises OSError, and ValueError for what no
        program can get."""
        pairs = self._with(env, job)
        for name, value in pairs.items():
            if b"\0" in name or b"=" in name or b"\0" in value:
                raise ValueError("a variable has a NUL, or a name with =")
        file = above_stdio(os.memfd_create("variables"))
        try:
            write_all(file, b"\0".join([name + b"=" + value for name, value in pairs.items()]))
        except BaseException:
            os.close(file)
            raise
        return file

    def _start_alone(
        self,
        argv: Sequence[bytes],
        cwd: bytes,
        stdout: int,
        stderr: int,
        env: Mapping[bytes, bytes],
        pass_fds: Sequence[int],
    ) -> int:
        with self._resident_set:
            program = subprocess.Popen(
                argv,
                cwd=cwd,
                stdin=self._null,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                env=env,
                pass_fds=pass_fds,
            )
        program.returncode = 0  # we reap it ourselves, for its resource usage; Popen must not wait for it too
        if self._limit is not None:
            self._limit(program.pid)
        return program.pid

    def _with(self, env: Mapping[bytes, bytes], job: str) -> dict[bytes, bytes]:
        return {**self._environment, **env, JOB_VARIABLE.encode(): job.encode()}

    def close(self) -> None:
        if self._null >= 0:
            os.close(self._null)
            self._null = -1


def above_stdio(file: int) -> int:
    """The same open file under a number that 0, 1 and 2 of a child cannot overwrite."""
    if file > 2:
        return file
    import fcntl

    higher = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(file)
    return higher


class _Libc:
    """posix_spawn with the two additions that make it complete: change the directory, close the other files."""

    _SETSIGDEF: Final = 0x04
    _SETSIGMASK: Final = 0x08
    _SETSID: Final = 0x80
    _OPAQUE_BYTES: Final = 1024
    """The attributes take 336 bytes in glibc and musl, the actions 80."""

    def __init__(self, libc: ctypes.PyDLL) -> None:
        pointer, number, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
        self._init = libc.posix_spawn_file_actions_init
        self._init.argtypes = [pointer]
        self._dup2 = libc.posix_spawn_file_actions_adddup2
        self._dup2.argtypes = [pointer, number, number]
        self._chdir = libc.posix_spawn_file_actions_addchdir_np
        self._chdir.argtypes = [pointer, text]
        self._destroy = libc.posix_spawn_file_actions_destroy
        self._destroy.argtypes = [pointer]
        self._spawn = libc.posix_spawn
        self._spawn.argtypes = [pointer, text, pointer, pointer, pointer, pointer]
        # musl lacks this one; there we rely on Python, which opens every file close-on-exec.
        self._closefrom = getattr(libc, "posix_spawn_file_actions_addclosefrom_np", None)
        if self._closefrom is not None:
            self._closefrom.argtypes = [pointer, number]
        self._actions = ctypes.create_string_buffer(self._OPAQUE_BYTES)
        self._attributes = ctypes.create_string_buffer(self._OPAQUE_BYTES)
        self._pid = ctypes.c_int()
        self._pid_at = ctypes.byref(self._pid)
        signals = ctypes.create_string_buffer(128)
        libc.sigemptyset(signals)
        libc.posix_spawnattr_init(self._attributes)
        libc.posix_spawnattr_setsigmask(self._attributes, signals)
        for number_ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
            libc.sigaddset(signals, number_ignored_by_python)
        libc.posix_spawnattr_setsigdefault(self._attributes, signals)
        flags = self._SETSIGDEF | self._SETSIGMASK | self._SETSID
        libc.posix_spawnattr_setflags(self._attributes, ctypes.c_short(flags))

    @classmethod
    def load(cls) -> _Libc | None:
        # PyDLL keeps the interpreter's lock: giving it away and waiting for it again costs more than these calls.
        with contextlib.suppress(AttributeError, OSError):
            return cls(ctypes.PyDLL(None))
        return None

    def spawn(
        self, argv: Sequence[bytes], strings: ctypes.Array[ctypes.c_char_p], cwd: bytes, stdio: tuple[int, int, int]
    ) -> int:
        actions = self._actions
        self._init(actions)
        try:
            failed = 0
            for target, file in enumerate(stdio):
                failed |= self._dup2(actions, file, target)
            failed |= self._chdir(actions, cwd)
            if self._closefrom is not None:
                failed |= self._closefrom(actions, 3)
            if failed:
                raise MemoryError
            arguments = (ctypes.c_char_p * (len(argv) + 1))(*argv)
            failed = self._spawn(self._pid_at, argv[0], actions, self._attributes, arguments, strings)
        finally:
            self._destroy(actions)
        if failed:
            raise OSError(failed, os.strerror(failed))
        return self._pid.value


def _limiter() -> Callable[[int], None] | None:
    """Gives a program the limit of open files as it was before we raised it; None if we did not.

    After its start, for a lower limit of ours would hold in all our threads: a program that looks at once sees ours.
    """
    limits = _open_files_of_programs
    if limits is None:
        return None
    try:
        from resource import RLIMIT_NOFILE, prlimit
    except ImportError:  # Only Linux has prlimit.
        return None

    def limit(pid: int) -> None:
        with contextlib.suppress(OSError):  # It became another user's, or has ended.
            prlimit(pid, RLIMIT_NOFILE, limits)

    return limit


class _ResidentSet:
    """The soft limit of that name, in our own process, while a program starts and inherits it."""

    def __init__(self, number: int | None) -> None:
        self._set: Callable[[tuple[int, int]], None] | None = None
        if number is None:
            return
        try:
            from resource import RLIM_INFINITY, RLIMIT_RSS, getrlimit, setrlimit
        except ImportError:
            return
        own = getrlimit(RLIMIT_RSS)
        if own[1] == RLIM_INFINITY or number <= own[1]:
            self._own, self._theirs = own, (number, own[1])
            self._set = partial(setrlimit, RLIMIT_RSS)

    def __enter__(self) -> None:
        if self._set is not None:
            self._set(self._theirs)

    def __exit__(self, *_: object) -> None:
        if self._set is not None:
            self._set(self._own)


def _prctl(option: int, value: int) -> bool:
    try:
        return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)
    except (AttributeError, OSError):
        return False
