"""Room for further jobs, and the line of those that wait for it."""

from __future__ import annotations

import asyncio

import pytest

from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.core.ids import JobId
from wakugumi.errors import Refused
from wakugumi.roles.client.files.uploads import Uploads
from wakugumi.roles.client.request import Request
from wakugumi.roles.client.session import room as room_module
from wakugumi.roles.client.session.book import JobBook
from wakugumi.roles.client.session.connections import LeaderConnections
from wakugumi.roles.client.session.room import Room


class OneRoom:
    """Room for two jobs, once the gate is open."""

    def __init__(self) -> None:
        connections = LeaderConnections()
        uploads = Uploads(connections.send, lambda *_: None, lambda *_: None)
        self.book = JobBook(connections, uploads, lambda _event: None)
        self.room = Room(self.book, uploads, 2)
        self.admitted: list[str] = []

    def start(self, number: int) -> JobId:
        key = JobId(number.to_bytes(16, "big"))
        self.book.start(Request(key, str(number), "program", b"frame"), None)
        return key

    def wait(self, name: str) -> asyncio.Task[None]:
        async def admission() -> None:
            await self.room.admission()
            self.admitted.append(name)
            self.start(ord(name))

        return Tasks().start(admission(), name="waiting", quiet=True)

    async def tell(self) -> None:
        self.room.wake()
        for _ in range(3):
            await asyncio.sleep(0)


@pytest.fixture
async def one() -> OneRoom:
    return OneRoom()


async def test_there_is_room_while_the_gate_is_open_and_jobs_are_few(one: OneRoom) -> None:
    assert one.room.free == 0
    one.room.gate = True
    assert one.room.free == 2
    one.start(1)
    assert (one.room.free, one.room.must_wait) == (1, False)
    key = one.start(2)
    assert (one.room.free, one.room.must_wait) == (0, True)
    one.book.give_up(key, "full", "")
    assert one.room.free == 1


async def test_there_is_no_room_for_too_many_bytes(one: OneRoom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room_module, "UNFINISHED_BYTES_MAX", 5)
    one.room.gate = True
    one.start(1)
    assert one.room.free == 0


async def test_the_first_in_line_is_admitted_first_and_no_more_than_there_is_room(one: OneRoom) -> None:
    waiting = [one.wait(name) for name in "abc"]
    await one.tell()
    assert one.admitted == []
    one.room.gate = True
    await one.tell()
    assert one.admitted == ["a", "b"]
    assert one.room.must_wait
    waiting[2].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_turn_that_nobody_takes_is_the_next_ones(one: OneRoom) -> None:
    first, second = one.wait("a"), one.wait("b")
    await asyncio.sleep(0)
    one.start(1)
    one.room.gate = True
    one.room.wake()
    first.cancel()
    await asyncio.wait([first, second])
    assert one.admitted == ["b"]


async def test_a_call_that_starts_its_jobs_at_once_promises_none(one: OneRoom) -> None:
    called: list[int] = []

    def call() -> int:
        called.append(one.room.free)
        return 0

    for _ in range(3):
        one.room.on_room(call)
    one.room.gate = True
    one.room.wake()
    assert called == [2, 2, 2]


async def test_nobody_waits_when_the_session_has_ended(one: OneRoom) -> None:
    waiting = one.wait("a")
    await asyncio.sleep(0)
    one.book.ended = Refused("closed", "the client was closed")
    one.room.wake()
    with pytest.raises(Refused, match="was closed"):
        await waiting
