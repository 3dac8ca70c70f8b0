"""How do the effects of the leader's machine become frames? One function for each effect on a connection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec

from wakugumi import __version__
from wakugumi.core.ids import JobId, Verdict, show_job_id
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.jobs.broadcast import PARTS
from wakugumi.limits.wire import PAYLOAD_BYTES_MAX
from wakugumi.roles.access.keys import GridKeys
from wakugumi.roles.leader.files.blobs import LeaderBlobs
from wakugumi.roles.leader.hub import Hub, Peer
from wakugumi.roles.leader.old_peers import OldPeers
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.envelope import is_envelope
from wakugumi.wire.messages.hello import BLOBS, CAPS, ENV, FINDS, RESTS, ZSTD, Welcome
from wakugumi.wire.messages.job import FAILED, JobResult, pack_ids, write_refusal
from wakugumi.wire.messages.payload import encode

Perform: TypeAlias = Callable[[Peer, Any], None]
_IDS_PER_FRAME: Final = PAYLOAD_BYTES_MAX // 16


class Effects:
    """The functions that perform effects on the peers of one leader, by type of effect."""

    def __init__(self, hub: Hub, blobs: LeaderBlobs | None, old_peers: OldPeers, keys: GridKeys | None) -> None:
        self._hub = hub
        self._post = hub.drive.post
        self._blobs = blobs
        self._old_peers = old_peers
        self._keys = keys
        self.table: dict[type[object], Perform] = {
            ev.SendWelcome: self._send_welcome,
            ev.SendReceipts: _send_receipts,
            ev.SendFound: _send_found,
            ev.SendRefusal: _send_refusal,
            ev.SendAssign: self._send_assign,
            ev.SendResult: self._send_result,
            ev.SendFetch: _send_fetch,
            ev.SendWorkerConfirms: _send_confirms,
            ev.SendCancel: _send_cancel,
            ev.SendRested: _send_rested,
            ev.SendPeerHeartbeat: _send_heartbeat,
            ev.SendAnswer: send_answer,
            ev.SendNo: send_no,
            ev.TellWhenPeerWritten: self._tell_when_written,
            ev.PauseReading: _pause_reading,
            ev.ResumeReading: _resume_reading,
            ev.Complain: _complain,
            ev.Close: _close,
        }

    def _send_welcome(self, peer: Peer, _effect: ev.SendWelcome) -> None:
        wants = [CAPS, FINDS, ENV] if peer.is_client else []
        blobs = self._blobs
        if blobs is not None:
            wants.append(BLOBS)
        if peer.zstd:
            wants.append(ZSTD)
        if peer.rests:
            wants.append(RESTS)
        have_rules = not peer.is_client and self._keys is not None and self._keys.have_rules
        welcome = Welcome(__version__, wants, "" if blobs is None else blobs.url, have_rules)
        peer.link.send(fr.encode(fr.WELCOME, payload=encode(welcome)))

    def _send_assign(self, peer: Peer, effect: ev.SendAssign) -> None:
        if is_envelope(effect.payload):
            self._old_peers.send_without_envelope(peer, effect)
        elif peer.blobs and not self._hub.packed:
            peer.link.send(fr.encode(fr.ASSIGN_JOB, effect.job, fr.NO_ID, effect.subject, effect.payload))
        else:
            self._old_peers.send_job(peer, effect)

    def _send_result(self, peer: Peer, effect: ev.SendResult) -> None:
        result = effect.result
        if isinstance(result, Verdict):
            result = encode(record_of(effect.job, peer.client_id, effect.program, result))
        elif not result and not peer.receipts:
            result = encode(JobResult(show_job_id(effect.job), peer.client_id, effect.program, exit_code=0))
        elif not peer.blobs or self._hub.packed or is_envelope(result):
            self._old_peers.send_result(peer, effect.job, result)
            return
        peer.link.send(fr.encode(fr.RESULT, effect.job, effect.job, "", result))
        if not peer.receipts and not effect.is_refusal:  # The peer cannot confirm: written counts as delivered (F9).
            self._post(ev.Confirmed(effect.conn, (effect.job,)))

    def _tell_when_written(self, peer: Peer, effect: ev.TellWhenPeerWritten) -> None:
        self._old_peers.when_written(peer, partial(self._post, ev.PeerWritten(effect.conn)))


def _send_receipts(peer: Peer, effect: ev.SendReceipts) -> None:
    _send_ids(peer, fr.RECEIPT, effect.jobs)


def _send_found(peer: Peer, effect: ev.SendFound) -> None:
    _send_ids(peer, fr.FOUND, effect.jobs, effect.fate)


def _send_refusal(peer: Peer, effect: ev.SendRefusal) -> None:
    peer.link.send(fr.encode(fr.REFUSAL, corr_id=effect.job, payload=write_refusal(effect.code, effect.text)))


def record_of(job: JobId, client: str, program: str, verdict: Verdict) -> JobResult:
    """A verdict of the leader as a result, in the form of a worker's."""
    record = JobResult(show_job_id(job), client, program)
    if verdict.code == PARTS:
        return msgspec.structs.replace(record, stdout=verdict.text, exit_code=0)
    return msgspec.structs.replace(record, status=FAILED, stderr=verdict.text, reason=verdict.code)


def _send_fetch(peer: Peer, effect: ev.SendFetch) -> None:
    _send_ids(peer, fr.FETCH, effect.jobs)


def _send_confirms(peer: Peer, effect: ev.SendWorkerConfirms) -> None:
    _send_ids(peer, fr.CONFIRM, effect.jobs)


def _send_cancel(peer: Peer, effect: ev.SendCancel) -> None:
    peer.link.send(fr.encode(fr.CANCEL, corr_id=effect.job, payload=effect.job))


def _send_rested(peer: Peer, _effect: ev.SendRested) -> None:
    peer.link.send(fr.encode(fr.RESTING))


def _send_heartbeat(peer: Peer, _effect: ev.SendPeerHeartbeat) -> None:
    peer.link.send(fr.encode(fr.HEARTBEAT))


def send_answer(peer: Peer, effect: ev.SendAnswer) -> None:
    payload = encode(effect.answer)
    if len(payload) > fr.payload_max(""):
        send_no(peer, ev.SendNo(effect.conn, effect.ask_id, "too-big", f"the answer would have {len(payload)} bytes"))
    else:
        peer.link.send(fr.encode(fr.ASK, corr_id=effect.ask_id, payload=payload))


def send_no(peer: Peer, effect: ev.SendNo) -> None:
    payload = write_refusal(effect.code, effect.text)
    peer.link.send(fr.encode(fr.ASK, corr_id=effect.ask_id, subject="refused", payload=payload))


def _pause_reading(peer: Peer, _effect: ev.PauseReading) -> None:
    peer.paused = True
    peer.set_reading()


def _resume_reading(peer: Peer, _effect: ev.ResumeReading) -> None:
    peer.paused = False
    peer.set_reading()


def _complain(peer: Peer, effect: ev.Complain) -> None:
    peer.complain(effect.text)


def _close(peer: Peer, effect: ev.Close) -> None:
    peer.link.close(effect.why)
    peer.link.abort()


def _send_ids(peer: Peer, kind: int, jobs: Sequence[JobId], subject: str = "") -> None:
    """Send ids in as many frames as they need."""
    if len(jobs) <= _IDS_PER_FRAME:
        peer.link.send(fr.encode(kind, fr.NO_ID, fr.NO_ID, subject, pack_ids(jobs)))
        return
    for at in range(0, len(jobs), _IDS_PER_FRAME):
        peer.link.send(fr.encode(kind, subject=subject, payload=pack_ids(jobs[at : at + _IDS_PER_FRAME])))
