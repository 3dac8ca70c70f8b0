"""How does what the leader's machine asks for become frames? One function for each effect that concerns a
connection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from wakugumi import __version__
from wakugumi.core.ids import JobId, Verdict, show_job_id
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.jobs.broadcast import PARTS
from wakugumi.limits.wire import PAYLOAD_BYTES_MAX
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.hello import BLOBS, CAPS, ENV, FINDS, RESTS, ZSTD, Welcome
from wakugumi.wire.messages.job import FAILED, JobResult, pack_ids, write_refusal
from wakugumi.wire.messages.payload import encode

if TYPE_CHECKING:
    from wakugumi.roles.leader.connection import PeerConnection

_IDS_PER_FRAME: Final = PAYLOAD_BYTES_MAX // 16


def _send_welcome(peer: PeerConnection, _effect: ev.SendWelcome) -> None:
    wants = [CAPS, FINDS, ENV] if peer.is_client else []
    blobs = peer.leader.blobs
    if blobs is not None:
        wants.append(BLOBS)
    if peer.zstd:
        wants.append(ZSTD)
    if peer.rests:
        wants.append(RESTS)
    welcome = Welcome(__version__, wants, "" if blobs is None else blobs.url)
    peer.link.send(fr.encode(fr.WELCOME, payload=encode(welcome)))


def _send_receipts(peer: PeerConnection, effect: ev.SendReceipts) -> None:
    _send_ids(peer, fr.RECEIPT, effect.jobs)


def _send_found(peer: PeerConnection, effect: ev.SendFound) -> None:
    _send_ids(peer, fr.FOUND, effect.jobs, effect.fate)


def _send_refusal(peer: PeerConnection, effect: ev.SendRefusal) -> None:
    peer.link.send(fr.encode(fr.REFUSAL, corr_id=effect.job, payload=write_refusal(effect.code, effect.text)))


def _send_assign(peer: PeerConnection, effect: ev.SendAssign) -> None:
    if peer.blobs and not peer.leader.packed:
        peer.link.send(fr.encode(fr.ASSIGN_JOB, effect.job, fr.NO_ID, effect.subject, effect.payload))
    else:
        peer.leader.egress.assign(peer, effect)


def _send_result(peer: PeerConnection, effect: ev.SendResult) -> None:
    result = effect.result
    if isinstance(result, Verdict):
        result = encode(record_of(effect.job, peer.client_id, effect.program, result))
    elif not result and not peer.receipts:
        result = encode(JobResult(show_job_id(effect.job), peer.client_id, effect.program, exit_code=0))
    elif not peer.blobs or peer.leader.packed:
        peer.leader.egress.result(peer, effect.job, result)
        return
    peer.link.send(fr.encode(fr.RESULT, effect.job, effect.job, "", result))
    if not peer.receipts and not effect.is_refusal:  # It cannot say that it has it: written is delivered (F9).
        peer.leader.drive.post(ev.Confirmed(effect.conn, (effect.job,)))


def record_of(job: JobId, client: str, program: str, verdict: Verdict) -> JobResult:
    """The system's own word on a job, as a worker would write it."""
    record = JobResult(show_job_id(job), client, program)
    if verdict.code == PARTS:
        return msgspec.structs.replace(record, stdout=verdict.text, exit_code=0)
    return msgspec.structs.replace(record, status=FAILED, stderr=verdict.text, reason=verdict.code)


def _send_fetch(peer: PeerConnection, effect: ev.SendFetch) -> None:
    _send_ids(peer, fr.FETCH, effect.jobs)


def _send_confirms(peer: PeerConnection, effect: ev.SendWorkerConfirms) -> None:
    _send_ids(peer, fr.CONFIRM, effect.jobs)


def _send_cancel(peer: PeerConnection, effect: ev.SendCancel) -> None:
    peer.link.send(fr.encode(fr.CANCEL, corr_id=effect.job, payload=effect.job))


def _send_rested(peer: PeerConnection, _effect: ev.SendRested) -> None:
    peer.link.send(fr.encode(fr.RESTING))


def _send_heartbeat(peer: PeerConnection, _effect: ev.SendPeerHeartbeat) -> None:
    peer.link.send(fr.encode(fr.HEARTBEAT))


def _send_answer(peer: PeerConnection, effect: ev.SendAnswer) -> None:
    payload = encode(effect.answer)
    if len(payload) > fr.payload_max(""):
        send_no(peer, ev.SendNo(effect.conn, effect.ask_id, "too-big", f"the answer would have {len(payload)} bytes"))
    else:
        peer.link.send(fr.encode(fr.ASK, corr_id=effect.ask_id, payload=payload))


def send_no(peer: PeerConnection, effect: ev.SendNo) -> None:
    payload = write_refusal(effect.code, effect.text)
    peer.link.send(fr.encode(fr.ASK, corr_id=effect.ask_id, subject="refused", payload=payload))


def _tell_when_written(peer: PeerConnection, effect: ev.TellWhenPeerWritten) -> None:
    peer.leader.egress.when_written(peer, partial(peer.leader.drive.post, ev.PeerWritten(effect.conn)))


def _pause_reading(peer: PeerConnection, _effect: ev.PauseReading) -> None:
    peer.paused = True
    peer.set_reading()


def _resume_reading(peer: PeerConnection, _effect: ev.ResumeReading) -> None:
    peer.paused = False
    peer.set_reading()


def _complain(peer: PeerConnection, effect: ev.Complain) -> None:
    peer.complain(effect.text)


def _close(peer: PeerConnection, effect: ev.Close) -> None:
    peer.link.close(effect.why)
    peer.link.abort()


def _send_ids(peer: PeerConnection, kind: int, jobs: Sequence[JobId], subject: str = "") -> None:
    """A turn's ids, which may be more than one frame holds."""
    if len(jobs) <= _IDS_PER_FRAME:
        peer.link.send(fr.encode(kind, fr.NO_ID, fr.NO_ID, subject, pack_ids(jobs)))
        return
    for at in range(0, len(jobs), _IDS_PER_FRAME):
        peer.link.send(fr.encode(kind, subject=subject, payload=pack_ids(jobs[at : at + _IDS_PER_FRAME])))


SAYINGS: Final[dict[type[object], Callable[[PeerConnection, Any], None]]] = {
    ev.SendWelcome: _send_welcome,
    ev.SendReceipts: _send_receipts,
    ev.SendFound: _send_found,
    ev.SendRefusal: _send_refusal,
    ev.SendAssign: _send_assign,
    ev.SendResult: _send_result,
    ev.SendFetch: _send_fetch,
    ev.SendWorkerConfirms: _send_confirms,
    ev.SendCancel: _send_cancel,
    ev.SendRested: _send_rested,
    ev.SendPeerHeartbeat: _send_heartbeat,
    ev.SendAnswer: _send_answer,
    ev.SendNo: send_no,
    ev.TellWhenPeerWritten: _tell_when_written,
    ev.PauseReading: _pause_reading,
    ev.ResumeReading: _resume_reading,
    ev.Complain: _complain,
    ev.Close: _close,
}
"""What is done for each."""
