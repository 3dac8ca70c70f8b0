"""`waku client` and `waku clientx`: do leaders and workers run jobs? A few sample jobs, and their results. (SPEC K7)"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from cyclopts import Parameter
from msgspec.structs import replace

from wakugumi.adapters.net.address import Address, parse_addresses
from wakugumi.app.client_settings import ClientSettings
from wakugumi.app.flags import Only, with_settings
from wakugumi.app.options import ProgramArgs
from wakugumi.app.show.results import show_results
from wakugumi.app.stoppable import run
from wakugumi.app.work.job_flags import SAMPLE, SampleFlags
from wakugumi.app.work.target import connected
from wakugumi.core.setting import options_of
from wakugumi.core.subject import submit_subject
from wakugumi.errors import EXIT_JOB_FAILED, ConfigError
from wakugumi.roles.client.job_spec import MapOptions, Task
from wakugumi.roles.client.result import Result

PROGRAM: Final = "calcA"
COUNT: Final = 3

Program = Annotated[str, Parameter(help="Program to run.")]
Count = Annotated[int, Parameter(help="Number of jobs.")]


Client = Annotated[
    ClientSettings,
    Only("access old_leader output log_level log_json", without_flag="desired choice grace_s patience_s"),
]


@with_settings
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
    asking: Client,
    program_args: ProgramArgs,
) -> int:
    """waku client HOST PORT CLIENT_ID [DESIRED] [OPTIONS] [-- ARG…]

    DESIRED is the number of jobs that may run at once.

    Examples:
      waku client 127.0.0.1 5000 desk-1
      waku client 127.0.0.1 5000 desk-1 8 --program calcB --count 100
    """
    tasks = _tasks(count, program_args)
    return _run([Address(host, port)], client_id, desired, program, tasks, job.options(), asking)


@with_settings
def clientx(
    client_id: str,
    /,
    *words: str,
    program: Program = PROGRAM,
    job: SampleFlags = SAMPLE,
    count: Count = COUNT,
    asking: Client,
    program_args: ProgramArgs,
) -> int:
    """waku clientx CLIENT_ID HOST:PORT… [DESIRED_TOTAL] [OPTIONS] [-- ARG…]

    DESIRED_TOTAL is the number of jobs that may run at once, divided evenly among connected leaders. If a leader is
    lost for longer than 10 s (WAKU_GRACE), the others adopt its jobs.

    Examples:
      waku clientx desk-1 127.0.0.1:5000 12
      waku clientx desk-1 a:5000 b:5000 c:5000 12 --count 100
    """
    leaders, total = list(words), None
    if leaders and leaders[-1].isdecimal():
        total = int(leaders.pop())
    if not leaders:
        raise ConfigError("no leader's address is given", "write: waku clientx CLIENT_ID HOST:PORT… [DESIRED_TOTAL]")
    tasks = _tasks(count, program_args)
    addresses = parse_addresses(",".join(leaders))
    return _run(addresses, client_id, total, program, tasks, job.options(), asking)


def _run(
    leaders: Sequence[Address],
    client_id: str,
    desired: int | None,
    program: str,
    tasks: Sequence[Task],
    options: MapOptions,
    asking: ClientSettings,
) -> int:
    cap = asking.desired if desired is None else options_of(ClientSettings)["desired"].of_flag(desired)
    asking = replace(asking, leader=",".join(map(str, leaders)), client_id=client_id, cap=cap)
    # An old leader takes an empty subject for `default`.
    options["subject"] = options["subject"] or submit_subject(program)
    turn = {id(task): number for number, task in enumerate(tasks)}

    async def work() -> list[Result]:
        async with connected(asking) as grid:
            done = [result async for result in grid.map(program, tasks, **options)]
        return sorted(done, key=lambda result: turn[id(result.item)])

    results = run(work())
    show_results(results, asking.output, with_leader=len(leaders) > 1)
    return 0 if all(result.ok for result in results) else EXIT_JOB_FAILED


def _tasks(count: int, args: Sequence[str]) -> list[Task]:
    """Each job's argument is its number, from 1 on, unless arguments are given."""
    if count < 1:
        raise ConfigError(f"--count is {count}, and must be 1 or more")
    return [Task(args=args or (str(number),)) for number in range(1, count + 1)]
