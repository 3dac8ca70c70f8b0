"""`waku workers …`: which workers has a leader, and which get no further jobs?"""

from __future__ import annotations

from wakugumi.app.admin.ask import ask, ask_each, show_each
from wakugumi.app.flags import with_settings
from wakugumi.app.options import Asking, WorkerArgument
from wakugumi.app.show.output import ago, say, show, table_out
from wakugumi.core.leader import answer_records as an
from wakugumi.core.leader import questions as qu


@with_settings
def workers_list(*, asking: Asking) -> int:
    """waku workers list [OPTIONS]

    Example:
      waku workers list
    """
    told = ask_each(qu.AskWorkers(), an.WorkersAnswer, asking)
    show_each(
        told,
        asking,
        lambda answer: _show_workers(answer.workers),
        lambda answer: [row.worker for row in answer.workers],
    )
    return 0


@with_settings
def workers_drain(worker: WorkerArgument, /, *, asking: Asking) -> int:
    """waku workers drain WORKER [OPTIONS]

    Example:
      waku workers drain rack1-7
    """
    return _show_worker(ask(qu.AskDrain(worker), an.WorkerRow, asking), asking)


@with_settings
def workers_resume(worker: WorkerArgument, /, *, asking: Asking) -> int:
    """waku workers resume WORKER [OPTIONS]

    Example:
      waku workers resume rack1-7
    """
    return _show_worker(ask(qu.AskResume(worker), an.WorkerRow, asking), asking)


def _show_worker(row: an.WorkerRow, asking: Asking) -> int:
    show(asking.output, row, [row.worker], lambda: _show_workers([row]))
    return 0


def _show_workers(rows: list[an.WorkerRow]) -> None:
    table_out(
        ("worker", "name", "state", "#running", "#free", "#slots", "#cpu", "#seen", "patterns"),
        [
            (
                row.worker,
                row.name or "-",
                "kept free" if row.kept_for else row.state,
                str(row.running),
                str(row.credit),
                str(row.slots) if row.slots else "-",
                f"{row.cpu:.0%}",
                ago(row.seen_s),
                " ".join(row.patterns),
            )
            for row in rows
        ],
    )
    as_root = [row.name or row.worker for row in rows if row.as_root]
    if as_root:
        say(f"{', '.join(as_root)}: programs run as root, so every sender of jobs is root there (see --run-as)")
    for row in rows:
        if row.rests:
            say(f"{row.name or row.worker} rests: {row.rests}")
        elif row.held_by:
            say(f"{row.name or row.worker} gets fewer jobs: {row.why} (its limit: --cpu-cap, or off)")
