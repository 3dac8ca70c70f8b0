"""Which jobs have a cgroup of their own, and what does the kernel tell about it? (SPEC W8)

    <ours>/waku/             this process, and its guardian
    <ours>/waku-<job>/       one job with limits: memory.max, pids.max; ended as one by cgroup.kill

Only with cgroup v2, and only below a cgroup that was delegated to this process: one of our own user, one that systemd
marked (Delegate=yes), or a container's own. Elsewhere jobs have the limits of `resource_limits` alone. A program gets
into its cgroup just after its start: a process that it starts earlier is counted only by the looks.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path
from typing import Final

log = logging.getLogger("wakugumi.process")

_OWN: Final = "waku"
_JOB: Final = "waku-"
_WANTED: Final = ("memory", "pids")
_DELEGATE: Final = ("trusted.delegate", "user.delegate")
"""Attributes by which systemd marks a delegated cgroup."""


class JobCgroup:
    """The cgroup of one job."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def add(self, pid: int) -> None:
        """Move a program that was just started. Raises OSError."""
        _write(f"{self._path}/cgroup.procs", str(pid))

    @property
    def ran_out_of_memory(self) -> bool:
        """Whether the kernel killed a process because the job's memory was used up."""
        return _count(f"{self._path}/memory.events", "oom_kill") > 0

    @property
    def ran_out_of_tasks(self) -> bool:
        """Whether the kernel refused a new process or thread."""
        return _count(f"{self._path}/pids.events", "max") > 0

    def kill(self) -> None:
        """End all processes of the job at once; kernels before 5.14 cannot."""
        with contextlib.suppress(OSError):
            _write(f"{self._path}/cgroup.kill", "1")

    def remove(self) -> bool:
        """False if it has processes still."""
        try:
            os.rmdir(self._path)
        except FileNotFoundError:
            pass
        except OSError:
            return False
        return True


class JobCgroups:
    """The cgroups of one worker's jobs."""

    def __init__(self, folder: str) -> None:
        """`folder` is a cgroup whose children have limits: see `claim`."""
        self._folder = folder
        self._left: list[JobCgroup] = []
        """Cgroups of ended jobs that the kernel did not remove yet."""

    def make(self, job: str, memory_bytes: int | None, tasks: int | None) -> JobCgroup | None:
        """A cgroup with these limits; None if the kernel refuses it."""
        self._left = [one for one in self._left if not one.remove()]
        path = f"{self._folder}/{_JOB}{job}"
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(path)
            if memory_bytes is not None:
                _write(f"{path}/memory.max", str(memory_bytes))
                with contextlib.suppress(OSError):  # Kernels without swap.
                    _write(f"{path}/memory.swap.max", "0")
                with contextlib.suppress(OSError):  # All of the job ends, not its largest process alone.
                    _write(f"{path}/memory.oom.group", "1")
            if tasks is not None:
                _write(f"{path}/pids.max", str(tasks))
        except OSError as error:
            log.warning("no cgroup for a job job=%s: %s", job, error.strerror)
            with contextlib.suppress(OSError):
                os.rmdir(path)
            return None
        return JobCgroup(path)

    def give_back(self, cgroup: JobCgroup) -> None:
        """The job has ended."""
        if not cgroup.remove():
            self._left.append(cgroup)


def claim(proc: str = "/proc/self") -> JobCgroups | None:
    """The cgroups for jobs of this process, which moves into a child of its cgroup; None if it may not.

    Call it before there are other processes: they would stay behind, and the kernel gives the children of a cgroup with
    processes no limits.
    """
    folder = _delegated(proc)
    if folder is None:
        return None
    own, pid = f"{folder}/{_OWN}", str(os.getpid())
    try:
        _end_left(folder)
        with contextlib.suppress(FileExistsError):
            os.mkdir(own)
        _write(f"{own}/cgroup.procs", pid)
        try:
            _write(f"{folder}/cgroup.subtree_control", " ".join(f"+{name}" for name in _WANTED))
        except OSError:
            _write(f"{folder}/cgroup.procs", pid)
            os.rmdir(own)
            raise
    except OSError as error:
        log.info("no cgroups for jobs cgroup=%s: %s", folder, error.strerror)
        return None
    log.info("jobs with limits have cgroups cgroup=%s", folder)
    return JobCgroups(folder)


def _delegated(proc: str) -> str | None:
    """Our own cgroup, if it is delegated to us, has the wanted controllers, and no other process."""
    try:
        mount = _mount(Path(proc, "mountinfo").read_text(encoding="utf-8", errors="surrogateescape"))
        lines = Path(proc, "cgroup").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        name = next((line[3:] for line in lines if line.startswith("0::")), None)
        if mount is None or name is None or ".." in name.split("/"):
            return None
        folder = f"{mount}{name}".rstrip("/")
        controllers = Path(folder, "cgroup.controllers").read_text(encoding="ascii").split()
        processes = Path(folder, "cgroup.procs").read_text(encoding="ascii").split()
        is_ours = (
            Path(folder, "cgroup.type").exists()  # The machine's root cgroup has none.
            and (name == "/" or _is_given(folder))
            and os.access(f"{folder}/cgroup.subtree_control", os.W_OK)
        )
    except OSError:
        return None
    if not is_ours or not set(_WANTED) <= set(controllers) or processes != [str(os.getpid())]:
        return None
    return folder


def _is_given(folder: str) -> bool:
    """Root may write everywhere: there only a mark tells. Raises OSError."""
    if os.geteuid() != 0:
        return os.stat(folder).st_uid == os.geteuid()
    for name in _DELEGATE:
        with contextlib.suppress(OSError):
            if os.getxattr(folder, name) == b"1":
                return True
    return False


def _mount(mountinfo: str) -> str | None:
    """Where cgroup v2 is mounted."""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        if after.startswith("cgroup2 "):
            return before.split(" ")[4]
    return None


def _end_left(folder: str) -> None:
    """End and remove cgroups of jobs that an earlier process left here. Raises OSError."""
    for name in os.listdir(folder):
        if name.startswith(_JOB):
            left = JobCgroup(f"{folder}/{name}")
            left.kill()
            left.remove()


def _write(path: str, text: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def _count(path: str, name: str) -> int:
    """A number of an events file; 0 if there is none."""
    with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii") as file:
        for line in file:
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0
