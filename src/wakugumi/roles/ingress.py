"""May a job or a result that names blobs come in? Only once they are in the leader's place. (SPEC C5, C7)

    frame ──► refs ──► place: all there? ── yes ──► the event, as for any other job or result
                                        └── no ───► Missing: put these, and send the very same again

To look may take its time, and meanwhile its sender may leave, or cancel the job: then nothing comes of it. It loses
nothing by that, for who was told nothing sends it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final
from zlib import crc32

import msgspec

from wakugumi.adapters.packing import is_packed, unpack
from wakugumi.core import events as ev
from wakugumi.core.job import JobId
from wakugumi.core.wants import CACHE, Wants, check_wants
from wakugumi.errors import Refused
from wakugumi.limits import BLOB_NAMED_S
from wakugumi.wire import frame as fr
from wakugumi.wire import message as ms
from wakugumi.wire.frame import Frame
from wakugumi.wire.message import BlobRef
from wakugumi.wire.refs import blobs_of_job

if TYPE_CHECKING:
    from wakugumi.roles.leader import Leader, Peer

_REMEMBERED_MAX: Final = 1_000
"""What jobs with files ask for, if many ask for the same; most name files of their own."""
_NAMED_MAX: Final = 100_000
"""Blobs that were named just now; beyond it the oldest are forgotten."""


class Ingress:
    """What comes in to one leader with files that are not in its frame."""

    def __init__(self, leader: Leader, clock: Callable[[], float]) -> None:
        self._leader = leader
        self._clock = clock
        self._looking: set[tuple[Peer, JobId]] = set()
        """What is being looked for, and for whom."""
        self._named: dict[str, float] = {}
        """Blobs that were just said to be there, or were asked for, and until when that counts."""
        self._wants: dict[Wants, Wants] = {}

    def is_named(self, blob: str) -> bool:
        """Has someone just named it, so that a job may be about to need it?"""
        return self._named.get(blob, 0.0) > self._clock()

    # A job.

    def files(self, peer: Peer, head: ms.SubmitHead) -> tuple[Wants | None, tuple[BlobRef, ...]]:
        """What a job with files asks for, and its blobs. Raises Refused."""
        assert head.files is not None
        names, blobs = blobs_of_job(head.files)
        if not names:
            return None, ()
        if blobs:
            self._must_know(peer)
        check_wants(head.key, head.priority, head.slots)
        if self._leader.caches is not None:
            for name in names:
                if name.startswith(CACHE):
                    self._leader.caches.named(name.removeprefix(CACHE))
        wants = Wants(head.key, head.priority, head.slots, names)
        if len(self._wants) >= _REMEMBERED_MAX:
            self._wants.clear()
        return self._wants.setdefault(wants, wants), blobs

    def submitted(self, peer: Peer, event: ev.Submitted, blobs: Sequence[BlobRef]) -> None:
        """Hand it on once its blobs are there. A job that is known is not run for it, and needs nothing."""
        if self._leader.knows(event.job):
            self._leader.drive.post(event)
        else:
            self._look_for(peer, event, blobs)

    def cancelled(self, peer: Peer, jobs: Iterable[JobId]) -> None:
        """What is still being looked for is not wanted any more."""
        for job in jobs:
            self._looking.discard((peer, job))

    # A result.

    def acked(self, peer: Peer, event: ev.Acked, blobs: Sequence[BlobRef]) -> None:
        """Hand it on once its blobs are there. Raises Refused."""
        self._must_know(peer)
        named = msgspec.structs.replace(event, blobs=tuple(ref.sha256 for ref in blobs))
        self._look_for(peer, named, blobs)

    def _must_know(self, peer: Peer) -> None:
        if self._leader.blobs is None:
            raise Refused("not-supported", "this leader keeps no blobs: send the content itself")
        if not peer.blobs:
            raise Refused("not-supported", "whoever names blobs has to say in its hello that it knows them")

    def _look_for(self, peer: Peer, event: ev.Submitted | ev.Acked, blobs: Sequence[BlobRef]) -> None:
        leader = self._leader
        assert leader.blobs is not None
        looked_for = peer, event.job
        self._looking.add(looked_for)
        self._name(blobs)

        def found(missing: list[str]) -> None:
            if looked_for not in self._looking:
                return
            self._looking.remove(looked_for)
            if leader.peers.get(peer.conn) is not peer:
                return
            if missing:
                peer.link.send(fr.encode(fr.MISSING, corr_id=event.job, payload=ms.encode(ms.Missing(missing))))
            else:
                leader.drive.post(event)

        leader.blobs.missing(blobs, found)

    def _name(self, blobs: Sequence[BlobRef]) -> None:
        now = self._clock()
        if len(self._named) + len(blobs) > _NAMED_MAX:
            fresh = [(blob, until) for blob, until in self._named.items() if until > now]
            self._named = dict(fresh[-_NAMED_MAX // 2 :])
        for ref in blobs:
            self._named.pop(ref.sha256, None)  # What was named last stands last.
            self._named[ref.sha256] = now + BLOB_NAMED_S


def plain(frame: Frame) -> Frame:
    """The frame with its payload unpacked. Raises Refused."""
    try:
        payload = unpack(frame.payload)
    except Refused as no:
        if frame.type == fr.ACK_JOB:
            raise Refused("bad-result", f"the worker's answer is not a result: {no.message}") from None
        raise
    return Frame(frame.type, frame.msg_id, frame.corr_id, frame.subject, payload)


def digest_of_packed(packed: bytes, payload: bytes) -> int:
    """What `digest_of` is for others: how many bytes are held, and the checksum of the request that they are."""
    assert is_packed(packed)
    return len(packed) << 32 | crc32(payload)
