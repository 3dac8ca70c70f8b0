"""Which requests can no worker run?"""

from __future__ import annotations

from wakugumi.core.environment import check_env
from wakugumi.core.names import check_file_names
from wakugumi.errors import Refused
from wakugumi.limits.runner import JOB_TIMEOUT_MAX_S
from wakugumi.limits.wire import ARGS_PER_JOB_MAX, FILES_PER_JOB_MAX
from wakugumi.wire.messages.job import JobRequest


def check_request(request: JobRequest) -> None:
    """Raises Refused for a request that fails on every worker."""
    if len(request.args) > ARGS_PER_JOB_MAX:
        raise Refused("bad-request", f"a job has at most {ARGS_PER_JOB_MAX} arguments, not {len(request.args)}")
    if len(request.files) > FILES_PER_JOB_MAX:
        raise Refused("bad-request", f"a job has at most {FILES_PER_JOB_MAX} files, not {len(request.files)}")
    if request.timeout_s is not None and not 0 < request.timeout_s <= JOB_TIMEOUT_MAX_S:
        raise Refused("bad-request", f"a timeout is above 0 and at most {JOB_TIMEOUT_MAX_S:g} s")
    check_file_names([file.name for file in request.files])
    if request.env:
        check_env(request.env)
