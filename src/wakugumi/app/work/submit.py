"""`waku submit`: how are jobs submitted without waiting? Their ids are printed once the leader has them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter

from wakugumi.app.flags import with_settings
from wakugumi.app.options import ProgramArgs, ProgramName, Submitting
from wakugumi.app.show.output import json_out, lines_out
from wakugumi.app.show.progress import shown_transfers
from wakugumi.app.stoppable import run
from wakugumi.app.work.job_flags import JOB, JobFlags
from wakugumi.app.work.target import connected
from wakugumi.errors import ConfigError
from wakugumi.limits.client import UNFINISHED_PER_CLIENT_MAX
from wakugumi.roles.client.job import Job


@with_settings
def submit(
    program: ProgramName,
    /,
    *,
    job_id: Annotated[
        str | None, Parameter(name="--id", help="Id of the job: a UUID, or a name of your own. [default: a new UUID]")
    ] = None,
    count: Annotated[int, Parameter(help="Number of equal jobs.")] = 1,
    job: JobFlags = JOB,
    client: Submitting,
    program_args: ProgramArgs,
) -> int:
    """waku submit PROGRAM [--file F]… [--cached ID/NAME]… [--id ID] [--count N] [OPTIONS] [-- ARG…]

    The leader keeps the results: see `waku jobs wait`. A job that is submitted again with the same --id runs once.

    Examples:
      waku submit calcA --file input.txt -- --mode=fast
      waku submit calcA --id monday-run
      waku submit calcA --priority 10 --job-slots 4
      waku jobs wait "$(waku submit calcA)"
    """
    if count < 1 or (job_id is not None and count > 1):
        raise ConfigError(f"--count is {count}, and must be 1 or more; with --id only 1")
    how = client.output
    options = job.options(program_args)

    async def hand_in() -> list[str]:
        most = max(count, UNFINISHED_PER_CLIENT_MAX)
        async with (
            connected(client, most) as grid,
            shown_transfers(grid, options["files"] or {}),
        ):
            taken: list[str] = []
            for first in range(0, count, 1000):
                jobs = [await grid.submit(program, job_id=job_id, **options) for _ in range(min(1000, count - first))]
                await asyncio.gather(*(job.accepted() for job in jobs))
                taken += _told(jobs, how)
            return taken

    ids = run(hand_in())
    if how == "json":
        json_out({"jobs": ids})
    return 0


def _told(jobs: Sequence[Job], how: str) -> list[str]:
    ids = [job.id for job in jobs]
    if how != "json":
        lines_out(ids, flush=True)
    return ids
