"""A gateway and groups that answer as they like: who gets a job, who gets it next, and what its client is told."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.kit.eventually import eventually
from tests.kit.fake_group import (
    FAILED,
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

from wakugumi.core.ids import job_id_from_name
from wakugumi.limits.gateway import GROUP_MISSES_MAX

pytestmark = pytest.mark.anyio


@pytest.mark.spec("G2")
async def test_a_job_goes_to_a_group_as_it_came_and_its_answer_comes_back(tmp_path: Path) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        heard = await submit(gate.port, "monday", b"42", "Waku-Client: me", query="?program=p&arg=%26x&arg=y&async=0")
        assert (heard.status, heard.body) == (200, b"PK by a")
        assert heard.head["waku-status"] == "OK"
        assert heard.head["waku-group"] == "a"
        assert heard.head["content-type"] == "application/zip"
        assert heard.head["content-disposition"] == 'attachment; filename="result-monday.zip"'
        [asked] = group.dispatched
        assert asked.path == "/dispatch/monday?program=p&arg=%26x&arg=y"
        assert asked.content == b"42"
        assert asked.head["waku-client"] == "me"
        status = (await call(gate.port, "GET", "/status/monday")).json
        assert (status["state"], status["group"], status["exit_code"]) == ("done", "a", 0)
        assert (await call(gate.port, "GET", "/result/monday")).body == b"PK by a"


@pytest.mark.spec("G2")
async def test_the_same_id_has_the_same_answer(tmp_path: Path) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        first = await submit(gate.port, "monday")
        again = await submit(gate.port, "monday")
        assert again.status == 200
        assert (again.body, again.head["waku-job"]) == (first.body, first.head["waku-job"])
        assert len(group.dispatched) == 1


@pytest.mark.spec("L6")
@pytest.mark.parametrize("size", [1, 600_000])
@pytest.mark.parametrize("query", ["", "?async=1"])
async def test_the_same_id_with_another_request_is_a_conflict_whatever_came_of_the_first(
    tmp_path: Path, size: int, query: str
) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        monday, tuesday = b"m" * size, b"t" * size
        assert (await submit(gate.port, "report", monday, query="?program=p")).status == 200
        for other, said in ((tuesday, "?program=p"), (monday, "?program=q"), (monday, "?program=p&arg=-v")):
            heard = await submit(gate.port, "report", other, query=said + query.replace("?", "&"))
            assert (heard.status, heard.code) == (409, "conflict")
        same = await submit(
            gate.port, "report", monday, query="?program=p&timeout=9&retries=2&priority=1&key=k&client=c&subject=s"
        )
        assert (same.status, same.body) == (200, b"PK by a")
        group.say(Said(504, b'{"code":"timeout","detail":"too long"}'))
        assert (await submit(gate.port, "slow", monday, query="?timeout=1")).status == 504
        assert (await submit(gate.port, "slow", tuesday)).code == "conflict"
        group.say(a_result("slow"))
        assert (await submit(gate.port, "slow", monday, query="?timeout=60")).status == 200
        assert len(group.dispatched) == 3
        await eventually(lambda: left_on_disk(tmp_path) == [])


@pytest.mark.spec("L6")
@pytest.mark.parametrize("request_before", ["", "0123456789abcdef" * 2])
async def test_a_row_of_an_earlier_version_is_answered_by_its_id(tmp_path: Path, request_before: str) -> None:
    """It has no digest, or one with the subject in it."""
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        assert (await submit(gate.port, "report")).status == 200
        store = gate.server.gateway.store
        await until_state(gate.port, "report", "done")
        row = await store.get(job_id_from_name("report"))
        assert row is not None
        assert await store.replace(row, replace(row, request=request_before)) is not None
        assert (await submit(gate.port, "report")).status == 200
        assert (await submit(gate.port, "report", query="?async=1")).status == 202
        assert len(group.dispatched) == 1


@pytest.mark.spec("L6")
@pytest.mark.parametrize("size", [1, 600_000])
async def test_another_request_is_a_conflict_while_the_first_one_runs(tmp_path: Path, size: int) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as one, a_gateway(tmp_path, [group]) as two:
        group.behave = group.hold
        first = asyncio.get_running_loop().create_task(submit(one.port, "report", b"m" * size))
        await group.arrived.wait()
        for gate in (one, two):
            assert (await submit(gate.port, "report", b"t" * size)).code == "conflict"
            assert (await submit(gate.port, "report", b"t" * size, query="?async=1")).code == "conflict"
        same = [asyncio.get_running_loop().create_task(submit(gate.port, "report", b"m" * size)) for gate in (one, two)]
        await eventually(lambda: one.server.pages.submits == 2 and two.server.pages.submits == 1)
        group.open.set()
        assert [heard.status for heard in await asyncio.gather(first, *same)] == [200, 200, 200]
        assert len(group.dispatched) == 1


@pytest.mark.spec("L6")
async def test_of_two_requests_that_come_together_under_one_id_one_has_the_answer(tmp_path: Path) -> None:
    """Neither is whole when the other begins, so nobody knows yet that they differ."""
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        bodies = [form(letter * 600_000) for letter in (b"m", b"t")]
        async with Caller(gate.port) as monday, Caller(gate.port) as tuesday:
            for caller, body in ((monday, bodies[0]), (tuesday, bodies[1])):
                await caller.head("POST", "/submit/report", FORM, f"Content-Length: {len(body)}")
                await caller.say(body[:500_000])
                await eventually(lambda: gate.server.gateway.flights)
            await monday.say(bodies[0][500_000:])
            assert (await monday.heard()).status == 200
            await tuesday.say(bodies[1][500_000:])
            assert (await tuesday.heard()).code == "conflict"
        assert len(group.dispatched) == 1


@pytest.mark.spec("L6")
async def test_what_was_kept_by_an_older_version_is_answered_by_its_id_alone(tmp_path: Path) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        first = await submit(gate.port, "monday")
        store = gate.server.gateway.store
        row = await store.get(job_id_from_name("monday"))
        assert row is not None
        assert await store.replace(row, replace(row, request="")) is not None
        assert (await submit(gate.port, "monday", b"other")).body == first.body


TROUBLE = {
    "refused": None,
    "500": a_problem(500, "worker-error"),
    "502": a_problem(502, "dead"),
    "507": a_problem(507, "disk-full"),
    "busy": a_problem(503, "busy", **{"Retry-After": "1"}),
    "no problem at all": Said(500, b"<html>"),
    "ends without an answer": None,
    "ends in the midst of its answer": Said(200, b"half", {"Content-Length": "100"}),
}


@pytest.mark.spec("G2")
@pytest.mark.parametrize("trouble", TROUBLE)
async def test_the_next_group_gets_it_and_the_client_sends_its_body_once(tmp_path: Path, trouble: str) -> None:
    async with groups_of("a", "b") as [bad, good], a_gateway(tmp_path, [bad, good]) as gate:
        good.capacity = {"running": 7, "limit": 8, "queued": 0, "free": 1}
        seen = good.polls
        await eventually(lambda: good.polls > seen + 1)
        if trouble == "refused":
            await bad.stop()
        else:
            bad.say(TROUBLE[trouble])
        body = form(b"x" * 3_000_000)
        async with Caller(gate.port) as caller:
            await caller.head("POST", "/submit/monday", FORM, f"Content-Length: {len(body)}")
            began_at = caller.sent
            await caller.say(body)
            heard = await caller.heard()
            assert caller.sent - began_at == len(body)
        assert (heard.status, heard.body) == (200, b"PK by b")
        assert [asked.body for asked in good.dispatched] == [body]
        assert (await call(gate.port, "GET", "/status/monday")).json["group"] == "b"
        assert left_on_disk(tmp_path) == []


@pytest.mark.spec("G2")
async def test_a_group_that_answers_no_poll_is_left_for_the_next(tmp_path: Path) -> None:
    async with groups_of("a", "b") as [silent, good], a_gateway(tmp_path, [silent, good], answer_s=0.2) as gate:
        silent.behave = silent.hold
        good.capacity = {"running": 8, "limit": 8, "queued": 9, "free": 0}
        seen = good.polls
        await eventually(lambda: good.polls > seen + 1)
        async with Caller(gate.port) as caller:
            await caller.head("POST", "/submit/monday", FORM, f"Content-Length: {len(form(b'1'))}")
            await caller.say(form(b"1"))
            await silent.arrived.wait()
            silent.capacity = None
            assert (await caller.heard()).body == b"PK by b"
        assert gate.server.gateway.calls.groups.is_gone("a")


@pytest.mark.spec("G2", "N2")
async def test_a_failing_program_is_an_answer_and_runs_again_when_it_is_sent_again(tmp_path: Path) -> None:
    async with groups_of("a", "b") as both, a_gateway(tmp_path, both) as gate:
        for group in both:
            group.say(Said(200, b"PK failed", FAILED), a_result("monday"))
        heard = await submit(gate.port, "monday")
        assert (heard.status, heard.body, heard.head["waku-exit-code"]) == (200, b"PK failed", "3")
        assert sum(len(group.dispatched) for group in both) == 1
        status = (await call(gate.port, "GET", "/status/monday")).json
        assert (status["state"], status["reason"], status["exit_code"]) == ("failed", "exit", 3)
        assert (await call(gate.port, "GET", "/result/monday")).body == b"PK failed"
        for group in both:
            group.say(a_result("monday"))
        assert (await submit(gate.port, "monday")).body == b"PK the result"


async def test_the_jobs_own_end_is_passed_on_and_known(tmp_path: Path) -> None:
    ends = [(404, "unknown-program"), (410, "cancelled"), (504, "timeout"), (422, "not-executable")]
    async with groups_of("a", "b") as both, a_gateway(tmp_path, both) as gate:
        for status, code in ends:
            for group in both:
                group.say(a_problem(status, code))
            heard = await submit(gate.port, f"job-{code}")
            assert (heard.status, heard.code) == (status, code)
            told = (await call(gate.port, "GET", f"/status/job-{code}")).json
            assert (told["state"], told["reason"]) == ("failed", code)
            assert (await call(gate.port, "GET", f"/result/job-{code}")).code == "no-result"
        assert sum(len(group.dispatched) for group in both) == len(ends)


async def test_what_a_group_does_not_take_for_a_job_leaves_nothing(tmp_path: Path) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        group.say(a_problem(409, "conflict"))
        assert (await submit(gate.port, "monday")).code == "conflict"
        assert (await call(gate.port, "GET", "/status/monday")).code == "unknown-job"


async def test_a_job_that_runs_there_already_is_asked_for_again(tmp_path: Path) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        group.say(a_problem(423, "running", **{"Retry-After": "0.05"}), a_result("monday"))
        assert (await submit(gate.port, "monday")).status == 200
        assert len(group.dispatched) == 2


@pytest.mark.spec("G2")
async def test_when_all_are_full_or_gone_the_client_is_told_when_to_come_again(tmp_path: Path) -> None:
    async with groups_of("a", "b") as [full, gone], a_gateway(tmp_path, [full, gone]) as gate:
        full.say(a_problem(503, "full"))
        await gone.stop()
        heard = await submit(gate.port, "monday")
        assert (heard.status, heard.code) == (503, "no-group")
        assert int(heard.head["retry-after"]) >= 1
        assert (await call(gate.port, "GET", "/status/monday")).code == "unknown-job"
        full.say(a_result("monday"))
        assert (await submit(gate.port, "monday")).status == 200
        assert gate.server.pages.submits == 0
        assert gate.server.gateway.flights == {}


async def test_when_every_group_says_that_the_job_is_dead_that_is_its_end(tmp_path: Path) -> None:
    async with groups_of("a", "b") as both, a_gateway(tmp_path, both) as gate:
        for group in both:
            group.say(a_problem(502, "dead"))
        assert (await submit(gate.port, "monday")).code == "dead"
        assert [len(group.dispatched) for group in both] == [1, 1]


async def test_a_gone_group_is_not_tried(tmp_path: Path) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        await group.stop()
        groups = gate.server.gateway.calls.groups
        await eventually(lambda: groups.is_gone("a"))
        assert (await submit(gate.port, "monday")).code == "no-group"
        await group.start()
        await eventually(lambda: not groups.is_gone("a"))
        assert (await submit(gate.port, "monday")).status == 200
        assert GROUP_MISSES_MAX > 1


async def test_a_deserted_group_is_told_that_its_job_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wakugumi.core.gateway.groups.GROUP_EMPTY_S", 0.3)
    async with groups_of("a", "b") as [empty, other], a_gateway(tmp_path, [empty, other]) as gate:
        other.capacity = {"running": 8, "limit": 8, "queued": 5, "free": 0}
        seen = other.polls
        await eventually(lambda: other.polls > seen + 1)
        empty.behave = empty.hold
        async with Caller(gate.port) as caller:
            await caller.head("POST", "/submit/monday", FORM, f"Content-Length: {len(form(b'1'))}")
            await caller.say(form(b"1"))
            await empty.arrived.wait()
            empty.capacity = {"running": 0, "limit": 0, "queued": 1, "free": 0}
            assert (await caller.heard()).body == b"PK by b"
        assert empty.cancelled == ["monday"]


@pytest.mark.spec("G2", "G5")
async def test_the_same_id_at_once_through_two_gateways_is_one_forward_and_the_same_bytes(tmp_path: Path) -> None:
    async with (
        groups_of("a", "b") as both,
        a_gateway(tmp_path, both) as one,
        a_gateway(tmp_path, both) as two,
    ):
        for group in both:
            group.behave = group.hold
        asking = [
            asyncio.get_running_loop().create_task(submit(gate.port, "monday", b"x" * size))
            for gate, size in [(one, 10), (two, 10), (one, 10), (two, 10), (two, 10)]
        ]
        await eventually(lambda: any(group.dispatched for group in both))
        await eventually(lambda: one.server.pages.submits == 2 and two.server.pages.submits == 3)
        for group in both:
            group.open.set()
        heard = await asyncio.gather(*asking)
        assert sum(len(group.dispatched) for group in both) == 1
        assert {one.status for one in heard} == {200}
        assert len({one.body for one in heard}) == 1
        assert len({one.head["waku-group"] for one in heard}) == 1


async def test_a_uuid_is_the_same_job_however_it_is_written(tmp_path: Path) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        await submit(gate.port, "0F8FAD5B-D9CB-469F-A165-70867728950E")
        assert (await submit(gate.port, "0f8fad5bd9cb469fa16570867728950e")).status == 200
        assert len(group.dispatched) == 1


async def test_a_job_goes_on_when_its_caller_goes_away_and_its_result_is_there_later(tmp_path: Path) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        group.behave = group.hold
        async with Caller(gate.port) as caller:
            await caller.head("POST", "/submit/monday", FORM, f"Content-Length: {len(form(b'1'))}")
            await caller.say(form(b"1"))
            await group.arrived.wait()
        group.open.set()
        await until_state(gate.port, "monday", "done")
        assert (await submit(gate.port, "monday", b"1")).body == b"PK by a"
        assert len(group.dispatched) == 1


@pytest.mark.spec("G2")
async def test_a_large_answer_streams_through_and_is_kept_as_a_file(tmp_path: Path) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        large = bytes(range(256)) * 12_000
        group.say(a_result("monday", large))
        heard = await submit(gate.port, "monday", b"x" * 1_000_000)
        assert heard.body == large
        assert heard.head["content-length"] == str(len(large))
        await until_state(gate.port, "monday", "done")
        assert len(left_on_disk(tmp_path)) == 1
        assert (await call(gate.port, "GET", "/result/monday")).body == large
        assert (await submit(gate.port, "monday", b"x" * 1_000_000)).body == large
        await eventually(lambda: open_files(tmp_path) == [])


@pytest.mark.spec("G4")
async def test_near_groups_get_the_jobs_while_they_have_room(tmp_path: Path) -> None:
    async with groups_of("a", "b") as [far, near]:
        zones = {"a": "west", "b": "east"}
        near.capacity = {"running": 7, "limit": 8, "queued": 0, "free": 1}
        async with a_gateway(tmp_path, [far, near], zones=zones, choice="near", zone="east") as gate:
            assert (await submit(gate.port, "one")).body == b"PK by b"
            near.capacity = {"running": 8, "limit": 8, "queued": 0, "free": 0}
            seen = near.polls
            await eventually(lambda: near.polls > seen + 1)
            assert (await submit(gate.port, "two")).body == b"PK by a"


@pytest.mark.spec("G4")
async def test_the_same_key_goes_to_the_same_group_through_any_gateway(tmp_path: Path) -> None:
    async with (
        groups_of("a", "b", "c") as groups,
        a_gateway(tmp_path / "1", groups, choice="hash") as one,
        a_gateway(tmp_path / "2", groups, choice="hash") as two,
    ):
        for key in ("k1", "k2", "k3", "k4", "k5", "k6"):
            first = await submit(one.port, f"{key}-1", query=f"?key={key}")
            second = await submit(two.port, f"{key}-2", query=f"?key={key}")
            assert first.body == second.body
        assert sum(bool(group.dispatched) for group in groups) > 1


async def test_too_many_at_once_are_told_to_come_again(tmp_path: Path) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        group.behave = group.hold
        state = gate.server.gateway.machine.state
        state.bounds = state.bounds._replace(submits_max=1)
        first = asyncio.get_running_loop().create_task(submit(gate.port, "one"))
        await group.arrived.wait()
        heard = await submit(gate.port, "two")
        assert (heard.status, heard.code) == (503, "busy")
        assert "retry-after" in heard.head
        group.open.set()
        assert (await first).status == 200


async def test_a_gateway_that_drains_lets_those_who_wait_have_their_answers(tmp_path: Path) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        group.behave = group.hold
        first = asyncio.get_running_loop().create_task(submit(gate.port, "one"))
        await group.arrived.wait()
        draining = asyncio.get_running_loop().create_task(gate.server.drain(20.0))
        await eventually(lambda: gate.server.gateway.is_stopping)
        assert (await submit(gate.port, "two")).code == "stopping"
        health = await call(gate.port, "GET", "/health")
        assert (health.status, health.json["status"]) == (503, "stopping")
        group.open.set()
        assert (await first).status == 200
        assert await draining


async def test_what_it_says_of_itself(tmp_path: Path) -> None:
    async with groups_of("a", "b") as both, a_gateway(tmp_path, both) as gate:
        assert (await call(gate.port, "GET", "/health")).json["role"] == "gateway"
        assert (await call(gate.port, "GET", "/capacity")).json == {"running": 0, "limit": 16, "queued": 0, "free": 16}
        await submit(gate.port, "monday")
        text = (await call(gate.port, "GET", "/metrics")).body.decode()
        assert 'wakugumi_gateway_jobs_total{outcome="ok"} 1' in text
        assert 'wakugumi_gateway_group_up{group="b"} 1' in text


async def test_who_comes_after_an_answer_broke_off_waits_for_the_next_one(tmp_path: Path) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        large = bytes(2_000_000)

        async def half_then_whole(asked: Asked) -> Said | None:
            if len(group.dispatched) == 1:
                return Said(200, large[:1_000_000], {"Content-Length": str(len(large)), "Waku-Status": "OK"})
            return await group.hold(asked)

        group.behave = half_then_whole
        loop = asyncio.get_running_loop()
        first = loop.create_task(submit(gate.port, "monday"))
        await eventually(lambda: len(group.dispatched) == 2)
        second = loop.create_task(submit(gate.port, "monday"))
        await eventually(lambda: gate.server.pages.submits >= 1)
        group.open.set()
        heard = await second
        assert (heard.status, heard.body) == (200, b"PK by a")
        [cut_off] = await asyncio.gather(first, return_exceptions=True)
        assert isinstance(cut_off, asyncio.IncompleteReadError) or cut_off == heard, "half an answer is never taken"


async def test_an_answer_that_the_disk_does_not_take_is_told_and_asked_for_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        group.say(a_result("monday", bytes(1_000_000)))

        def full(_file: int, _data: bytearray) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch:
            patch.setattr("wakugumi.adapters.spool.write_all", full)
            heard = await submit(gate.port, "monday")
            assert (heard.status, heard.code) == (503, "disk-full")
            assert int(heard.head["retry-after"]) >= 1
        await eventually(lambda: gate.server.gateway.flights == {})
        assert (await submit(gate.port, "monday")).body == bytes(1_000_000)
        await eventually(lambda: open_files(tmp_path) == [])


async def test_a_group_that_ended_without_an_answer_is_asked_once_more(tmp_path: Path) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        group.say(None, a_result("monday"))
        assert (await submit(gate.port, "monday")).status == 200
        assert len(group.dispatched) == 2


@pytest.mark.spec("G4")
@pytest.mark.parametrize("answer", ["result", "a problem", "no connection"])
async def test_short_jobs_one_after_the_other_stay_near_between_two_polls(tmp_path: Path, answer: str) -> None:
    async with (
        groups_of("near", "far") as [near, far],
        a_gateway(tmp_path, [near, far], zones={"near": "east"}, zone="east", choice="near", poll_s=0.5) as gate,
    ):
        for group in (near, far):
            group.capacity = {"running": 0, "limit": 2, "queued": 0, "free": 2}
        seen = near.polls
        await eventually(lambda: near.polls > seen + 1)
        if answer == "a problem":
            near.say(a_problem(422, "output-limit"))
        for number in range(24):
            await submit(gate.port, f"job-{number}")
        assert (len(near.dispatched), len(far.dispatched)) == (24, 0)
        if answer == "no connection":
            calls = gate.server.gateway.calls
            await near.stop()
            await submit(gate.port, "last")
            health = calls.groups._health["near"]
            assert (health.ours, health.others) == (0, 0), "what was never there takes no slot"


async def test_a_gateway_that_ends_answers_requests_that_still_wait(tmp_path: Path) -> None:
    async with groups_of("a") as [group]:
        group.behave = group.hold
        async with a_gateway(tmp_path, [group]) as gate:
            waiting = asyncio.get_running_loop().create_task(submit(gate.port, "monday"))
            await group.arrived.wait()
        heard = await waiting
        assert (heard.status, heard.code) == (503, "stopping")


async def test_a_client_that_watches_does_not_hold_up_the_end(tmp_path: Path) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        group.behave = group.hold
        await submit(gate.port, "monday", query="?async=1")
        async with Caller(gate.port) as caller:
            await caller.head("GET", "/events/monday")
            await eventually(lambda: gate.server.pages.events == 1)
            async with asyncio.timeout(20):
                assert await gate.server.drain(60.0)


async def test_a_machine_that_fails_is_told_to_the_process(tmp_path: Path) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        gateway = gate.server.gateway

        def fails(*_: object) -> None:
            raise ZeroDivisionError("our own bug")

        gateway.machine.requests.ask = fails  # type: ignore[method-assign]
        asking = asyncio.get_running_loop().create_task(call(gate.port, "GET", "/status/monday"))
        async with asyncio.timeout(20):
            with pytest.raises(ZeroDivisionError):
                await gateway.failed
        asking.cancel()
