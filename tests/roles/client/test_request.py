"""What does a job look like as bytes, and what can be none? A real client against a scripted leader."""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from pathlib import Path

import pytest
from tests.kit.grid_and_peer import grid_and_peer

from wakugumi.core.ids import JobId, job_id_from_name, parse_job_id
from wakugumi.errors import Refused
from wakugumi.limits.leader import RETRIES_MAX
from wakugumi.limits.wire import PAYLOAD_BYTES_MAX
from wakugumi.roles.client.files.inputs import InputContents
from wakugumi.roles.client.job_spec import JobSpec
from wakugumi.roles.client.request import Requests
from wakugumi.wire import frame as fr

pytestmark = pytest.mark.anyio


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


async def test_a_name_may_stand_for_a_job_id_and_is_shown_as_given() -> None:
    async with grid_and_peer() as (grid, peer):
        job = await grid.submit("p", job_id="invoice.2026-07")
        (key,) = await peer.submits(1)
        assert key == job_id_from_name("invoice.2026-07")
        peer.result(key)
        assert job.id == (await job).job_id == "invoice.2026-07"


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


@pytest.mark.parametrize("options", [{"args": "text"}, {"files": {"x": 5}}, {"limits": {"cpu_s": 1}}])
async def test_what_is_a_mistake_of_the_caller_is_a_type_error(options: dict[str, object]) -> None:
    async with grid_and_peer() as (grid, _peer):
        with pytest.raises(TypeError):
            await grid.submit("p", **options)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            await anext(grid.map("p", [options]))
