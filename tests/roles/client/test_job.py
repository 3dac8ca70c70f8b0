"""What does a user hold while a job is under way? A real client against a scripted leader."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from tests.kit.eventually import eventually
from tests.kit.grid_and_peer import grid_and_peer, raises_later

from wakugumi.core.ids import JobId, job_id_from_name, parse_job_id, show_job_id
from wakugumi.core.leader.answer_records import (
    CancelAnswer,
)
from wakugumi.core.leader.questions import (
    AskCancel,
)
from wakugumi.errors import Refused
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.control import read_question
from wakugumi.wire.messages.payload import encode

pytestmark = pytest.mark.anyio


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


async def test_a_refusal_is_raised_by_those_who_wait_for_the_job() -> None:
    async with grid_and_peer() as (grid, peer):
        job = await grid.submit("p")
        (key,) = await peer.submits(1)
        peer.refuse(key, "bad-subject")
        for waiting in (job, job.accepted()):
            with pytest.raises(Refused, match="because of bad-subject") as caught:
                await waiting
            assert caught.value.code == "bad-subject"


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


async def test_wait_claims_a_job_that_someone_else_submitted() -> None:
    async with grid_and_peer() as (grid, peer), asyncio.TaskGroup() as group:
        waiting = group.create_task(grid.wait("their-job"))
        claim = await peer.next(fr.CLAIM)
        assert claim.payload == job_id_from_name("their-job")
        peer.result(JobId(claim.payload), stdout="theirs")
        result = await waiting
        assert (result.stdout, result.job_id) == ("theirs", "their-job")
        await peer.next(fr.CONFIRM)
        unknown = group.create_task(raises_later(Refused, grid.wait("no-job")))
        peer.refuse(JobId((await peer.next(fr.CLAIM)).payload), "unknown-job")
        await unknown
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await grid.wait("slow-job")
        await peer.next(fr.CLAIM)
        claimed = group.create_task(raises_later(Refused, grid.wait("slow-job")))
        key = JobId((await peer.next(fr.CLAIM)).payload)
        with pytest.raises(Refused, match="being waited for"):
            await grid.submit("p", job_id="slow-job")
        peer.refuse(key, "unknown-job")
        await claimed
        await eventually(lambda: grid.status().unfinished == 0)
