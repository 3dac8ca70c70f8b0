"""The client against a leader that says exactly what the test tells it to, over real sockets."""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.kit.eventually import eventually
from tests.kit.scripted_leader import Peer, ScriptedLeader, scripted

from wakugumi.core.client import leaders
from wakugumi.core.ids import JobId, job_id_from_name, parse_job_id, show_job_id
from wakugumi.core.leader.answer_records import (
    Answer,
    AttemptRow,
    CancelAnswer,
    DeadAnswer,
    DeadDoneAnswer,
    DeadRow,
    LetterAnswer,
    WorkersAnswer,
)
from wakugumi.core.leader.questions import (
    AskCancel,
    AskDead,
    AskDrop,
    AskLetter,
    AskRequeue,
    AskStatus,
    AskWorkers,
    Question,
)
from wakugumi.errors import ConfigError, PeerError, Refused
from wakugumi.limits.leader import RETRIES_MAX
from wakugumi.limits.wire import PAYLOAD_BYTES_MAX
from wakugumi.roles.client import map_window
from wakugumi.roles.client.files import uploads
from wakugumi.roles.client.files.inputs import InputContents
from wakugumi.roles.client.grid import Grid, connect
from wakugumi.roles.client.job_spec import JobSpec, Task
from wakugumi.roles.client.request import Requests
from wakugumi.roles.client.result import Result
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.control import read_question
from wakugumi.wire.messages.job import Refusal, unpack_ids
from wakugumi.wire.messages.payload import encode

pytestmark = pytest.mark.anyio

NINE_TYPES = range(1, 11)


@asynccontextmanager
async def grid_and_peer(
    *, own: bool = True, client_id: str = "tester", cap: int = 8, unfinished_max: int = 100
) -> AsyncIterator[tuple[Grid, Peer]]:
    async with scripted(ScriptedLeader(own=own)) as leader, asyncio.TaskGroup() as group:
        coming = group.create_task(leader.peer())
        url = f"waku://127.0.0.1:{leader.port}"
        options = {"client_id": client_id, "cap": cap, "unfinished_max": unfinished_max}
        async with connect(url, **options, old_leader=not own) as grid:  # type: ignore[arg-type]
            yield grid, await coming


@pytest.mark.spec("K1", "F5", "F6")
async def test_a_job_goes_out_as_the_contract_says_and_its_result_comes_back() -> None:
    async with grid_and_peer() as (grid, peer):
        job = await grid.submit("calcA", args=["--mode=fast", 3], files={"b.txt": "two", "a.txt": b"one"}, timeout_s=9)
        frame = await peer.next(fr.SUBMIT_JOB)
        assert peer.seen[0].subject == "tester"
        assert json.loads(peer.seen[0].payload)["DesiredParallelism"] == 8
        assert uuid.UUID(job.id).bytes_le == frame.msg_id
        assert json.loads(frame.payload) == {
            "JobId": job.id,
            "ClientId": "tester",
            "ExecName": "calcA",
            "Args": ["--mode=fast", "3"],
            "Files": [{"Name": "a.txt", "Content": "b25l"}, {"Name": "b.txt", "Content": "dHdv"}],
            "TimeoutS": 9,
        }
        key = JobId(frame.msg_id)
        peer.send(fr.RECEIPT, payload=key)
        await job.accepted()
        assert not job.done()
        peer.result(key, stdout="42\n", exit_code=0, run_s=0.5, worker="w1")
        result = await job
        assert (await peer.next(fr.CONFIRM)).payload == key
        assert result is await job
        assert (result.ok, result.status, result.exit_code, result.stdout) == (True, "OK", 0, "42\n")
        assert (result.job_id, result.run_s, result.worker, result.reason) == (job.id, 0.5, "w1", "")
        assert result.check() is result


@pytest.mark.spec("L6")
async def test_the_same_request_is_the_same_bytes_in_every_run(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"two")
    spec = JobSpec("p", args=["x"], job_id="name-1", subject="s", timeout_s=5.0)
    one = Requests("me").make(spec, InputContents().load({"a": "one", "b": b"two"}))
    two = Requests("me").make(spec, InputContents().load({"b": tmp_path / "b", "a": b"one"}))
    assert one == two
    assert one.job == job_id_from_name("name-1")
    assert one.id == "name-1"


def test_new_ids_are_random_uuids_and_their_text_is_the_same_id() -> None:
    requests = Requests("me")
    made = [requests.make(JobSpec("p")) for _ in range(1000)]
    assert len({request.job for request in made}) == 1000
    for request in made:
        parsed = uuid.UUID(request.id)
        assert (parsed.version, parsed.variant) == (4, uuid.RFC_4122)
        assert str(parsed) == request.id
        assert parse_job_id(request.id) == request.job == parsed.bytes_le
        assert json.loads(request.frame[43:])["JobId"] == request.id


@pytest.mark.spec("K1")
async def test_an_id_may_be_a_uuid_and_anything_else_is_refused() -> None:
    given = uuid.uuid4()
    async with grid_and_peer() as (grid, peer):
        job = await grid.submit("p", job_id=given)
        assert await peer.submits(1) == [given.bytes_le]
        assert job.id == str(given)
        peer.result(JobId(given.bytes_le), stdout="42")
        assert (await grid.wait(given)).stdout == "42"
        for wrong in (7, b"x", ["a"], object()):
            with pytest.raises(Refused, match="a job id is text or a UUID, not ") as caught:
                await grid.submit("p", job_id=wrong)  # type: ignore[arg-type]
            assert caught.value.code == "bad-request"
            with pytest.raises(Refused, match="a job id is text or a UUID"):
                await grid.wait(wrong)  # type: ignore[arg-type]
            results = [result async for result in grid.map("p", [{"job_id": wrong}])]
            assert [result.reason for result in results] == ["bad-request"]


async def test_what_a_job_asks_for_is_part_of_the_request_and_left_out_if_it_asks_for_nothing() -> None:
    async with grid_and_peer() as (grid, peer), asyncio.TaskGroup() as group:
        await grid.submit("p", job_id="one", key="k", priority=-7, slots=3)
        await grid.submit("p", job_id="two")
        running = group.create_task(grid.run("p", job_id="three", priority=1))
        keys = await peer.submits(3)
        requests = [json.loads(f.payload) for f in peer.seen if f.type == fr.SUBMIT_JOB]
        asked = [{name: request.get(name) for name in ("Key", "Priority", "Slots")} for request in requests]
        assert asked[0] == {"Key": "k", "Priority": -7, "Slots": 3}
        assert asked[1] == {"Key": None, "Priority": None, "Slots": None}
        assert asked[2] == {"Key": None, "Priority": 1, "Slots": None}
        peer.result(keys[2])
        assert (await running).ok


async def test_retries_are_part_of_the_request_and_left_out_if_there_are_none() -> None:
    async with grid_and_peer() as (grid, peer), asyncio.TaskGroup() as group:
        await grid.submit("p", job_id="one", retries=RETRIES_MAX)
        await grid.submit("p", job_id="two")
        running = group.create_task(grid.run("p", job_id="three", retries=2))
        keys = await peer.submits(3)
        requests = [json.loads(f.payload) for f in peer.seen if f.type == fr.SUBMIT_JOB]
        assert [request.get("Retries") for request in requests] == [RETRIES_MAX, None, 2]
        with pytest.raises(Refused, match="another request"):
            await grid.submit("p", job_id="one", retries=1)
        peer.result(keys[2])
        assert (await running).ok


async def test_questions_about_the_dead_name_jobs_as_people_do() -> None:
    named = show_job_id(job_id_from_name("monday-run"))
    row = DeadRow(named, "me", "p", "job.assign.p", 5, "timeout", "w1", 1.0)
    exchanges: list[tuple[Question, Answer]] = [
        (AskDead(["monday-run"]), DeadAnswer([row], 1)),
        (AskLetter("monday-run"), LetterAnswer(row, [AttemptRow(1, "w1", 2.0, 1.0, "timeout", "said")])),
        (AskRequeue(["monday-run"]), DeadDoneAnswer(1, [])),
        (AskDrop(["monday-run"], reason="timeout"), DeadDoneAnswer(0, [named])),
    ]
    async with grid_and_peer() as (grid, peer), asyncio.TaskGroup() as group:
        for question, answer in exchanges:
            asking = group.create_task(grid.ask(question))
            asked = await peer.next(fr.ASK)
            assert named in asked.payload.decode()
            assert "monday-run" not in asked.payload.decode()
            peer.send(fr.ASK, corr_id=asked.msg_id, payload=encode(answer))
            assert await asking == answer


async def test_a_name_may_stand_for_a_job_id_and_is_shown_as_given() -> None:
    async with grid_and_peer() as (grid, peer):
        job = await grid.submit("p", job_id="invoice.2026-07")
        (key,) = await peer.submits(1)
        assert key == job_id_from_name("invoice.2026-07")
        peer.result(key)
        assert job.id == (await job).job_id == "invoice.2026-07"


@pytest.mark.spec("K6", "F9")
async def test_after_a_lost_connection_the_same_bytes_are_sent_again_and_the_result_comes_once() -> None:
    async with scripted() as leader, asyncio.TaskGroup() as group:
        coming = group.create_task(leader.peer())
        async with connect(f"127.0.0.1:{leader.port}") as grid:
            first = await coming
            done, lost = await grid.submit("p", args=["1"]), await grid.submit("p", args=["2"])
            keys = await first.submits(2)
            first.result(keys[0], stdout="one")
            assert (await done).stdout == "one"
            await first.next(fr.CONFIRM)
            first.hang_up()
            second = await leader.peer()
            assert (await second.next(fr.CONFIRM)).payload == keys[0], "it may have missed that"
            await second.knows_nothing()
            again = await second.next(fr.SUBMIT_JOB)
            assert again == next(frame for frame in first.seen if frame.msg_id == keys[1])
            second.result(keys[1], stdout="two")
            second.result(keys[1], stdout="three")
            assert (await lost).stdout == "two"
            assert (await second.next(fr.CONFIRM)).payload == keys[1] * 2
            assert grid.status().unfinished == 0


async def test_who_waits_for_a_job_goes_on_waiting_when_another_gives_up() -> None:
    async with grid_and_peer() as (grid, peer), asyncio.TaskGroup() as group:
        key = parse_job_id("6f1c9a52-3f0e-4d55-8d5e-0c8f5f3a9b11")
        patient = group.create_task(grid.wait(show_job_id(key)))
        hasty = group.create_task(grid.wait(show_job_id(key)))
        await peer.next(fr.CLAIM)
        hasty.cancel()
        await asyncio.wait({hasty})
        peer.result(key, stdout="late")
        assert (await patient).stdout == "late"


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


@pytest.mark.spec("L9")
async def test_a_full_leader_holds_back_submit_and_gets_the_refused_job_again() -> None:
    async with grid_and_peer() as (grid, peer), asyncio.TaskGroup() as group:
        job = await grid.submit("p")
        (key,) = await peer.submits(1)
        peer.refuse(key, "full")
        assert await peer.submits(1) == [key]
        waiting = group.create_task(grid.submit("p", args=["later"]))
        await asyncio.sleep(0)
        assert not waiting.done()
        peer.send(fr.RECEIPT, payload=key)
        later = await waiting
        (next_key,) = await peer.submits(1)
        peer.result(key)
        peer.result(next_key)
        assert (await job).ok
        assert (await later).ok


async def test_a_refusal_is_raised_by_those_who_wait_for_the_job() -> None:
    async with grid_and_peer() as (grid, peer):
        job = await grid.submit("p")
        (key,) = await peer.submits(1)
        peer.refuse(key, "bad-subject")
        for waiting in (job, job.accepted()):
            with pytest.raises(Refused, match="because of bad-subject") as caught:
                await waiting
            assert caught.value.code == "bad-subject"


async def test_one_id_is_one_job_here_too() -> None:
    async with grid_and_peer() as (grid, peer):
        job = await grid.submit("p", job_id="one")
        assert await grid.submit("p", job_id="one") is job
        with pytest.raises(Refused, match="another request") as caught:
            await grid.submit("p", args=["other"], job_id="one")
        assert caught.value.code == "conflict"
        peer.result((await peer.submits(1))[0])
        assert (await job).ok
        assert await grid.submit("p", job_id="one") is not job, "what is done may be asked for again"


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


@pytest.mark.spec("U8")
@pytest.mark.parametrize("own", [True, False], ids=["of an earlier version", "of the nine types"])
async def test_a_leader_that_knows_no_variables_gets_no_job_that_sets_some(
    own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "HELLO_DEADLINE_S", 1.1)
    async with grid_and_peer(own=own) as (grid, peer):
        with pytest.raises(Refused) as caught:
            await grid.run("p", env={"SEED": "7"})
        assert (caught.value.code, "--env" in caught.value.hint) == ("not-supported", True)
        job = await grid.submit("p", env={})
        peer.result((await peer.submits(1))[0])
        assert (await job).ok
    assert [frame.type for frame in peer.seen].count(fr.SUBMIT_JOB) == 1


async def test_an_old_leader_hears_nothing_but_the_nine_types() -> None:
    async with grid_and_peer(own=False) as (grid, peer):
        assert grid.status().old_leader
        job = await grid.submit("p")
        cancelled = await grid.submit("p")
        keys = await peer.submits(2)
        peer.result(keys[0], stdout="old")
        assert (await job).stdout == "old"
        await cancelled.cancel()
        assert (await cancelled).reason == "cancelled"
        with pytest.raises(Refused) as caught:
            await grid.ask(AskStatus())
        assert caught.value.code == "not-supported"
    await peer.end()
    assert all(frame.type in NINE_TYPES for frame in peer.seen)


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


@pytest.mark.parametrize(("client_id", "cap"), [("x" * 129, 1), ("a\nb", 1), ("me", 0), ("me", -1), ("me", 100_001)])
async def test_what_no_leader_would_accept_is_refused_before_it_is_dialled(client_id: str, cap: int) -> None:
    with pytest.raises(ConfigError):
        async with connect("127.0.0.1:1", client_id=client_id, cap=cap):
            pass


async def test_a_leader_that_falls_silent_is_left_and_its_jobs_go_to_the_next_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leaders, "SILENCE_MAX_S", 0.3)
    monkeypatch.setattr(leaders, "HEARTBEAT_S", 0.05)
    async with scripted() as leader, asyncio.TaskGroup() as group:
        coming = group.create_task(leader.peer())
        async with connect(f"127.0.0.1:{leader.port}") as grid:
            job = await grid.submit("p")
            silent = await coming
            await silent.submits(1)
            second = await leader.peer()
            assert any(frame.type == fr.HEARTBEAT for frame in silent.seen)
            await second.knows_nothing()
            peer_keys = await second.submits(1)
            second.result(peer_keys[0])
            assert (await job).ok


async def test_a_result_that_cannot_be_read_fails_its_job_and_no_other() -> None:
    async with grid_and_peer() as (grid, peer):
        jobs = [await grid.submit("p"), await grid.submit("p"), await grid.submit("p")]
        keys = await peer.submits(3)
        peer.send(fr.RESULT, keys[0], b"{nonsense")
        peer.send(fr.RESULT, keys[1], b"")
        peer.send(200, keys[2], b"a type of the future")
        peer.result(keys[2])
        assert (await jobs[0]).reason == "bad-result"
        assert (await jobs[1]).ok, "an empty payload means OK (F9)"
        assert (await jobs[2]).ok


async def test_cancel_tells_the_leader_whose_result_ends_the_job() -> None:
    async with grid_and_peer() as (grid, peer):
        job = await grid.submit("p")
        (key,) = await peer.submits(1)
        await job.cancel()
        assert (await peer.next(fr.CANCEL)).payload == key
        peer.result(key, status="FAILED", reason="cancelled")
        result = await job
        assert (result.ok, result.reason) == (False, "cancelled")
        await peer.next(fr.CONFIRM)
        await job.cancel()
    await peer.end()
    assert peer.seen[-1].type == fr.CONFIRM, "what is done cannot be cancelled"


async def test_cancelling_a_run_cancels_its_job() -> None:
    async with grid_and_peer() as (grid, peer), asyncio.TaskGroup() as group:
        running = group.create_task(grid.run("p"))
        (key,) = await peer.submits(1)
        running.cancel()
        assert (await peer.next(fr.CANCEL)).payload == key


async def test_who_stops_waiting_for_a_job_does_not_cancel_it() -> None:
    async with grid_and_peer() as (grid, peer):
        job = await grid.submit("p")
        (key,) = await peer.submits(1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await job
        peer.result(key, stdout="still there")
        assert (await job).stdout == "still there"
        await peer.next(fr.CONFIRM)


@pytest.mark.spec("L10")
async def test_jobs_of_others_are_cancelled_by_asking() -> None:
    async with grid_and_peer() as (grid, peer), asyncio.TaskGroup() as group:
        own = await grid.submit("p")
        (key,) = await peer.submits(1)
        other = str(uuid.uuid4())
        cancelling = group.create_task(grid.cancel(own.id, other, "named"))
        assert (await peer.next(fr.CANCEL)).payload == key
        question = await peer.next(fr.ASK)
        named = str(uuid.UUID(bytes_le=job_id_from_name("named")))
        assert read_question(question.payload) == AskCancel([other, named])
        peer.send(fr.ASK, question.msg_id, encode(CancelAnswer(1, 0, [named])))
        assert await cancelling == CancelAnswer(2, 0, [named])
        peer.result(key, status="FAILED", reason="cancelled")
        assert not (await own).ok


async def test_a_question_gets_its_answer_or_its_refusal() -> None:
    async with grid_and_peer() as (grid, peer), asyncio.TaskGroup() as group:
        answered = group.create_task(grid.ask(AskWorkers()))
        question = await peer.next(fr.ASK)
        peer.send(fr.ASK, question.msg_id, encode(WorkersAnswer([])))
        assert await answered == WorkersAnswer([])
        for payload, error in ((encode(Refusal("denied", "no")), Refused), (b"[]", PeerError)):
            asking = group.create_task(_expect(error, grid.ask(AskWorkers())))
            question = await peer.next(fr.ASK)
            peer.send(fr.ASK, question.msg_id, payload, "refused" if error is Refused else "")
            await asking


async def _expect(error: type[BaseException], work: Awaitable[object]) -> None:
    with pytest.raises(error):
        await work


async def test_wait_claims_a_job_that_someone_else_submitted() -> None:
    async with grid_and_peer() as (grid, peer), asyncio.TaskGroup() as group:
        waiting = group.create_task(grid.wait("their-job"))
        claim = await peer.next(fr.CLAIM)
        assert claim.payload == job_id_from_name("their-job")
        peer.result(JobId(claim.payload), stdout="theirs")
        result = await waiting
        assert (result.stdout, result.job_id) == ("theirs", "their-job")
        await peer.next(fr.CONFIRM)
        unknown = group.create_task(_expect(Refused, grid.wait("no-job")))
        peer.refuse(JobId((await peer.next(fr.CLAIM)).payload), "unknown-job")
        await unknown
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await grid.wait("slow-job")
        await peer.next(fr.CLAIM)
        claimed = group.create_task(_expect(Refused, grid.wait("slow-job")))
        key = JobId((await peer.next(fr.CLAIM)).payload)
        with pytest.raises(Refused, match="being waited for"):
            await grid.submit("p", job_id="slow-job")
        peer.refuse(key, "unknown-job")
        await claimed
        await eventually(lambda: grid.status().unfinished == 0)


async def test_submit_waits_while_too_many_jobs_are_unfinished_first_come_first_served() -> None:
    async with grid_and_peer(unfinished_max=2) as (grid, peer), asyncio.TaskGroup() as group:
        for _ in range(2):
            await grid.submit("p")
        keys = await peer.submits(2)
        waiting = [group.create_task(grid.submit("p", args=[number])) for number in range(3)]
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        waiting[1].cancel()
        peer.result(keys[0])
        await waiting[0]
        await peer.next(fr.CONFIRM)
        assert json.loads((await peer.next(fr.SUBMIT_JOB)).payload)["Args"] == ["0"]
        peer.result(keys[1])
        await waiting[2]
        await peer.next(fr.CONFIRM)
        assert json.loads((await peer.next(fr.SUBMIT_JOB)).payload)["Args"] == ["2"]


async def test_a_long_loop_of_submits_lets_its_jobs_leave() -> None:
    async with grid_and_peer(unfinished_max=2000) as (grid, peer):
        for _ in range(1000):
            await grid.submit("p")
        assert grid.status().unfinished == 1000
        await peer.submits(1000)


async def test_a_closed_client_ends_what_is_unfinished() -> None:
    async with grid_and_peer() as (grid, peer), asyncio.TaskGroup() as group:
        done, left = await grid.submit("p"), await grid.submit("p")
        keys = await peer.submits(2)
        peer.result(keys[0])
        await done
        asking = group.create_task(_expect(Refused, grid.ask(AskStatus())))
        await peer.next(fr.CONFIRM)
        await peer.next(fr.ASK)
        await grid.close()
        await asking
        for work in (left, grid.submit("p"), grid.wait("x"), grid.ask(AskStatus())):
            with pytest.raises(Refused) as caught:
                await work
            assert caught.value.code == "closed"
    await peer.end()


async def test_a_confirm_is_not_lost_by_leaving_at_once() -> None:
    async with grid_and_peer() as (grid, peer):
        job = await grid.submit("p")
        (key,) = await peer.submits(1)
        peer.result(key)
        await job
    await peer.end()
    assert [frame.payload for frame in peer.seen if frame.type == fr.CONFIRM] == [key]


async def test_what_can_be_no_job_is_refused_with_a_reason(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    bad: list[tuple[str, dict[str, object]]] = [
        ("bad-name", {"program": "../sh"}),
        ("bad-name", {"files": {"../x": b""}}),
        ("bad-name", {"files": {"/etc/passwd": b""}}),
        ("too-big", {"args": ["x" * PAYLOAD_BYTES_MAX]}),
        ("too-big", {"args": ["x" * (PAYLOAD_BYTES_MAX - 120)], "files": {"x": b"small"}}),
        ("bad-request", {"files": {"x": tmp_path / "nowhere"}}),
        ("bad-request", {"files": {"x": tmp_path}}),
        ("bad-request", {"files": {"x": tmp_path / "pipe"}}),
        ("bad-request", {"args": ["a\0b"]}),
        ("bad-request", {"args": [None]}),
        ("bad-request", {"args": ["\udcff"]}),
        ("bad-request", {"timeout_s": 0}),
        ("bad-request", {"timeout_s": float("nan")}),
        ("bad-request", {"job_id": "no blanks"}),
        ("bad-request", {"retries": -1}),
        ("bad-request", {"retries": RETRIES_MAX + 1}),
        ("bad-request", {"retries": 1.5}),
        ("bad-request", {"retries": True}),
        ("bad-request", {"key": ""}),
        ("bad-request", {"key": "x" * 129}),
        ("bad-request", {"key": "a\nb"}),
        ("bad-request", {"key": 7}),
        ("bad-request", {"priority": 101}),
        ("bad-request", {"priority": -101}),
        ("bad-request", {"priority": 1.5}),
        ("bad-request", {"priority": False}),
        ("bad-request", {"slots": 0}),
        ("bad-request", {"slots": -1}),
        ("bad-request", {"slots": 4097}),
        ("bad-request", {"slots": True}),
        ("bad-request", {"slots": "2"}),
        ("bad-subject", {"subject": "a..b"}),
    ]
    async with grid_and_peer() as (grid, _peer):
        for code, options in bad:
            with pytest.raises(Refused) as caught:
                await grid.submit(**{"program": "p", **options})  # type: ignore[arg-type]
            assert caught.value.code == code, options
        with pytest.raises(Refused, match="a frame has room for"):
            await grid.submit("p", args=["x" * PAYLOAD_BYTES_MAX])
        assert grid.status().unfinished == 0


class DeafLeader(ScriptedLeader):
    async def _serve(self, peer: Peer) -> None:
        peer.welcome()
        await asyncio.Event().wait()


@pytest.mark.parametrize("options", [{"args": "text"}, {"files": {"x": 5}}, {"limits": {"cpu_s": 1}}])
async def test_what_is_a_mistake_of_the_caller_is_a_type_error(options: dict[str, object]) -> None:
    async with grid_and_peer() as (grid, _peer):
        with pytest.raises(TypeError):
            await grid.submit("p", **options)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            await anext(grid.map("p", [options]))


async def test_a_leader_that_does_not_read_holds_back_submit() -> None:
    async with scripted(DeafLeader(own=False)) as leader, connect(f"127.0.0.1:{leader.port}") as grid:

        async def submit_for_ever() -> None:
            while True:
                await grid.submit("p", files={"x": bytes(1 << 20)})

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await submit_for_ever()
        assert grid.status().unfinished < 50


# Map.


async def answer_all(peer: Peer, **fields: object) -> None:
    while True:
        frame = await peer.frames.get()
        if frame is None:
            return
        if frame.type == fr.SUBMIT_JOB:
            peer.result(JobId(frame.msg_id), stdout=" ".join(json.loads(frame.payload).get("Args", [])))


@asynccontextmanager
async def echoing(**options: int) -> AsyncIterator[tuple[Grid, Peer]]:
    async with grid_and_peer(**options) as (grid, peer), asyncio.TaskGroup() as group:  # type: ignore[arg-type]
        answering = group.create_task(answer_all(peer))
        yield grid, peer
        answering.cancel()


async def test_map_gives_every_item_its_result() -> None:
    async with echoing() as (grid, _peer):
        found = {}
        async for result in grid.map("p", (str(number) for number in range(500)), args=["--n"]):
            assert isinstance(result.item, str)
            assert result.stdout == f"--n {result.item}"
            found[result.item] = result.ok
        assert found == {str(number): True for number in range(500)}
        assert grid.status().unfinished == 0


async def test_map_takes_items_of_every_form(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"s")
    (tmp_path / "large").write_bytes(bytes(200_000))
    items: list[object] = [
        "text",
        7,
        2.5,
        ["a", 1],
        ("b", "c"),
        tmp_path / "small",
        tmp_path / "large",
        {"args": ["d"], "files": {"f": b"x"}, "job_id": "given"},
        Task(args=["e"], program="other", subject="sub", timeout_s=3.0, retries=0),
    ]
    async with grid_and_peer() as (grid, peer), asyncio.TaskGroup() as group:
        answering = group.create_task(answer_all(peer))
        common: dict[str, bytes] = {"common": b"c"}
        results = [result async for result in grid.map("p", items, args=["0"], files=common, timeout_s=8, retries=4)]
        assert len(results) == len(items)
        assert all(any(result.item is item for result in results) for item in items)
        said = sorted(result.stdout for result in results)
        assert said == ["0 2.5", "0 7", "0 a 1", "0 b c", "0 d", "0 e", "0 large", "0 small", "0 text"]
        requests = {json.loads(f.payload)["Args"][1]: f for f in peer.seen if f.type == fr.SUBMIT_JOB}
        named = {args: [x["Name"] for x in json.loads(f.payload)["Files"]] for args, f in requests.items()}
        assert named["text"] == ["common"]
        assert named["small"] == ["common", "small"]
        assert named["d"] == ["common", "f"]
        assert requests["d"].msg_id == job_id_from_name("given")
        assert json.loads(requests["e"].payload)["ExecName"] == "other"
        assert (requests["e"].subject, json.loads(requests["e"].payload)["TimeoutS"]) == ("sub", 3.0)
        assert json.loads(requests["text"].payload)["TimeoutS"] == 8
        retries = {args: json.loads(f.payload).get("Retries", 0) for args, f in requests.items()}
        assert retries.pop("e") == 0, "what a task says holds"
        assert set(retries.values()) == {4}
        answering.cancel()


class Counted:
    """Items that count how many were taken."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.taken = 0

    def __iter__(self) -> Iterator[str]:
        while self.taken < self.count:
            self.taken += 1
            yield str(self.taken)

    async def __aiter__(self) -> AsyncIterator[str]:
        while self.taken < self.count:
            await asyncio.sleep(0)
            self.taken += 1
            yield str(self.taken)


@pytest.mark.parametrize("form", ["plain", "async"])
async def test_map_is_never_more_than_its_window_ahead(form: str) -> None:
    items = Counted(300)
    source = iter(items) if form == "plain" else aiter(items)
    async with echoing() as (grid, peer):
        had = 0
        async with grid.map("p", source, window=10) as results:
            async for _ in results:
                had += 1
                assert items.taken - had < 10
                if had % 50 == 0:
                    await eventually(lambda: not peer.frames.qsize())
        assert had == items.taken == 300


@pytest.mark.parametrize("form", ["plain", "async"])
async def test_a_leader_that_answers_nothing_holds_back_the_items(form: str) -> None:
    items = Counted(1000)
    async with grid_and_peer() as (grid, peer):
        results = grid.map("p", iter(items) if form == "plain" else aiter(items), window=7)
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(_expect(asyncio.CancelledError, anext(results)))
            await peer.submits(7)
            for _ in range(100):
                await asyncio.sleep(0)
            assert items.taken == 7
            assert not waiting.done()
            waiting.cancel()


@pytest.mark.parametrize("way", ["break", "close", "exception"])
async def test_leaving_a_map_early_cancels_what_is_under_way(way: str) -> None:
    async with grid_and_peer() as (grid, peer):
        keys: list[JobId] = []

        async def leave() -> None:
            nonlocal keys
            results = grid.map("p", Counted(100), window=5)
            if way == "close":
                async with results:
                    await first(results)
                return
            async for _ in results:
                if way == "exception":
                    raise KeyError
                break

        async def first(results: AsyncIterator[Result]) -> None:
            await anext(results)

        async with asyncio.TaskGroup() as group:
            leaving = group.create_task(leave() if way != "exception" else _expect(KeyError, leave()))
            keys = await peer.submits(5)
            peer.result(keys[2])
            await leaving
        await peer.next(fr.CONFIRM)
        cancelled = await peer.next(fr.CANCEL)
        assert set(unpack_ids(cancelled.payload)) == {*keys} - {keys[2]}
        for key in keys:
            peer.result(key, status="FAILED", reason="cancelled")
        await eventually(lambda: grid.status().unfinished == 0)


@pytest.mark.parametrize("form", ["plain", "async"])
async def test_an_exception_of_the_items_comes_out_after_what_is_under_way_was_cancelled(form: str) -> None:
    def plain() -> Iterator[str]:
        yield from "abc"
        raise ZeroDivisionError("mine")

    async def slow() -> AsyncIterator[str]:
        for item in plain():
            yield item

    async with grid_and_peer() as (grid, peer):
        with pytest.raises(ZeroDivisionError, match="mine"):
            async for _ in grid.map("p", plain() if form == "plain" else slow()):
                pass
        keys = await peer.submits(3)
        assert list(unpack_ids((await peer.next(fr.CANCEL)).payload)) == keys


async def test_items_that_take_their_time_do_not_wait_for_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_window, "FILL_S", -1.0)  # Each item takes longer than a turn may.
    async with grid_and_peer() as (grid, peer), asyncio.TaskGroup() as group:
        results = grid.map("p", "abc")
        first = group.create_task(anext(results))  # type: ignore[arg-type]
        keys = await peer.submits(3)
        peer.result(keys[0], stdout="42")
        assert (await first).stdout == "42"
        await results.aclose()


async def test_an_item_that_can_be_no_job_is_a_mistake_of_the_caller() -> None:
    async with grid_and_peer() as (grid, _peer):
        with pytest.raises(TypeError, match="not iterable"):
            grid.map("p", 5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="map cannot make a job of set"):
            await anext(grid.map("p", [{1}]))
        with pytest.raises(ValueError, match="a window is 1 to 100 jobs"):
            grid.map("p", [], window=0)
        with pytest.raises(Refused, match="is a path"):
            await anext(grid.map("a/b", ["x"]))


async def test_a_refused_item_is_a_result_and_the_loop_goes_on(tmp_path: Path) -> None:
    async with grid_and_peer() as (grid, peer), asyncio.TaskGroup() as group:
        nowhere = tmp_path / "nowhere"
        items: list[object] = ["ok", nowhere, "nul\0", {"job_id": "bad id"}, {"program": "a/b"}, "full"]

        async def collect() -> dict[str, Result]:
            return {str(result.item): result async for result in grid.map("p", items)}

        collecting = group.create_task(collect())
        keys = await peer.submits(2)
        peer.result(keys[0])
        peer.refuse(keys[1], "conflict")
        found = await collecting
        assert len(found) == 6
        assert found["ok"].ok
        assert found["full"].reason == "conflict"
        assert found["nul\0"].reason == "bad-request"
        assert "cannot be read" in found[str(nowhere)].stderr
        assert found[str(items[3])].job_id == "bad id"
        assert found[str(items[4])].reason == "bad-name"


async def test_two_items_with_one_id_are_one_job_with_two_results() -> None:
    async with grid_and_peer() as (grid, peer), asyncio.TaskGroup() as group:
        items = [{"job_id": "one"}, {"job_id": "one"}, {"job_id": "one", "args": ["other"]}]

        async def collect() -> list[Result]:
            return [result async for result in grid.map("p", items)]

        collecting = group.create_task(collect())
        (key,) = await peer.submits(1)
        peer.result(key)
        results = await collecting
        assert sum(result.ok for result in results) == 2
        assert [result.reason for result in results if not result.ok] == ["conflict"]
        assert sorted(id(result.item) for result in results) == sorted(map(id, items))


async def test_map_lives_through_a_lost_connection() -> None:
    async with scripted() as leader, asyncio.TaskGroup() as group:
        coming = group.create_task(leader.peer())
        async with connect(f"127.0.0.1:{leader.port}") as grid:

            async def collect() -> list[Result]:
                return [result async for result in grid.map("p", [str(n) for n in range(20)], window=4)]

            collecting = group.create_task(collect())
            first = await coming
            await first.submits(4)
            first.hang_up()
            second = await leader.peer()
            await second.knows_nothing()
            answering = group.create_task(answer_all(second))
            results = await collecting
            assert sorted(int(result.stdout) for result in results) == list(range(20))
            answering.cancel()


async def test_a_map_is_told_when_the_client_is_closed() -> None:
    async with grid_and_peer(unfinished_max=3) as (grid, peer), asyncio.TaskGroup() as group:
        blocking = await grid.submit("p")
        collecting = group.create_task(_expect(Refused, anext(grid.map("p", ["x"] * 5, window=3))))
        keys = await peer.submits(3)
        await grid.close()
        await collecting
        await _expect(Refused, blocking)
    await peer.end()
    cancels = [frame for frame in peer.seen if frame.type == fr.CANCEL]
    assert unpack_ids(cancels[0].payload) == keys[1:], "of the map, and not what was submitted by itself"
