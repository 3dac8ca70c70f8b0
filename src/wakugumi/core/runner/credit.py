"""Where is every slot of this machine? The arithmetic of credit, with its one invariant. (SPEC W2, W9)

    credit     sent to the leader and not yet used
    offered    sent to the leader with this step
    busy       taken by a job that runs or is looked up on the disk
    held       held back because other programs use the CPU, each until its time
    kept       kept back because the machine is sick
    due        assigned for borrowed credit: takes the next slots that come free

    credit + offered + busy + held + kept + due - borrowed = slots

Credit cannot be taken back, so callers of this machine *borrow* slots that were offered to the leader.
"""

from __future__ import annotations

from bisect import insort


class Credit:
    """Numbers of slots. `JobsHere` knows the jobs that are busy or due."""

    __slots__ = ("borrowed", "credit", "held", "keeps", "kept", "offered", "slots")

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.credit = 0
        """Slots that the leader may use."""
        self.offered = 0
        """Slots that this step adds to `credit`. Zero between steps, unless the connection is full: a machine that
        cannot send its results takes no more work."""
        self.held: list[float] = []
        """Latest time at which each held slot is offered, earliest first."""
        self.keeps = False
        """Slots that come free are kept, not offered."""
        self.kept = 0
        self.borrowed = 0
        """Slots of `credit` or of due jobs in which a caller's job runs."""

    def pay(self, slots: int) -> bool:
        """The leader uses credit. False if it has less."""
        if self.credit < slots:
            return False
        self.credit -= slots
        return True

    def offer(self, slots: int) -> None:
        """Offer slots to the leader, unless the machine is sick."""
        if self.keeps:
            self.kept += slots
        else:
            self.offered += slots

    def take_offered(self) -> int:
        """Number of slots to send to the leader now."""
        offered = self.offered
        self.credit += offered
        self.offered = 0
        return offered

    def hold(self, slots: int, until: float) -> None:
        for _ in range(slots):
            insort(self.held, until)

    def offer_held(self, now: float) -> None:
        """Offer held slots whose time is over."""
        while self.held and self.held[0] <= now:
            del self.held[0]
            self.offered += 1

    def offer_all_held(self) -> None:
        self.offered += len(self.held)
        self.held.clear()

    def keep_unsent(self) -> None:
        """The machine is sick: keep slots that were not sent to the leader."""
        self.kept += len(self.held) + self.offered
        self.held.clear()
        self.offered = 0

    def take_unsent(self) -> bool:
        """Take one slot that was not sent to the leader, for a job assigned without credit. False if there is none."""
        if self.offered:
            self.offered -= 1
        elif self.held:
            self.held.pop()
        elif self.kept:
            self.kept -= 1
        else:
            return False
        return True

    def borrow(self, slots: int) -> None:
        """Slots for a caller, first those that were not sent to the leader."""
        unsent = min(slots, self.offered)
        self.offered -= unsent
        slots -= unsent
        while slots and self.held:
            self.held.pop()
            slots -= 1
        kept = min(slots, self.kept)
        self.kept -= kept
        self.borrowed += slots - kept

    def repay(self, slots: int) -> int:
        """Use freed slots to pay back borrowed ones. Returns how many are left."""
        repaid = min(slots, self.borrowed)
        self.borrowed -= repaid
        return slots - repaid

    def void(self, due: int) -> None:
        """The leader knows that the machine is sick: keep the credit that it has not used."""
        borrowed = min(self.borrowed, due)
        self.kept += self.credit - self.borrowed + borrowed
        self.credit, self.borrowed = 0, borrowed

    def withdraw_unsent(self) -> None:
        """The machine takes no more jobs."""
        self.offered = self.kept = 0
        self.held.clear()

    def withdraw(self) -> None:
        """The leader is gone."""
        self.withdraw_unsent()
        self.credit = self.borrowed = 0

    def check(self, busy: int, due: int, *, listening: bool, offering: bool) -> None:
        """`listening`: a leader is connected; `offering`: freed slots are offered to it."""
        in_use = self.credit + self.offered + due + busy + len(self.held) + self.kept - self.borrowed
        assert in_use == self.slots if offering else in_use <= self.slots
        assert busy <= self.slots
        assert self.credit >= 0
        assert self.offered >= 0
        assert self.kept >= 0
        assert 0 <= self.borrowed <= self.credit + due
        assert not (self.borrowed and (self.held or self.kept)), "a slot is kept, and one was borrowed"
        assert not self.kept or self.keeps, "a slot is kept, and nothing is wrong"
        assert not (self.held and self.keeps), "a slot is offered soon, and the machine is sick"
        assert self.held == sorted(self.held)
        assert listening or in_use == busy
