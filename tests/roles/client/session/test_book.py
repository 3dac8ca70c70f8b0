"""The unfinished jobs of a client: each ends exactly once."""

from __future__ import annotations

import asyncio

import pytest

from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.core.client import events as ev
from wakugumi.core.client.events import ClientEvent
from wakugumi.core.ids import ConnId, JobId
from wakugumi.errors import Refused
from wakugumi.roles.client.files.uploads import Uploads
from wakugumi.roles.client.request import Request
from wakugumi.roles.client.session.book import JobBook
from wakugumi.roles.client.session.connections import LeaderConnections

A = JobId(b"a" * 16)
ONE = ConnId(1)


class OneBook:
    def __init__(self) -> None:
        self.events: list[ClientEvent] = []
        connections = LeaderConnections()
        uploads = Uploads(connections.send, lambda *_: None, lambda *_: None)
        self.book = JobBook(connections, uploads, self.events.append)


def request(frame: bytes = b"frame") -> Request:
    return Request(A, "a", "program", frame)


@pytest.fixture
async def one() -> OneBook:
    return OneBook()


async def test_a_job_is_started_once_and_ends_with_its_result(one: OneBook) -> None:
    job, is_new = one.book.start(request(), "item")
    assert one.book.start(request(), "item") == (job, False)
    assert is_new
    assert one.events == [ev.Submit(A, b"frame")]
    assert (len(one.book.unfinished), one.book.request_bytes) == (1, 5)
    one.book.accepted([A])
    await job.accepted()
    result = ev.ResultReceived(ONE, A, b"")
    one.book.deliver([result, result])
    assert (await job).item == "item"
    assert (len(one.book.unfinished), one.book.request_bytes) == (0, 0)


async def test_another_request_under_the_same_id_is_a_conflict(one: OneBook) -> None:
    one.book.start(request(), None)
    with pytest.raises(Refused, match="under way for another request"):
        one.book.start(request(b"other"), None)


async def test_a_result_that_cannot_be_read_is_a_failed_one(one: OneBook) -> None:
    job, _ = one.book.start(request(), None)
    one.book.deliver([ev.ResultReceived(ONE, A, b"\xff")])
    assert (await job).reason == "bad-result"


async def test_a_refusal_is_raised_and_a_cancel_is_a_result(one: OneBook) -> None:
    refused, _ = one.book.start(request(), None)
    one.book.give_up(A, "too-big", "no")
    one.book.give_up(A, "too-big", "nobody waits for it any more")
    with pytest.raises(Refused, match="no"):
        await refused
    cancelled, _ = one.book.start(request(), None)
    await cancelled.cancel()
    assert one.events[-1] == ev.Cancel([A])
    one.book.give_up(A, "cancelled", "it was cancelled")
    assert (await cancelled).reason == "cancelled"


async def test_a_claim_is_made_once_and_forgotten_when_nobody_waits_for_it(one: OneBook) -> None:
    waiting = [Tasks().start(one.book.claim(A, "a"), name="waiting", quiet=True) for _ in range(2)]
    await asyncio.sleep(0)
    assert one.events == [ev.ClaimJob(A)]
    with pytest.raises(Refused, match="being waited for"):
        one.book.start(request(), None)
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert one.events[1:] == [ev.Forget(A)]
    assert not one.book.unfinished


async def test_when_the_session_ends_all_jobs_end_with_its_reason(one: OneBook) -> None:
    job, _ = one.book.start(request(), None)
    one.book.ended = Refused("closed", "the client was closed")
    one.book.fail()
    for late in (job, one.book.claim(A, "a")):
        with pytest.raises(Refused, match="was closed"):
            await late
    with pytest.raises(Refused, match="was closed"):
        one.book.start(request(), None)
