"""How is each of a client's leaders, for people? A real client against scripted leaders."""

from __future__ import annotations

import asyncio

import pytest
from tests.kit.eventually import eventually
from tests.kit.scripted_leader import Peer, ScriptedLeader, scripted

from wakugumi.errors import ConfigError, Refused
from wakugumi.roles.client.grid import connect
from wakugumi.wire import frame as fr

pytestmark = pytest.mark.anyio


async def test_status_tells_how_the_connection_is() -> None:
    async with scripted() as leader, asyncio.TaskGroup() as group:
        coming = group.create_task(leader.peer())
        async with connect(f"127.0.0.1:{leader.port}") as grid:
            status = grid.status()
            assert (status.connected, status.old_leader, status.trouble) == (True, False, "")
            assert status.leader == f"127.0.0.1:{leader.port}"
            leader.stop_listening()
            (await coming).hang_up()
            await eventually(lambda: not grid.status().connected)
            await eventually(lambda: "nobody listens" in grid.status().trouble)
            await leader.start()
            await leader.peer()
            await eventually(lambda: grid.status().connected)


@pytest.mark.spec("O6")
async def test_who_listens_and_says_nothing_is_sent_no_job_and_the_refusal_says_what_to_do() -> None:
    async with scripted(ScriptedLeader(own=False)) as leader, asyncio.TaskGroup() as group:
        coming = group.create_task(leader.peer())
        url = f"waku://127.0.0.1:{leader.port}"
        with pytest.raises(Refused, match="it takes connections and says nothing") as caught:
            async with connect(url, connect_timeout_s=1.5):
                pass
        assert caught.value.code == "no-leader"
        assert "--old-leader" in caught.value.hint
        peer = await coming
        assert [frame.type for frame in peer.seen] == [fr.HELLO_CLIENT]


class NoLeader(ScriptedLeader):
    async def _serve(self, peer: Peer) -> None:
        peer.send_raw(b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(100))
        await peer.read()


async def test_what_is_no_leader_is_said_to_be_none() -> None:
    async with scripted(NoLeader(own=False)) as leader:
        with pytest.raises(Refused, match=r"within 0\.3 s: not a frame: it speaks HTTP") as caught:
            async with connect(f"127.0.0.1:{leader.port}", connect_timeout_s=0.3):
                pass
        assert caught.value.code == "no-leader"


async def test_nobody_there_is_an_error_that_says_so() -> None:
    with pytest.raises(Refused, match=r"no leader at 127\.0\.0\.1:1 within 0\.2 s: .*nobody listens there") as caught:
        async with connect("waku://127.0.0.1:1", connect_timeout_s=0.2):
            pass
    assert caught.value.exit_code == 5


@pytest.mark.parametrize("url", ["a:5000,", "a:5000,a:5000", "http://a:5000", "a:b", "", "waku://"])
async def test_a_bad_address_is_a_mistake_of_configuration(url: str) -> None:
    with pytest.raises(ConfigError):
        async with connect(url):
            pass
