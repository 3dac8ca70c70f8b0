"""Which source may serve a request for a blob now?

A worker with the blob serves if others can reach it, is trusted, does not rest, has not failed the requester before,
and has an upload left. The leader serves only if no worker can, unless its place is a separate store.
"""

from __future__ import annotations

from enum import Enum

from wakugumi.core.files.blob_records import BlobRecord, BlobRequest, FetchingWorker
from wakugumi.core.files.events import FilesStepBuilder
from wakugumi.core.files.trust import AccusationOutcome, Trust
from wakugumi.core.leader.events import Complain
from wakugumi.limits.files import LEADER_COPIES_MAX, LEADER_TRANSFERS_MAX, SOURCE_REST_S

LOOK_S = 1.0
"""After a look at all holders that found only busy ones, just newly free holders are tried for this long."""


class NoWorker(Enum):
    """The outcome, if no worker serves."""

    LEADER = "the leader serves"
    BUSY = "a source may be free later"
    NEVER = "there is no source"


class SourceChoice:
    """How many copies does each source send, and which sources are trusted?"""

    def __init__(self, *, place_bounded: bool, uploads_max: int) -> None:
        self._trust = Trust()
        self.copies = 0
        """Copies that the leader sends now."""
        self.any_near_only = False
        """Some worker was a source only to workers of the leader's machine."""
        self._place_bounded = place_bounded
        self._uploads_max = uploads_max

    def pick(self, want: BlobRequest, now: float) -> FetchingWorker | NoWorker:
        blob = want.blob
        while blob.free:
            peer, _ = blob.free.popitem()
            if blob.holders.get(peer.worker) is peer and self._may(peer, want, now) and self._has_time(peer):
                return peer
        if blob.busy_until > now and not want.avoid:
            return self._leader_or_later(want, usable=True)
        usable, later = False, False
        for is_second_try in (False, True):
            for worker, peer in blob.holders.items():
                if not self._is_source(peer, want, now):
                    continue
                later = True
                if self._may(peer, want, now, is_second_try=is_second_try):
                    usable = True
                    if self._has_time(peer):
                        blob.holders[worker] = blob.holders.pop(worker)
                        return peer
            if usable or want.here or not want.avoid:
                break  # Otherwise a source that failed this worker before is better than none.
        if usable and not want.avoid:
            blob.busy_until = now + LOOK_S
        return self._leader_or_later(want, usable) if want.here or later else NoWorker.NEVER

    def others_wait_too(self, want: BlobRequest) -> bool:
        """No source is free for this request: is then none free for later requests of the blob, either?"""
        return want.here and not want.avoid and (want.peer.near or not self.any_near_only)

    def take(self, blob: BlobRecord, source: FetchingWorker | None) -> None:
        """The source, or the leader, sends one copy more."""
        if source is None:
            blob.copies += 1
            self.copies += 1
        else:
            source.uploads += 1

    def give_back(self, blob: BlobRecord, source: FetchingWorker | None) -> None:
        """A copy has ended."""
        if source is None:
            blob.copies -= 1
            self.copies -= 1
        else:
            source.uploads -= 1

    def blame(
        self, want: BlobRequest, source: FetchingWorker | None, why: str, now: float, out: FilesStepBuilder
    ) -> None:
        """The source of the request, or the leader, failed: the source rests, or loses trust if its content was
        wrong."""
        want.blob.busy_until = float("-inf")
        if source is None:
            return
        want.avoid.add(source.worker)
        if why != "lied":
            source.rests_until = now + SOURCE_REST_S
            return
        outcome = self._trust.accuse(source.worker, want.blob.sha256, want.peer.worker, now)
        if outcome is AccusationOutcome.NOT_BELIEVED:
            text = "it says of too many workers that they gave it wrong content: it is believed no more"
            out.do.append(Complain(want.peer.conn, text))
        elif outcome is AccusationOutcome.BARRED:
            out.do.append(Complain(source.conn, "it gave wrong content too often: nobody fetches from it for an hour"))

    def check(self, uploads: dict[int, int], copies: dict[str, int]) -> None:
        """Asserts the bounds of uploads by source and of the leader's copies by blob."""
        assert all(count <= self._uploads_max for count in uploads.values())
        assert self.copies == sum(copies.values())
        if self._place_bounded:
            assert self.copies <= LEADER_TRANSFERS_MAX
            assert all(count <= LEADER_COPIES_MAX for count in copies.values())

    def _is_source(self, peer: FetchingWorker, want: BlobRequest, now: float) -> bool:
        """Can the source be reached for this request, and is it trusted?"""
        if not peer.url or (peer.near_only and not want.peer.near):
            return False
        return self._trust.may_serve(peer.worker, want.blob.sha256, now)

    def _may(self, peer: FetchingWorker, want: BlobRequest, now: float, *, is_second_try: bool = False) -> bool:
        """May the source serve this request, once it is not busy?"""
        if peer.rests_until > now or not self._is_source(peer, want, now):
            return False
        return is_second_try or peer.worker not in want.avoid

    def _has_time(self, peer: FetchingWorker) -> bool:
        return peer.uploads < self._uploads_max

    def _leader_or_later(self, want: BlobRequest, usable: bool) -> NoWorker:
        has_time = not usable and want.blob.copies < LEADER_COPIES_MAX and self.copies < LEADER_TRANSFERS_MAX
        return NoWorker.LEADER if want.here and (has_time or not self._place_bounded) else NoWorker.BUSY
