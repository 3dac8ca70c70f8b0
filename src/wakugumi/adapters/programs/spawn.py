"""How is a program started quickly, in a session of its own?

By posix_spawn, which takes 60 µs less of our time than `Popen`; if a part of it is missing, by `Popen`.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from wakugumi.adapters.files import write_all
from wakugumi.adapters.machine.few_files import FewFiles, Spawn
from wakugumi.adapters.machine.open_files import limiter
from wakugumi.adapters.programs.process_tree import JOB_VARIABLE

log = logging.getLogger("wakugumi.process")

_LIBRARIES: Final = b"LD_LIBRARY_PATH"
MANY_FILES: Final = 512
"""Open files from which a start by `FewFiles` takes less time: the way to its thread costs 40 µs."""


class Spawner:
    """Starts programs in their own sessions, with an environment that differs only by the job's id and variables."""

    def __init__(
        self, environment: Mapping[bytes, bytes], *, resident_set: int | None = None, by_libc: bool = True
    ) -> None:
        """`resident_set` is the soft limit RLIMIT_RSS of programs, which Linux does not enforce."""
        self._environment = dict(environment)
        self._null = above_stdio(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
        self._libc = _Libc.load() if by_libc else None
        strings = [name + b"=" + value for name, value in environment.items()]
        self._job_at = len(strings)
        self._strings = (ctypes.c_char_p * (len(strings) + 2))(*strings, None, None)
        self._limit = limiter()
        self._resident_set = _ResidentSet(resident_set)
        self._few_files: FewFiles | None = None
        self._has_few_files = self._libc is not None
        """False where the system has no thread with few files."""

    def start(
        self,
        argv: Sequence[bytes],
        cwd: bytes,
        stdout: int,
        stderr: int,
        job: str,
        env: Mapping[bytes, bytes] | None = None,
    ) -> int:
        """The new process's id. `env` overrides variables of all programs. Raises OSError as exec does, and ValueError
        for arguments that no program can get."""
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
        spawn = partial(self._libc.spawn, argv, strings, cwd)
        stdio = (self._null, stdout, stderr)
        with self._resident_set:
            pid = (self._start_apart(spawn, stdio) if self._has_many_files() else None) or spawn(stdio)
        if self._limit is not None:
            self._limit(pid)
        return pid

    def _has_many_files(self) -> bool:
        """A new file gets the lowest free number: many lower ones are open."""
        if not self._has_few_files:
            return False
        file = os.dup(self._null)
        os.close(file)
        return file >= MANY_FILES

    def _start_apart(self, spawn: Spawn, stdio: Sequence[int]) -> int | None:
        """None where the system has no thread with few files."""
        if self._few_files is None:
            try:
                self._few_files = FewFiles()
            except OSError as error:
                log.info("programs start among all open files: %s", error)
                self._has_few_files = False
                return None
        return self._few_files.start(spawn, stdio)

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
        """As `start`, by the standard library: slower, but available everywhere and with open files for the program."""
        return self._start_alone(argv, cwd, stdout, stderr, self._with(env or {}, job), pass_fds)

    def start_stub(
        self, argv: Sequence[bytes], cwd: bytes, stdout: int, stderr: int, job: str, pass_fds: Sequence[int]
    ) -> int:
        """As `start_with`, for the exec stub, which has more rights than the job: it gets no variable of the job."""
        env = {JOB_VARIABLE.encode(): job.encode()}
        # The interpreter may need these to start. A relative folder would be the job's.
        libraries = [path for path in os.environb.get(_LIBRARIES, b"").split(b":") if path.startswith(b"/")]
        if libraries:
            env[_LIBRARIES] = b":".join(libraries)
        return self._start_alone(argv, cwd, stdout, stderr, env, pass_fds)

    def variables(self, env: Mapping[bytes, bytes], job: str) -> int:
        """Variables of a program of this job, as an open file without a name. Raises OSError, and ValueError for
        invalid ones."""
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
        program.returncode = 0  # We reap it ourselves, for its resource usage; Popen must not wait for it.
        if self._limit is not None:
            self._limit(program.pid)
        return program.pid

    def _with(self, env: Mapping[bytes, bytes], job: str) -> dict[bytes, bytes]:
        return {**self._environment, **env, JOB_VARIABLE.encode(): job.encode()}

    def close(self) -> None:
        if self._few_files is not None:
            self._few_files.close()
            self._few_files = None
        if self._null >= 0:
            os.close(self._null)
            self._null = -1


def above_stdio(file: int) -> int:
    """The same open file under a number above 2, which a child's stdio cannot overwrite."""
    if file > 2:
        return file
    import fcntl

    higher = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(file)
    return higher


class _Libc:
    """posix_spawn with the two additions that it needs: change the directory, and close other files."""

    _SETSIGDEF: Final = 0x04
    _SETSIGMASK: Final = 0x08
    _SETSID: Final = 0x80
    _OPAQUE_BYTES: Final = 1024
    """Large enough: the attributes take 336 bytes in glibc and musl, the actions 80."""

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
        # musl lacks this; there Python opens every file close-on-exec anyway.
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
        # PyDLL keeps the interpreter's lock: releasing it would cost more than these calls.
        with contextlib.suppress(AttributeError, OSError):
            return cls(ctypes.PyDLL(None))
        return None

    def spawn(
        self, argv: Sequence[bytes], strings: ctypes.Array[ctypes.c_char_p], cwd: bytes, stdio: Sequence[int]
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


class _ResidentSet:
    """Sets the soft limit RLIMIT_RSS of our own process while a program starts and inherits it."""

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
