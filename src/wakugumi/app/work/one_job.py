"""How does `waku run` run one job? Its output and exit code become ours; its files go to a folder.

`waku run PROGRAM` without flags comes here without the parser, which would take a third of the time.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from wakugumi.app.show.output import one, program_out, say, say_error, size
from wakugumi.app.show.progress import shown_transfers
from wakugumi.app.stoppable import run
from wakugumi.app.work.target import JobTarget, open_grid
from wakugumi.errors import CODES, EXIT_JOB_FAILED, ConfigError, Refused, hint_for
from wakugumi.roles.client.files.downloads import ignore_bytes
from wakugumi.roles.client.files.inputs import Cached, Content
from wakugumi.roles.client.job_spec import MapOptions
from wakugumi.roles.client.result import Result

if TYPE_CHECKING:
    from wakugumi.adapters.blobs.place import OnBytes


class Taken(NamedTuple):
    """Folder and limits for a job's files."""

    out: str | None = None
    max_bytes: int | None = None
    dot_files: bool = False


NO_FILES: Final = Taken()


def run_one(place: JobTarget, options: MapOptions, taken: Taken = NO_FILES) -> int:
    """Runs a job, shows its output, and returns the exit code."""

    async def job() -> Result:
        async with open_grid(place) as grid:
            async with shown_transfers(grid, options.get("files") or {}):
                result = await grid.run(place.program, **options)
            if not result.is_complete:  # Large output must be fetched before the grid closes.
                from wakugumi.app.show.downloads import ShownTransfer, in_thread

                _say_last(await in_thread(partial(_show, result, taken), ShownTransfer(result.archive_bytes)))
            return result

    result = run(job())
    if result.is_complete:
        _say_last(_show(result, taken))
    return exit_code(result)


def _show(result: Result, taken: Taken, on_bytes: OnBytes = ignore_bytes) -> str:
    """Collects messages until the end: before it, a line of progress may be drawn."""
    for stream, text in ((sys.stdout, result.stdout), (sys.stderr, result.stderr)):
        on_bytes(0)  # After Ctrl-C the user wants no further messages.
        program_out(stream, text)
    if not result.ok and result.stderr and not result.stderr.endswith("\n"):
        program_out(sys.stderr, "\n")
    return _keep_files(result, taken, on_bytes) if result.archive_bytes else ""


def _say_last(text: str) -> None:
    if text:
        say(text)


def named_files(words: Sequence[str], cached: Sequence[str] = ()) -> dict[str, Content]:
    """The files that `--file` named, PATH or NAME=PATH, and `--cached`, ID/NAME. Raises ConfigError."""
    files: dict[str, Content] = {}
    for word in words:
        name, is_named, path = word.partition("=")
        if not is_named or Path(word).exists():
            name, path = Path(word).name, word
        if not Path(path).is_file():
            what = "is no file" if Path(path).exists() else "does not exist"
            raise ConfigError(f"{path} {what}", "name a file: --file PATH, or --file NAME=PATH")
        if name in files:
            raise ConfigError(f"two files are called {name!r}", "give one of them another name: --file NAME=PATH")
        files[name] = Path(path)
    for word in cached:
        cache, _, name = word.partition("/")
        if not name:
            raise ConfigError(f"{word!r} names no file of a cache", "write ID/NAME: --cached dataset-v1/a.bin")
        if name in files:
            raise ConfigError(f"two files are called {name!r}", "a cached file has the same name in the job")
        try:
            files[name] = Cached(cache)
        except Refused as no:
            raise ConfigError(str(no), "write ID/NAME: --cached dataset-v1/a.bin") from None
    return files


def exit_code(result: Result) -> int:
    """The exit code for a result. Shows a failure that the program itself did not report."""
    if result.ok:
        return 0
    if result.reason in {"", "exit"} and result.exit_code:
        return result.exit_code
    say_error(f"the job failed: {result.reason or 'no reason given'}", hint_for(result.reason))
    known = CODES.get(result.reason)
    return known.exit_code if known else EXIT_JOB_FAILED


def _keep_files(result: Result, taken: Taken, on_bytes: OnBytes) -> str:
    out = taken.out
    if out is None:
        made = one(len(result.files), "file") if result.is_complete else f"{size(result.archive_bytes)} of files"
        return f"{made} made, and not kept: --out DIR writes them to a folder"
    try:
        written = result.extract_counted(out, on_bytes, max_bytes=taken.max_bytes, dot_files=taken.dot_files)
    except OSError as error:
        hint = "make room, or choose another --out"
        raise Refused("disk", f"cannot write to {out}: {error.strerror}", hint) from None
    more = f", {result.left_out:,} left out: no honest worker sends such names (--dot-files takes dot-files)"
    return f"{one(written, 'file')} written to {out}{more if result.left_out else ''}"
