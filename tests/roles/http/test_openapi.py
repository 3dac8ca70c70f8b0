"""The documents describe what each role answers: every page is in its role's document, and the other way round."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator
from tests.kit.http_peer import ask

from wakugumi.adapters.http.page import PageRoute
from wakugumi.adapters.net.address import Address
from wakugumi.adapters.programs.named_programs import Programs
from wakugumi.errors import CODES
from wakugumi.roles.http.openapi import GATEWAY, LEADER, NODE, OPERATIONS, ROLES, WORKER, document, operations_of
from wakugumi.roles.leader.leader import Leader
from wakugumi.roles.runner.settings import RunnerSettings, WorkerSettings
from wakugumi.roles.runner.worker import Worker

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("role", ROLES)
def test_a_document_is_valid_openapi(role: str) -> None:
    OpenAPIV31SpecValidator(json.loads(document(role))).validate()


@pytest.mark.parametrize("role", ROLES)
def test_every_operation_has_a_name_of_its_own(role: str) -> None:
    told = json.loads(document(role))
    names = [operation["operationId"] for path in told["paths"].values() for operation in path.values()]
    assert len(set(names)) == len(names) == len(operations_of(role))


def test_only_codes_of_the_error_table_are_named() -> None:
    named = {code.rpartition(" ")[2] for operation in OPERATIONS for code in operation.codes}
    assert named <= CODES.keys()


@asynccontextmanager
async def pages_of(role: str, tmp_path: Path) -> AsyncIterator[tuple[Sequence[tuple[str, str]], int | None]]:
    """What a role answers, by method and path, and where, if it listens."""
    if role == LEADER:
        leader = Leader()
        try:
            port = await leader.listen("127.0.0.1", 0)
            await ask(port, "GET", "/health")
            yield [*_table(leader.http_port), *_BLOBS], port
        finally:
            await leader.close()
    elif role == WORKER:
        worker = Worker(WorkerSettings(leader=Address("127.0.0.1", 1), jobs=tmp_path / "jobs"), Programs(None, {}))
        yield _of(worker.pages()), None
    elif role == NODE:
        from wakugumi.roles.node.node import Node
        from wakugumi.roles.node.pages import node_pages
        from wakugumi.roles.runner.station import Station

        station = Station(RunnerSettings(jobs=tmp_path / "jobs"), Programs(None, {}))
        yield _of(node_pages(Node(station), lambda: b"")), None
    else:
        from wakugumi.roles.gateway.pages import GatewayPages

        pages = GatewayPages.pages(GatewayPages.__new__(GatewayPages))
        yield [*_of(pages), *_WAYSIDE], None


_BLOBS = [("GET", "/blobs/"), ("HEAD", "/blobs/"), ("PUT", "/blobs/")]
_WAYSIDE = [("GET", path) for path in ("/health", "/capacity", "/metrics", "/openapi.json")]


def _of(pages: Sequence[PageRoute]) -> list[tuple[str, str]]:
    return [(page.method, page.path) for page in pages]


def _table(door: object) -> list[tuple[str, str]]:
    server = door._server  # type: ignore[attr-defined]
    tables = {**server._exact, **server._below}
    return [(method, path) for path, methods in tables.items() for method in methods]


@pytest.mark.parametrize("role", [LEADER, NODE, GATEWAY, WORKER])
async def test_every_page_of_a_role_is_described_and_the_other_way_round(role: str, tmp_path: Path) -> None:
    async with pages_of(role, tmp_path) as (pages, port):
        described = {(operation.method, operation.page) for operation in operations_of(role)}
        # HEAD is answered like GET wherever that is, and needs no words of its own.
        implied = {("HEAD", page) for method, page in described if method == "GET"}
        assert sorted(set(pages) - implied) == sorted(described - implied)
        if port is not None:
            assert (await ask(port, "GET", "/openapi.json")).body == document(role)
