"""Which processes did a job leave, and which job was it?

This process adopts every descendant that loses its parent: a child of ours that is no job's program is therefore a
stray. Its session or its environment tells its job. A stray that hides both may belong to any job that ran when it was
found, and is killed when the last of these has ended. We have no other children, by agreement.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Container, Iterable

from wakugumi.adapters.programs.linux import become_subreaper, stop_being_subreaper
from wakugumi.adapters.programs.process_tree import OwnChildren, job_of, kill_with_all_below, session_of


class Strays:
    """Finds strays, with one small read if there are none, which is nearly always."""

    def __init__(self, programs: Container[int], jobs: Iterable[str]) -> None:
        """Both collections belong to the caller, and are read on each call."""
        self._programs = programs
        self._jobs = jobs
        self._children = OwnChildren()
        self._others = set(self._children.pids())
        """Children from before, which are not strays."""
        self._suspects: dict[int, set[str]] = {}
        """Strays that hide: the jobs that ran when each was found and still run."""
        self._undying: set[int] = set()
        """Killed strays that did not die: the kernel holds them, or they are another user's."""
        self.all_known = self._children.known and become_subreaper()
        """No process can escape here. Otherwise we adopt none, and init reaps them."""
        self.cpu_s = 0.0
        """CPU seconds of strays that are gone."""

    @property
    def some_remain(self) -> bool:
        """Whether there are strays that may belong to no running job."""
        return bool(self._suspects or self._undying)

    def find(self) -> list[int]:
        programs = self._programs
        found = [pid for pid in self._children.pids() if pid not in programs]
        if found and self._others:
            self._others.intersection_update(found)
            found = [pid for pid in found if pid not in self._others]
        return found

    def of(self, program: int, job: str) -> list[int]:
        """Strays that surely belong to a job."""
        return [pid for pid in self.find() if session_of(pid) == program or job_of(pid) == job]

    def reap(self) -> int:
        """Reap dead strays, and kill those that no running job can claim.

        Returns the number of killed ones, without those that were given up.
        """
        reaped_some = True
        condemned: list[int] = []
        while reaped_some and not condemned:
            # A reaped process may have left its children since the search.
            reaped_some = False
            for pid in self.find():
                with contextlib.suppress(ChildProcessError):
                    reaped, _, usage = os.wait4(pid, os.WNOHANG)
                    if reaped:
                        reaped_some = True
                        self.cpu_s += usage.ru_utime + usage.ru_stime
                        self._suspects.pop(pid, None)
                        self._undying.discard(pid)
                    elif not self._is_claimed(pid):
                        condemned.append(pid)
        if condemned:
            kill_with_all_below(condemned)
        return len([pid for pid in condemned if pid not in self._undying])

    def give_up(self) -> None:
        """Wait no longer for strays that should be dead by now."""
        self._undying.update(pid for pid in self.find() if not self._is_claimed(pid))

    def close(self) -> None:
        self._children.close()
        stop_being_subreaper()

    def _is_claimed(self, pid: int) -> bool:
        """Whether it belongs, or may belong, to a running job."""
        if session_of(pid) in self._programs:
            return True
        job = job_of(pid)
        if job is None:  # It has just died.
            return False
        running = set(self._jobs)
        if job:
            return job in running
        suspects = self._suspects.setdefault(pid, running)
        suspects.intersection_update(running)
        return bool(suspects)
