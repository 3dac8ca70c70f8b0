"""`waku broadcast`: what does every worker answer? Each answer is shown on arrival, then a summary."""

from __future__ import annotations

from typing import Annotated

import msgspec
from cyclopts import Parameter, validators

from wakugumi.app.flags import with_settings
from wakugumi.app.options import ProgramArgs, ProgramName, Submitting
from wakugumi.app.show.output import colour, duration, json_out, line_out, lines_out, one, say, say_error, size
from wakugumi.app.show.progress import shown_transfers
from wakugumi.app.stoppable import run
from wakugumi.app.work.job_flags import BROADCAST, BroadcastFlags
from wakugumi.app.work.target import connected
from wakugumi.errors import EXIT_JOB_FAILED
from wakugumi.limits.leader import BROADCAST_DEADLINE_S
from wakugumi.limits.runner import JOB_TIMEOUT_MAX_S
from wakugumi.roles.client.broadcast import Summary
from wakugumi.roles.client.result import Result


class BroadcastRow(msgspec.Struct, frozen=True):
    """One worker's answer for `-o json`."""

    worker: str
    status: str
    reason: str
    exit_code: int | None
    run_s: float | None
    stdout: str
    stderr: str


class BroadcastReport(msgspec.Struct, frozen=True):
    """The output of `-o json`."""

    summary: Summary
    results: list[BroadcastRow]


@with_settings
def broadcast(
    program: ProgramName,
    /,
    *,
    within: Annotated[
        float,
        Parameter(
            validator=validators.Number(gt=0, lte=JOB_TIMEOUT_MAX_S),
            help="Seconds until a worker without an answer counts as silent.",
        ),
    ] = BROADCAST_DEADLINE_S,
    job: BroadcastFlags = BROADCAST,
    client: Submitting,
    program_args: ProgramArgs,
) -> int:
    """waku broadcast PROGRAM [--file F]… [--within SECONDS] [OPTIONS] [-- ARG…]

    Every connected worker whose patterns match runs the job once; workers that join later do not. Each answer is shown
    as it arrives. Exit code 1 if a worker failed or was silent, if no worker matched, or if a leader was not
    reachable.

    Examples:
      waku broadcast uptime
      waku broadcast refresh --subject calcA --within 10
      waku broadcast version -o json -- --short
    """
    how = client.output
    options = job.options(program_args)
    results: list[Result] = []

    async def ask_all() -> Summary:
        async with (
            connected(client) as grid,
            shown_transfers(grid, options["files"] or {}),
        ):
            shout = grid.broadcast(program, within_s=within, **options)
            async for result in shout:
                results.append(result)
                if how == "table":
                    _show(result)
                elif how == "quiet":
                    line_out(str(result.item), flush=True)
            return shout.summary

    summary = run(ask_all())
    if how == "json":
        json_out(BroadcastReport(summary, [_row(result) for result in results]))
    for leader in summary.unasked:
        say(colour("not asked:", "yellow"), f"the workers of {leader}")
    if not summary.sent:
        say_error("no worker matches", "see the connected workers with `waku workers list`")
    elif how == "table":
        say(f"{one(summary.sent, 'worker')}: {summary.ok} ok, {summary.failed} failed, {summary.silent} silent")
    return 0 if summary.sent and summary.ok == summary.sent and not summary.unasked else EXIT_JOB_FAILED


def _show(result: Result) -> None:
    """A worker's answer: one line, and its output indented."""
    how = colour("ok", "green") if result.ok else colour(result.reason or "failed", "red")
    code = [f"(exit code {result.exit_code})"] if result.exit_code else []
    took = [] if result.run_s is None else [f"in {duration(result.run_s)}"]
    line_out(colour(f"{result.item}:", "bold"), how, *code, *took)
    for name, text, whole_bytes in (
        ("stdout", result.stdout_end, result.stdout_bytes),
        ("stderr", result.stderr_end, result.stderr_bytes),
    ):
        shown_bytes = len(text.encode(errors="replace"))
        if shown_bytes < whole_bytes:
            line_out(f"    … the last {size(shown_bytes)} of {whole_bytes:,} bytes of {name}; -o json has all")
        lines_out([f"    {line}" for line in text.splitlines()])


def _row(result: Result) -> BroadcastRow:
    return BroadcastRow(
        str(result.item),
        result.status,
        result.reason,
        result.exit_code,
        result.run_s,
        result.stdout,
        result.stderr,
    )
