"""Where is each job that was assigned to this machine: does it run, is it looked up, or does it wait?

    looking    looked up on the disk, for a result of an earlier run; has its slots already
    due        assigned for borrowed credit: takes the next slots that come free
    waiting    assigned without credit: takes the next slot that no due job needs
    running    until its program has ended, also while it is being killed

A job is in one of these places, or in none.
"""

from __future__ import annotations

from typing import NamedTuple

from wakugumi.core.ids import JobId
from wakugumi.core.runner.events import Ticket


class Lookup(NamedTuple):
    """A job that is looked up on the disk, and may have to run."""

    ticket: Ticket
    failure_stands: bool
    """Decided at the assignment: a later confirmation cannot turn that assignment into a retry."""
    slots: int


class PendingRun(NamedTuple):
    """A job to run, and the slots that it takes."""

    ticket: Ticket
    slots: int


class JobsHere:
    __slots__ = ("cancelling", "due", "looking", "repeated", "running", "waiting")

    def __init__(self) -> None:
        self.running: dict[JobId, int] = {}
        """Slots of each running job."""
        self.cancelling: dict[JobId, Ticket | None] = {}
        """Running jobs that are being killed; with a ticket if assigned again meanwhile."""
        self.repeated: dict[JobId, Ticket] = {}
        """Ticket assigned meanwhile under the id of a running job: possibly another request."""
        self.looking: dict[JobId, Lookup] = {}
        self.waiting: dict[JobId, Ticket] = {}
        """Tickets of jobs that take one slot each."""
        self.due: dict[JobId, PendingRun] = {}
        """Due jobs in the order in which they take freed slots."""

    def has(self, job: JobId) -> bool:
        """The job runs, or was assigned and is about to run."""
        return job in self.running or job in self.looking or job in self.waiting or job in self.due

    def busy(self) -> int:
        """Slots of running jobs."""
        return sum(self.running.values())

    def taken(self) -> int:
        """Slots of running jobs and of jobs that are looked up."""
        return self.busy() + sum([lookup.slots for lookup in self.looking.values()])

    def due_slots(self) -> int:
        return sum([pending.slots for pending in self.due.values()])

    def repeat(self, job: JobId, ticket: Ticket) -> None:
        """A job that is here is assigned again. A job that has not begun begins with the last ticket; the end of a
        running job decides whether it answers that ticket."""
        if job in self.cancelling:
            self.cancelling[job] = ticket
        elif job in self.running:
            self.repeated[job] = ticket
        elif job in self.looking:
            self.looking[job] = self.looking[job]._replace(ticket=ticket)
        elif job in self.due:
            self.due[job] = self.due[job]._replace(ticket=ticket)
        else:
            self.waiting[job] = ticket

    def take_unstarted(self, job: JobId) -> int | None:
        """Remove a job that does not run yet. Returns the slots that this frees; None if the job was not here."""
        freed = self.looking.pop(job, None) or self.due.pop(job, None)
        if freed is not None:
            return freed.slots
        return None if self.waiting.pop(job, None) is None else 0

    def take_queued(self) -> tuple[list[JobId], list[tuple[JobId, int]]]:
        """Remove waiting jobs, and due jobs with their slots."""
        waiting, due = list(self.waiting), [(job, pending.slots) for job, pending in self.due.items()]
        self.waiting.clear()
        self.due.clear()
        return waiting, due

    def leave_unstarted(self) -> list[JobId]:
        """The leader is gone: forget jobs that have not started, and repeated assignments of running ones."""
        unstarted = [*self.looking, *self.waiting, *self.due]
        self.looking.clear()
        self.waiting.clear()
        self.due.clear()
        for job in self.cancelling:
            self.cancelling[job] = None
        self.repeated.clear()
        return unstarted

    def check(self, slots: int) -> None:
        unused = slots - self.taken()
        assert len(self.waiting) <= slots
        assert not self.waiting or self.due or not unused, "a job waits although a slot is free"
        assert not self.due or next(iter(self.due.values())).slots > unused, "a job is due, and has room"
        places = [*self.running, *self.looking, *self.waiting, *self.due]
        assert len(places) == len(set(places)), "a job is in two places"
        assert self.cancelling.keys() <= self.running.keys()
        assert self.repeated.keys() <= self.running.keys()
