"""Jobs that a gateway accepts for good: 202, states, events, cancelling; and what happens when the gateway dies."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.kit.eventually import eventually
from tests.kit.fake_group import (
    DEADLINE_S,
    FAILED,
    Asked,
    Caller,
    FakeGroup,
    GatewayHere,
    Said,
    a_gateway,
    a_problem,
    a_result,
    call,
    groups_of,
    left_on_disk,
    submit,
    submit_until_taken,
    sweep,
    until_state,
)
from tests.kit.form import FORM, form

from wakugumi.adapters.gateway_store.sqlite import SqliteGatewayStore
from wakugumi.core.ids import job_id_from_name

pytestmark = pytest.mark.anyio


@pytest.mark.spec("G3")
@pytest.mark.parametrize(
    ("wish", "size"),
    [("?async=1", 5), ("Prefer: respond-async", 1_000_000), ("Prefer: wait=1, Respond-Async; x=y", 5)],
)
async def test_a_job_is_accepted_and_its_result_is_there_later(tmp_path: Path, wish: str, size: int) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        lines, query = ([], wish) if wish.startswith("?") else ([wish], "")
        group.behave = group.hold
        heard = await submit(gate.port, "monday", b"x" * size, *lines, query=query)
        assert (heard.status, heard.head["location"]) == (202, "/status/monday")
        assert heard.json["state"] == "queued"
        await until_state(gate.port, "monday", "running")
        early = await call(gate.port, "GET", "/result/monday")
        assert (early.status, early.code) == (404, "no-result")
        group.open.set()
        told = await until_state(gate.port, "monday", "done")
        assert (told["status"], told["group"], told["result"]) == ("OK", "a", "/result/monday")
        result = await call(gate.port, "GET", "/result/monday")
        assert (result.status, result.body, result.head["waku-status"]) == (200, b"PK by a", "OK")
        [asked] = group.dispatched
        assert asked.path == "/dispatch/monday"
        assert asked.content == b"x" * size
        await eventually(lambda: left_on_disk(tmp_path) == [])


async def test_what_is_accepted_is_on_the_disk_before_the_client_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    flushed = SqliteGatewayStore.flush

    async def flush(store: SqliteGatewayStore) -> None:
        found = await store.get(job_id_from_name("monday"))
        assert found is not None
        synced.append(found.state)
        await flushed(store)

    monkeypatch.setattr(SqliteGatewayStore, "flush", flush)
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        group.behave = group.hold
        assert (await submit(gate.port, "monday", query="?async=1")).status == 202
        assert synced == ["queued"]
        group.open.set()
        await until_state(gate.port, "monday", "done")


@pytest.mark.spec("G3")
async def test_an_accepted_job_waits_until_a_group_takes_it(tmp_path: Path) -> None:
    async with groups_of("a", "b") as [full, gone], a_gateway(tmp_path, [full, gone]) as gate:
        full.say(a_problem(503, "full"))
        await gone.stop()
        assert (await submit(gate.port, "monday", query="?async=1")).status == 202
        await eventually(lambda: len(full.dispatched) >= 2)
        await until_state(gate.port, "monday", "queued")
        full.say(a_result("monday"))
        told = await until_state(gate.port, "monday", "done")
        assert told["tries"] >= 2


@pytest.mark.parametrize(
    ("said", "reason"),
    [(Said(200, b"PK failed", FAILED), "exit"), (a_problem(404, "unknown-program"), "unknown-program")],
)
async def test_a_job_that_failed_says_why(tmp_path: Path, said: Said, reason: str) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        group.say(said)
        await submit(gate.port, "monday", query="?async=1")
        told = await until_state(gate.port, "monday", "failed")
        assert (told["status"], told["reason"]) == ("FAILED", reason)
        group.say(a_result("monday"))
        assert (await submit(gate.port, "monday", query="?async=1")).status == 202
        await until_state(gate.port, "monday", "done")
        assert len(group.dispatched) == 2


async def test_the_same_id_is_accepted_once_and_one_who_waits_gets_its_answer(tmp_path: Path) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        group.behave = group.hold
        large = b"x" * 500_000
        for _ in range(2):
            assert (await submit(gate.port, "monday", large, query="?async=1")).status == 202
        await group.arrived.wait()
        waiting = asyncio.get_running_loop().create_task(submit(gate.port, "monday", large))
        await eventually(lambda: gate.server.pages.submits == 1)
        group.open.set()
        assert (await waiting).body == b"PK by a"
        assert len(group.dispatched) == 1
        again = await submit(gate.port, "monday", large, query="?async=1")
        assert (again.status, again.json["state"]) == (202, "done")
        await eventually(lambda: left_on_disk(tmp_path) == [])


async def test_a_job_that_runs_for_one_who_waits_can_be_accepted_for_good(tmp_path: Path) -> None:
    """Its gateway finds no group, which is nothing to who waits; and the other one was told that it is accepted."""
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as one, a_gateway(tmp_path, [group]) as two:

        async def full_then_good(asked: Asked) -> Said | None:
            if len(group.dispatched) > 1:
                return a_result("monday")
            await group.open.wait()
            return a_problem(503, "full")

        group.behave = full_then_good
        waiting = asyncio.get_running_loop().create_task(submit(one.port, "monday", b"x" * 400_000))
        await group.arrived.wait()
        # 503 until the whole request of the one who waits was received: only then is it known to be the same.
        assert (await submit_until_taken(two.port, "monday", b"x" * 400_000, query="?async=1")).status == 202
        group.open.set()
        assert (await waiting).code == "no-group"
        await until_state(two.port, "monday", "done")
        assert group.dispatched[1].content == b"x" * 400_000
        await eventually(lambda: left_on_disk(tmp_path) == [])


@pytest.mark.spec("G3")
async def test_each_state_is_told_as_it_comes_and_then_it_ends(tmp_path: Path) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group], heartbeat_s=0.05) as gate:
        group.behave = group.hold
        await submit(gate.port, "monday", query="?async=1")
        async with Caller(gate.port) as caller:
            await caller.head("GET", "/events/monday")
            status, head = await caller.heard_head()
            assert (status, head["content-type"]) == (200, "text/event-stream")
            async with asyncio.timeout(DEADLINE_S):
                said = await caller.reader.readuntil(b'"state":"running"')
                said += await caller.reader.readuntil(b": still here\n\n")
                assert gate.server.pages.events == 1
                group.open.set()
                said += await caller.reader.readuntil(b"\r\n0\r\n\r\n")
        lines = said.decode().splitlines()
        states = [json.loads(line[6:])["state"] for line in lines if line.startswith("data: ")]
        assert states[-2:] == ["running", "done"]
        assert set(states) <= {"queued", "running", "done"}
        assert lines.count("event: state") == len(states)
        await eventually(lambda: gate.server.pages.events == 0)


async def test_events_of_a_job_that_has_ended_are_one_and_of_an_unknown_one_none(tmp_path: Path) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        await submit(gate.port, "monday")
        heard = await call(gate.port, "GET", "/events/monday")
        assert heard.body.count(b"event: state") == 1
        assert (await call(gate.port, "GET", "/events/tuesday")).code == "unknown-job"


async def test_a_queued_job_is_cancelled_before_any_group_has_it(tmp_path: Path) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        group.say(a_problem(503, "full"))
        await submit(gate.port, "monday", b"x" * 400_000, query="?async=1")
        await until_state(gate.port, "monday", "queued")
        heard = await call(gate.port, "DELETE", "/jobs/monday")
        assert (heard.status, heard.json) == (202, {"cancelled": True})
        assert (await until_state(gate.port, "monday", "failed"))["reason"] == "cancelled"
        await eventually(lambda: gate.server.gateway.flights == {})
        assert (await call(gate.port, "DELETE", "/jobs/monday")).json == {"cancelled": False}
        assert (await call(gate.port, "DELETE", "/jobs/tuesday")).code == "unknown-job"
        await eventually(lambda: left_on_disk(tmp_path) == [])


async def test_a_running_job_is_cancelled_at_its_group_through_any_gateway(tmp_path: Path) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as one, a_gateway(tmp_path, [group]) as two:

        async def until_cancelled(_asked: Asked) -> Said | None:
            await eventually(lambda: group.cancelled)
            return a_problem(410, "cancelled")

        group.behave = until_cancelled
        waiting = asyncio.get_running_loop().create_task(submit(one.port, "monday"))
        await group.arrived.wait()
        assert (await call(two.port, "DELETE", "/jobs/monday")).json == {"cancelled": True}
        heard = await waiting
        assert (heard.status, heard.code) == (410, "cancelled")
        assert group.cancelled == ["monday"]


@asynccontextmanager
async def a_dying_gateway(folder: Path, groups: list[FakeGroup], **more: Any) -> AsyncIterator[GatewayHere]:
    """It does not take leave: its lease runs out, and no row is put in order."""
    async with a_gateway(folder, groups, lease_s=0.6, **more) as gate:
        yield gate
        await gate.server.gateway.end()


@pytest.mark.spec("G5")
async def test_another_gateway_finishes_what_a_dead_one_had(tmp_path: Path) -> None:
    async with groups_of("a", "b") as both, a_gateway(tmp_path, both, lease_s=0.6) as heir:
        for group in both:
            group.behave = group.hold
        async with a_dying_gateway(tmp_path, both) as gate:
            for number in range(5):
                size = 400_000 if number % 2 else 10
                assert (await submit(gate.port, f"job{number}", b"x" * size, query="?async=1")).status == 202
            await eventually(lambda: sum(len(group.dispatched) for group in both) == 5)
            where = {name: group for group in both for name in group.names}
        for group in both:
            group.open.set()
        for number in range(5):
            told = await until_state(heir.port, f"job{number}", "done")
            assert told["group"] == where[f"job{number}"].name, "it is asked for where it ran"
        assert heir.server.gateway.keeper.taken_over == 5
        await eventually(lambda: left_on_disk(tmp_path) == [])


async def test_who_waited_at_a_dead_gateway_sends_it_again_to_another(tmp_path: Path) -> None:
    async with groups_of("a") as [group]:
        group.behave = group.hold
        async with a_dying_gateway(tmp_path, [group]) as gate, Caller(gate.port) as caller:
            await caller.head("POST", "/submit/monday", FORM, f"Content-Length: {len(form(b'1'))}")
            await caller.say(form(b"1"))
            await group.arrived.wait()
        group.open.set()
        async with a_gateway(tmp_path, [group]) as heir:
            assert (await submit(heir.port, "monday", b"1")).body == b"PK by a"


async def test_a_gateway_that_ends_in_order_leaves_its_jobs_to_the_next_at_once(tmp_path: Path) -> None:
    async with groups_of("a") as [group]:
        group.behave = group.hold
        async with a_gateway(tmp_path, [group]) as gate:
            await submit(gate.port, "monday", query="?async=1")
            await group.arrived.wait()
        group.open.set()
        async with a_gateway(tmp_path, [group]) as gate:
            await until_state(gate.port, "monday", "done")


async def test_answers_are_kept_for_their_time_and_their_bytes(tmp_path: Path) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group], kept_bytes=1_000_000) as gate:
        group.say(a_result("x", b"x" * 400_000))
        for number in range(4):
            await submit(gate.port, f"job{number}")
            await until_state(gate.port, f"job{number}", "done")
        assert len(left_on_disk(tmp_path)) == 4
        await sweep(gate)
        assert len(left_on_disk(tmp_path)) == 2
        states = [(await call(gate.port, "GET", f"/status/job{number}")).status for number in range(4)]
        assert states == [404, 404, 200, 200]
        state = gate.server.gateway.machine.state
        state.bounds = state.bounds._replace(kept_s=0.0)
        await sweep(gate)
        assert left_on_disk(tmp_path) == []


async def test_a_file_that_no_row_names_goes_and_one_that_is_named_stays(tmp_path: Path) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        group.say(a_result("x", b"x" * 400_000))
        await submit(gate.port, "monday")
        await until_state(gate.port, "monday", "done")
        [named] = left_on_disk(tmp_path)
        stray = f"{job_id_from_name('monday').hex()}-00"
        contents = tmp_path / "contents"
        (contents / stray).write_bytes(b"left by a crash")
        for name in (named, stray):
            os.utime(contents / name, (0, 0))
        await sweep(gate)
        assert left_on_disk(tmp_path) == [named]


async def test_a_body_that_is_lost_ends_its_job(tmp_path: Path) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        group.say(a_problem(503, "full"))
        await submit(gate.port, "monday", b"x" * 400_000, query="?async=1")
        await until_state(gate.port, "monday", "queued")
        [name] = left_on_disk(tmp_path)
        (tmp_path / "contents" / name).unlink()
        group.say(a_result("monday"))
        told = await until_state(gate.port, "monday", "failed")
        assert told["reason"] == "input-lost"


async def test_an_accepted_job_needs_nothing_of_one_who_sent_only_half(tmp_path: Path) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        body = form(b"x" * 900_000)
        async with Caller(gate.port) as caller:
            await caller.head("POST", "/submit/monday", FORM, f"Content-Length: {len(body)}")
            await caller.say(body[:600_000])
            await eventually(lambda: gate.server.gateway.flights)
            busy = await submit(gate.port, "monday", b"x" * 900_000, query="?async=1")
            assert (busy.status, busy.code) == (503, "busy"), "nobody knows yet whether it is the same request"
        await eventually(lambda: not gate.server.gateway.flights)
        assert (await submit(gate.port, "monday", b"x" * 900_000, query="?async=1")).status == 202
        await until_state(gate.port, "monday", "done")
        assert [asked.content == b"x" * 900_000 for asked in group.dispatched] == [True]
