"""`waku store …`: is a leader's journal sound, and how is it copied or repaired?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from wakugumi.adapters.journal import maintenance
from wakugumi.app.client_settings import LEADER_HERE, ClientSettings
from wakugumi.app.flags import Only, with_settings
from wakugumi.app.options import Shown
from wakugumi.app.settings import state_folder
from wakugumi.app.show.output import json_out, lines_out, one, say, show, size, table_out
from wakugumi.errors import EXIT_JOB_FAILED, ConfigError

SHOWN_MAX = 10
"""Lost leaves that a sentence names; `-o json` names them all."""

Folder = Annotated[str | None, Parameter(show_default=False, help="State folder of the leader.")]
WithState = Annotated[ClientSettings, Only("state output log_level log_json")]


@with_settings
def store_check(folder: Folder = None, /, *, asking: WithState) -> int:
    """waku store check [DIR | --state DIR] [OPTIONS]

    DIR is the leader's state folder. The leader may run meanwhile. Exit code 1 if the journal is damaged.

    Examples:
      waku store check
      waku store check /var/lib/wakugumi -o json
    """
    report = maintenance.check(_folder(folder, asking))
    match asking.output:
        case "json":
            json_out(report)
        case "quiet":
            lines_out(["damaged" if report.damage else "ok"])
        case _:
            _show(report)
            if report.damage:
                say(f"damaged: {report.damage}")
                say()
                say(f"hint: `waku store repair {Path(report.path).parent}` keeps the readable part")
    return EXIT_JOB_FAILED if report.damage else 0


@with_settings
def store_backup(
    folder: Annotated[str, Parameter(help="State folder of the leader.")],
    file: Annotated[str, Parameter(help="New file for the copy.")],
    /,
    *,
    asking: Shown,
) -> int:
    """waku store backup DIR FILE [OPTIONS]

    The leader may run meanwhile. To restore, put FILE into an empty folder as journal.sqlite, and start a leader with
    --state on that folder: it has the jobs as of the backup.

    Example:
      waku store backup /var/lib/wakugumi monday.sqlite
    """
    count = maintenance.backup(Path(folder), Path(file))
    show(asking.output, {"file": file, "bytes": count}, [file], [f"{file}: {size(count)}"])
    return 0


@with_settings
def store_repair(folder: Folder = None, /, *, asking: WithState) -> int:
    """waku store repair [DIR | --state DIR] [OPTIONS]

    No leader may use the folder meanwhile. The damaged file is renamed, with the time in its name, and never deleted. A
    sound journal is not changed.

    Example:
      waku store repair /var/lib/wakugumi
    """
    done = maintenance.repair(_folder(folder, asking))
    show(asking.output, done, done.found.lost_jobs, lambda: _tell(done))
    return 0


def _folder(folder: str | None, asking: ClientSettings) -> Path:
    if folder is not None and "state" in asking.by_flag:
        raise ConfigError("the folder is named twice", "write DIR or --state DIR")
    said = folder or asking.state
    return Path(said) if said else state_folder(int(LEADER_HERE.rpartition(":")[2]))


def _show(report: maintenance.JournalReport) -> None:
    jobs = report.jobs
    rows = [
        ("file", report.path),
        ("size", f"{size(report.file_bytes)}, of which {size(report.free_bytes)} free"),
        ("leader", _leader(report.leader)),
        ("leaves", f"{report.leaves:,}"),
        ("lost leaves", f"{len(report.lost_leaves):,}"),
        ("emptied by a repair", f"{report.emptied_leaves:,}"),
        ("queued", f"{jobs.queued:,}"),
        ("running", f"{jobs.running:,}"),
        ("finished", f"{jobs.finished:,}"),
        ("undelivered", f"{jobs.undelivered:,}"),
        ("dead", f"{jobs.dead:,}"),
    ]
    table_out(("what", "found"), rows)


def _leader(pid: int) -> str:
    return f"process {pid}" if pid > 0 else "an unknown process" if pid else "none runs"


def _tell(done: maintenance.Repair) -> None:
    found = done.found
    if not done.aside:
        lines_out([f"{found.path} is sound: {_leaves(found.leaves)}, nothing was changed"])
        return
    kept = found.leaves
    lost = found.lost_leaves
    lines_out(
        [
            f"kept {_leaves(kept)}, lost {_leaves(len(lost))}{_named(lost)}",
            f"{one(len(found.lost_jobs), 'job')} lost that other leaves mention{':' if found.lost_jobs else ''}",
            *found.lost_jobs,
        ]
    )
    say(f"the damaged journal is now {done.aside}")
    if lost:
        say()
        say(
            "hint: clients that still wait submit their lost jobs again; "
            "jobs that only lost leaves mention cannot be named"
        )


def _leaves(count: int) -> str:
    return f"{count:,} {'leaf' if count == 1 else 'leaves'}"


def _named(numbers: list[int]) -> str:
    if not numbers:
        return ""
    more = "" if len(numbers) <= SHOWN_MAX else f" and {len(numbers) - SHOWN_MAX:,} more"
    return f" ({', '.join(map(str, numbers[:SHOWN_MAX]))}{more})"
