"""What does a row of the gateways' store say of itself?"""

from __future__ import annotations

import pytest

from wakugumi.adapters.gateway_store.interface import DONE, FAILED, QUEUED, RUNNING, GatewayJob
from wakugumi.adapters.http.spool import Content
from wakugumi.core.ids import JobId

JOB = JobId(b"j" * 16)


@pytest.mark.parametrize(("state", "is_final"), [(QUEUED, False), (RUNNING, False), (DONE, True), (FAILED, True)])
def test_only_an_ended_job_is_final(state: str, is_final: bool) -> None:
    assert GatewayJob(JOB, "night", "me", state).is_final is is_final


def test_a_row_names_the_files_of_its_body_and_its_answer() -> None:
    small, body, answer = Content(3, data=b"abc"), Content(9, file="body"), Content(9, file="answer")
    assert GatewayJob(JOB, "night", "me").files == set()
    assert GatewayJob(JOB, "night", "me", body=small, answer=answer).files == {"answer"}
    assert GatewayJob(JOB, "night", "me", body=body, answer=answer).files == {"body", "answer"}
