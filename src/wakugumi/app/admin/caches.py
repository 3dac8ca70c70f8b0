"""`waku caches …`: how are files put on workers, listed, kept and deleted?

A cache is a named set of files that is never overwritten (SPEC C2): new content is a new id, such as dataset-v2.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from wakugumi.app.admin.ask import answers, ask, ask_each, show_each
from wakugumi.app.flags import with_settings
from wakugumi.app.options import Asking, CacheArgument
from wakugumi.app.show.output import (
    ago,
    colour,
    fields_out,
    is_drawable,
    line_out,
    one,
    say,
    say_error,
    show,
    size,
    table_out,
)
from wakugumi.app.show.progress import shown_transfers
from wakugumi.app.stoppable import run
from wakugumi.app.work.target import connected
from wakugumi.core.leader import answer_records as an
from wakugumi.core.leader import questions as qu
from wakugumi.core.names import check_cache_id
from wakugumi.errors import EXIT_JOB_FAILED, EXIT_NOT_FOUND, ConfigError, Refused, hint_for
from wakugumi.limits.files import PUT_DEADLINE_MAX_S, PUT_DEADLINE_S
from wakugumi.limits.leader import LIST_ROWS_DEFAULT
from wakugumi.limits.wire import FILES_PER_CACHE_MAX
from wakugumi.roles.client.files.inputs import Content
from wakugumi.roles.client.put_cache import ALL_WORKERS, CacheSummary, files_below

_FAILURES_SHOWN = 10


@with_settings
def caches_put(
    cache: CacheArgument,
    /,
    *files: Annotated[
        str, Parameter(help="Files, or folders with all files below them; NAME=PATH puts a file under NAME.")
    ],
    target: Annotated[str, Parameter(help="Pattern: workers whose patterns overlap it get the cache.")] = ALL_WORKERS,
    within: Annotated[
        float,
        Parameter(validator=validators.Number(gt=0, lte=PUT_DEADLINE_MAX_S), help="Seconds to wait for the workers."),
    ] = PUT_DEADLINE_S,
    share: Annotated[
        float,
        Parameter(
            validator=validators.Number(gte=0, lte=1), help="Share of the workers, 0 to 1, whose success is enough."
        ),
    ] = 1.0,
    pin: Annotated[
        bool, Parameter(negative="", show_default=False, help="Pin the cache: the leader keeps it until it is dropped.")
    ] = False,
    asking: Asking,
) -> int:
    """waku caches put ID FILE|FOLDER… [--target PATTERN] [--within S] [--share X] [--pin] [OPTIONS]

    A file has its own name in the cache, or NAME with NAME=PATH; a folder means all files below it, hidden ones too.
    Every worker whose patterns overlap --target gets the cache, also workers that join later. A file under an id is
    never overwritten: a known file is skipped, a new name is added, and other content under a known name fails. So new
    content needs a new id, such as dataset-v2. The same command again sends only missing files.

    The command ends when a --share of the workers has the cache, at the latest after --within seconds. Exit code 1 if
    too few have it then.

    Examples:
      waku caches put dataset-v1 data/
      waku caches put model-7 weights=run7/w.bin --target 'job.assign.gpu.>' --pin
      waku caches put dataset-v1 data/ --share 0.9 --within 60
    """
    how = asking.output
    named = named_contents(files)
    last = ""

    def on_progress(summary: CacheSummary) -> None:
        nonlocal last
        text = _counts(summary)
        if how == "table" and is_drawable(sys.stderr) and text != last:
            say(text)
        last = text

    async def put() -> CacheSummary:
        async with connected(asking) as grid, shown_transfers(grid, named, lambda: last):
            return await grid.put_cache(
                cache, named, target=target, within_s=within, share=share, pinned=pin, on_progress=on_progress
            )

    summary = run(put())
    show(how, summary, [summary.status], [f"{summary.cache}: {summary.status}, {_counts(summary)}"])
    _say_failures(summary)
    return 0 if summary.succeeded else EXIT_JOB_FAILED


@with_settings
def caches_list(
    *,
    limit: Annotated[int, Parameter(help="Number of caches to show, the last used ones.")] = LIST_ROWS_DEFAULT,
    asking: Asking,
) -> int:
    """waku caches list [--limit N] [OPTIONS]

    Examples:
      waku caches list
      waku caches list -o quiet
    """
    told = ask_each(qu.AskCaches(limit), an.CachesAnswer, asking)
    show_each(told, asking, _show_caches, lambda answer: [row.cache for row in answer.rows])
    return 0


@with_settings
def caches_show(cache: CacheArgument, /, *, asking: Asking) -> int:
    """waku caches show ID [OPTIONS]

    Exit code 3 if there is no such cache.

    Example:
      waku caches show dataset-v1
    """
    try:
        answer = ask(qu.AskCache(_checked(cache)), an.CacheAnswer, asking)
    except Refused as no:
        return _refused(no)
    show(asking.output, answer, [entry.name for entry in answer.entries], lambda: _show_cache(answer))
    return 0


@with_settings
def caches_pin(
    cache: CacheArgument,
    /,
    *,
    off: Annotated[bool, Parameter(negative="", show_default=False, help="Allow eviction again.")] = False,
    asking: Asking,
) -> int:
    """waku caches pin ID [--off] [OPTIONS]

    A worker that needs room evicts pinned caches last. With --off the cache may be evicted like others. Exit code 3 if
    there is no such cache.

    Examples:
      waku caches pin dataset-v1
      waku caches pin dataset-v1 --off
    """
    return _do(qu.AskPin(_checked(cache), not off), "may be evicted" if off else "pinned", asking)


@with_settings
def caches_drop(cache: CacheArgument, /, *, asking: Asking) -> int:
    """waku caches drop ID [OPTIONS]

    Later jobs that use the cache fail. Exit code 3 if there is no such cache.

    Example:
      waku caches drop dataset-v1
    """
    return _do(qu.AskDropCache(_checked(cache)), "dropped", asking)


def named_contents(words: Sequence[str]) -> dict[str, Content]:
    """Files of the command line: a file under its own name, a folder's files under theirs, NAME=PATH under NAME. Raises
    ConfigError."""
    files: dict[str, Content] = {}
    for word in words:
        name, is_named, text = word.partition("=")
        if not is_named or Path(word).exists():
            name, text = "", word
        path = Path(text)
        if not path.exists():
            raise ConfigError(f"{path} does not exist", "name files and folders, or NAME=PATH")
        for each, content in [(name, path)] if name else _under_own_names(path):
            if len(files) > FILES_PER_CACHE_MAX:
                return files  # Too many: the leader refuses them, with the reason.
            if each in files:
                raise ConfigError(f"two files are called {each!r}", "give one of them another name: NAME=PATH")
            files[each] = content
    if not files:
        raise ConfigError("no file to put was found", "name files, or folders with files, after the cache's id")
    return files


def _under_own_names(path: Path) -> Iterator[tuple[str, Path]]:
    if path.is_dir():
        return files_below(os.fspath(path))
    return iter([(path.name, path)])


def _checked(cache: str) -> str:
    try:
        return check_cache_id(cache)
    except Refused as no:
        raise ConfigError(str(no), no.hint) from None


def _do(question: qu.AskPin | qu.AskDropCache, done: str, asking: Asking) -> int:
    """Asks every leader. A cache is unknown only if no leader has it."""
    try:
        told = ask_each(question, an.CacheRow, asking)
    except Refused as no:
        return _refused(no)
    row, *more = answers(told)
    text = f"{row.cache}: {done}, {one(row.files, 'file')}, {size(row.bytes)}"
    show(asking.output, [row, *more] if more else row, [question.cache], [text])
    return 0


def _refused(no: Refused) -> int:
    if no.code != "no-cache":
        raise no
    say_error(str(no), "list all caches with `waku caches list`")
    return EXIT_NOT_FOUND


def _counts(summary: CacheSummary) -> str:
    """`8 workers: 5 ok, 2 skipped, 1 failed`"""
    counts = [(summary.ok, "ok"), (summary.skipped, "skipped"), (summary.failed, "failed"), (summary.silent, "silent")]
    counts.append((summary.waiting, "waiting"))
    told = ", ".join(f"{count} {what}" for count, what in counts if count)
    return f"{one(summary.sent, 'worker')}{': ' if told else ''}{told}"


def _say_failures(summary: CacheSummary) -> None:
    for failure in summary.failures[:_FAILURES_SHOWN]:
        say(colour("failed:", "red"), f"{failure.worker}: {failure.message}")
    if len(summary.failures) > _FAILURES_SHOWN:
        say(f"and {len(summary.failures) - _FAILURES_SHOWN:,} more")
    for leader in summary.unasked:
        say(colour("not asked:", "yellow"), f"the workers of {leader}, which is not reachable")
    if not summary.succeeded:
        say_error(summary.message or "too few workers have the cache", _hint(summary))


def _hint(summary: CacheSummary) -> str:
    if summary.sent:
        return "run the same command again to send the missing files"
    if summary.code == "conflict":
        return "put new content under a new id, such as dataset-v2"
    return hint_for(summary.code)


def _show_caches(answer: an.CachesAnswer) -> None:
    table_out(
        ("cache", "#files", "#size", "target", "#ready", "#hits", "#used", "#age", "pinned"),
        [
            (
                row.cache,
                f"{row.files:,}",
                size(row.bytes),
                row.target,
                f"{row.ready} of {row.workers}",
                f"{row.hits:,}",
                ago(row.used_s),
                ago(row.created_s),
                "pinned" if row.pinned else "-",
            )
            for row in answer.rows
        ],
    )
    if answer.total > len(answer.rows):
        say(f"{len(answer.rows)} of {one(answer.total, 'cache')}: --limit shows more")


def _show_cache(answer: an.CacheAnswer) -> None:
    row = answer.row
    rows = [
        ("cache", row.cache),
        ("holds", f"{one(row.files, 'file')}, {size(row.bytes)}"),
        ("for", row.target),
        ("is with", f"{row.ready} of {one(row.workers, 'worker')}"),
        ("put", f"{ago(row.created_s)}{', pinned' if row.pinned else ''}"),
        ("used", f"{ago(row.used_s)}, {one(row.hits, 'time')}"),
    ]
    fields_out(rows)
    if answer.entries:
        line_out()
        table_out(
            ("name", "#size", "sha256"), [(each.name, size(each.size), each.sha256[:16]) for each in answer.entries]
        )
        if len(answer.entries) < row.files:
            say(f"the first {len(answer.entries):,} of {one(row.files, 'file')}")
    if answer.workers:
        line_out()
        table_out(
            ("worker", "name", "state", "why"),
            [(each.worker, each.name or "-", each.state, each.message or "-") for each in answer.workers],
        )
