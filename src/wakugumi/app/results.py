"""How are the results of a few jobs shown? One row each, or all that is known of them as JSON."""

from __future__ import annotations

from collections.abc import Sequence

from wakugumi.app.output import duration, json_out, lines_out, table_out
from wakugumi.roles.result import Result


def show_results(results: Sequence[Result], how: str) -> None:
    match how:
        case "json":
            json_out([_record(result) for result in results])
        case "quiet":
            lines_out([result.job_id for result in results])
        case _:
            table_out(("job", "status", "#exit", "#time", "output"), [_row(result) for result in results])


def _row(result: Result) -> tuple[str, ...]:
    text = result.stdout if result.ok else result.stderr or result.reason
    return (
        result.job_id,
        result.status.lower(),
        "-" if result.exit_code is None else str(result.exit_code),
        "-" if result.run_s is None else duration(result.run_s),
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
        "files": sorted(result.files),
    }
