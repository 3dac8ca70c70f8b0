"""Which ends of an attempt are a job's answer, and which of them count."""

from __future__ import annotations

import pytest

from wakugumi.core.ids import Attempt, ClientId, ConnId, JobId, WorkerId
from wakugumi.core.leader.events import Acked
from wakugumi.core.leader.jobs.attempts import (
    LEADER_LOST,
    LEADER_LOST_PER_ATTEMPT,
    OUTPUTS_KEPT,
    attempts_used,
    is_final,
    is_retried,
    outputs_of,
    retries_used,
    strip_old_output,
)
from wakugumi.core.leader.records import ClientRecord, JobRecord
from wakugumi.core.subject import parse_subject

JOB = JobId(bytes(16))


def a_job(*outcomes: str, retries: int = 0, output: str = "") -> JobRecord:
    client = ClientRecord(ClientId("c"))
    job = JobRecord(JOB, client, parse_subject("job.assign.x"), "x", 1.0, 0.0, b"", (), retries=retries)
    job.history = tuple(
        Attempt(number, WorkerId(b"w" * 16), "w", 0.0, 1.0, outcome, output) for number, outcome in enumerate(outcomes)
    )
    return job


def an_ack(reason: str, *, ok: bool = False) -> Acked:
    return Acked(ConnId(1), JOB, ok, reason, b"")


@pytest.mark.spec("W6")
@pytest.mark.parametrize(
    ("reason", "final"),
    [("", True), ("exit", True), ("timeout", True), ("nobody-knows-this", True), ("cancelled", False), ("disk", False)],
)
def test_a_failure_is_an_answer_unless_its_code_is_to_be_tried_again(reason: str, final: bool) -> None:
    assert is_final(an_ack(reason)) is final
    assert is_final(an_ack(reason, ok=True))


@pytest.mark.spec("W6")
def test_a_programs_own_end_is_retried_as_often_as_its_job_asks() -> None:
    assert not is_retried(a_job(), an_ack("exit"))
    assert is_retried(a_job("exit", retries=2), an_ack(""))
    assert not is_retried(a_job("exit", "timeout", retries=2), an_ack("timeout"))
    assert not is_retried(a_job(retries=2), an_ack("disk"))


@pytest.mark.spec("L3")
def test_what_the_program_ended_itself_is_no_lost_attempt_and_lost_leaders_count_in_part() -> None:
    job = a_job("exit", "worker-lost", "timeout", "disk")
    assert (attempts_used(job), retries_used(job)) == (2, 2)
    assert attempts_used(a_job(*[LEADER_LOST] * (LEADER_LOST_PER_ATTEMPT - 1))) == 0
    assert attempts_used(a_job(*[LEADER_LOST] * LEADER_LOST_PER_ATTEMPT)) == 1


def test_only_the_last_attempts_keep_what_they_printed() -> None:
    job = a_job(*["disk"] * OUTPUTS_KEPT, output="four")
    assert (strip_old_output(job), outputs_of(job)) == (0, 4 * OUTPUTS_KEPT)
    job = a_job(*["disk"] * (OUTPUTS_KEPT + 1), output="four")
    assert (strip_old_output(job), outputs_of(job)) == (4, 4 * OUTPUTS_KEPT)
    assert strip_old_output(job) == 0
    assert [attempt.output for attempt in job.history] == ["", *["four"] * OUTPUTS_KEPT]
