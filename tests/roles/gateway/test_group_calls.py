"""Groups that answer with whatever harms most: every accepted job ends, and every group goes on being asked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest
from tests.kit.eventually import eventually
from tests.kit.fake_group import (
    FakeGroup,
    Raw,
    Said,
    a_gateway,
    call,
    groups_of,
    open_files,
    submit,
    until_state,
)
from tests.kit.hostile_answers import ODD, answers, message
from tests.kit.http_peer import a_door
from tests.kit.shown_keys import ShownKeys
from tests.kit.tls_grid import TlsGrid

from wakugumi.adapters.access.dialled import AccessSources
from wakugumi.adapters.http.page import HttpRequest, PageRoute, Reply
from wakugumi.adapters.spool import Spools
from wakugumi.app.settings import load
from wakugumi.core.gateway import flights
from wakugumi.core.gateway.groups import Groups
from wakugumi.limits.gateway import GATEWAY_CRASHES_MAX
from wakugumi.roles.gateway.group_calls import GroupCalls
from wakugumi.roles.gateway.settings import GatewaySettings

pytestmark = pytest.mark.anyio

DISPATCHED: Mapping[str, bytes] = {
    f"{status}-{name}": data
    for status in ("200", "400", "423", "500", "503")
    for name, data in answers(f"{status} X".encode()).items()
} | {f"odd-{name}": data for name, data in ODD.items()}
POLLED: Mapping[str, bytes] = answers(b"200 X") | {f"odd-{name}": data for name, data in ODD.items()}


def no_surprise(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing failed in a way that nobody thought of: such a failure is logged with its traceback."""
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


@pytest.mark.spec("G2", "G3")
async def test_a_deeply_nested_refusal_strands_no_job(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        group.say(Raw(DISPATCHED["500-deep-body"]))
        assert (await submit(gate.port, "monday", query="?async=1")).status == 202
        assert (await until_state(gate.port, "monday", "failed"))["reason"] == "worker-error"
        assert (await submit(gate.port, "tuesday")).status == 500
    no_surprise(caplog)


@pytest.mark.spec("G1", "G2")
async def test_a_deeply_nested_capacity_is_a_poll_that_was_not_answered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        groups = gate.server.gateway.calls.groups
        group.raw_capacity = POLLED["deep-body"]
        await eventually(lambda: groups.is_gone("a"))
        group.raw_capacity = None
        await eventually(lambda: not groups.is_gone("a"))
        assert (await submit(gate.port, "monday")).status == 200
    no_surprise(caplog)


@pytest.mark.parametrize("part", range(4))
async def test_whatever_a_group_answers_to_a_job_the_job_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, part: int
) -> None:
    """Each answer is given until the job went to the other group, or has ended with it."""
    names = sorted(DISPATCHED)[part::4]
    async with groups_of("a") as [group], a_gateway(tmp_path, [group], silence_s=0.5) as gate:
        honest = asyncio.Event()

        async def behave(asked: object) -> Said | Raw | None:
            job = asked.path.split("?")[0].rpartition("/")[2]  # type: ignore[attr-defined]
            return await group.result(asked) if honest.is_set() else Raw(DISPATCHED[job])  # type: ignore[arg-type]

        group.behave = behave
        for name in names:
            assert (await submit(gate.port, name, query="?async=1")).status == 202
        await eventually(lambda: set(names) <= set(group.names))
        honest.set()
        for name in names:
            told = await until_state(gate.port, name, "done", "failed")
            assert told["tries"] >= 1
            assert (await call(gate.port, "GET", f"/result/{name}")).status in {200, 404}
        gateway = gate.server.gateway
        await eventually(lambda: not gateway.flights and not gateway.queue)
        await eventually(lambda: open_files(tmp_path) == [])
    no_surprise(caplog)


async def test_whatever_a_group_answers_to_a_poll_it_is_asked_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with groups_of("a", "b") as [bad, good], a_gateway(tmp_path, [bad, good], poll_s=0.005) as gate:
        for name, data in POLLED.items():
            bad.raw_capacity = data
            seen = bad.polls
            await eventually(lambda seen=seen: bad.polls >= seen + 2)  # type: ignore[misc]
            assert (await call(gate.port, "GET", "/capacity")).status == 200, name
        bad.raw_capacity = None
        await eventually(lambda: not gate.server.gateway.calls.groups.is_gone("a"))
        assert (await submit(gate.port, "monday")).status == 200
        assert good.polls > 0
    no_surprise(caplog)


PAGES: Mapping[str, dict[str, str]] = {
    "a page": {"Content-Type": "text/html"},
    "a page with its letters": {"Content-Type": "text/html; charset=utf-8"},
    "a drawing that runs code": {"Content-Type": "image/svg+xml", "Content-Disposition": "inline"},
    "code": {"Content-Type": "text/javascript", "Content-Disposition": 'inline; filename="result.js"'},
    "a page that calls itself a ZIP": {"Content-Type": "application/zip", "Content-Disposition": "inline"},
    "a ZIP and a page": {"Content-Type": "application/zip, text/html"},
    "to be guessed": {"Content-Type": "", "X-Content-Type-Options": "sniff"},
}
"""Heads of answers that a browser would show, or run, as a page of the gateway."""


@pytest.mark.spec("O1")
@pytest.mark.parametrize("status", [200, 400, 500])
@pytest.mark.parametrize("name", PAGES)
async def test_a_browser_shows_nothing_of_what_a_group_answers(tmp_path: Path, name: str, status: int) -> None:
    page = b"<script>alert(document.domain)</script>"
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        group.say(Said(status, page, {"Waku-Status": "OK", "Waku-Exit-Code": "0"} | PAGES[name]))
        heard = [await submit(gate.port, "monday"), await submit(gate.port, "monday")]
        heard.append(await call(gate.port, "GET", "/result/monday"))
        assert (await submit(gate.port, "tuesday", query="?async=1")).status == 202
        await until_state(gate.port, "tuesday", "done", "failed")
        heard.append(await call(gate.port, "GET", "/result/tuesday"))
    assert [each.body == page for each in heard] == [status == 200] * 4
    for each in heard:
        assert each.head["x-content-type-options"] == "nosniff"
        assert each.head["content-security-policy"].startswith("default-src 'none'")
        if each.body == page:
            assert each.head["content-type"] in {"application/zip", "application/octet-stream"}
            assert each.head["content-disposition"].startswith("attachment")
        else:
            assert each.head["content-type"] == "application/problem+json"
            assert page not in each.body


def make_hostile(group: FakeGroup, chance: Random) -> None:
    async def behave(asked: object) -> Said | Raw | None:
        if chance.random() < 0.3:
            return await group.result(asked)  # type: ignore[arg-type]
        return Raw(chance.choice(list(DISPATCHED.values())))

    group.behave = behave


@pytest.mark.spec("G2", "G3", "G5")
@pytest.mark.parametrize("seed", range(2))
async def test_in_a_storm_of_hostile_answers_every_accepted_job_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    chance = Random(seed)
    async with (
        groups_of("a", "b") as groups,
        a_gateway(tmp_path, groups, silence_s=0.5) as one,
        a_gateway(tmp_path, groups, silence_s=0.5) as two,
    ):
        for group in groups:
            make_hostile(group, chance)
        names = [f"job-{number}" for number in range(60)]
        for name in names:
            for group in groups:
                group.raw_capacity = chance.choice([None, None, *POLLED.values()])
            gate = chance.choice([one, two])
            assert (await submit(gate.port, name, query="?async=1")).status == 202
        for group in groups:
            group.raw_capacity = None
        for name in names:
            await until_state(chance.choice([one, two]).port, name, "done", "failed")
        for gate in (one, two):
            gateway = gate.server.gateway
            await eventually(lambda gateway=gateway: not gateway.flights and not gateway.queue)  # type: ignore[misc]
            assert not any(gateway.calls.groups.is_gone(name) for name in "ab")
    no_surprise(caplog)


@pytest.mark.parametrize("code", ["\u00b2", "--5", "7" * 5_000, "0x1", "", "1_0"])
async def test_an_exit_code_that_is_none_is_told_as_it_came(tmp_path: Path, code: str) -> None:
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        head = b"Waku-Status: OK\r\nWaku-Exit-Code: " + code.encode() + b"\r\n"
        group.say(Raw(message(b"200 X", head, b"PK")))
        assert (await submit(gate.port, "monday")).status == 200
        assert (await call(gate.port, "GET", "/status/monday")).json["exit_code"] == code


async def test_an_unforeseen_failure_is_logged_and_the_job_is_forwarded_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.ERROR)
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:
        tries = gate.server.gateway.machine.tries
        answered = tries.answered
        failures = 2

        def fails(name: str) -> None:
            nonlocal failures
            failures -= 1
            if failures >= 0:
                raise ZeroDivisionError("nobody thought of this")
            answered(name)

        monkeypatch.setattr(tries, "answered", fails)
        assert (await submit(gate.port, "monday", query="?async=1")).status == 202
        told = await until_state(gate.port, "monday", "done")
        assert len(group.dispatched) == 3
        assert told["state"] == "done"
        assert len([record for record in caplog.records if record.exc_info]) == 2
        failures = 1
        heard = await submit(gate.port, "tuesday")
        assert (heard.status, heard.code) == (500, "worker-error")
        assert (await call(gate.port, "GET", "/status/tuesday")).status == 404


async def test_a_job_that_always_makes_the_gateway_fail_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flights, "FULL_RETRY_FIRST_S", 0.001)
    async with groups_of("a") as [group], a_gateway(tmp_path, [group]) as gate:

        def fails(_name: str) -> None:
            raise ZeroDivisionError("nobody thought of this")

        monkeypatch.setattr(gate.server.gateway.machine.tries, "answered", fails)
        assert (await submit(gate.port, "monday", query="?async=1")).status == 202
        told = await until_state(gate.port, "monday", "failed")
        assert (told["reason"], len(group.dispatched)) == ("worker-error", GATEWAY_CRASHES_MAX)
        assert "ZeroDivisionError" in told["detail"]
        assert not gate.server.gateway.queue


@pytest.mark.spec("O1")
async def test_a_group_gets_the_gateways_key_over_tls_alone(tmp_path: Path) -> None:
    grid, guard = TlsGrid(tmp_path / "grid"), ShownKeys()
    key = grid.key("gw-1")

    async def free(_visit: HttpRequest) -> Reply:
        return Reply(200, b'{"limit":2,"running":0,"free":2,"queued":0}')

    async def ca(_visit: HttpRequest) -> Reply:
        return Reply(200, grid.ca.certificate)

    pages = [PageRoute("GET", "/capacity", free), PageRoute("GET", "/access/ca", ca)]
    async with a_door(lambda: pages, guard=guard, tls=grid.server()) as listener:
        settings = load(GatewaySettings, {"groups": (f"a=http://{key.text}@127.0.0.1:{listener.port},weight=2",)})
        (group,) = settings.groups
        assert (group.url, group.weight) == (f"http://127.0.0.1:{listener.port}", 2)
        spools = Spools(tmp_path / "contents")
        calls = GroupCalls(
            Groups(settings.groups), spools, lambda _event: None, access=AccessSources(tmp_path / "none")
        )
        assert (await calls.poll("a")).free == 2
        await calls.close()
        spools.close()
    assert guard.keys == [None, key], "the authority's certificate is fetched without it"
