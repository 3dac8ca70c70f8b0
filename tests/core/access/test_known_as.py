"""As whom a peer is known, and what it may, in words."""

from __future__ import annotations

import pytest

from wakugumi.core.access.identity import EMBEDDED, Identity, Role, Rules
from wakugumi.core.access.known_as import AskMe, Degree, KnownAs, allowed_acts, known_as
from wakugumi.wire.messages.control import read_question

pytestmark = pytest.mark.spec("O1")

RISK = ("job.assign.risk.>",)


def test_the_question_is_read_from_json() -> None:
    assert read_question(b'{"ask":"me"}') == AskMe()


def test_the_answer_names_the_proof_and_the_degree() -> None:
    rules = Rules(cap=4)
    found = known_as(Identity("desk-1", Role.CLIENT, rules, "desk-1", "key"), Degree.KEYS)
    assert isinstance(found, KnownAs)
    assert (found.name, found.role, found.proof, found.degree) == ("desk-1", "client", "key", "keys over TLS")
    assert found.rules == rules


@pytest.mark.parametrize(
    ("identity", "acts"),
    [
        (EMBEDDED, ["do everything"]),
        (Identity("admin", Role.ADMIN, Rules(clients=("*",))), ["do everything"]),
        (
            Identity("boss", Role.ADMIN, Rules(programs=("calc*",))),
            [
                "see all jobs",
                "run jobs of the programs calc* as any client",
                "put all caches",
                "be a worker",
                "change workers and caches",
                "make and revoke keys",
            ],
        ),
        (
            Identity("desk-1", Role.CLIENT),
            ["see own jobs", "run jobs as desk-1, desk-1.*", "put all caches"],
        ),
        (
            Identity("desk-1", Role.CLIENT, Rules((), ("calc*", "!calcB"), RISK, ("risk-*",), "all", 64)),
            [
                "see all jobs",
                "run jobs of the programs calc* but not calcB on job.assign.risk.> as desk-1, desk-1.*",
                "put the caches risk-*",
                "have 64 jobs at once",
            ],
        ),
        (Identity("eye", Role.READER), ["see all jobs"]),
        (Identity("eye", Role.READER, Rules(sees="own")), ["see own jobs"]),
        (Identity("rack-7", Role.WORKER, Rules(cap=7)), ["be a worker"]),
        (Identity("rack-7", Role.WORKER, Rules(subjects=RISK)), ["be a worker for job.assign.risk.>"]),
        (Identity("front", Role.GATEWAY), ["see all jobs", "run jobs as any client", "put all caches"]),
    ],
)
def test_what_one_may_is_told(identity: Identity, acts: list[str]) -> None:
    assert allowed_acts(identity) == acts
