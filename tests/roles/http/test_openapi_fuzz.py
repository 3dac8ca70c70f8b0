"""schemathesis asks each role all that its document allows, and what it does not: no 5xx, no undocumented answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance
from tests.kit.a_group import a_group
from tests.kit.a_node import a_node
from tests.kit.a_worker import working

from wakugumi.core.access.decide import Right
from wakugumi.core.gateway.groups import GroupAt
from wakugumi.roles.gateway.server import GatewayServer
from wakugumi.roles.gateway.settings import GatewaySettings
from wakugumi.roles.http.openapi import document
from wakugumi.roles.http.page_table import GATEWAY, LEADER, NODE, WORKER, pages_of

pytestmark = pytest.mark.anyio

EXAMPLES = 15
"""Of each operation, both of what is allowed and of what is not."""
LONGEST_S = 20


@asynccontextmanager
async def listening(role: str, folder: Path) -> AsyncIterator[int]:
    async with AsyncExitStack() as parts:
        if role == NODE:
            yield (await parts.enter_async_context(a_node(folder, slots=4))).http
            return
        (folder / "leader").mkdir()
        leader = await parts.enter_async_context(a_group(folder / "leader", program="copy"))
        _, metrics = await parts.enter_async_context(working(folder, leader.port))
        if role == GATEWAY:
            at = GroupAt("one", f"http://127.0.0.1:{leader.port}")
            told = GatewaySettings(groups=(at,), state=folder / "gateway", poll_s=0.05)
            gate = await parts.enter_async_context(GatewayServer(told))
            yield await gate.listen("127.0.0.1", 0)
        else:
            yield metrics if role == WORKER else leader.port


def fit_for_a_test(case: schemathesis.Case) -> None:
    """How long a test waits for an answer, and what a schema cannot say."""
    query = case.query or {}
    for name, value in (("timeout", "30"), ("retries", "0")):
        if name in query and case.meta is not None and case.meta.generation.mode.is_positive:
            query[name] = value
    if isinstance(given := query.get("env"), list):  # No schema can say that their names differ.
        query["env"] = list({str(item).partition("=")[0]: item for item in given}.values())


def ask_all(role: str, port: int) -> int:
    """How often it was asked."""
    schema = schemathesis.openapi.from_dict(json.loads(document(role)))
    with requests.Session() as session:
        return sum(
            ask_one(found.ok(), mode, session, f"http://127.0.0.1:{port}")
            for found in schema.get_all_operations()
            for mode in schemathesis.GenerationMode
        )


def ask_one(operation: Any, mode: schemathesis.GenerationMode, session: requests.Session, url: str) -> int:
    # We take more than we promise, and content must have the hash that it is put under.
    excluded: list[Any] = [negative_data_rejection]
    if operation.label.startswith("PUT /blobs/"):
        excluded.append(positive_data_acceptance)
    asked = 0

    @seed(1)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def ask(case: schemathesis.Case) -> None:
        nonlocal asked
        asked += 1
        fit_for_a_test(case)
        response = case.call(base_url=url, session=session, timeout=LONGEST_S)
        case.validate_response(response, excluded_checks=excluded)

    with suppress(Unsatisfiable):  # Where nothing can be said, nothing wrong can be said.
        ask()
    return asked


def ask_with_wrong_keys(role: str, port: int) -> dict[str, set[int]]:
    """Statuses of the answers by operation."""
    schema = schemathesis.openapi.from_dict(json.loads(document(role)))
    answers: dict[str, set[int]] = {}
    for found in schema.get_all_operations():
        operation = found.ok()
        for key in (f"Bearer desk:{'a' * 32}-{'b' * 52}", "Bearer x", "Basic eDp5", "Digest x", ""):
            case = operation.Case(path_parameters={one.name: "x" for one in operation.path_parameters})
            response = case.call(base_url=f"http://127.0.0.1:{port}", headers={"Authorization": key}, timeout=LONGEST_S)
            case.validate_response(response, excluded_checks=[positive_data_acceptance])
            answers.setdefault(operation.label, set()).add(response.status_code)
    return answers


@pytest.mark.spec("O1", "O2")
@pytest.mark.parametrize("role", [LEADER, NODE, GATEWAY, WORKER])
async def test_a_wrong_key_is_answered_as_described_before_any_other_fault(role: str, tmp_path: Path) -> None:
    async with listening(role, tmp_path) as port:
        answers = await asyncio.to_thread(ask_with_wrong_keys, role, port)
    expected = {page.request: {200} if page.need is Right.OPEN else {401} for page in pages_of(role)}
    if "GET /access/ca" in expected:
        expected["GET /access/ca"] = {404}  # There are no keys here, so there is no authority.
    if "GET /in/{word}" in expected:
        expected["GET /in/{word}"] = {403}  # Whatever the key is, a guessed word opens nothing.
    assert answers == expected


@pytest.mark.spec("G1", "N2", "O2")
@pytest.mark.parametrize("role", [LEADER, NODE, GATEWAY, WORKER])
async def test_no_question_gets_an_answer_that_is_not_described(role: str, tmp_path: Path) -> None:
    async with listening(role, tmp_path) as port:
        assert await asyncio.to_thread(ask_all, role, port) >= len(pages_of(role))
