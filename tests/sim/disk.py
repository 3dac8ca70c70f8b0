"""What survives a leader? The leaves whose commit was synced before it died, and maybe those of the commit under way.

Steps are committed in groups, in order, one commit at a time; a commit takes its time, longer while the disk is slow,
and for as long as the disk is full. A group is one transaction: after a crash it is there as a whole or not at all (a
torn one fails its checksum and is not there). A sync that fails ends the process, and nobody knows whether it is there.
A step that keeps something and for whose effects nobody waits, or nobody in a hurry, may linger and go with the next
commit.

Records lie here as bytes, as they would in the journal: what cannot be written and read again is found out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from wakugumi.core.ids import JobId
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.events import LeaderDo
from wakugumi.core.leader.journal.entries import DropLeaves, KeepJob, KeepWhole, LeaderKeep
from wakugumi.core.step import Step

if TYPE_CHECKING:
    from tests.sim.leader import Leader

LINGER_S: Final = 0.05
PATIENT_S: Final = 0.002
SLOW_S: Final = 5.0
"""The leader is told if nothing was committed for so long."""

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(list[LeaderKeep]).decode


class Leaf(NamedTuple):
    """What one step kept."""

    written_at: float
    """By the wall clock."""
    records: bytes


class Disk:
    """The leader's disk. It outlives every life of the leader; what was asked for and not synced does not."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        self._clock = leader.clock
        self._random = leader.random
        self.leaves: dict[int, Leaf] = {}
        self.last_leaf = 0
        self.full = False
        self.slow_s = 0.0
        """What every commit takes in addition."""
        self.fails = False
        """The next sync does."""
        self.performed_leaf = 0
        """The last leaf whose step was performed."""
        self._next_leaf = 1
        self._waiting: deque[tuple[int, Step[LeaderKeep, LeaderDo]]] = deque()
        """Steps that are to be committed, with the number of their leaf (0 if they keep nothing)."""
        self._writing: list[tuple[int, Step[LeaderKeep, LeaderDo]]] = []
        self._life = 0
        self._due = False
        self._commits = 0
        self._stalled = False

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._writing)

    def commit(self, step: Step[LeaderKeep, LeaderDo]) -> None:
        """Keep, then perform."""
        number = 0
        if step.keep:
            number = self._next_leaf
            self._next_leaf += 1
            assert self._leader.machine.leaves.number == self._next_leaf, "core and journal count leaves alike"
        self._waiting.append((number, step))
        if step.do and not step.patient:
            self._begin()
        elif step.do or not self._due:
            self._due = True
            life = self._life
            self._clock.after(PATIENT_S if step.do else LINGER_S, lambda: self._lingered(life))

    def reopen(self) -> None:
        """A new life of the leader. It counts its leaves as we do: from the last one on."""
        self._life += 1
        self._waiting.clear()
        self._writing = []
        self._due = False
        self._stalled = False
        self._next_leaf = self.last_leaf + 1

    def read_all(self) -> list[tuple[int, float, list[LeaderKeep]]]:
        """All leaves in order: number, age by the wall clock (which may have been stepped), records."""
        wall = self._leader.wall
        return [(number, wall - leaf.written_at, _decode(leaf.records)) for number, leaf in self.leaves.items()]

    def payloads(self, number: int, jobs: Sequence[JobId]) -> dict[JobId, bytes]:
        """What that leaf has of these jobs' requests."""
        leaf = self.leaves.get(number)
        wanted = set(jobs)
        found: dict[JobId, bytes] = {}
        for record in () if leaf is None else _decode(leaf.records):
            if isinstance(record, KeepJob | KeepWhole) and record.job in wanted and isinstance(record.payload, bytes):
                found[record.job] = record.payload
        return found

    def crash(self) -> None:
        """The leader died. The commit under way may have been synced."""
        if self._writing and not self.full and self._random.random() < 0.5:
            self._sync()
        self._life += 1

    def room_came(self) -> None:
        self.full = False
        if self._writing:
            self._set_synced()

    def _lingered(self, life: int) -> None:
        if life == self._life:
            self._due = False
            self._begin()

    def _begin(self) -> None:
        if self._writing or not self._waiting:
            return
        self._writing = list(self._waiting)
        self._waiting.clear()
        life, commits = self._life, self._commits
        self._clock.after(SLOW_S, lambda: self._look_for_stall(life, commits))
        if not self.full:
            self._set_synced()

    def _look_for_stall(self, life: int, commits: int) -> None:
        if life == self._life and commits == self._commits and self._leader.alive:
            self._stalled = True
            self._leader.post(ev.CommitsStalled("the journal's disk is full"))

    def _set_synced(self) -> None:
        chance = self._random.random()
        life = self._life
        self._clock.after(0.0005 + 0.004 * chance * chance + self.slow_s * chance, lambda: self._synced(life))

    def _synced(self, life: int) -> None:
        leader = self._leader
        if life != self._life or not leader.alive or self.full:
            return
        if leader.paused:
            leader.when_resumed(lambda: self._synced(life))
            return
        if self.fails:
            self.fails = False
            leader.die(power=False, why="its disk failed to sync")
            return
        self._sync()
        self._commits += 1
        if self._stalled:
            self._stalled = False
            leader.post(ev.CommitsStalled(""))
        steps, self._writing = self._writing, []
        for number, step in steps:
            if leader.alive:
                leader.committed(number, step)
        if life == self._life:
            self._begin()

    def _sync(self) -> None:
        """The group is on the disk."""
        for number, step in self._writing:
            if not number:
                continue
            records = [self._with_payload(record) for record in step.keep]
            self.leaves[number] = Leaf(self._leader.wall, _encode(records))
            self.last_leaf = number
            for record in records:
                if isinstance(record, DropLeaves):
                    for old in [leaf for leaf in self.leaves if leaf < record.before]:
                        del self.leaves[old]

    def _with_payload(self, record: LeaderKeep) -> LeaderKeep:
        """A job that is moved takes its request along."""
        if isinstance(record, KeepWhole) and isinstance(record.payload, int):
            payload = self.payloads(record.payload, [record.job]).get(record.job)
            assert payload is not None, f"a job is moved from leaf {record.payload}, where its request is not"
            return msgspec.structs.replace(record, payload=payload)
        return record
