"""What is the result of a job that could not run, or whose result no leader takes?"""

from __future__ import annotations

import msgspec
import pytest

from wakugumi.core.ids import job_id_from_name
from wakugumi.errors import CODES
from wakugumi.roles.runner.make_result import NOT_BEGUN, TAIL_BYTES, refuse, too_big
from wakugumi.wire.messages.job import FAILED, JobRequest, JobResult, read_result

JOB = job_id_from_name("job-1")
REQUEST = JobRequest("job-1", "desk", "calcA")


@pytest.mark.parametrize("code", sorted(NOT_BEGUN))
def test_a_job_that_was_not_begun_may_run_elsewhere(code: str) -> None:
    made = refuse(REQUEST, None, code, "no room", "mill", sick=True)
    result = read_result(JOB, made.payload)
    assert (made.ok, made.reason, made.ran_s, made.fault) == (False, code, 0.0, "no room")
    assert (result.job_id, result.client_id, result.exec_name, result.worker) == ("job-1", "desk", "calcA", "mill")
    assert (result.status, result.reason, result.exit_code) == (FAILED, code, None)
    assert result.stderr == "wakugumi: no room\n"
    assert result.not_begun is True
    assert code in CODES


def test_a_job_that_no_machine_can_run_is_not_sent_to_another_one() -> None:
    made = refuse(REQUEST, None, "env-refused", "no such variable", "mill", sick=False)
    assert made.fault == ""
    assert read_result(JOB, made.payload).not_begun is msgspec.UNSET


@pytest.mark.parametrize(
    ("stderr", "before"), [("", ""), ("said", "said\n"), ("said\n", "said\n")], ids=["none", "open", "whole"]
)
def test_a_result_for_a_leader_of_frames_tells_where_the_whole_one_is(stderr: str, before: str) -> None:
    whole = JobResult("job-1", "desk", "calcA", stdout="out", stderr=stderr, exit_code=0, run_s=1.5, worker="mill")
    result = too_big(whole, "/jobs/1", 3600)
    assert result.stderr.startswith(before + "wakugumi: ")
    assert result.stderr.endswith("It is kept for 3600 s in /jobs/1 on worker mill\n")
    assert (result.status, result.reason) == (FAILED, "too-big")
    assert (result.job_id, result.stdout, result.exit_code, result.run_s) == ("job-1", "out", 0, 1.5)


def test_of_long_texts_the_end_is_kept() -> None:
    whole = JobResult("job-1", stdout="a" * TAIL_BYTES + "end", stderr="b" * 2 * TAIL_BYTES, worker="mill")
    result = too_big(whole, "/jobs/1", 1)
    assert (len(result.stdout), len(result.stderr)) == (TAIL_BYTES, TAIL_BYTES)
    assert result.stdout.endswith("aend")
    assert result.stderr.endswith("on worker mill\n")
