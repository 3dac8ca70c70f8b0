"""The table of a client's connections, and what the frames over one of them become."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.net.link import Link
from wakugumi.core.client import events as ev
from wakugumi.core.client.events import ClientEvent
from wakugumi.core.ids import ConnId, JobId
from wakugumi.roles.client.ask import PendingQuestions
from wakugumi.roles.client.files.uploads import Uploads
from wakugumi.roles.client.session.connections import CONNECTIONS_KEPT, LeaderConnections, LeaderLine, LineListeners
from wakugumi.roles.client.session.leader_status import Endpoint, LeaderStatuses
from wakugumi.wire import frame as fr
from wakugumi.wire.frame import Frame
from wakugumi.wire.messages.hello import BLOBS, CAPS, ENV, ZSTD, Welcome
from wakugumi.wire.messages.job import Refusal, pack_ids
from wakugumi.wire.messages.payload import encode

ONE = ConnId(1)
A = JobId(b"a" * 16)


class FakeLink:
    """What a connection is told."""

    peer = "a leader"
    packs = False
    why_closed = ""

    def __init__(self) -> None:
        self.said: list[object] = []

    def greet(self, hello: bytes) -> None:
        self.said.append(hello)

    def send(self, data: bytes) -> None:
        self.said.append(data)

    def close(self) -> None:
        self.said.append("close")

    def abort(self) -> None:
        self.said.append("abort")


class OneLine:
    """A line whose connection stands, and what it posts."""

    def __init__(self, secured: str = "") -> None:
        self.events: list[ClientEvent] = []
        self.connections = LeaderConnections()
        statuses = LeaderStatuses([Endpoint("grid:5000", lambda _owner, _access: asyncio.Future())])
        uploads = Uploads(self.connections.send, lambda *_: None, lambda *_: None)
        questions = PendingQuestions(statuses, uploads, self.events.append)
        listeners = LineListeners(self.connections, statuses, uploads, questions, self.events.append)
        self.line = LeaderLine(ONE, "grid:5000", b"hello", listeners, secured)
        self.fake = FakeLink()
        self.link = cast("Link", self.fake)
        self.line.on_open(self.link)

    def hear(self, kind: int, about: bytes = fr.NO_ID, subject: str = "", payload: bytes = b"") -> list[ClientEvent]:
        self.events.clear()
        self.line.on_frame(self.link, Frame(kind, fr.NO_ID, about, subject, payload))
        return list(self.events)


@pytest.fixture
async def one() -> OneLine:
    return OneLine()


async def test_a_connection_that_opens_says_hello_and_is_told_of(one: OneLine) -> None:
    assert one.fake.said == [b"hello"]
    assert one.events == [ev.Connected(ONE)]
    one.connections.send(ONE, b"x")
    assert one.fake.said[1:] == [b"x"]


async def test_frames_become_events(one: OneLine) -> None:
    assert one.hear(fr.RESULT, A, payload=b"r") == [ev.ResultReceived(ONE, A, b"r")]
    assert one.hear(fr.RECEIPT, payload=pack_ids([A])) == [ev.Receipts(ONE, (A,))]
    assert one.hear(fr.HEARTBEAT) == [ev.HeartbeatReceived(ONE)]
    assert one.hear(fr.FOUND, subject="known", payload=pack_ids([A])) == [ev.JobsFound(ONE, "known", (A,))]
    assert one.hear(fr.ASK, A, "refused", b"no") == [ev.QuestionAnswered(ONE, A, True, b"no")]


async def test_a_frame_that_is_none_of_ours_is_told_of_once(one: OneLine, caplog: pytest.LogCaptureFixture) -> None:
    assert one.hear(fr.FOUND, subject="what") == []
    assert one.hear(fr.FOUND, subject="what") == []
    assert caplog.text.count("which is ignored") == 1


async def test_a_welcome_tells_what_the_leader_takes_and_where_its_place_is(one: OneLine) -> None:
    welcome = encode(Welcome("test", [BLOBS, CAPS, ENV, ZSTD], ""))
    assert one.hear(fr.WELCOME, payload=welcome) == [ev.Welcomed(ONE, True, True, False, True)]
    assert one.fake.packs
    assert one.connections.origin(ONE) == ("grid:5000", "http://grid:5000")


@pytest.mark.spec("O1")
async def test_the_place_of_a_leader_that_proves_who_it_is_is_itself_over_tls() -> None:
    one = OneLine("https://desk-1@grid:5000")
    assert one.events == [ev.Connected(ONE, secured=True)]
    one.hear(fr.WELCOME, payload=encode(Welcome("test", [BLOBS], "")))
    assert one.connections.origin(ONE) == ("grid:5000", "https://desk-1@grid:5000")


@pytest.mark.spec("O1")
async def test_a_refusal_without_a_job_is_one_of_the_hello(one: OneLine) -> None:
    no = encode(Refusal("denied", "the key is not valid here"))
    assert one.hear(fr.REFUSAL, payload=no) == [ev.HelloRefused(ONE, "denied", "the key is not valid here")]
    assert one.fake.said[-1] == "close"
    assert one.hear(fr.REFUSAL, A, payload=no) == [ev.JobRefused(ONE, A, "denied", "the key is not valid here")]


async def test_a_connection_that_ended_is_remembered_for_its_last_results_and_sent_nothing(one: OneLine) -> None:
    one.line.on_lost(one.link)
    assert one.events[-1] == ev.Disconnected(ONE, "the connection ended")
    one.connections.send(ONE, b"x")
    one.connections.hang_up(ONE, "late")
    assert one.fake.said == [b"hello"]
    assert one.connections.origin(ONE) == ("grid:5000", "")
    assert one.connections.origin(ConnId(99)) == ("", "")


async def test_the_place_of_a_connection_that_lives_is_remembered_however_many_others_come_and_go(one: OneLine) -> None:
    one.hear(fr.WELCOME, payload=encode(Welcome("test", [BLOBS], "file:///place")))
    for number in range(1000, 1000 + 2 * CONNECTIONS_KEPT):
        one.connections.opened(ConnId(number), one.link, "elsewhere", "http://elsewhere")
        one.connections.lost(ConnId(number))
    assert len(one.connections) == CONNECTIONS_KEPT
    assert one.connections.origin(ONE) == ("grid:5000", "file:///place")


async def test_closing_waits_for_all_that_are_open(one: OneLine) -> None:
    closing = Tasks().start(one.connections.close(), name="waiting", quiet=True)
    await asyncio.sleep(0)
    assert one.fake.said[-1] == "close"
    assert not closing.done()
    one.line.on_lost(one.link)
    await closing
