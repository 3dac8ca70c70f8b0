"""May a job or a result that names blobs enter the leader? Only when its blobs are in the leader's place. (SPEC C5, C7)

    frame ──► refs ──► place: all there? ── yes ──► the event, as for any other job or result
                                        └── no ───► Missing: the sender puts these and sends the same frame again

The check may take time. If the sender disconnects or cancels meanwhile, the frame is dropped; a sender without an
answer sends it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from zlib import crc32

import msgspec

from wakugumi.adapters.net.compression import is_packed, unpack
from wakugumi.core.environment import check_env
from wakugumi.core.ids import ConnId, JobId
from wakugumi.core.leader import events as ev
from wakugumi.core.requirements import CACHE, Requirements, check_wants
from wakugumi.core.subject import Subject, SubjectError, route
from wakugumi.core.visible_text import is_plain_name
from wakugumi.errors import Refused
from wakugumi.limits.leader import RETRIES_MAX, ROUTES_REMEMBERED_MAX
from wakugumi.limits.runner import JOB_TIMEOUT_MAX_S, JOB_TIMEOUT_S
from wakugumi.limits.wire import EXEC_NAME_CHARS_MAX
from wakugumi.roles.leader.files.blobs import LeaderBlobs
from wakugumi.roles.leader.files.caches import LeaderCaches
from wakugumi.roles.leader.hub import Hub, Peer
from wakugumi.wire import frame as fr
from wakugumi.wire.frame import Frame
from wakugumi.wire.messages.job import Missing, SubmitHead
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.messages.references import BlobRef, blobs_of_job

_REMEMBERED_MAX: Final = 1_000
_REMEMBERED_FILES_MAX: Final = 16
"""Bounds of the `Requirements` that jobs share. A job with more files is not remembered: it may never be accepted."""


class Submissions:
    """Jobs and results that arrive at one leader."""

    def __init__(self, hub: Hub, blobs: LeaderBlobs | None, caches: LeaderCaches | None) -> None:
        self._hub = hub
        self._blobs = blobs
        self._caches = caches
        self._looking: set[tuple[Peer, JobId]] = set()
        """Jobs and results whose blobs are being looked for, with their senders."""
        self._routes: dict[tuple[str, str], tuple[Subject, str, int]] = {}
        self._wants_without_files: dict[Requirements, Requirements] = {}
        self._wants: dict[Requirements, Requirements] = {}

    @property
    def looking(self) -> int:
        """Jobs and results whose blobs are being looked for."""
        return len(self._looking)

    @property
    def remembered_routes(self) -> int:
        return len(self._routes)

    @property
    def remembered_wants(self) -> int:
        """Requirements with files that jobs share."""
        return len(self._wants)

    # A job.

    def event_of(
        self,
        conn: ConnId,
        knows_blobs: bool,
        job: JobId,
        subject: str,
        head: SubmitHead,
        payload: bytes,
        plain_bytes: int,
        request: bytes,
        checksum: int = 0,
    ) -> tuple[ev.Submitted, tuple[BlobRef, ...]]:
        """The event of a submit, by frame or by HTTP, and the blobs it names. `plain_bytes`: its size unpacked;
        `request`: its digest; `checksum`: of a packed one, from `checksum_of_packed`. Raises Refused."""
        to, program, bytes_max = self._routes.get((subject, head.exec_name)) or self._route(subject, head.exec_name)
        if plain_bytes > bytes_max:
            # The routed subject may be longer than the subject of the submit.
            raise Refused("too-big", f"a request of {plain_bytes} bytes does not fit a frame to a worker")
        timeout_s = JOB_TIMEOUT_S if head.timeout_s is None else head.timeout_s
        if not 0 < timeout_s <= JOB_TIMEOUT_MAX_S:
            raise Refused("bad-request", f"TimeoutS is above 0 and at most {JOB_TIMEOUT_MAX_S:.0f} seconds")
        if not 0 <= head.retries <= RETRIES_MAX:
            raise Refused("bad-request", f"Retries is 0 to {RETRIES_MAX}")
        broadcast_s = head.broadcast_s
        if broadcast_s is None:
            broadcast_s = 0.0
        elif not 0 < broadcast_s <= JOB_TIMEOUT_MAX_S:
            raise Refused("bad-request", f"BroadcastS is above 0 and at most {JOB_TIMEOUT_MAX_S:.0f} seconds")
        wants = None
        blobs: tuple[BlobRef, ...] = ()
        if head.files:
            wants, blobs = self._files(knows_blobs, head)
        if wants is None and (head.key or head.priority or head.slots != 1):
            wants = self._without_files(head)
        if head.env:
            check_env(head.env)
            wants = self._known_wants(msgspec.structs.replace(wants or Requirements(), env=True))
        event = ev.Submitted(
            conn, job, to, program, timeout_s, payload, head.retries, wants, broadcast_s, checksum, request
        )
        return event, blobs

    def _route(self, subject: str, program: str) -> tuple[Subject, str, int]:
        """Subject that the workers match (SPEC F8), the shared copy of the program's name, and the largest payload
        beside that subject. Raises Refused."""
        if len(program) > EXEC_NAME_CHARS_MAX:
            raise Refused("bad-name", f"an exec name has at most {EXEC_NAME_CHARS_MAX} characters")
        if not is_plain_name(program):
            raise Refused("bad-name", "an exec name has printable characters only")
        try:
            to = route(subject, program)
        except SubjectError as error:
            raise Refused("bad-subject", str(error)) from None
        routed = to, program, fr.payload_max(to)
        if len(self._routes) >= ROUTES_REMEMBERED_MAX:
            self._routes.clear()
        self._routes[subject, program] = routed
        return routed

    def _without_files(self, head: SubmitHead) -> Requirements:
        """The shared copy of a job's requirements besides files. Raises Refused."""
        asked = Requirements(head.key, head.priority, head.slots)
        known = self._wants_without_files.get(asked)
        if known is not None:
            return known
        check_wants(head.key, head.priority, head.slots)
        if len(self._wants_without_files) >= ROUTES_REMEMBERED_MAX:
            self._wants_without_files.clear()
        self._wants_without_files[asked] = asked
        return asked

    def _files(self, knows_blobs: bool, head: SubmitHead) -> tuple[Requirements | None, tuple[BlobRef, ...]]:
        """Requirements and blobs of a job with files. Raises Refused."""
        assert head.files is not None
        names, blobs = blobs_of_job(head.files)
        if not names:
            return None, ()
        if blobs:
            self._must_know(knows_blobs)
        check_wants(head.key, head.priority, head.slots)
        if self._caches is not None:
            for name in names:
                if name.startswith(CACHE):
                    self._caches.note_use(name.removeprefix(CACHE))
        wants = Requirements(head.key, head.priority, head.slots, names)
        return self._known_wants(wants), blobs

    def _known_wants(self, wants: Requirements) -> Requirements:
        """The shared copy: many jobs have the same requirements."""
        if len(wants.files) > _REMEMBERED_FILES_MAX:
            return wants
        if len(self._wants) >= _REMEMBERED_MAX:
            self._wants.clear()
        return self._wants.setdefault(wants, wants)

    def submit(self, peer: Peer, event: ev.Submitted, blobs: Sequence[BlobRef]) -> None:
        """Post the job once its blobs are there. A known job is not run again and needs no blobs."""
        if self._hub.knows(event.job):
            self.settle(peer, event.job)
            self._hub.drive.post(event)
        else:
            self._look_for(peer, event, blobs)

    def cancel(self, peer: Peer, jobs: Iterable[JobId]) -> None:
        """Drop these jobs if their blobs are still being looked for."""
        for job in jobs:
            self._looking.discard((peer, job))
            self.settle(peer, job)

    def disconnect(self, peer: Peer) -> None:
        if self._blobs is not None:
            self._blobs.expected.disconnect(peer.conn)

    # A result.

    def accept_result(self, peer: Peer, event: ev.Acked, blobs: Sequence[BlobRef]) -> None:
        """Post the result once its blobs are there. Raises Refused."""
        self._must_know(peer.blobs)
        named = msgspec.structs.replace(event, blobs=tuple(ref.sha256 for ref in blobs))
        self._look_for(peer, named, blobs)

    def settle(self, peer: Peer, job: JobId) -> None:
        """Expect blobs of this job from this peer no longer."""
        if self._blobs is not None:
            self._blobs.expected.settle(peer.conn, job)

    def _must_know(self, knows_blobs: bool) -> None:
        if self._blobs is None:
            raise Refused("not-supported", "this leader keeps no blobs: send the content itself")
        if not knows_blobs:
            raise Refused("not-supported", 'a peer that names blobs must list "blobs" in its hello')

    def _look_for(self, peer: Peer, event: ev.Submitted | ev.Acked, blobs: Sequence[BlobRef]) -> None:
        hub = self._hub
        assert self._blobs is not None
        looked_for = peer, event.job
        self._looking.add(looked_for)
        expected = self._blobs.expected
        expected.name(blobs)

        def is_awaited() -> bool:
            if looked_for not in self._looking:
                return False
            self._looking.remove(looked_for)
            return hub.peers.get(peer.conn) is peer

        def found(missing: list[str]) -> None:
            if not is_awaited():
                return
            if missing:
                expected.ask(peer.conn, event.job, blobs)
                peer.link.send(fr.encode(fr.MISSING, corr_id=event.job, payload=encode(Missing(missing))))
            else:
                expected.settle(peer.conn, event.job)
                hub.drive.post(event)

        def failed(error: Exception) -> None:
            if not is_awaited():
                return
            if isinstance(event, ev.Submitted):
                expected.settle(peer.conn, event.job)
                text = f"the leader could not look for the files of the job: {error!r}"
                hub.drive.post(ev.SubmitRefused(peer.conn, event.job, "worker-error", text[:500]))
            else:
                peer.fail(event, error)  # The worker reconnects and sends its result again.

        asker = peer.access.identity if isinstance(event, ev.Submitted) else None
        self._blobs.missing(blobs, found, failed, asker=asker)


def plain(frame: Frame) -> Frame:
    """The frame with its payload unpacked. Raises Refused."""
    try:
        payload = unpack(frame.payload)
    except Refused as no:
        if frame.type == fr.ACK_JOB:
            raise Refused("bad-result", f"the worker's answer is not a result: {no.message}") from None
        raise
    return Frame(frame.type, frame.msg_id, frame.corr_id, frame.subject, payload)


def checksum_of_packed(packed: bytes, payload: bytes) -> int:
    """Number of packed bytes, shifted by 32, and the checksum of the unpacked payload."""
    assert is_packed(packed)
    return len(packed) << 32 | crc32(payload)
