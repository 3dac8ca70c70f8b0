"""Where is every slot of this machine? The arithmetic of credit, with its one invariant. (SPEC W2, W9)

    offered    told to the leader and not yet used, or to be told with this step
    busy       taken by a job that runs, or that is looked for on the disk
    held       kept back because others keep the machine's CPU busy, each until its time
    kept       kept back because the machine is sick
    due        assigned for credit that callers have borrowed: they take what comes free

    credit + due + busy + held + kept - borrowed = slots   never more is busy than there is, whoever wants it

Credit cannot be taken back, so callers of this machine *borrow* slots that the leader was offered.
"""

from __future__ import annotations

from bisect import insort


class Credit:
    """How many slots are where. Which jobs are busy or due, its owner knows."""

    __slots__ = ("borrowed", "credit", "held", "keeps", "kept", "offered", "slots")

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.credit = 0
        """What the leader may use: told to it, and not yet used."""
        self.offered = 0
        """What this step adds to it. Between steps it is zero, unless the line is full: a machine that cannot get its
        results away asks for no more work."""
        self.held: list[float] = []
        """When each slot that waits for the CPU is offered at the latest, the next one first."""
        self.keeps = False
        """What comes free is kept, and not offered."""
        self.kept = 0
        self.borrowed = 0
        """Of the credit, due jobs included: slots in which a caller's job runs."""

    def pay(self, slots: int) -> bool:
        """The leader uses some of its credit. False if it has not as much."""
        if self.credit < slots:
            return False
        self.credit -= slots
        return True

    def offer(self, slots: int) -> None:
        """The leader may use these, unless the machine is sick."""
        if self.keeps:
            self.kept += slots
        else:
            self.offered += slots

    def tell(self) -> int:
        """How much the leader has to be told."""
        offered = self.offered
        self.credit += offered
        self.offered = 0
        return offered

    def hold(self, slots: int, until: float) -> None:
        for _ in range(slots):
            insort(self.held, until)

    def offer_held(self, now: float) -> None:
        """Those whose time is over."""
        while self.held and self.held[0] <= now:
            del self.held[0]
            self.offered += 1

    def offer_all_held(self) -> None:
        self.offered += len(self.held)
        self.held.clear()

    def keep_unheard(self) -> None:
        """The machine is sick: slots of which the leader has not heard are kept."""
        self.kept += len(self.held) + self.offered
        self.held.clear()
        self.offered = 0

    def take_unheard(self) -> bool:
        """One slot of which the leader has not heard, for a job that it assigned without credit. False if there is
        none."""
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
        """Slots for a caller: first those of which the leader has not heard."""
        unheard = min(slots, self.offered)
        self.offered -= unheard
        slots -= unheard
        while slots and self.held:
            self.held.pop()
            slots -= 1
        kept = min(slots, self.kept)
        self.kept -= kept
        self.borrowed += slots - kept

    def repay(self, slots: int) -> int:
        """Slots came free, and pay back what was borrowed. How many are left?"""
        repaid = min(slots, self.borrowed)
        self.borrowed -= repaid
        return slots - repaid

    def void(self, due: int) -> None:
        """The leader knows that the machine is sick: credit that it has not used is kept."""
        borrowed = min(self.borrowed, due)
        self.kept += self.credit - self.borrowed + borrowed
        self.credit, self.borrowed = 0, borrowed

    def withdraw_unheard(self) -> None:
        """The machine leaves: the leader gets no more."""
        self.offered = self.kept = 0
        self.held.clear()

    def withdraw(self) -> None:
        """There is no leader any more."""
        self.withdraw_unheard()
        self.credit = self.borrowed = 0

    def check(self, busy: int, due: int, *, listening: bool, offering: bool) -> None:
        """`listening`: a leader is there; `offering`: it is offered what comes free."""
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
