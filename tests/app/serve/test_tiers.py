"""Which processes are the three tiers, and how do they find each other?"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from wakugumi.app.serve.tiers import GATEWAY, GROUP, NODE, TierProcess, Tiers, parts_of


def tiers(groups: int = 2, nodes: int = 2, program: str = "calc", node_words: tuple[str, ...] = ()) -> Tiers:
    return Tiers(groups, nodes, 3, Path("/programs"), program, Path("/state"), node_words)


def after(part: TierProcess, flag: str) -> list[str]:
    """All values of this flag."""
    return [value for word, value in zip(part.words, part.words[1:]) if word == flag]


@hypothesis_settings(max_examples=20)
@given(st.integers(1, 4), st.integers(1, 4))
def test_each_server_comes_before_its_clients_and_has_a_name_and_port_of_its_own(groups: int, nodes: int) -> None:
    parts = parts_of(tiers(groups, nodes))
    assert [part.kind for part in parts] == [NODE] * groups * nodes + [GROUP] * groups + [GATEWAY]
    assert len({part.name for part in parts}) == len({part.url for part in parts}) == len(parts)


def test_a_leader_knows_its_own_nodes_and_the_gateway_all_leaders() -> None:
    *parts, gateway = parts_of(tiers())
    nodes, leaders = parts[:4], parts[4:]
    for leader in leaders:
        own = [f"{node.url},name={node.name}" for node in nodes if node.group == leader.group]
        assert after(leader, "--node") == own
        assert len(own) == 2
    assert after(gateway, "--group") == [f"{leader.name}={leader.url}" for leader in leaders]
    assert (gateway.group, gateway.name) == (0, GATEWAY)


def test_each_has_a_folder_of_its_own() -> None:
    parts = parts_of(tiers())
    folders = [folder for part in parts for folder in after(part, "--jobs") + after(part, "--state")]
    assert folders == [f"/state/{part.name}" for part in parts]


def test_a_node_serves_both_protocols_at_its_port_and_gets_further_flags() -> None:
    for node in parts_of(tiers(node_words=("--cpu-cap", "off")))[:4]:
        port = node.url.rpartition(":")[2]
        assert after(node, "--http") == after(node, "--lines") == [port]
        assert (after(node, "--slots"), after(node, "--cpu-cap")) == (["3"], ["off"])
        assert after(node, "--programs") == ["/programs"]


@pytest.mark.parametrize("program", ["", "calc"])
def test_a_program_is_named_to_nodes_and_leaders_if_there_is_one(program: str) -> None:
    *parts, gateway = parts_of(tiers(program=program))
    assert {tuple(after(part, "--program")) for part in parts} == {(program,) if program else ()}
    assert after(gateway, "--program") == []


def test_the_gateway_listens_where_it_is_told_to() -> None:
    gateway = parts_of(tiers(), 12345)[-1]
    assert gateway.url == "http://127.0.0.1:12345"
    assert gateway.words[:2] == ("gateway", "12345")
