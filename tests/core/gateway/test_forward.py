"""What goes wrong between a gateway, its callers, its disk and its groups, and must not stay wrong."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from tests.kit.eventually import eventually
from tests.kit.fake_group import (
    OK,
    Asked,
    Caller,
    Said,
    a_gateway,
    a_problem,
    a_result,
    call,
    groups_of,
    left_on_disk,
    open_files,
    submit,
    until_state,
)
from tests.kit.form import FORM, form

from wakugumi.adapters.gateway_store.sqlite import SqliteGatewayStore
from wakugumi.errors import Refused
from wakugumi.limits.gateway import GATEWAY_RETRY_AFTER_MAX_S
from wakugumi.limits.runner import JOB_TIMEOUT_S
from wakugumi.roles.gateway.form import job_s_of

pytestmark = pytest.mark.anyio


async def test_a_body_goes_with_the_head_query_and_key_that_it_came_with(tmp_path: Path) -> None:
    """One waits, another has the same job accepted, the group is full for a while: the second body is what is sent."""
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:

        async def full_at_first(asked: Asked) -> Said | None:
            if len(group.dispatched) > 1:
                return await group.result(asked)
            await group.open.wait()
            return a_problem(503, "full")

        group.behave = full_at_first
        first = asyncio.get_running_loop().create_task(submit(gate.port, "monday", b"1", query="?timeout=1"))
        await group.arrived.wait()
        assert (await submit(gate.port, "monday", b"1", query="?timeout=2&async=1")).status == 202
        group.open.set()
        assert (await first).code == "no-group"
        await until_state(gate.port, "monday", "done")
        assert [(asked.content, asked.path) for asked in group.dispatched] == [
            (b"1", "/dispatch/monday?timeout=1"),
            (b"1", "/dispatch/monday?timeout=2"),
        ]


async def test_a_job_whose_row_could_not_be_flushed_is_forwarded_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:

        async def fails(_store: SqliteGatewayStore) -> None:
            raise Refused("disk", "the disk says no")

        with monkeypatch.context() as patch:
            patch.setattr(SqliteGatewayStore, "flush", fails)
            assert (await submit(gate.port, "monday", query="?async=1")).code == "disk"
        assert (await submit(gate.port, "monday", query="?async=1")).status == 202
        await until_state(gate.port, "monday", "done")
        assert len(group.dispatched) == 1


async def test_a_body_that_still_comes_goes_on_with_the_next_flight(tmp_path: Path) -> None:
    """Another gateway took this one for dead and dropped the row, and then the group is lost."""
    async with groups_of("a", "b") as [bad, good], a_gateway(tmp_path, [bad, good]) as gate:
        good.capacity = {"running": 7, "limit": 8, "queued": 0, "free": 1}
        seen = good.polls
        await eventually(lambda: good.polls > seen + 1)
        body = form(b"x" * 1_500_000)
        flights = gate.server.gateway.flights
        async with Caller(gate.port) as caller:
            await caller.head("POST", "/submit/monday", FORM, f"Content-Length: {len(body)}")
            await caller.say(body[:1_000_000])
            await eventually(lambda: flights)
            [first] = flights.values()
            assert await gate.server.gateway.store.remove(first.row)
            await bad.stop()
            await eventually(lambda: flights and first not in flights.values())
            await caller.say(body[1_000_000:])
            heard = await caller.heard()
        assert (heard.status, heard.body) == (200, b"PK by b")
        assert [asked.body for asked in good.dispatched] == [body]
        await eventually(lambda: open_files(tmp_path) == [])


async def test_who_left_has_no_seat_and_the_job_goes_on(tmp_path: Path) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group], look_s=0.02) as gate:
        group.behave = group.hold
        for _ in range(3):
            async with Caller(gate.port) as caller:
                await caller.head("POST", "/submit/monday", FORM, f"Content-Length: {len(form(b'1'))}")
                await caller.say(form(b"1"))
                await group.arrived.wait()
                await eventually(lambda: gate.server.pages.submits == 1)
            await eventually(lambda: gate.server.pages.submits == 0)
        assert len(gate.server.gateway.flights) == 1
        group.open.set()
        await until_state(gate.port, "monday", "done")
        assert len(group.dispatched) == 1


@pytest.mark.spec("G2")
async def test_a_group_that_answers_polls_but_never_the_job_is_left_and_told(tmp_path: Path) -> None:
    async with groups_of("a", "b") as [silent, good], a_gateway(tmp_path, [silent, good], try_s=0.1) as gate:
        good.capacity = {"running": 7, "limit": 8, "queued": 0, "free": 1}
        seen = good.polls
        await eventually(lambda: good.polls > seen + 1)
        silent.behave = silent.hold
        assert (await submit(gate.port, "monday", query="?timeout=0.1")).body == b"PK by b"
        assert silent.cancelled == ["monday"]
        assert len(silent.dispatched) == 1


@pytest.mark.spec("G2")
async def test_an_answer_that_stops_in_the_midst_is_not_waited_for(tmp_path: Path) -> None:
    async with groups_of("a", "b") as [stuck, good], a_gateway(tmp_path, [stuck, good], silence_s=0.1) as gate:
        good.capacity = {"running": 7, "limit": 8, "queued": 0, "free": 1}
        seen = good.polls
        await eventually(lambda: good.polls > seen + 1)
        stuck.stays_open = True
        stuck.say(Said(200, b"half", OK | {"Content-Length": "100"}))
        assert (await submit(gate.port, "monday")).body == b"PK by b"
        assert stuck.cancelled == ["monday"]


def test_what_a_job_may_take_is_in_its_query() -> None:
    assert job_s_of("") == job_s_of("arg=1") == job_s_of("timeout=x") == JOB_TIMEOUT_S
    assert job_s_of("arg=1&tim%65out=2%2e5") == 2.5
    assert job_s_of("timeout=3&retries=2") == 9.0


@pytest.mark.parametrize("is_async", [False, True])
async def test_cancelling_is_told_to_who_waits_and_frees_the_flight(tmp_path: Path, is_async: bool) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        group.behave = group.hold
        if is_async:
            await submit(gate.port, "monday", query="?async=1")
        waiting = asyncio.get_running_loop().create_task(submit(gate.port, "monday"))
        await group.arrived.wait()
        await eventually(lambda: gate.server.pages.submits == 1)
        assert (await call(gate.port, "DELETE", "/jobs/monday")).json == {"cancelled": True}
        heard = await waiting
        assert (heard.status, heard.code) == (410, "cancelled")
        await eventually(lambda: not gate.server.gateway.flights)
        assert (await until_state(gate.port, "monday", "failed"))["reason"] == "cancelled"
        assert group.cancelled == ["monday"]


async def test_a_job_that_was_cancelled_at_another_gateway_ends_here_as_well(tmp_path: Path) -> None:
    async with (
        groups_of("a") as [group],
        a_gateway(tmp_path, [group], look_s=0.02) as one,
        a_gateway(tmp_path, [group]) as two,
    ):
        group.behave = group.hold
        waiting = asyncio.get_running_loop().create_task(submit(one.port, "monday"))
        await group.arrived.wait()
        assert (await call(two.port, "DELETE", "/jobs/monday")).json == {"cancelled": True}
        assert (await waiting).code == "cancelled"
        await eventually(lambda: not one.server.gateway.flights)


async def test_the_log_tells_once_that_a_group_rests_or_is_gone_and_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "wakugumi.gateway")
    async with groups_of("a", "b") as [bad, good], a_gateway(tmp_path, [bad, good]) as gate:
        good.capacity = {"running": 8, "limit": 8, "queued": 9, "free": 0}
        seen = good.polls
        await eventually(lambda: good.polls > seen + 1)

        async def fails_when_told(_asked: Asked) -> Said | None:
            await bad.open.wait()
            return a_problem(500, "worker-error")

        bad.behave = fails_when_told
        jobs = [asyncio.get_running_loop().create_task(submit(gate.port, f"job-{n}")) for n in range(10)]
        await eventually(lambda: len(bad.dispatched) == 10)
        bad.open.set()
        assert {(await job).body for job in jobs} == {b"PK by b"}
        assert caplog.messages == ["group rests group=a: 500 it is worker-error"]
        bad.say(a_result("after"))
        good.say(a_problem(503, "full"))
        await submit(gate.port, "after")
        assert caplog.messages[1:] == ["group answers again group=a failed_tries=10"]
        await bad.stop()
        groups = gate.server.gateway.calls.groups
        await eventually(lambda: groups.is_gone("a"))
        assert any("group gone group=a: " in line and "nobody listens" in line for line in caplog.messages)


async def test_a_header_that_is_no_text_is_refused_and_one_of_a_group_is_made_text(tmp_path: Path) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        for job, line in [("one", f"{FORM}; x=\udcff")]:
            async with Caller(gate.port) as caller:
                body = form(b"1")
                head = (
                    f"POST /submit/{job} HTTP/1.1\r\nHost: localhost\r\n{line}\r\nContent-Length: {len(body)}\r\n\r\n"
                )
                await caller.say(head.encode(errors="surrogateescape") + body)
                heard = await caller.heard()
            assert (heard.status, heard.code) == (400, "bad-request")
        group.say(Said(200, b"PK", OK | {"Waku-Reason": "\udcff!"}))
        heard = await submit(gate.port, "two")
        assert (heard.status, heard.head["waku-reason"]) == (200, "?!")
        assert len(group.dispatched) == 1


@pytest.mark.parametrize(
    ("said", "told"), [(("30", "7"), 7), (("9999", "9999"), GATEWAY_RETRY_AFTER_MAX_S), (("x", "-1"), 2)]
)
async def test_the_client_is_told_to_come_again_when_the_first_group_wants_it(
    tmp_path: Path, said: tuple[str, str], told: float
) -> None:
    async with groups_of("a", "b") as both, a_gateway(tmp_path, both) as gate:
        for group, seconds in zip(both, said, strict=True):
            group.say(a_problem(503, "full", **{"Retry-After": seconds}))
        assert (await submit(gate.port, "monday")).head["retry-after"] == f"{told:.0f}"


async def test_an_answer_whose_file_is_gone_is_told_before_any_of_it_and_runs_again(tmp_path: Path) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        large = bytes(1_000_000)
        group.say(a_result("monday", large))
        for path in ("/result/monday", ""):
            assert (await submit(gate.port, "monday")).body == large
            await until_state(gate.port, "monday", "done")
            [name] = left_on_disk(tmp_path)
            (tmp_path / "contents" / name).unlink()
            if path:
                heard = await call(gate.port, "GET", path)
                assert (heard.status, heard.code) == (404, "no-result")
        assert (await submit(gate.port, "monday")).body == large
        assert len(group.dispatched) == 3
