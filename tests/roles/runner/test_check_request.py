"""Which requests can no worker run, whatever it has?"""

from __future__ import annotations

from typing import Any

import pytest

from wakugumi.errors import Refused
from wakugumi.limits.runner import JOB_TIMEOUT_MAX_S
from wakugumi.limits.wire import ARGS_PER_JOB_MAX, FILES_PER_JOB_MAX
from wakugumi.roles.runner.check_request import check_request
from wakugumi.wire.messages.job import InputFile, JobRequest


def request(**fields: Any) -> JobRequest:
    return JobRequest("", **fields)


def test_a_request_at_all_its_bounds_is_run() -> None:
    files = [InputFile(f"{number}", b"") for number in range(FILES_PER_JOB_MAX)]
    check_request(request(args=["x"] * ARGS_PER_JOB_MAX, files=files, timeout_s=JOB_TIMEOUT_MAX_S, env={"A": "1"}))


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"args": ["x"] * (ARGS_PER_JOB_MAX + 1)}, "bad-request"),
        ({"files": [InputFile(f"{number}", b"") for number in range(FILES_PER_JOB_MAX + 1)]}, "bad-request"),
        ({"timeout_s": 0.0}, "bad-request"),
        ({"timeout_s": JOB_TIMEOUT_MAX_S + 1.0}, "bad-request"),
        ({"timeout_s": float("nan")}, "bad-request"),
        ({"files": [InputFile("../x", b"")]}, "bad-name"),
        ({"files": [InputFile("x", b""), InputFile("x", b"")]}, "bad-name"),
        ({"env": {"A=B": "1"}}, "bad-request"),
    ],
)
def test_a_request_beyond_a_bound_is_refused(fields: dict[str, Any], code: str) -> None:
    with pytest.raises(Refused) as refused:
        check_request(request(**fields))
    assert refused.value.code == code
