"""`waku run`: what may be said about one job."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from wakugumi.app import logs, settings
from wakugumi.app.options import (
    LOGGING,
    UNPACKING,
    CachedFiles,
    ClientId,
    Env,
    Files,
    JobSlots,
    Key,
    Leader,
    Logging,
    OldLeader,
    Patience,
    Priority,
    Program,
    ProgramArgs,
    Retries,
    Subject,
    Timeout,
    Unpacking,
    variables,
)
from wakugumi.app.work.one_job import Asked, Taken, named_files, run_one
from wakugumi.app.work.target import choose


def run(
    program: Program,
    /,
    *,
    file: Files = (),
    cached: CachedFiles = (),
    out: Annotated[str | None, Parameter(help="The folder for the files that the program makes.")] = None,
    env: Env = (),
    timeout: Timeout = None,
    retries: Retries = 0,
    key: Key = None,
    priority: Priority = 0,
    job_slots: JobSlots = 1,
    leader: Leader = None,
    old_leader: OldLeader = None,
    patience: Patience = None,
    client_id: ClientId = None,
    subject: Subject = "",
    unpacking: Unpacking = UNPACKING,
    logged: Logging = LOGGING,
    program_args: ProgramArgs,
) -> int:
    logs.start(logged.log_level, logged.log_json, quiet=True)
    place = choose(program, leader, slots=job_slots, client_id=client_id, patience=patience, old_leader=old_leader)
    timeout_s = settings.TIMEOUT_S.value(timeout)
    asked = Asked(retries, key, priority, job_slots, variables(env))
    taken = Taken(out, unpacking.bytes_max(), unpacking.dot_files)
    return run_one(place, program_args, named_files(file, cached), subject, timeout_s, taken, asked)
