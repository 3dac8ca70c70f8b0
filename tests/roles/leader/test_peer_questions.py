"""Each question reaches the part of a leader that answers it. A real leader on a real port."""

from __future__ import annotations

import json
from uuid import uuid4

import msgspec
import pytest
from tests.kit.a_leader import OwnPeer, a_leader
from tests.kit.http_peer import ask

from wakugumi.core.access.browser_links import BrowserLink
from wakugumi.core.access.known_as import KnownAs
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.job import read_refusal

pytestmark = pytest.mark.anyio


async def answer_to(peer: OwnPeer, question: bytes) -> fr.Frame:
    ask_id = uuid4().bytes
    await peer.say(fr.encode(fr.ASK, ask_id, payload=question))
    answer = await peer.expect(fr.ASK)
    assert answer.corr_id == ask_id
    return answer


@pytest.mark.spec("O1")
async def test_the_edge_tells_as_whom_a_peer_is_known() -> None:
    async with a_leader() as leader, OwnPeer(leader.port) as peer:
        await peer.hello_client("desk-1")
        me = msgspec.json.decode((await answer_to(peer, b'{"ask":"me"}')).payload, type=KnownAs)
    assert (me.role, me.proof, me.degree, me.may) == ("admin", "user", "this user", ["do everything"])


@pytest.mark.spec("O1")
async def test_the_edge_makes_a_link_for_the_browser_of_a_peer() -> None:
    async with a_leader() as leader, OwnPeer(leader.port) as peer:
        await peer.hello_client("desk-1")
        link = msgspec.json.decode((await answer_to(peer, b'{"ask":"link"}')).payload, type=BrowserLink)
        assert (link.valid_s, link.is_tls) == (60.0, False)
        assert (await ask(leader.port, "GET", f"/in/{link.word}")).status == 303
        assert (await ask(leader.port, "GET", f"/in/{link.word}")).status == 403


async def test_the_machine_answers_and_refuses() -> None:
    async with a_leader() as leader, OwnPeer(leader.port) as peer:
        await peer.hello_client("desk-1")
        assert json.loads((await answer_to(peer, b'{"ask":"status"}')).payload)["clients"] == 1
        for question, code in (
            (b'{"ask":"caches"}', "not-supported"),
            (b'{"ask":"keys"}', "no-authority"),
            (b'{"ask":"no such"}', "unknown-question"),
        ):
            answer = await answer_to(peer, question)
            assert answer.subject == "refused"
            assert read_refusal(answer.payload).code == code
