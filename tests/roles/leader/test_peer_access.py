"""What the peer of a connection may do, from its hello on."""

from __future__ import annotations

import logging

import pytest

from wakugumi.core.access.identity import ALL_NAMES, Identity, Role, Rules
from wakugumi.core.ids import ClientId, ConnId, JobId
from wakugumi.core.leader.events import Submitted
from wakugumi.core.leader.questions import AskCancel, AskDrain, AskStatus
from wakugumi.core.subject import parse_pattern, parse_subject
from wakugumi.errors import Refused
from wakugumi.roles.leader.peer_access import PeerAccess
from wakugumi.wire.access_line import Key

pytestmark = pytest.mark.spec("O1")

DESK = Identity("desk-1", Role.CLIENT, Rules(programs=("calc*",), subjects=("job.assign.risk.>",), cap=8), "desk-1")
ROOT = Identity("uid-0", Role.ADMIN)


class Caller:
    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self.shown: list[Key | None] = []
        self.has_left = False

    def identify(self, key: Key | None = None, *, forwarded: bool = False, cookie: str = "") -> Identity:
        self.shown.append(key)
        return self._identity

    def left(self) -> None:
        self.has_left = True


def joined(identity: Identity, client: str = "desk-1") -> PeerAccess:
    access = PeerAccess(Caller(identity))
    access.join_as_client("", ClientId(client), 64)
    return access


def submit(program: str = "calcA", subject: str = "job.assign.risk.var") -> Submitted:
    return Submitted(ConnId(1), JobId(bytes(16)), parse_subject(subject), program, 60.0, b"{}")


def test_a_client_has_its_key_s_cap_and_sight() -> None:
    access = PeerAccess(Caller(DESK))
    assert access.join_as_client("", ClientId("desk-1.night"), 64) == 8
    assert access.sight is not None
    assert access.sight.sees("desk-1.x")
    assert not access.sight.sees("desk-2")


def test_an_administrator_sees_all_and_no_rule_is_asked() -> None:
    access = joined(ROOT, "anyone")
    assert access.sight is None
    access.check_submit(submit("rm", "job.assign.hr.pay"))
    access.check_put("data", [parse_pattern("job.assign.>")])


@pytest.mark.parametrize(
    ("identity", "client", "said"),
    [
        (DESK, "desk-2", "desk-1 may speak for the clients desk-1, desk-1.*, not for desk-2"),
        (Identity("rack", Role.WORKER, key="rack"), "rack", "may not be a client"),
    ],
)
def test_a_client_that_may_not_join_is_told_why(identity: Identity, client: str, said: str) -> None:
    with pytest.raises(Refused, match=said.replace("*", r"\*")):
        joined(identity, client)


def test_a_reader_may_join_and_look_and_not_run() -> None:
    access = joined(Identity("grafana", Role.READER, Rules(clients=ALL_NAMES), "grafana"), "grafana")
    access.check_question(AskStatus())
    with pytest.raises(Refused):
        access.check_submit(submit())
    with pytest.raises(Refused):
        access.check_question(AskDrain("w"))


@pytest.mark.parametrize(
    ("program", "subject"),
    [("rm", "job.assign.risk.var"), ("calcA", "job.assign.hr.pay"), ("calcA", "job.assign.risk")],
)
def test_a_job_outside_the_rules_is_refused_also_after_one_inside(program: str, subject: str) -> None:
    access = joined(DESK)
    for _ in range(2):
        access.check_submit(submit())
        with pytest.raises(Refused, match="desk-1 may"):
            access.check_submit(submit(program, subject))


def test_what_is_allowed_is_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakugumi.roles.leader.peer_access.ALLOWED_MAX", 3)
    access = joined(DESK)
    for number in range(10):
        access.check_submit(submit(f"calc{number}"))
    with pytest.raises(Refused):
        access.check_submit(submit("rm"))


def test_a_worker_hears_only_inside_its_subjects() -> None:
    rack = Identity("rack", Role.WORKER, Rules(subjects=("job.assign.risk.>",)), "rack")
    access = PeerAccess(Caller(rack))
    access.join_as_worker("", [parse_pattern("job.assign.risk.*")])
    assert access.worker_key == "rack"
    with pytest.raises(Refused, match="rack may take jobs of"):
        PeerAccess(Caller(rack)).join_as_worker("", [parse_pattern("job.assign.>")])
    with pytest.raises(Refused, match="may not be a worker"):
        PeerAccess(Caller(DESK)).join_as_worker("", [parse_pattern("job.assign.risk.*")])


def test_the_key_of_a_hello_is_shown_and_a_broken_one_is_refused_without_its_text() -> None:
    caller = Caller(DESK)
    PeerAccess(caller).join_as_client(f"desk-1:{'a' * 32}-{'b' * 52}", ClientId("desk-1"), 4)
    assert caller.shown == [Key("desk-1", "a" * 32, "b" * 52)]
    with pytest.raises(Refused) as caught:
        PeerAccess(caller).join_as_client(f"desk-1:{'a' * 32}-{'b' * 51}", ClientId("desk-1"), 4)
    assert "b" * 20 not in str(caught.value)


def test_acts_are_logged_with_who_what_and_on_what(caplog: pytest.LogCaptureFixture) -> None:
    access = joined(ROOT)
    with caplog.at_level(logging.INFO, "wakugumi.audit"):
        access.check_question(AskStatus())
        access.check_question(AskCancel(client="desk-2"))
    assert [record.message for record in caplog.records] == [
        "act who=uid-0 role=admin what=cancel on=AskCancel(jobs=[], client='desk-2', pattern='', forget=False)"
    ]


def test_the_guard_hears_of_the_end() -> None:
    caller = Caller(DESK)
    PeerAccess(caller).left()
    assert caller.has_left
