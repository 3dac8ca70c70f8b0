"""Every role publishes its part of the table of metrics, and `promtool` finds no fault."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.kit import a_group, a_node
from tests.kit.a_worker import working
from tests.kit.fake_group import a_gateway, groups_of, submit
from tests.kit.form import form
from tests.kit.http_peer import ask
from tests.kit.promtool import promtool_says
from tools.metrics_page import families

from wakugumi.core.metrics import Family
from wakugumi.core.runner.metrics import run_families
from wakugumi.roles.node.pages import node_families

pytestmark = [pytest.mark.anyio, pytest.mark.spec("O2")]


ROLES = ("leader", "node", "worker", "gateway")


class Told(NamedTuple):
    families: list[Family]
    port: int

    @classmethod
    def of(cls, families: Iterable[Family], port: int) -> Told:
        return cls(list(families), port)

    async def lines(self) -> list[str]:
        answer = await ask(self.port, "GET", "/metrics")
        assert answer.status == 200
        return answer.body.decode().splitlines()


@asynccontextmanager
async def telling(role: str, folder: Path) -> AsyncIterator[Told]:
    """A role that has run a job or two, and what it tells."""
    if role == "leader":
        async with a_group.a_group(folder) as leader, working(folder, leader.port) as _:
            for name in ("copy", "fail"):
                assert (await a_group.post(leader, f"/dispatch/{name}?program={name}")).status == 200
            yield Told.of(a_group.pages_of(leader)._families(), leader.port)
    elif role == "worker":
        async with a_group.a_group(folder) as leader, working(folder, leader.port) as (worker, port):
            for name in ("copy", "fail"):
                assert (await a_group.post(leader, f"/dispatch/{name}?program={name}")).status == 200
            counts = worker.station.counts
            yield Told.of(run_families(counts, running=0, limit=2, free=2), port)
    elif role == "node":
        async with a_node.a_node(folder) as node:
            for name in ("copy", "fail"):
                request = a_node.post(f"/run/{name}?program={name}", form(b"abc"))
                assert (await a_node.ask(node.http, request)).status == 200
            yield Told.of(node_families(node.node), node.http)
    else:
        async with groups_of("a") as groups, a_gateway(folder, groups) as gate:
            assert (await submit(gate.port, "monday")).status == 200
            yield Told.of(gate.server.metrics(), gate.port)


ROOMS = {"leader": ("leader",), "node": ("run", "node"), "worker": ("run",), "gateway": ("gateway",)}


@pytest.mark.parametrize("role", ROLES)
async def test_a_role_publishes_its_part_of_the_table_and_no_other_metric(role: str, tmp_path: Path) -> None:
    async with telling(role, tmp_path) as told:
        found = {family.name: family._replace(samples=(), histograms=()) for family in told.families}
        lines = await told.lines()
    starts = tuple(f"wakugumi_{room}_" for room in ROOMS[role])
    assert found == {family.name: family for family in families() if family.name.startswith(starts)}
    for family in found.values():
        assert f"# TYPE {family.name} {family.kind.value}" in lines
        assert f"# HELP {family.name} {family.help}" in lines


@pytest.mark.parametrize("role", ROLES)
async def test_the_tool_of_prometheus_finds_no_fault(role: str, tmp_path: Path) -> None:
    async with telling(role, tmp_path) as told:
        lines = await told.lines()
    assert promtool_says("".join(f"{line}\n" for line in lines).encode()) == ""


@pytest.mark.spec("O1")
@pytest.mark.parametrize(("role", "advised"), [("worker", False), ("node", True)])
async def test_a_name_that_is_not_its_own_is_refused_with_what_helps(role: str, advised: bool, tmp_path: Path) -> None:
    async with telling(role, tmp_path) as told:
        request = b"GET /metrics HTTP/1.1\r\nHost: grid.example\r\nConnection: close\r\n\r\n"
        got = await a_node.ask(told.port, request)
    assert got.status == 403
    assert b"ask for its IP address" in got.body
    assert (b"--name grid.example" in got.body) == advised, "a worker's --name renames it"


async def test_a_leader_tells_what_became_of_jobs(tmp_path: Path) -> None:
    async with telling("leader", tmp_path) as told:
        lines = await told.lines()
    labels = 'group="*",'
    assert 'wakugumi_leader_jobs_submitted_total{subject="job.assign.copy"} 1.0' in lines
    assert f'wakugumi_leader_jobs_finished_total{{{labels}status="ok",subject="job.assign.copy"}} 1.0' in lines
    assert f'wakugumi_leader_jobs_finished_total{{{labels}status="failed",subject="job.assign.fail"}} 1.0' in lines
    assert f'wakugumi_leader_run_seconds_count{{{labels}subject="job.assign.copy"}} 1.0' in lines
    assert "wakugumi_leader_slots 2.0" in lines


@pytest.mark.parametrize("role", ["node", "worker"])
async def test_a_machine_tells_what_its_programs_did(role: str, tmp_path: Path) -> None:
    async with telling(role, tmp_path) as told:
        lines = await told.lines()
    assert 'wakugumi_run_exit_codes_total{exit_code="0"} 1.0' in lines
    assert 'wakugumi_run_exit_codes_total{exit_code="3"} 1.0' in lines
    assert 'wakugumi_run_failures_total{reason="exit"} 1.0' in lines
    assert "wakugumi_run_seconds_count 2.0" in lines
    assert "wakugumi_run_slots 2.0" in lines
