"""Whoever only looks is told the same things at the same places by every role."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from tests.kit.guards import ScriptedGuard
from tests.kit.http_peer import a_door, ask
from tests.kit.promtool import promtool_says

from wakugumi.core.access.identity import Identity
from wakugumi.core.access.identity import Role as IdentityRole
from wakugumi.core.access.known_as import Degree, KnownAs
from wakugumi.core.metrics import Counter, Family, Timing, counter, gauge, histogram
from wakugumi.errors import Refused
from wakugumi.roles.http.status_pages import OK, STOPPING, wayside_pages
from wakugumi.wire.access_line import Key

pytestmark = pytest.mark.anyio


class Role:
    """As little of a role as its wayside needs."""

    def __init__(self) -> None:
        self.status = OK
        self.asked = 0
        self.ended = Counter(counter("wakugumi_ended_total", "How jobs ended.", "exit_code"))
        self.ran = Timing(histogram("wakugumi_run_seconds", "How long they ran.", "program"))

    def document(self, role: str) -> bytes:
        assert role == "node"
        self.asked += 1
        return b'{"openapi": "3.1.0"}'

    def families(self) -> list[Family]:
        return [gauge("wakugumi_slots", "Places for jobs.").with_value(4), self.ended.family(), self.ran.family()]

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        def pages():  # type: ignore[no-untyped-def]
            capacity = {"running": 1, "limit": 4}
            return wayside_pages("node", "1.2.3", lambda: self.status, lambda: capacity, self.families)

        async with a_door(pages) as listener:
            yield listener.port


async def test_health_is_ok_and_no_longer_while_it_stops() -> None:
    role = Role()
    async with role.listening() as port:
        answer = await ask(port, "GET", "/health")
        assert answer.status == 200
        assert answer.head["content-type"] == "application/json"
        assert json.loads(answer.body) == {"status": "ok", "role": "node", "version": "1.2.3", "access": "this user"}
        role.status = STOPPING
        answer = await ask(port, "GET", "/health")
        assert (answer.status, json.loads(answer.body)["status"]) == (503, "stopping")


@pytest.mark.spec("O1")
async def test_a_sender_is_told_as_whom_it_is_known_and_nobody_else_is() -> None:
    def who(key: Key | None, _forwarded: bool) -> Identity:
        if key is None:
            raise Refused("denied", "a peer on another machine shows a key")
        return Identity(key.name, IdentityRole.WORKER, key=key.name, proof="key")

    pages = wayside_pages("node", "1", lambda: OK, dict, list, degree=lambda: Degree.KEYS)
    async with a_door(lambda: pages, guard=ScriptedGuard(who)) as listener:
        assert json.loads((await ask(listener.port, "GET", "/health")).body)["access"] == "keys over TLS"
        assert (await ask(listener.port, "GET", "/access/me")).status == 401
        key = f"rack-7:{'a' * 32}-{'b' * 52}"
        answer = await ask(listener.port, "GET", "/access/me", f"Authorization: Bearer {key}")
    me = msgspec.json.decode(answer.body, type=KnownAs)
    assert (me.name, me.role, me.proof, me.degree) == ("rack-7", "worker", "key", "keys over TLS")
    assert me.may == ["be a worker"]


async def test_capacity_is_told_as_it_is() -> None:
    async with Role().listening() as port:
        assert json.loads((await ask(port, "GET", "/capacity")).body) == {"running": 1, "limit": 4}


async def test_those_who_ask_at_once_share_one_look_at_the_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def look() -> dict[str, int]:
        nonlocal looks
        looks += 1
        return {"running": looks, "limit": 4}

    pages = wayside_pages("node", "1", lambda: OK, look, list)
    async with a_door(lambda: pages) as listener:
        monkeypatch.setattr("wakugumi.roles.http.status_pages.CAPACITY_AGE_MAX_S", 3600)
        told = [json.loads((await ask(listener.port, "GET", "/capacity")).body)["running"] for _ in range(2)]
        monkeypatch.setattr("wakugumi.roles.http.status_pages.CAPACITY_AGE_MAX_S", -1)
        told.append(json.loads((await ask(listener.port, "GET", "/capacity")).body)["running"])
    assert told == [1, 1, 2]


@pytest.mark.spec("O2")
async def test_metrics_are_in_the_text_format_of_prometheus() -> None:
    role = Role()
    role.ended.add("0")
    role.ended.add('a "strange"\nword\\')
    role.ran.took(0.3, "pricer")
    async with role.listening() as port:
        answer = await ask(port, "GET", "/metrics")
    assert answer.head["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = answer.body.decode().splitlines()
    assert "# TYPE wakugumi_ended_total counter" in lines
    assert 'wakugumi_ended_total{exit_code="0"} 1.0' in lines
    assert 'wakugumi_ended_total{exit_code="a \\"strange\\"\\nword\\\\"} 1.0' in lines
    assert 'wakugumi_run_seconds_bucket{le="0.2",program="pricer"} 0.0' in lines
    assert 'wakugumi_run_seconds_bucket{le="0.5",program="pricer"} 1.0' in lines
    assert 'wakugumi_run_seconds_bucket{le="+Inf",program="pricer"} 1.0' in lines
    assert 'wakugumi_run_seconds_count{program="pricer"} 1.0' in lines
    assert 'wakugumi_run_seconds_sum{program="pricer"} 0.3' in lines
    assert any(line.startswith("process_resident_memory_bytes ") for line in lines)


@pytest.mark.spec("O2")
async def test_promtool_has_nothing_to_say_about_the_metrics() -> None:
    role = Role()
    role.ended.add("0")
    role.ran.took(0.3, "pricer")
    async with role.listening() as port:
        assert promtool_says((await ask(port, "GET", "/metrics")).body) == ""


async def test_the_document_is_made_once_and_only_if_somebody_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    role = Role()
    monkeypatch.setattr("wakugumi.roles.http.status_pages.document", role.document)
    async with role.listening() as port:
        await ask(port, "GET", "/health")
        assert role.asked == 0
        for _ in range(2):
            assert (await ask(port, "GET", "/openapi.json")).body == b'{"openapi": "3.1.0"}'
    assert role.asked == 1
