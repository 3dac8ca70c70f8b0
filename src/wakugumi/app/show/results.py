"""How are the results of a few jobs shown? One row each, or all that is known of them as JSON."""

from __future__ import annotations

from collections.abc import Sequence

from wakugumi.app.show.output import duration, json_out, lines_out, table_out
from wakugumi.roles.client.result import Result


def show_results(results: Sequence[Result], how: str, *, with_leader: bool = False) -> None:
    """With several leaders, each result tells whose it is."""
    match how:
        case "json":
            leaders = [{"leader": result.leader} if with_leader else {} for result in results]
            json_out([_record(result) | leader for result, leader in zip(results, leaders)])
        case "quiet":
            lines_out([result.job_id for result in results])
        case _:
            titles = ("job", "status", "#exit", "#time", *(("leader",) if with_leader else ()), "output")
            table_out(titles, [_row(result, with_leader) for result in results])


def _row(result: Result, with_leader: bool) -> tuple[str, ...]:
    text = result.stdout_end if result.ok else result.stderr_end or result.reason
    return (
        result.job_id,
        result.status.lower(),
        "-" if result.exit_code is None else str(result.exit_code),
        "-" if result.run_s is None else duration(result.run_s),
        *((result.leader or "-",) if with_leader else ()),
        text.strip().partition("\n")[0][:200],
    )


def _record(result: Result) -> dict[str, object]:
    return {
        "job": result.job_id,
        "status": result.status,
        "exit_code": result.exit_code,
        "reason": result.reason,
        "run_s": result.run_s,
        "worker": result.worker,
        "stdout": result.stdout,
        "stderr": result.stderr,
        "files": sorted(result.files) if result.is_complete else None,
        "archive_bytes": result.archive_bytes,
    }
