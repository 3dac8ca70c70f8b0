"""What did a job leave running, and whose is it?

This process adopts everything below it that loses its parent: so a child of ours that is no program of a job is a
stray. Its session or its environment tells the job it comes from. One that hid both may belong to any job that ran when
it was found, and goes when the last of these has ended. Others of our children do not exist, by agreement.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Container, Iterable

from wakugumi.adapters.programs.linux import become_subreaper, stop_being_subreaper
from wakugumi.adapters.programs.process_tree import OwnChildren, job_of, kill_with_all_below, session_of


class Strays:
    """Finds them for one small read if there are none, which is nearly always."""

    def __init__(self, programs: Container[int], jobs: Iterable[str]) -> None:
        """Both are looked into whenever it matters: they belong to whoever runs the programs."""
        self._programs = programs
        self._jobs = jobs
        self._children = OwnChildren()
        self._others = set(self._children.pids())
        """Children we already had: no business of ours."""
        self._suspects: dict[int, set[str]] = {}
        """Those that hid: the jobs that ran when each was found and still do."""
        self._undying: set[int] = set()
        """Those that were killed and did not die: the kernel holds them, or they are another user's."""
        self.all_known = self._children.known and become_subreaper()
        """Can nothing escape us here? What we could not see we do not adopt: init reaps it."""
        self.cpu_s = 0.0
        """What those have used that are gone."""

    @property
    def some_remain(self) -> bool:
        """Are there any of whom it is not known that they belong to a job that still runs?"""
        return bool(self._suspects or self._undying)

    def find(self) -> list[int]:
        programs = self._programs
        found = [pid for pid in self._children.pids() if pid not in programs]
        if found and self._others:
            self._others.intersection_update(found)
            found = [pid for pid in found if pid not in self._others]
        return found

    def of(self, program: int, job: str) -> list[int]:
        """Those that surely belong to a job."""
        return [pid for pid in self.find() if session_of(pid) == program or job_of(pid) == job]

    def reap(self) -> int:
        """Take note of those that have died, kill those that no running job can claim.

        Returns how many of these there were, without those that were given up.
        """
        reaped_some = True
        condemned: list[int] = []
        while reaped_some and not condemned:
            # Whoever was reaped may have left us its children since we looked.
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
        """Wait no longer for those that should be dead by now."""
        self._undying.update(pid for pid in self.find() if not self._is_claimed(pid))

    def close(self) -> None:
        self._children.close()
        stop_being_subreaper()

    def _is_claimed(self, pid: int) -> bool:
        """Does it, or may it, belong to a job that still runs?"""
        if session_of(pid) in self._programs:
            return True
        job = job_of(pid)
        if job is None:  # it died just now
            return False
        running = set(self._jobs)
        if job:
            return job in running
        suspects = self._suspects.setdefault(pid, running)
        suspects.intersection_update(running)
        return bool(suspects)
