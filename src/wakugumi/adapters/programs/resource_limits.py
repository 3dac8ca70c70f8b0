"""Has a job exceeded one of its limits (SPEC W8), and how is that known?

    limit       enforced by                                 known for sure by      else "probably", if it failed and
    memory      RLIMIT_DATA for each process, and a look    the look               was near the limit, or printed so
    CPU time    RLIMIT_CPU for each process, and a look     SIGXCPU, or the look
    file size   RLIMIT_FSIZE, stdout and stderr included    SIGXFSZ                printed so
    processes   a look, with RLIMIT_NPROC as a fuse         the look               printed so

A look, every 50 ms, measures all processes of the job together. RLIMIT_NPROC counts all threads of a user on the
machine and does not bind root: the look decides, and the fuse only stops a fork bomb that is faster than the look. In a
cgroup (`cgroups`) the kernel itself bounds the memory of the whole job, and counts its tasks.

If a job asks for limits, the exec stub sets the kernel's before the program begins. Limits of the operator alone are
set by `prlimit` just after the start, which costs microseconds in place of some tens of milliseconds: memory that the
program took and processes that it started before are bounded by the look alone.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import resource
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from wakugumi.adapters.machine.cgroups import JobCgroup, JobCgroups
from wakugumi.adapters.programs import set_limits
from wakugumi.adapters.programs.process_tree import tasks_of_user, usage_of
from wakugumi.adapters.programs.run_as import User
from wakugumi.core.runner.programs.job_limits import ASKED, NO_LIMITS, OperatorLimits, lower
from wakugumi.errors import Refused
from wakugumi.wire.messages.job import JobLimits

LOOK_S: Final = 0.05
_FUSE_SPARE: Final = 64
"""Room for threads of the job, and for other processes that the user starts meanwhile."""
_NEAR: Final = 0.9
_NO_NUMBERS: Final = (None, None, None, None)
_RESOURCES: Final = (resource.RLIMIT_DATA, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC)
"""The kernel's names of `JobBounds.numbers`."""

_NO_MEMORY: Final = re.compile(
    rb"out of memory|outofmemory|cannot allocate memory|memory exhausted|memoryerror|bad_alloc", re.IGNORECASE
)
_NO_ROOM: Final = re.compile(rb"file too large|file size limit", re.IGNORECASE)
_NO_FORK: Final = re.compile(rb"resource temporarily unavailable|cannot fork|fork failed|retry: ", re.IGNORECASE)


def stub_command(
    status: int, env: int | None, bounds: JobBounds | None, user: User | None, command: Sequence[bytes]
) -> list[bytes]:
    """The stub's command in place of the program's. `status` and, if the program's variables differ from the stub's,
    `env` are open files for the stub."""
    uid = os.geteuid() if user is None else user.uid
    numbers = (status, env, *(_NO_NUMBERS if bounds is None else bounds.numbers(uid)))
    arguments = [b"-" if number is None else str(number).encode() for number in numbers]
    arguments.append(b"-" if user is None else user.text.encode())
    return [os.fsencode(sys.executable), b"-I", b"-S", os.fsencode(set_limits.__file__), *arguments, *command]


class Breach(NamedTuple):
    """A code of the error table, and a text."""

    code: str
    text: str


def bounds_of(asked: JobLimits | None, operators: OperatorLimits) -> JobBounds | None:
    """None if the job has no limits. Raises Refused for invalid ones."""
    if asked is None and operators == NO_LIMITS:
        return None
    return JobBounds(asked or JobLimits(), operators)


class JobBounds:
    """The limits of one running job."""

    def __init__(self, limits: JobLimits, operators: OperatorLimits = NO_LIMITS) -> None:
        """Limits that the job asked for, and those of the machine's operator. Raises Refused for invalid ones."""
        for name, value in (
            ("MemoryBytes", limits.memory_bytes),
            ("CpuS", limits.cpu_s),
            ("FileBytes", limits.file_bytes),
            ("Processes", limits.processes),
        ):
            if value is not None and not 0 < value < 2**62:
                raise Refused("bad-request", f"the limit {name} is a number above 0, not {value}")
        memory, self._whose_memory = lower(limits.memory_bytes, operators.memory_bytes, "--job-memory")
        cpu_s, self._whose_cpu = lower(limits.cpu_s, operators.cpu_s, "--job-cpu")
        processes, self._whose_processes = lower(limits.processes, operators.processes, "--job-processes")
        self._limits = JobLimits(memory, cpu_s, limits.file_bytes, processes)
        self._is_asked = limits != JobLimits()
        self._data_peak = 0
        self.cgroup: JobCgroup | None = None

    @property
    def needs_stub(self) -> bool:
        """Whether the limits are set before the program begins."""
        return self._is_asked or not hasattr(resource, "prlimit")

    def make_cgroup(self, cgroups: JobCgroups, job: str) -> None:
        """Give the job a cgroup, if the kernel takes it."""
        memory, processes = self._limits.memory_bytes, self._limits.processes
        if memory is not None or processes is not None:
            self.cgroup = cgroups.make(job, memory, None if processes is None else processes + _FUSE_SPARE)

    def numbers(self, uid: int) -> Sequence[int | None]:
        """Limits of data, CPU time, file size and tasks for each process of a program of this user."""
        limits = self._limits
        cpu_s = None if limits.cpu_s is None else math.ceil(limits.cpu_s)
        fuse = None
        if limits.processes is not None and uid != 0 and self.cgroup is None:
            fuse = tasks_of_user(uid) + limits.processes + _FUSE_SPARE
        return limits.memory_bytes, cpu_s, limits.file_bytes, fuse

    def set_on(self, pid: int) -> None:
        """Set the limits of a program of our own user that was just started."""
        for which, value in zip(_RESOURCES, self.numbers(os.geteuid()), strict=True):
            if value is not None:
                with contextlib.suppress(OSError, ValueError):  # It has ended, or became another user.
                    hard = value + set_limits.CPU_GRACE_S if which == resource.RLIMIT_CPU else value
                    _, bound = resource.prlimit(pid, which)
                    most = hard if bound == resource.RLIM_INFINITY else bound
                    resource.prlimit(pid, which, (min(value, most), min(hard, most)))

    def look(self, pids: Iterable[int]) -> Breach | None:
        """Measure all processes of the job."""
        limits = self._limits
        memory = 0
        cpu_s = 0.0
        for count, pid in enumerate(pids, 1):
            if limits.processes is not None and count > limits.processes:
                return Breach("process-limit", self._processes_text("had"))
            if (usage := usage_of(pid)) is not None:
                memory += usage.resident_bytes
                cpu_s += usage.cpu_s
                self._data_peak = max(self._data_peak, usage.data_bytes)
        if limits.memory_bytes is not None and memory > limits.memory_bytes:
            return Breach("memory-limit", self._memory_text("held"))
        if limits.cpu_s is not None and cpu_s > limits.cpu_s:
            return Breach("cpu-limit", self._cpu_text())
        return None

    def explain(self, exit_code: int, cpu_s: float, stderr: Callable[[], bytes]) -> Breach | None:
        """Why a job failed, unless a look ended it. A shell reports its child's signal as 128 plus the number."""
        limits, cgroup = self._limits, self.cgroup
        killed_by = exit_code - 128
        if cgroup is not None and cgroup.ran_out_of_memory:
            return Breach("memory-limit", self._memory_text("needed"))
        if cgroup is not None and cgroup.ran_out_of_tasks:
            return Breach("process-limit", self._processes_text("needed"))
        if limits.cpu_s is not None and (
            killed_by == signal.SIGXCPU or (killed_by == signal.SIGKILL and cpu_s >= limits.cpu_s)
        ):
            return Breach("cpu-limit", self._cpu_text())
        if limits.file_bytes is not None and (killed_by == signal.SIGXFSZ or _NO_ROOM.search(stderr())):
            sure = "" if killed_by == signal.SIGXFSZ else "probably "
            return Breach("file-limit", f"the job {sure}wrote a file of more than {limits.file_bytes} bytes")
        if limits.memory_bytes is not None and (
            self._data_peak > limits.memory_bytes * _NEAR or _NO_MEMORY.search(stderr())
        ):
            return Breach("memory-limit", self._memory_text("probably needed"))
        # These words have other causes, too: of a job that knows of no limit they tell nothing.
        if limits.processes is not None and self._whose_processes == ASKED and _NO_FORK.search(stderr()):
            return Breach("process-limit", self._processes_text("probably needed"))
        return None

    def _memory_text(self, did: str) -> str:
        return f"the job {did} more than {self._limits.memory_bytes} bytes of memory, {self._whose_memory}"

    def _processes_text(self, did: str) -> str:
        return f"the job {did} more than {self._limits.processes} processes, {self._whose_processes}"

    def _cpu_text(self) -> str:
        return f"the job used more than {self._limits.cpu_s:g} s of CPU time, {self._whose_cpu}"
