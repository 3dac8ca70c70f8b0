"""One client, several leaders, real sockets: what each of them is told, and what becomes of bad ones. (SPEC K2–K6)"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from tests.kit.eventually import eventually
from tests.kit.scripted_leader import Peer, ScriptedLeader, scripted

from wakugumi import Client, Executor
from wakugumi.core.ids import JobId, job_id_from_name, show_job_id
from wakugumi.core.leader.answer_records import CancelAnswer, ExplainAnswer
from wakugumi.core.leader.questions import AskExplain, AskStatus
from wakugumi.errors import ConfigError, Refused
from wakugumi.roles.client.grid import Grid, connect
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.hello import CAPS, FINDS, Welcome, read_cap
from wakugumi.wire.messages.job import pack_ids, unpack_ids, write_refusal
from wakugumi.wire.messages.payload import encode

pytestmark = pytest.mark.anyio

GRACE_S = 0.3


class TakesCaps(ScriptedLeader):
    """An own leader, as it was before Find."""

    def __init__(self, *more: str) -> None:
        super().__init__(own=False)
        self._welcome = Welcome("test", [CAPS, *more])

    async def peer(self) -> Peer:
        peer = await super().peer()
        peer.send(fr.WELCOME, payload=encode(self._welcome))
        return peer


class Several:
    """A client with its leaders, and its connection as each of them sees it."""

    def __init__(self, grid: Grid, leaders: list[ScriptedLeader], peers: list[Peer]) -> None:
        self.grid = grid
        self.leaders = leaders
        self.peers = peers

    @property
    def names(self) -> list[str]:
        return [f"127.0.0.1:{leader.port}" for leader in self.leaders]

    def lose(self, at: int) -> None:
        """The leader dies, and nobody listens any more."""
        self.leaders[at].stop_listening()
        self.peers[at].hang_up()


@asynccontextmanager
async def several(count: int = 3, *more: str, cap: int = 10, grace_s: float = GRACE_S) -> AsyncIterator[Several]:
    """Leaders that offer `more`."""
    async with AsyncExitStack() as stack:
        leaders = [await stack.enter_async_context(scripted(TakesCaps(*more))) for _ in range(count)]
        async with asyncio.TaskGroup() as group:
            coming = [group.create_task(leader.peer()) for leader in leaders]
            url = "waku://" + ",".join(f"127.0.0.1:{leader.port}" for leader in leaders)
            grid = await stack.enter_async_context(connect(url, client_id="me", cap=cap, grace_s=grace_s))
            peers = [await one for one in coming]
        await eventually(lambda: all(row.connected for row in grid.status().leaders))
        yield Several(grid, leaders, peers)


def caps(peer: Peer) -> list[int]:
    """The cap of the hello, and those that were told later."""
    hello = json.loads(peer.seen[0].payload)["DesiredParallelism"]
    return [hello, *(read_cap(frame.payload) for frame in peer.seen if frame.type == fr.CAP)]


@pytest.mark.spec("K2")
async def test_the_cap_is_divided_told_and_divided_anew() -> None:
    async with several(cap=10) as all_:
        await eventually(lambda: [caps(peer)[-1] for peer in all_.peers] == [4, 3, 3])
        assert [caps(peer)[0] for peer in all_.peers] == [4, 3, 3], "as if all of them would come"
        all_.lose(1)
        await eventually(lambda: [caps(peer)[-1] for peer in (all_.peers[0], all_.peers[2])] == [5, 5])
        shares = [row.share for row in all_.grid.status().leaders]
        assert shares == [5, 0, 5]


@pytest.mark.spec("K2")
async def test_work_is_spread_and_results_come_from_all() -> None:
    async with several(cap=9) as all_:
        jobs = [await all_.grid.submit("p", args=[str(number)]) for number in range(9)]
        await eventually(lambda: [row.in_flight for row in all_.grid.status().leaders] == [3, 3, 3])
        for peer in all_.peers:
            for _ in range(3):
                frame = await peer.next_but(fr.CAP)
                peer.result(JobId(frame.msg_id))
        results = [await job for job in jobs]
        assert {result.leader for result in results} == set(all_.names)


@pytest.mark.spec("K8")
async def test_a_job_with_an_id_of_its_users_is_asked_for_and_goes_where_it_is_known() -> None:
    async with several(3, FINDS) as all_:
        jobs = [await all_.grid.submit("p", job_id=name) for name in ("one", "two")]
        keys = [job_id_from_name("one"), job_id_from_name("two")]
        for peer in all_.peers:
            asked = await peer.next_but(fr.CAP)
            assert (asked.type, unpack_ids(asked.payload)) == (fr.FIND, keys)
        first, second, third = all_.peers
        first.send(fr.FOUND, subject="unknown", payload=pack_ids(keys))
        second.send(fr.FOUND, subject="unknown", payload=keys[1])
        second.send(fr.FOUND, subject="known", payload=keys[0])
        third.send(fr.FOUND, subject="a word of a later version", payload=pack_ids(keys))
        third.send(fr.FOUND, subject="unknown", payload=keys[0])
        third.send(fr.FOUND, subject="failed", payload=keys[1])
        for peer, key in zip((second, third), keys, strict=True):
            frame = await peer.next_but(fr.CAP)
            assert (frame.type, frame.msg_id) == (fr.SUBMIT_JOB, key)
            peer.result(key)
        assert [(await job).ok for job in jobs] == [True, True]
        drawn = await all_.grid.submit("p")
        frame = await first.next_but(fr.CAP)
        assert (frame.type, JobId(frame.msg_id)) == (fr.SUBMIT_JOB, job_id_from_name(drawn.id)), "it is new for sure"


@pytest.mark.spec("K5", "K6")
async def test_a_lost_leaders_jobs_are_adopted_as_the_same_bytes_and_status_tells() -> None:
    async with several(2, cap=2) as all_:
        job = await all_.grid.submit("p")
        first = await all_.peers[0].next_but(fr.CAP)
        all_.lose(0)
        again = await all_.peers[1].next_but(fr.CAP)
        assert again == first
        lost, there = all_.grid.status().leaders
        assert (lost.connected, lost.share, there.share, there.in_flight, there.adopted) == (False, 0, 2, 1, 1)
        assert lost.trouble
        all_.peers[1].result(JobId(again.msg_id), stdout="done")
        assert (await job).stdout == "done"
        await all_.leaders[0].start()
        back = await all_.leaders[0].peer()
        assert (await back.next_but(fr.CAP)).type == fr.CANCEL
        assert (await back.next_but(fr.CAP)).type == fr.CONFIRM


@pytest.mark.spec("K3")
async def test_what_one_leader_has_no_room_for_goes_to_the_other_at_once() -> None:
    async with several(2) as all_:
        job = await all_.grid.submit("p")
        key = JobId((await all_.peers[0].next_but(fr.CAP)).msg_id)
        all_.peers[0].refuse(key, "full")
        assert (await all_.peers[1].next_but(fr.CAP)).msg_id == key
        all_.peers[1].result(key)
        assert (await job).ok


async def test_leaders_are_added_and_removed_while_jobs_run() -> None:
    async with several(1, cap=4) as all_, scripted(TakesCaps()) as new, asyncio.TaskGroup() as group:
        job = await all_.grid.submit("p")
        key = JobId((await all_.peers[0].next_but(fr.CAP)).msg_id)
        coming = group.create_task(new.peer())
        all_.grid.add_leader(f"127.0.0.1:{new.port}")
        second = await coming
        await eventually(lambda: [row.share for row in all_.grid.status().leaders] == [2, 2])
        removing = group.create_task(all_.grid.remove_leader(all_.names[0]))
        await eventually(lambda: all_.grid.status().leaders[0].leaving)
        await all_.grid.submit("p")
        other = JobId((await second.next_but(fr.CAP)).msg_id)
        assert not removing.done(), "it has a job"
        all_.peers[0].result(key)
        assert (await job).ok
        await removing
        await all_.peers[0].end()
        assert [frame.payload for frame in all_.peers[0].seen if frame.type == fr.CONFIRM] == [key]
        assert all_.grid.leaders == [f"127.0.0.1:{new.port}"]
        second.result(other)


async def test_the_only_leader_is_not_removed_and_a_stranger_neither() -> None:
    async with several(1) as all_:
        with pytest.raises(ConfigError, match="the only leader"):
            await all_.grid.remove_leader(all_.names[0])
        with pytest.raises(ConfigError, match="none of the leaders"):
            await all_.grid.remove_leader("127.0.0.1:1")
        with pytest.raises(ConfigError, match="named twice"):
            all_.grid.add_leader(all_.names[0])
        assert all_.grid.status().connected


async def test_a_question_goes_to_the_named_leader() -> None:
    async with several(2) as all_, asyncio.TaskGroup() as group:
        asking = group.create_task(all_.grid.ask(AskExplain("x"), leader=all_.names[1]))
        asked = await all_.peers[1].next_but(fr.CAP)
        answer = ExplainAnswer("x", "queued", ["because"])
        all_.peers[1].send(fr.ASK, corr_id=asked.msg_id, payload=encode(answer))
        assert await asking == answer
        with pytest.raises(ConfigError, match="none of the leaders"):
            await all_.grid.ask(AskStatus(), leader="127.0.0.1:1")


@pytest.mark.parametrize("knows", [0, 1, None])
async def test_a_question_about_a_job_is_answered_by_whoever_knows_it(knows: int | None) -> None:
    async with several(2) as all_, asyncio.TaskGroup() as group:
        asking = group.create_task(_answer(all_.grid))
        for at, peer in enumerate(all_.peers):
            asked = await peer.next_but(fr.CAP)
            if at == knows:
                answer = encode(ExplainAnswer("x", "queued", ["because"]))
                peer.send(fr.ASK, corr_id=asked.msg_id, payload=answer)
            else:
                no = write_refusal("unknown-job", "never heard")
                peer.send(fr.ASK, corr_id=asked.msg_id, subject="refused", payload=no)
        assert await asking == ("unknown-job" if knows is None else "queued")


async def _answer(grid: Grid) -> str:
    try:
        answer = await grid.ask(AskExplain("x"))
    except Refused as no:
        return no.code
    assert isinstance(answer, ExplainAnswer)
    return answer.state


async def test_a_job_of_someone_else_is_waited_for_and_cancelled_wherever_it_is() -> None:
    key = job_id_from_name("theirs")
    async with several(2) as all_, asyncio.TaskGroup() as group:
        waiting = group.create_task(all_.grid.wait("theirs"))
        for peer in all_.peers:
            assert (await peer.next_but(fr.CAP)).payload == key
        all_.peers[0].refuse(key, "unknown-job")
        all_.peers[1].result(key, stdout="theirs")
        assert (await waiting).stdout == "theirs"
        assert (await all_.peers[1].next_but(fr.CAP)).type == fr.CONFIRM
        cancelling = group.create_task(all_.grid.cancel("a", "b"))
        shown = [show_job_id(job_id_from_name(name)) for name in "ab"]
        for peer, unknown in zip(all_.peers, ([shown[0]], shown)):
            asked = await peer.next_but(fr.CAP)
            peer.send(fr.ASK, corr_id=asked.msg_id, payload=encode(CancelAnswer(2 - len(unknown), 0, unknown)))
        assert await cancelling == CancelAnswer(1, 0, [shown[0]])


@pytest.mark.parametrize("url", ["{0},{0}", "waku://{0},waku://{0}", "localhost:5000,LOCALHOST:5000"])
async def test_an_address_that_is_named_twice_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="named twice"):
        async with connect(url.format("127.0.0.1:5000")):
            pass


@pytest.mark.parametrize("url", ["waku://[::1]:5000,b:5000", "[::1]:5000,b", "waku://[::1],waku://b:5000"])
async def test_addresses_are_read_with_and_without_scheme_port_and_brackets(url: str) -> None:
    grid: Grid
    with pytest.raises(Refused) as caught:
        async with connect(url, connect_timeout_s=0.01) as grid:
            grid.status()
    assert "[::1]:5000,b:5000" in str(caught.value)


@pytest.mark.parametrize("grace_s", [0.0, -1.0, float("nan"), float("inf")])
async def test_a_grace_that_cannot_be_is_refused(grace_s: float) -> None:
    with pytest.raises(ConfigError, match="the grace for a lost leader"):
        async with connect("127.0.0.1:1,127.0.0.1:2", grace_s=grace_s):
            pass


async def test_a_choice_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="'least' or 'round-robin'"):
        async with connect("127.0.0.1:1,127.0.0.1:2", choice="random"):  # type: ignore[arg-type]
            pass


async def _says(writer: asyncio.StreamWriter, reader: asyncio.StreamReader, data: bytes) -> None:
    writer.write(data)
    while await reader.read(65536):
        pass
    writer.close()


@asynccontextmanager
async def no_leader(kind: str) -> AsyncIterator[int]:
    """Something else that listens, or does not: its port."""
    said = {
        "http": b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
        "garbage": bytes(range(1, 200)),
        "mute": b"",
        "a broken welcome": fr.encode(fr.WELCOME, payload=b"{nonsense"),
    }
    server = await asyncio.start_server(
        lambda reader, writer: _says(writer, reader, said.get(kind, b"")), "127.0.0.1", 0
    )
    port = server.sockets[0].getsockname()[1]
    if kind == "unreachable":
        server.close()
    try:
        yield port
    finally:
        server.close()


TROUBLE = {
    "unreachable": "nobody listens there",
    "http": "it speaks HTTP, so it is a web server and no leader",
    "garbage": "a frame of 67305985 bytes is too large",
    "a broken welcome": "the payload of Welcome cannot be read",
}


@pytest.mark.parametrize("kind", TROUBLE)
async def test_what_is_no_leader_is_named_and_the_others_serve(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async with no_leader(kind) as port, scripted(TakesCaps()) as good, asyncio.TaskGroup() as group:
        coming = group.create_task(good.peer())
        async with connect(f"127.0.0.1:{port},127.0.0.1:{good.port}", cap=7) as grid:
            peer = await coming
            await eventually(lambda: bool(grid.status().leaders[0].trouble) and grid.status().leaders[1].share == 7)
            await eventually(lambda: TROUBLE[kind] in grid.status().leaders[0].trouble)
            assert (grid.status().connected, grid.status().trouble) == (True, "")
            jobs = [await grid.submit("p") for _ in range(5)]
            for _ in jobs:
                peer.result(JobId((await peer.next_but(fr.CAP)).msg_id))
            assert all([(await job).ok for job in jobs])
    assert any(f"127.0.0.1:{port}" in line and TROUBLE[kind] in line for line in caplog.messages)


async def test_a_leader_that_never_answers_gets_one_job_and_the_others_the_rest() -> None:
    async with no_leader("mute") as port, scripted(TakesCaps()) as good, asyncio.TaskGroup() as group:
        coming = group.create_task(good.peer())
        async with connect(f"127.0.0.1:{port},127.0.0.1:{good.port}", cap=8, old_leader=True) as grid:
            peer = await coming
            await eventually(lambda: all(row.connected for row in grid.status().leaders))
            for _ in range(8):
                await grid.submit("p")
            for _ in range(7):
                peer.result(JobId((await peer.next_but(fr.CAP, fr.CONFIRM)).msg_id))
            await eventually(lambda: grid.status().unfinished == 1)
            mute, _good = grid.status().leaders
            assert (mute.old_leader, mute.in_flight) == (True, 1)


@pytest.mark.spec("K6")
async def test_when_all_are_gone_the_status_tells_why_for_each_and_jobs_wait() -> None:
    async with several(2, cap=4) as all_:
        job = await all_.grid.submit("p")
        for at in range(2):
            all_.lose(at)
        await eventually(lambda: not all_.grid.status().connected)
        await eventually(lambda: all_.grid.status().trouble.count("nobody listens there") == 2)
        assert all(name in all_.grid.status().trouble for name in all_.names)
        assert all_.grid.status().unfinished == 1
        await all_.leaders[1].start()
        peer = await all_.leaders[1].peer()
        frame = await peer.next_but(fr.CAP)
        peer.result(JobId(frame.msg_id))
        assert (await job).ok


async def test_when_none_can_be_reached_the_error_tells_why_for_each() -> None:
    with pytest.raises(Refused, match=r"no leader at 127\.0\.0\.1:1,127\.0\.0\.1:2 within 0\.3 s") as caught:
        async with connect("waku://127.0.0.1:1,127.0.0.1:2", connect_timeout_s=0.3):
            pass
    assert str(caught.value).count("nobody listens there") == 2
    assert (caught.value.code, caught.value.exit_code) == ("no-leader", 5)


def test_a_plain_client_and_an_executor_take_several_leaders_too() -> None:
    for make in (Client, Executor):
        with pytest.raises(Refused, match=r"no leader at 127\.0\.0\.1:1,127\.0\.0\.1:2"):
            make("waku://127.0.0.1:1,127.0.0.1:2", connect_timeout_s=0.1, choice="round-robin", grace_s=1.0)
