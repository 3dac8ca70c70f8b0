"""Where is each job that was assigned to this machine: does it run, is it looked for, or does it wait?

    looking    the disk is asked whether it has finished here before; it has its slots already
    due        assigned for credit that callers have borrowed: the next slots that come free are its own
    waiting    assigned without credit: it takes the next slot that nobody else is due
    running    until its program has ended, also while it is being killed

A job is in one of these places, or in none.
"""

from __future__ import annotations

from typing import NamedTuple

from wakugumi.core.ids import JobId


class Look(NamedTuple):
    """A job that is looked for on the disk, and may have to be run."""

    payload: bytes
    failure_stands: bool
    """Decided when the job is assigned: a confirmation that comes after it cannot make it a retry."""
    slots: int


class Wish(NamedTuple):
    """A job that is to be run, and how many slots it takes."""

    payload: bytes
    slots: int


class JobsHere:
    """The four places."""

    __slots__ = ("cancelling", "due", "looking", "repeated", "running", "waiting")

    def __init__(self) -> None:
        self.running: dict[JobId, int] = {}
        """And how many slots each takes."""
        self.cancelling: dict[JobId, bytes | None] = {}
        """Those of the running that are being killed; with a payload, if they were assigned anew meanwhile."""
        self.repeated: dict[JobId, bytes] = {}
        """Of the running: what was assigned under the same id meanwhile. It may be another request."""
        self.looking: dict[JobId, Look] = {}
        self.waiting: dict[JobId, bytes] = {}
        """None of them asks for more than one slot."""
        self.due: dict[JobId, Wish] = {}
        """In the order in which they take what comes free."""

    def has(self, job: JobId) -> bool:
        """It runs, or it was assigned and is about to."""
        return job in self.running or job in self.looking or job in self.waiting or job in self.due

    def busy(self) -> int:
        """Slots in which something runs."""
        return sum(self.running.values())

    def taken(self) -> int:
        """The same, and those of jobs that are looked for."""
        return self.busy() + sum([look.slots for look in self.looking.values()])

    def due_slots(self) -> int:
        return sum([wish.slots for wish in self.due.values()])

    def repeat(self, job: JobId, payload: bytes) -> None:
        """A job that is here is assigned again: what has not begun is begun with what was assigned last. What runs is
        looked at when it ends."""
        if job in self.cancelling:
            self.cancelling[job] = payload
        elif job in self.running:
            self.repeated[job] = payload
        elif job in self.looking:
            self.looking[job] = self.looking[job]._replace(payload=payload)
        elif job in self.due:
            self.due[job] = self.due[job]._replace(payload=payload)
        else:
            self.waiting[job] = payload

    def take_unstarted(self, job: JobId) -> int | None:
        """A job that does not run yet is here no more. How many slots does that free? None if it was not here."""
        freed = self.looking.pop(job, None) or self.due.pop(job, None)
        if freed is not None:
            return freed.slots
        return None if self.waiting.pop(job, None) is None else 0

    def take_queued(self) -> tuple[list[JobId], list[tuple[JobId, int]]]:
        """Those that wait, and those that are due with their slots: they are here no more."""
        waiting, due = list(self.waiting), [(job, wish.slots) for job, wish in self.due.items()]
        self.waiting.clear()
        self.due.clear()
        return waiting, due

    def leave_unstarted(self) -> list[JobId]:
        """There is no leader any more: what was not started is forgotten, and no job that runs was assigned anew."""
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
