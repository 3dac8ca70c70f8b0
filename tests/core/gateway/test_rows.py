"""When is a request the same as the one of a row?"""

from __future__ import annotations

import pytest
from tests.kit.gateway_jobs import JOB, NAME

from wakugumi.core.gateway.rows import DIGEST_FORM, DONE, FAILED, QUEUED, RUNNING, Content, GatewayJob
from wakugumi.errors import Refused


def a_row(request: str = "", **more: object) -> GatewayJob:
    return GatewayJob(job=JOB, name=NAME, owner="me", request=request, **more)  # type: ignore[arg-type]


def test_two_known_digests_must_be_equal() -> None:
    with pytest.raises(Refused, match="monday was used for another request"):
        a_row(f"{DIGEST_FORM}one").check_same(f"{DIGEST_FORM}two")
    a_row(f"{DIGEST_FORM}one").check_same(f"{DIGEST_FORM}one")


@pytest.mark.parametrize(("kept", "new"), [("", f"{DIGEST_FORM}two"), ("old", f"{DIGEST_FORM}two"), ("2:one", "")])
def test_an_unknown_digest_is_the_same_as_any(kept: str, new: str) -> None:
    a_row(kept).check_same(new)


def test_a_row_names_the_files_of_its_body_and_its_answer() -> None:
    small, body, answer = Content(3, data=b"abc"), Content(9, file="body"), Content(9, file="answer")
    assert a_row().files == set()
    assert a_row(body=small, answer=answer).files == {"answer"}
    assert a_row(body=body, answer=answer).files == {"body", "answer"}


def test_only_an_ended_job_is_final() -> None:
    assert [a_row(state=state).is_final for state in (QUEUED, RUNNING, DONE, FAILED)] == [False, False, True, True]
