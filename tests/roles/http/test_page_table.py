"""A page is described once: the pages of the table, and no others, are served and in the documents."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.kit.a_group import a_group
from tests.kit.http_peer import a_door, ask
from tools.http_pages import http_pages

import wakugumi
from wakugumi.adapters.http.page import HttpRequest, PageRoute, Reply
from wakugumi.adapters.net.address import Address
from wakugumi.adapters.programs.named_programs import Programs
from wakugumi.core.gateway.groups import GroupAt
from wakugumi.errors import CODES
from wakugumi.roles.gateway.server import GatewayServer
from wakugumi.roles.gateway.settings import GatewaySettings
from wakugumi.roles.http import page_table
from wakugumi.roles.http.openapi import document
from wakugumi.roles.http.page_table import (
    GATEWAY,
    LEADER,
    NODE,
    PAGES,
    ROLES,
    WORKER,
    Answer,
    PageText,
    page_routes,
    pages_of,
)
from wakugumi.roles.node.node import Node
from wakugumi.roles.node.pages import node_pages
from wakugumi.roles.runner.settings import RunnerSettings, WorkerSettings
from wakugumi.roles.runner.station import Station
from wakugumi.roles.runner.worker import Worker

pytestmark = pytest.mark.anyio


async def hello(visit: HttpRequest) -> Reply:
    return Reply(200, visit.rest.encode(), "text/plain")


async def test_a_page_that_is_added_in_one_place_is_served_and_described(monkeypatch: pytest.MonkeyPatch) -> None:
    added = PageText("GET /hello/{job}", (NODE,), "Greets a job.", (Answer(200, "A greeting."),), ("unknown-job",))
    monkeypatch.setattr(page_table, "PAGES", (*PAGES, added))
    async with a_door(lambda: page_routes(NODE, {"get_hello": hello})) as listener:
        answer = await ask(listener.port, "GET", "/hello/night-7")
    assert (answer.status, answer.body) == (200, b"night-7")
    operation = json.loads(document(NODE))["paths"]["/hello/{job}"]["get"]
    assert (operation["operationId"], operation["summary"]) == ("get_hello", "Greets a job.")
    assert list(operation["responses"]) == ["200", "401", "403", "404"]
    assert "/hello/{job}" not in json.loads(document(LEADER))["paths"]
    rows = [line for line in http_pages().splitlines() if line.startswith("| `GET /hello/{job}` | node |")]
    assert [row.split(" | ", 2)[2] for row in rows] == [
        "`run` | Greets a job. |  |",
        "200 | A greeting. |  |  |",
        "401 `denied`; 403 `denied`; 404 `unknown-job` |",
    ]


def test_a_handler_without_a_page_of_its_role_is_refused() -> None:
    with pytest.raises(KeyError):
        page_routes(NODE, {"post_dispatch": hello})


async def routes_of(role: str, folder: Path) -> Sequence[PageRoute]:
    """All that a role serves."""
    if role == LEADER:
        async with a_group(folder) as running:
            assert (await ask(running.port, "GET", "/openapi.json")).body == document(role)
            pages, blobs = running.leader.pages, running.leader.blobs
            assert pages is not None
            assert blobs is not None
            return [*pages.routes(), *(route for load in blobs.routes for route in load())]
    if role == GATEWAY:
        settings = GatewaySettings(groups=(GroupAt("one", "http://127.0.0.1:1"),), state=folder / "gateway")
        async with GatewayServer(settings) as gateway:
            return gateway.routes()
    if role == NODE:
        return node_pages(Node(Station(RunnerSettings(jobs=folder / "jobs"), Programs(None, {}))))
    return Worker(WorkerSettings(leader=Address("127.0.0.1", 1), jobs=folder / "jobs"), Programs(None, {})).pages()


@pytest.mark.parametrize("role", [LEADER, NODE, GATEWAY, WORKER])
async def test_a_role_serves_the_pages_of_the_table_and_no_others(role: str, tmp_path: Path) -> None:
    served = [(route.method, route.path, route.quiet) for route in await routes_of(role, tmp_path)]
    assert sorted(served) == sorted((page.method, page.prefix, page.quiet) for page in pages_of(role))


def test_routes_are_made_from_the_table_only() -> None:
    source = Path(wakugumi.__file__).parent
    makers = {
        str(file.relative_to(source))
        for file in source.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "PageRoute"
    }
    # Adapters know no roles; the test above compares their routes with the table.
    assert makers == {"roles/http/page_table.py", "adapters/blobs/http_pages.py"}


@pytest.mark.parametrize("role", ROLES)
def test_every_page_of_a_role_has_a_name_of_its_own(role: str) -> None:
    names = [page.name for page in pages_of(role)]
    assert len(set(names)) == len(names)


def test_only_codes_of_the_error_table_are_named() -> None:
    assert {code for page in PAGES for _, codes in page.problems() for code in codes} <= CODES.keys()
