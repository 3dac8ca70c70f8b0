"""What does a step consist of? Receipts and confirmations go in batches, and nothing is left for the next step."""

from __future__ import annotations

from wakugumi.core.ids import ClientId, ConnId, JobId, Verdict
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.jobs.results import ClientConnection
from wakugumi.core.leader.records import ClientRecord
from wakugumi.core.leader.step_builder import StepBuilder

HERE, THERE = ConnId(1), ConnId(2)
A, B, C = (JobId(bytes([number]) * 16) for number in (1, 2, 3))


def connection(*, receipts: bool) -> ClientConnection:
    return ClientConnection(HERE, ClientRecord(ClientId("desk")), receipts, True, 0.0, (HERE,))


def test_receipts_of_one_connection_are_one_effect_before_all_that_follows() -> None:
    out = StepBuilder()
    out.receipt(HERE, A)
    out.complain(HERE, "odd")
    out.receipt(THERE, B)
    out.receipt(HERE, C)
    assert list(out.step().do) == [
        ev.SendReceipts(HERE, [A, C]),
        ev.Complain(HERE, "odd"),
        ev.SendReceipts(THERE, [B]),
    ]


def test_confirmations_of_one_connection_are_one_effect() -> None:
    out = StepBuilder()
    for job in (A, B):
        out.confirm(HERE, job)
    assert list(out.step().do) == [ev.SendWorkerConfirms(HERE, [A, B])]


def test_a_step_leaves_nothing_for_the_next() -> None:
    out = StepBuilder()
    out.receipt(HERE, A)
    out.confirm(HERE, B)
    out.at_once.append(ev.Close(HERE, "gone"))
    first = out.step()
    out.check()
    assert list(first.at_once) == [ev.Close(HERE, "gone")]
    out.receipt(HERE, C)
    second = out.step()
    assert list(second.do) == [ev.SendReceipts(HERE, [C])]
    assert not second.at_once


def test_only_a_step_of_receipts_alone_may_wait() -> None:
    out = StepBuilder()
    out.receipt(HERE, A)
    assert out.step().patient
    out.receipt(HERE, A)
    out.confirm(HERE, B)
    assert not out.step().patient


def test_freed_blobs_are_reported_last() -> None:
    out = StepBuilder()
    out.receipt(HERE, A)
    assert list(out.step(["f" * 64]).do)[1:] == [ev.BlobsFreed(["f" * 64])]


def test_a_refusal_reaches_an_old_client_as_a_failed_result() -> None:
    out = StepBuilder()
    out.refuse(connection(receipts=True), A, "full", "no room")
    out.refuse(connection(receipts=False), B, "full", "no room")
    assert list(out.step().do) == [
        ev.SendRefusal(HERE, A, "full", "no room"),
        ev.SendResult(HERE, B, "", Verdict("full", "no room"), is_refusal=True),
    ]
