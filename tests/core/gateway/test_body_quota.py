"""What bodies of asynchronous jobs may take together: counted while they come, while they wait, and until they end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.eventually import eventually
from tests.kit.fake_group import (
    Caller,
    a_gateway,
    a_result,
    call,
    groups_of,
    submit,
    submit_until_taken,
    until_state,
)
from tests.kit.form import FORM, form

from wakugumi.core.gateway.body_quota import BodyQuota, Receiving
from wakugumi.errors import Refused
from wakugumi.limits.gateway import SPOOL_MEMORY_BYTES

BYTES_MAX = 100

steps = st.lists(
    st.one_of(
        st.tuples(st.just("come"), st.integers(0, 120)),
        st.tuples(st.sampled_from(["accept", "leave", "end", "count"]), st.integers(0, 20)),
    ),
    max_size=60,
)


@given(steps)
def test_a_gateway_never_takes_more_than_it_may_and_in_the_end_all_is_given_back(plan: list[tuple[str, int]]) -> None:
    quota = BodyQuota(BYTES_MAX)
    coming: list[Receiving] = []
    waiting: list[int] = []
    """As they are in the store."""
    for what, number in plan:
        if what == "come":
            one = quota.receive()
            if quota.used + number <= BYTES_MAX:
                one.take(number)
                coming.append(one)
                continue
            with pytest.raises(Refused) as caught:
                one.take(number)
            assert caught.value.code == ("too-big" if number > BYTES_MAX else "full")
            one.close()
        elif what in {"accept", "leave"} and coming:
            one = coming.pop(number % len(coming))
            if what == "accept":
                size, used = one.size, quota.used
                one.accepted(size)
                assert quota.used == used, "it counts once"
                waiting.append(size)
            one.close()
        elif what == "end" and waiting:
            waiting.pop(number % len(waiting))
        elif what == "count":
            begun = quota.count_begins()
            quota.counted(sum(waiting), begun)
        taken = sum(one.size for one in coming) + sum(waiting)
        assert taken <= quota.used <= BYTES_MAX
    for one in coming:
        one.close()
    quota.counted(0, quota.count_begins())
    assert quota.used == 0


QUICK_S = 0.06
"""A lease with which rows are counted often."""


@pytest.mark.anyio
@pytest.mark.spec("G3")
@pytest.mark.parametrize("size", [400, 400_000])
async def test_a_body_that_does_not_fit_is_told_so_before_it_is_read(tmp_path: Path, size: int) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group], lease_s=QUICK_S, queue_bytes=2 * size) as gate:
        group.behave = group.hold
        assert (await submit(gate.port, "monday", bytes(size), query="?async=1")).status == 202
        async with Caller(gate.port) as caller:
            body = form(bytes(size))
            lines = (FORM, f"Content-Length: {len(body)}", "Expect: 100-continue")
            await caller.head("POST", "/submit/tuesday?async=1", *lines)
            heard = await caller.heard()
        assert (heard.status, heard.code, heard.head["retry-after"]) == (503, "full", "2")
        assert "--queue-bytes" in heard.json["hint"]
        heard = await submit(gate.port, "wednesday", bytes(2 * size), query="?async=1")
        assert (heard.status, heard.code) == (413, "too-big")
        group.open.set()
        assert (await submit(gate.port, "waits", bytes(2 * size))).status == 200, "who waits is not counted"
        await until_state(gate.port, "monday", "done")
        await eventually(lambda: gate.server.gateway.quota.used == 0)
        assert (await submit(gate.port, "tuesday", bytes(size), query="?async=1")).status == 202
        await until_state(gate.port, "tuesday", "done")


@pytest.mark.anyio
async def test_a_body_without_a_length_is_counted_as_it_comes(tmp_path: Path) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group], lease_s=QUICK_S, queue_bytes=1_000_000) as gate:
        async with Caller(gate.port) as caller:
            await caller.head("POST", "/submit/monday?async=1", FORM, "Transfer-Encoding: chunked")
            start = form(bytes(800_000))[:800_000]
            await caller.say(b"%x\r\n%s\r\n" % (len(start), start))
            await eventually(lambda: gate.server.gateway.quota.used > 700_000)
            await caller.say(b"%x\r\n%s\r\n" % (400_000, bytes(400_000)))
            heard = await caller.heard()
        assert (heard.status, heard.code) == (503, "full")
        await eventually(lambda: gate.server.gateway.quota.used == 0)
        assert (await call(gate.port, "GET", "/status/monday")).status == 404


@pytest.mark.anyio
async def test_a_body_counts_once_while_its_row_is_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a count that began just before its row was there may see it twice, until the next count."""
    async with groups_of("a") as [group], a_gateway(tmp_path, [group], lease_s=QUICK_S, queue_bytes=1_000_000) as gate:
        group.behave = group.hold
        flushes, go_on = asyncio.Event(), asyncio.Event()
        store = gate.server.gateway.store
        flush = store.flush

        async def slow_flush() -> None:
            flushes.set()
            await go_on.wait()
            await flush()

        async with asyncio.timeout(20.0), asyncio.TaskGroup() as tasks:
            with monkeypatch.context() as patch:
                patch.setattr(store, "flush", slow_flush)
                first = tasks.create_task(submit(gate.port, "monday", bytes(600_000), query="?async=1"))
                await flushes.wait()
            second = await submit_until_taken(gate.port, "tuesday", bytes(300_000), query="?async=1")
            go_on.set()
        assert (first.result().status, second.status) == (202, 202)
        group.open.set()
        await until_state(gate.port, "tuesday", "done")


@pytest.mark.anyio
async def test_a_large_answer_of_an_accepted_job_is_kept_with_hardly_any_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        answer = bytes(2 * SPOOL_MEMORY_BYTES)
        group.say(a_result("monday", answer))
        monkeypatch.setattr(gate.server.gateway.spools, "_free_bytes", lambda: 1_000_000)
        assert (await submit(gate.port, "monday", query="?async=1")).status == 202
        await until_state(gate.port, "monday", "done")
        assert (await call(gate.port, "GET", "/result/monday")).body == answer


@pytest.mark.anyio
async def test_with_hardly_any_room_nothing_new_is_taken_and_what_is_known_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        group.behave = group.hold
        assert (await submit(gate.port, "monday", query="?async=1")).status == 202
        room: Any = gate.server.gateway.store._room  # type: ignore[attr-defined]
        with monkeypatch.context() as patch:
            patch.setattr(room, "_free_bytes", lambda: 1_000_000)
            await eventually(lambda: gate.server.gateway.store.is_short)
            for query in ("", "?async=1"):
                heard = await submit(gate.port, "tuesday", query=query)
                assert (heard.status, heard.code) == (507, "disk-full")
            group.open.set()
            await until_state(gate.port, "monday", "done")
            assert (await submit(gate.port, "monday")).body == b"PK by a"
        await eventually(lambda: not gate.server.gateway.store.is_short)
        assert (await submit(gate.port, "tuesday")).status == 200


def test_a_refusal_says_what_to_do() -> None:
    with pytest.raises(Refused) as caught:
        BodyQuota(10).take(11)
    assert "--queue-bytes" in caught.value.hint
