"""Jobs of a gateway belong to clients: others neither see nor cancel them, and get no answer by using their ids."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from tests.kit.eventually import eventually
from tests.kit.fake_group import DEADLINE_S, Caller, FakeGroup, GatewayHere, Heard, a_gateway, call, groups_of, submit
from tests.kit.guards import ANN, BOB, KeysAtHand, shows

from wakugumi.core.access.identity import Identity, Role, Rules
from wakugumi.roles.access.guard import AccessGuard

pytestmark = [pytest.mark.anyio, pytest.mark.spec("O1", "G3")]

OPS = Identity("ops", Role.ADMIN)
READER = Identity("prometheus", Role.READER)
ONLOOKER = Identity("cid", Role.CLIENT, Rules(sees="all"))
RISK = Identity("risk", Role.CLIENT, Rules(clients=("risk.*",), programs=("pricer",), subjects=("job.assign.risk.>",)))


@asynccontextmanager
async def a_guarded_gateway(folder: Path) -> AsyncIterator[tuple[GatewayHere, FakeGroup, KeysAtHand]]:
    keys = KeysAtHand(ANN, BOB, OPS, READER, ONLOOKER, RISK)
    async with groups_of("a") as [group], a_gateway(folder, [group], guard=AccessGuard(keys=keys)) as gate:
        yield gate, group, keys


async def ask(gate: GatewayHere, sender: Identity, method: str, path: str) -> Heard:
    return await call(gate.port, method, path, b"", shows(sender))


def without_names(heard: Heard, name: str) -> tuple[int, str]:
    return heard.status, heard.body.decode().replace(name, "JOB")


async def test_a_job_of_another_client_is_as_unknown_as_one_that_never_was(tmp_path: Path) -> None:
    async with a_guarded_gateway(tmp_path) as (gate, group, _):
        assert (await submit(gate.port, "done", b"x", shows(ANN))).status == 200
        group.behave = group.hold
        assert (await submit(gate.port, "open", b"x", shows(ANN), query="?async=1")).status == 202
        for name in ("done", "open"):
            for request in ("GET /status", "GET /result", "GET /events", "DELETE /jobs"):
                method, path = request.split()
                foreign = await ask(gate, BOB, method, f"{path}/{name}")
                never = await ask(gate, BOB, method, f"{path}/never")
                assert foreign.status == 404, request
                assert without_names(foreign, name) == without_names(never, "never")
            for path in ("status", "result", "events"):
                async with Caller(gate.port) as caller:
                    await caller.head("HEAD", f"/{path}/{name}", shows(BOB))
                    assert (await caller.heard_head())[0] == 404
        assert (await ask(gate, ANN, "GET", "/result/done")).body == b"PK by a"
        assert (await ask(gate, ANN, "GET", "/status/open")).status == 200
        group.open.set()


@pytest.mark.parametrize("query", ["", "?async=1"])
async def test_an_id_that_another_client_has_taken_is_denied(tmp_path: Path, query: str) -> None:
    async with a_guarded_gateway(tmp_path) as (gate, group, _):
        assert (await submit(gate.port, "monday", b"x", shows(ANN))).status == 200
        for content in (b"x", b"other"):  # Nor does a conflict tell that the request is another one.
            heard = await submit(gate.port, "monday", content, shows(BOB), query=query)
            assert (heard.status, heard.code) == (403, "denied")
            assert "ann" not in heard.body.decode()
        assert len(group.dispatched) == 1


async def test_administrators_see_all_jobs_and_onlookers_change_none(tmp_path: Path) -> None:
    async with a_guarded_gateway(tmp_path) as (gate, group, _):
        group.behave = group.hold
        assert (await submit(gate.port, "monday", b"x", shows(ANN), query="?async=1")).status == 202
        for sender in (OPS, READER, ONLOOKER):
            assert (await ask(gate, sender, "GET", "/status/monday")).status == 200
        denied = await ask(gate, ONLOOKER, "DELETE", "/jobs/monday")
        assert (denied.status, denied.code) == (403, "denied")
        assert (await ask(gate, READER, "GET", "/result/monday")).status == 403
        cancelled = await ask(gate, OPS, "DELETE", "/jobs/monday")
        assert (cancelled.status, cancelled.json) == (202, {"cancelled": True})
        # A failed job may be sent again, by a client that may change it.
        assert (await submit(gate.port, "monday", b"x", shows(ONLOOKER))).code == "denied"
        group.open.set()
        assert (await submit(gate.port, "monday", b"x", shows(ANN))).status == 200


@pytest.mark.parametrize(
    ("sender", "query", "line", "why"),
    [
        (BOB, "?client=ann", "", "bob may speak for the clients bob, bob.*, not for ann"),
        (BOB, "", "Waku-Client: ann", "bob may speak for the clients bob, bob.*, not for ann"),
        (RISK, "?client=risk.x&program=payroll", "", "risk may run pricer, not payroll"),
        (RISK, "?client=risk.x", "", "not a job without a program"),
        (RISK, "?client=risk.x&program=pricer&subject=hr.pay", "", "not to job.assign.hr.pay"),
        (READER, "", "", "has the role reader"),
    ],
)
async def test_a_job_that_its_sender_may_not_submit_is_refused_before_its_body(
    tmp_path: Path, sender: Identity, query: str, line: str, why: str
) -> None:
    async with a_guarded_gateway(tmp_path) as (gate, group, _), Caller(gate.port) as caller:
        lines = [line] if line else []
        length, kind = "Content-Length: 1000000", "Content-Type: multipart/form-data; boundary=x"
        await caller.head("POST", f"/submit/monday{query}", length, kind, shows(sender), *lines)
        heard = await caller.heard()
        assert (heard.status, heard.code) == (403, "denied")
        assert why in heard.json["detail"]
        assert group.dispatched == []


@pytest.mark.parametrize(
    ("query", "line", "client"), [("", "", "ann"), ("?client=ann.x", "", "ann.x"), ("", "Waku-Client: ann.y", "ann.y")]
)
async def test_a_group_learns_which_client_sent_the_job(tmp_path: Path, query: str, line: str, client: str) -> None:
    async with a_guarded_gateway(tmp_path) as (gate, group, _):
        lines = [line] if line else []
        assert (await submit(gate.port, "monday", b"x", shows(ANN), *lines, query=query)).status == 200
        [asked] = group.dispatched
        assert asked.head["waku-client"] == client
        if asked.is_file:
            assert asked.job["ClientId"] == client


async def test_the_events_of_a_revoked_key_end(tmp_path: Path) -> None:
    async with a_guarded_gateway(tmp_path) as (gate, group, keys):
        group.behave = group.hold
        assert (await submit(gate.port, "monday", b"x", shows(ANN), query="?async=1")).status == 202
        async with asyncio.timeout(DEADLINE_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
            writer.write(f"GET /events/monday HTTP/1.1\r\nHost: localhost\r\n{shows(ANN)}\r\n\r\n".encode())
            state = await reader.readuntil(b'"state"')
            assert b"event: state" in state
            keys.revoke(ANN)
            with suppress(ConnectionResetError):
                await reader.read()
            writer.close()
        await eventually(lambda: gate.server.pages.events == 0)
        assert (await ask(gate, ANN, "GET", "/events/monday")).status == 401
        group.open.set()


async def test_no_page_of_a_gateway_names_a_client(tmp_path: Path) -> None:
    async with a_guarded_gateway(tmp_path) as (gate, _, _):
        assert (await submit(gate.port, "monday", b"x", shows(ANN))).status == 200
        for path in ("/metrics", "/capacity", "/health", "/status/monday", "/events/monday", "/result/monday"):
            heard = await ask(gate, BOB, "GET", path)
            said = json.dumps(heard.head) + heard.body.decode()
            assert "ann" not in said.replace("cannot", ""), path
