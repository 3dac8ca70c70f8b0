"""Decisions: what each role may, and sentences that explain a refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import msgspec
import pytest

from wakugumi.core.access.decide import (
    RIGHT_OF_QUESTION,
    Right,
    capped,
    check_client,
    check_need,
    check_patterns,
    check_put,
    check_question,
    check_submit,
    may,
)
from wakugumi.core.access.identity import Identity, Role, Rules
from wakugumi.core.leader.questions import AskCancel, AskDrain, AskJobs, AskStatus, Question
from wakugumi.core.subject import Pattern
from wakugumi.errors import EXIT_DENIED, Refused

DESK = Identity("desk-1", Role.CLIENT, Rules(subjects=("job.assign.risk.>",), programs=("calc*",), caches=("risk-*",)))
RACK = Identity("rack-7", Role.WORKER, Rules(subjects=("job.assign.risk.>", "!job.assign.risk.secret.>")))
RISK = Pattern("job.assign.risk.>")


def refusal(check: Callable[..., None], *args: object) -> str:
    with pytest.raises(Refused) as refused:
        check(*args)
    assert refused.value.code == "denied"
    assert refused.value.exit_code == EXIT_DENIED
    assert refused.value.hint
    return refused.value.message


@pytest.mark.parametrize(
    ("role", "needs"),
    [
        (Role.ADMIN, "open known look run work content change keys"),
        (Role.CLIENT, "open known look run content"),
        (Role.GATEWAY, "open known look run content"),
        (Role.READER, "open known look"),
        (Role.WORKER, "open known work content"),
    ],
)
def test_a_role_may_what_the_table_says(role: Role, needs: str) -> None:
    identity = Identity("x", role)
    assert [need for need in Right if may(identity, need)] == [Right(need) for need in needs.split()]
    for need in Right:
        if not may(identity, need):
            assert refusal(check_need, identity, need, "do that") == f"x has the role {role.value} and may not do that"
        else:
            check_need(identity, need, "do that")


def test_a_job_inside_the_rules_is_taken() -> None:
    check_submit(DESK, "desk-1", "calcA", "job.assign.risk.var")
    check_submit(DESK, "desk-1.ann@pc", "calc", "job.assign.risk.a.b")
    check_submit(Identity("admin", Role.ADMIN), "anyone", "", "job.assign.x")


def test_a_job_outside_the_rules_is_refused_with_the_reason() -> None:
    assert refusal(check_submit, DESK, "desk-1", "calcA", "job.assign.hr.pay") == (
        "desk-1 may submit to job.assign.risk.>, not to job.assign.hr.pay"
    )
    assert refusal(check_submit, DESK, "desk-1", "rm", "job.assign.risk.var") == "desk-1 may run calc*, not rm"
    assert refusal(check_submit, DESK, "desk-1", "", "job.assign.risk.var") == (
        "desk-1 may run calc*, not a job without a program"
    )
    assert refusal(check_submit, DESK, "desk-2", "calcA", "job.assign.risk.var") == (
        "desk-1 may speak for the clients desk-1, desk-1.*, not for desk-2"
    )
    assert refusal(check_submit, RACK, "rack-7", "calcA", "job.assign.risk.var") == (
        "rack-7 has the role worker and may not submit jobs"
    )


def test_a_subject_that_only_overlaps_is_refused() -> None:
    assert refusal(check_submit, DESK, "desk-1", "calcA", "job.assign.>") == (
        "desk-1 may submit to job.assign.risk.>, not to job.assign.>"
    )


def test_a_denied_program_is_denied_by_both_of_its_names() -> None:
    identity = Identity("d", Role.CLIENT, Rules(programs=("!format.exe",)))
    for name in ("format", "format.exe"):
        assert refusal(check_submit, identity, "d", name, "job.assign.x").startswith("d may run * but not format.exe")
    check_submit(identity, "d", "formatter", "job.assign.x")


def test_a_client_id_in_a_sentence_is_quoted_if_it_could_be_words_of_it() -> None:
    assert refusal(check_client, DESK, "x, not for desk-2").endswith("not for 'x, not for desk-2'")
    assert "\u202e" not in refusal(check_client, DESK, "a\u202eb")
    assert len(refusal(check_client, DESK, "x" * 10_000)) < 200


def test_a_worker_has_all_its_patterns_inside_its_subjects() -> None:
    check_patterns(RACK, (Pattern("job.assign.risk.var"), Pattern("job.assign.risk.var.*")))
    check_patterns(Identity("rack-8", Role.WORKER), (Pattern(">"),))
    assert refusal(check_patterns, RACK, (Pattern("job.assign.risk.var"), Pattern("job.assign.>"))) == (
        "rack-7 may take jobs of job.assign.risk.> but not job.assign.risk.secret.>, not of job.assign.>"
    )
    assert "not of job.assign.risk.>" in refusal(check_patterns, RACK, (RISK,)), "a denial overlaps"
    assert refusal(check_patterns, DESK, (RISK,)) == "desk-1 has the role client and may not be a worker"


def test_a_cache_is_put_inside_the_rules() -> None:
    check_put(DESK, "risk-v1", (RISK,))
    assert refusal(check_put, DESK, "hr-v1", (RISK,)) == "desk-1 may put the caches risk-*, not hr-v1"
    assert refusal(check_put, DESK, "risk-v1", (RISK, Pattern("job.assign.hr"))) == (
        "desk-1 may put caches on workers of job.assign.risk.>, not of job.assign.hr"
    )
    assert refusal(check_put, RACK, "risk-v1", (RISK,)) == "rack-7 has the role worker and may not put caches"


def test_each_question_has_its_need() -> None:
    tags = {question.__struct_config__.tag for question in get_args(Question)}
    assert set(RIGHT_OF_QUESTION) == tags


def test_a_question_is_for_roles_that_may() -> None:
    reader = Identity("grafana", Role.READER)
    check_question(reader, AskStatus())
    check_question(DESK, AskCancel())
    assert refusal(check_question, reader, AskCancel()) == "grafana has the role reader and may not ask for 'cancel'"
    assert refusal(check_question, DESK, AskDrain("w")) == "desk-1 has the role client and may not ask for 'drain'"
    assert refusal(check_question, RACK, AskJobs()) == "rack-7 has the role worker and may not ask for 'jobs'"


def test_a_question_without_a_row_is_for_administrators() -> None:
    class AskNew(msgspec.Struct, tag_field="ask", tag="new"):
        pass

    check_question(Identity("a", Role.ADMIN), AskNew())
    refusal(check_question, DESK, AskNew())


def test_a_key_bounds_the_cap() -> None:
    assert capped(DESK, 64) == 64
    bounded = Identity("d", Role.CLIENT, Rules(cap=8))
    assert (capped(bounded, 64), capped(bounded, 4)) == (8, 4)
