"""A journal without a disk: what `adapters/journal/journal.py` promises, for leaders in tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from wakugumi.core.ids import JobId
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.journal.entries import DropLeaves, KeepJob, KeepWhole, LeaderKeep
from wakugumi.core.leader.journal.recovery import Leaf

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[LeaderKeep])


class Journal:
    """Leaves as bytes: what comes back is what was written, and nothing that lives in the leader."""

    def __init__(self) -> None:
        self.by_number: dict[int, tuple[float, bytes]] = {}
        self.next_leaf = 1

    def __len__(self) -> int:
        return len(self.by_number)

    def write(self, records: Sequence[LeaderKeep], at: float) -> None:
        """All that one step keeps."""
        if not records:
            return
        filled = [self._filled(record) for record in records]
        self.by_number[self.next_leaf] = (at, _encoder.encode(filled))
        self.next_leaf += 1
        for record in filled:
            if isinstance(record, DropLeaves):
                self.by_number = {number: leaf for number, leaf in self.by_number.items() if number >= record.before}

    def leaves(self, now: float) -> Iterator[Leaf]:
        for number, (at, data) in self.by_number.items():
            yield number, now - at, _decoder.decode(data)

    def load(self, leaf: int, jobs: Sequence[JobId]) -> ev.PayloadsLoaded:
        return ev.PayloadsLoaded(leaf, jobs, {job: payload for job, payload in self._payloads(leaf) if job in jobs})

    def _payloads(self, leaf: int) -> Iterator[tuple[JobId, bytes]]:
        for record in _decoder.decode(self.by_number[leaf][1]) if leaf in self.by_number else ():
            if isinstance(record, KeepJob | KeepWhole) and isinstance(record.payload, bytes):
                yield record.job, record.payload

    def _filled(self, record: LeaderKeep) -> LeaderKeep:
        if isinstance(record, KeepWhole) and isinstance(record.payload, int):
            payload = dict(self._payloads(record.payload))[record.job]
            return msgspec.structs.replace(record, payload=payload)
        return record
