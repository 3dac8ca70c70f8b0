"""`waku run`: what may be said about one job."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from wakugumi.app import logs
from wakugumi.app.options import (
    LOGGING,
    UNPACKING,
    ClientId,
    Leader,
    Logging,
    OldLeader,
    Patience,
    Program,
    ProgramArgs,
    Unpacking,
)
from wakugumi.app.work.job_flags import JOB, JobFlags
from wakugumi.app.work.one_job import Taken, run_one
from wakugumi.app.work.target import choose


def run(
    program: Program,
    /,
    *,
    job: JobFlags = JOB,
    out: Annotated[str | None, Parameter(help="The folder for the files that the program makes.")] = None,
    leader: Leader = None,
    old_leader: OldLeader = None,
    patience: Patience = None,
    client_id: ClientId = None,
    unpacking: Unpacking = UNPACKING,
    logged: Logging = LOGGING,
    program_args: ProgramArgs,
) -> int:
    logs.start(logged.log_level, logged.log_json, quiet=True)
    options = job.options(program_args)
    slots = options.get("slots") or 1
    place = choose(program, leader, slots=slots, client_id=client_id, patience=patience, old_leader=old_leader)
    taken = Taken(out, unpacking.bytes_max(), unpacking.dot_files)
    return run_one(place, options, taken)
