"""The client against a leader that says exactly what the test tells it to, over real sockets."""

from __future__ import annotations

import asyncio
import json
import uuid

import pytest
from tests.kit.grid_and_peer import grid_and_peer, raises_later

from wakugumi.core.ids import JobId, job_id_from_name, show_job_id
from wakugumi.core.leader.answer_records import (
    Answer,
    AttemptRow,
    DeadAnswer,
    DeadDoneAnswer,
    DeadRow,
    LetterAnswer,
    WorkersAnswer,
)
from wakugumi.core.leader.questions import (
    AskDead,
    AskDrop,
    AskLetter,
    AskRequeue,
    AskStatus,
    AskWorkers,
    Question,
)
from wakugumi.core.transfers import uploads
from wakugumi.errors import ConfigError, PeerError, Refused
from wakugumi.roles.client.grid import connect
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.job import Refusal
from wakugumi.wire.messages.payload import encode

pytestmark = pytest.mark.anyio


NINE_TYPES = range(1, 11)


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


@pytest.mark.parametrize(("client_id", "cap"), [("x" * 129, 1), ("a\nb", 1), ("me", 0), ("me", -1), ("me", 100_001)])
async def test_what_no_leader_would_accept_is_refused_before_it_is_dialled(client_id: str, cap: int) -> None:
    with pytest.raises(ConfigError):
        async with connect("127.0.0.1:1", client_id=client_id, cap=cap):
            pass


async def test_a_question_gets_its_answer_or_its_refusal() -> None:
    async with grid_and_peer() as (grid, peer), asyncio.TaskGroup() as group:
        answered = group.create_task(grid.ask(AskWorkers()))
        question = await peer.next(fr.ASK)
        peer.send(fr.ASK, question.msg_id, encode(WorkersAnswer([])))
        assert await answered == WorkersAnswer([])
        for payload, error in ((encode(Refusal("denied", "no")), Refused), (b"[]", PeerError)):
            asking = group.create_task(raises_later(error, grid.ask(AskWorkers())))
            question = await peer.next(fr.ASK)
            peer.send(fr.ASK, question.msg_id, payload, "refused" if error is Refused else "")
            await asking
