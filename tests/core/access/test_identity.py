"""Identities: the defaults of each role, and whose jobs they see and own."""

from __future__ import annotations

import pytest

from wakugumi.core.access.identity import (
    EMBEDDED,
    Identity,
    Role,
    Rules,
    Sight,
    anybody,
    check_key_name,
    checked_rules,
)
from wakugumi.errors import Refused


@pytest.mark.parametrize("role", [Role.ADMIN, Role.GATEWAY])
def test_administrators_and_gateways_own_all_jobs(role: Role) -> None:
    assert Identity("front", role).sight() is None


def test_a_client_sees_its_own_jobs() -> None:
    sight = Identity("desk-1", Role.CLIENT).sight()
    assert sight is not None
    assert [name for name in ("desk-1", "desk-1.ann@pc", "desk-10", "desk-2", "x.desk-1") if sight.sees(name)] == [
        *("desk-1", "desk-1.ann@pc")
    ]
    assert sight.owns("desk-1")
    assert not sight.owns("desk-2")


def test_a_client_that_sees_all_owns_no_more() -> None:
    sight = Identity("desk-1", Role.CLIENT, Rules(sees="all")).sight()
    assert sight is not None
    assert sight.sees("desk-2")
    assert not sight.owns("desk-2")


def test_a_reader_sees_all_and_owns_nothing_of_others() -> None:
    sight = Identity("grafana", Role.READER).sight()
    assert sight is not None
    assert sight.sees("desk-2")
    assert not sight.owns("desk-2")


def test_the_shared_key_of_a_team_owns_all_jobs() -> None:
    assert Identity("client", Role.CLIENT, Rules(clients=("*",))).sight() is None


def test_a_denied_client_id_is_not_seen() -> None:
    sight = Identity("desk-1", Role.CLIENT, Rules(clients=("*", "!boss*"))).sight()
    assert sight == Sight(("*", "!boss*"))
    assert sight.sees("desk-2")
    assert not sight.sees("boss-1")


def test_a_list_of_denials_keeps_the_default_of_the_role() -> None:
    assert Identity("d", Role.CLIENT, Rules(clients=("!d.x",))).clients() == ("d", "d.*", "!d.x")
    assert Identity("d", Role.GATEWAY, Rules(clients=("!x",))).clients() == ("*", "!x")
    assert Identity("d", Role.CLIENT, Rules(subjects=("!a.>",))).subjects() == (">", "!a.>")


def test_a_peer_without_a_proof_is_named_so() -> None:
    assert (anybody().proof, anybody().role) == ("open", Role.ADMIN)
    assert (EMBEDDED.proof, EMBEDDED.role) == ("embedded", Role.ADMIN)


@pytest.mark.parametrize("name", ["a", "desk-1", "0.x_y-z", "a" * 32])
def test_a_key_may_have_this_name(name: str) -> None:
    assert check_key_name(name) == name


@pytest.mark.parametrize("name", ["", "-a", ".a", "A", "a:b", "a*", "a" * 33, "a\n", "é"])
def test_a_key_may_not_have_this_name(name: str) -> None:
    with pytest.raises(Refused):
        check_key_name(name)


def test_rules_are_checked_and_their_subjects_become_patterns() -> None:
    assert checked_rules(Rules(("a",), ("b",), ("Risk",), ("c",), "own", 4)) == Rules(
        ("a",), ("b",), ("job.assign.risk", "job.assign.risk.>"), ("c",), "own", 4
    )


@pytest.mark.parametrize(
    "rules",
    [
        *(Rules(sees="some"), Rules(cap=-1), Rules(cap=100_001), Rules(clients=("",)), Rules(programs=("a\x00",))),
        *(Rules(subjects=("a..b",)), Rules(caches=("!",))),
    ],
)
def test_rules_that_mean_nothing_are_refused(rules: Rules) -> None:
    with pytest.raises(Refused):
        checked_rules(rules)


@pytest.mark.parametrize(
    ("role", "rules", "is_narrowed"),
    [
        (Role.CLIENT, Rules(clients=("*",)), False),
        (Role.CLIENT, Rules(), True),
        (Role.GATEWAY, Rules(), False),
        (Role.GATEWAY, Rules(programs=("calc*",)), True),
        (Role.CLIENT, Rules(clients=("*",), programs=("!fail",)), True),
        (Role.CLIENT, Rules(clients=("*",), subjects=("job.assign.risk.>",)), True),
        (Role.CLIENT, Rules(clients=("*",), subjects=(">", "!job.assign.hr")), True),
        (Role.CLIENT, Rules(clients=("*",), programs=("*",), subjects=(">",), caches=("x",), cap=3), False),
    ],
)
def test_rules_that_deny_what_the_first_keys_allow_are_narrow(role: Role, rules: Rules, is_narrowed: bool) -> None:
    assert Identity("desk-1", role, rules).is_narrowed() is is_narrowed
