"""`waku client` and `waku clientx`: do leaders and their workers work? A few jobs, and their results. (SPEC K7)"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from cyclopts import Parameter

from wakugumi.adapters.net.link import Address, parse_addresses
from wakugumi.app import logs, settings
from wakugumi.app.options import LOGGING, Logging, OldLeader, Output, ProgramArgs
from wakugumi.app.show.results import show_results
from wakugumi.app.stoppable import run
from wakugumi.app.work.job_flags import SAMPLE, SampleFlags
from wakugumi.app.work.target import connected
from wakugumi.core.subject import submit_subject
from wakugumi.errors import EXIT_JOB_FAILED, ConfigError
from wakugumi.roles.client.job_spec import MapOptions, Task
from wakugumi.roles.client.result import Result

PROGRAM: Final = "calcA"
COUNT: Final = 3

Program = Annotated[str, Parameter(help="The program to run.")]
Count = Annotated[int, Parameter(help="How many jobs.")]


def client(
    host: str,
    port: int,
    client_id: str,
    desired: int | None = None,
    /,
    *,
    program: Program = PROGRAM,
    job: SampleFlags = SAMPLE,
    count: Count = COUNT,
    old_leader: OldLeader = None,
    output: Output = None,
    logged: Logging = LOGGING,
    program_args: ProgramArgs,
) -> int:
    logs.start(logged.log_level, logged.log_json, quiet=True)
    tasks = _tasks(count, program_args)
    return _run([Address(host, port)], client_id, desired, program, tasks, job.options(), output, old_leader)


def clientx(
    client_id: str,
    /,
    *words: str,
    program: Program = PROGRAM,
    job: SampleFlags = SAMPLE,
    count: Count = COUNT,
    old_leader: OldLeader = None,
    output: Output = None,
    logged: Logging = LOGGING,
    program_args: ProgramArgs,
) -> int:
    logs.start(logged.log_level, logged.log_json, quiet=True)
    leaders, total = list(words), None
    if leaders and leaders[-1].isdecimal():
        total = int(leaders.pop())
    if not leaders:
        raise ConfigError(
            "clientx needs a leader's address", "write: waku clientx CLIENT_ID HOST:PORT… [DESIRED_TOTAL]"
        )
    tasks = _tasks(count, program_args)
    addresses = parse_addresses(",".join(leaders))
    return _run(addresses, client_id, total, program, tasks, job.options(), output, old_leader)


def _run(
    leaders: Sequence[Address],
    client_id: str,
    desired: int | None,
    program: str,
    tasks: Sequence[Task],
    options: MapOptions,
    output: str | None,
    old_leader: bool | None,
) -> int:
    cap = settings.DESIRED.value(desired)
    how = settings.OUTPUT.value(output)
    options["subject"] = options["subject"] or submit_subject(program)  # An old leader reads an empty one as `default`.
    turn = {id(task): number for number, task in enumerate(tasks)}

    async def work() -> list[Result]:
        async with connected(",".join(map(str, leaders)), client_id=client_id, cap=cap, old_leader=old_leader) as grid:
            done = [result async for result in grid.map(program, tasks, **options)]
        return sorted(done, key=lambda result: turn[id(result.item)])

    results = run(work())
    show_results(results, how, with_leader=len(leaders) > 1)
    return 0 if all(result.ok for result in results) else EXIT_JOB_FAILED


def _tasks(count: int, args: Sequence[str]) -> list[Task]:
    """Told apart by their last argument, 1 to the number of them, unless the arguments were given."""
    if count < 1:
        raise ConfigError(f"--count is {count}, and must be 1 or more")
    return [Task(args=args or (str(number),)) for number in range(1, count + 1)]
