"""`waku map`: how is one job run per input, so that nothing is done twice and nothing is lost?

    inputs ─► is its result there? ─► task ─► grid ─► result ─► out folder
              (map_keys, map_output)  (one at a time, when there is room)

The first pass over the inputs marks those with a result; the second runs the rest. Memory grows by one byte per input.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Annotated, Final, Unpack

from cyclopts import Parameter

from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.loop.threads import beside
from wakugumi.app import EXIT_INTERRUPTED
from wakugumi.app.client_settings import CONNECTION, ClientSettings
from wakugumi.app.flags import Only, with_settings
from wakugumi.app.options import (
    UNPACKING,
    Program,
    ProgramArgs,
    Unpacking,
)
from wakugumi.app.show.downloads import ShownTransfer, in_thread
from wakugumi.app.show.output import colour, one, say
from wakugumi.app.show.progress import Bars, Lines, Tally, in_brief, progress
from wakugumi.app.stoppable import Stopped, run
from wakugumi.app.work.job_flags import JOB, JobFlags
from wakugumi.app.work.map_inputs import Input, Inputs
from wakugumi.app.work.map_keys import Keys, map_job_id, program_digest
from wakugumi.app.work.map_output import OutFolder, Record, say_left_out
from wakugumi.app.work.target import JobTarget, choose, open_grid
from wakugumi.core.leader.answer_records import ExplainAnswer
from wakugumi.core.leader.questions import AskExplain
from wakugumi.errors import EXIT_JOB_FAILED, ConfigError, Refused, bad_request, hint_for
from wakugumi.limits.files import INLINE_FILE_BYTES_MAX
from wakugumi.limits.wire import PAYLOAD_BYTES_MAX
from wakugumi.roles.client.files.inputs import Cached, Content, InputContents, must_wait_for_disk
from wakugumi.roles.client.grid import Grid
from wakugumi.roles.client.job_spec import MapOptions, SubmitOptions, Task
from wakugumi.roles.client.result import Result
from wakugumi.wire.messages.job import OK

OUT: Final = "waku-out"
_SHOWN_FAILURES: Final = 3
_SHOWN_LINES: Final = 5
_LOOK_EVERY_S: Final = 0.5
_SILENT_S: Final = 5.0
"""After so long without a result the leader is asked for the reason."""


class MapTask(Task):
    """A task with its input and the folder of its result."""

    __slots__ = ("good_for", "source")
    source: Input
    good_for: str
    """The key by which its result is recognised (`map_keys`)."""

    def __init__(self, source: Input, good_for: str, **options: Unpack[SubmitOptions]) -> None:
        super().__init__(**options)
        object.__setattr__(self, "source", source)
        object.__setattr__(self, "good_for", good_for)


Client = Annotated[
    ClientSettings,
    Only("slots leader access old_leader patience_s cap client_id log_level log_json", without_flag=CONNECTION),
]


@with_settings
def map_inputs(
    program: Program,
    /,
    *inputs: Annotated[str, Parameter(help="Files, or folders with files.")],
    out: Annotated[str, Parameter(help="Folder for the results.")] = OUT,
    job: JobFlags = JOB,
    inputs_from: Annotated[
        str | None,
        Parameter(allow_leading_hyphen=True, help="A file with further inputs, one path per line; - is stdin."),
    ] = None,
    fresh: Annotated[bool, Parameter(negative="", show_default=False, help="Run all inputs again.")] = False,
    client: Client,
    unpacking: Unpacking = UNPACKING,
    program_args: ProgramArgs,
) -> int:
    """waku map PROGRAM INPUT… [--file F]… [--cached ID/NAME]… [--out DIR] [OPTIONS] [-- ARG…]

    INPUT is a file of any size, or a folder: its files in the order of their names, without hidden ones and without
    subfolders. A job finds its input in its directory. {} in an ARG is replaced by the input's name; without any {} the
    name is the last argument. --file and --cached add files to every job.

    Each result is a folder DIR/<input's name>/ with the program's files, stdout.txt, stderr.txt and a record,
    .waku.json. Inputs that share a name keep the part of their path that differs. A result's folder is complete, also
    if the map was killed. Exit code 1 if a job failed.

    Without a leader, PROGRAM is a path or a name on PATH, and the jobs run on this machine. With a leader, PROGRAM is
    the name of a program that is installed on the workers. The leader does not repeat jobs whose results it still has:
    use --fresh after the program was changed there.

    Examples:
      waku map ./price.py options/                      results in waku-out/
      waku map gzip logs/*.txt --out packed -- -9 {}
      waku map convert photos/ -- {} -resize 50% small.png
      find . -name '*.csv' | waku map ./load.sh --inputs-from -
      waku map calcA inputs/ --leader grid:5000 --cap 200
      waku map calcA inputs/ --leader a:5000,b:5000,c:5000
    """
    options = job.options()
    place = choose(program, client)
    job_slots = options.get("slots") or 1
    if not place.leader and job_slots > place.parallel:
        raise ConfigError(
            f"a job needs {job_slots} slots, and this map has {place.parallel}", "raise --slots, or lower --job-slots"
        )
    max_bytes = unpacking.bytes_max()
    with (
        closing(_all_inputs(inputs, inputs_from)) as found,
        closing(OutFolder(out, max_bytes, dot_files=unpacking.dot_files)) as folder,
    ):
        return Map(place, found, folder, program_args, options, fresh=fresh).run()


class Map:
    """One run of `waku map`."""

    def __init__(
        self,
        place: JobTarget,
        inputs: Inputs,
        folder: OutFolder,
        args: Sequence[str],
        options: MapOptions,
        *,
        fresh: bool = False,
    ) -> None:
        self._place = place
        self._inputs = inputs
        self._folder = folder
        self._args = list(args) if any("{}" in arg for arg in args) else [*args, "{}"]
        self._options = options
        self._fresh = fresh
        self._contents = InputContents()
        program = program_digest(place.path) if place.path else place.program.encode()
        self._keys = Keys(program, [*args, *self._also()], options.get("env") or {})
        self._salt = os.urandom(8).hex() if fresh else ""
        self._taken = 0
        self._last_at = monotonic()
        self._reasons: Counter[str] = Counter()
        self._waiting_for: dict[str, None] = {}
        """Ids of unfinished jobs, the oldest first."""

    def run(self) -> int:
        """Runs the map, shows its outcome, and returns the exit code."""
        done = self._look()
        tally = Tally(len(done), skipped=sum(done))
        stopped = False
        if tally.left:
            try:
                run(self._work(done, tally))
            except Stopped:
                stopped = True
        say(tally.summary(self._folder.path, stopped=stopped))
        say_left_out(self._folder.left_out)
        for reason, count in self._reasons.most_common():
            if reason not in {"", "exit"}:
                say(f"  {one(count, 'input')} failed by {reason}: {hint_for(reason) or 'see stderr.txt'}")
        if stopped:
            say("run the same command again to go on")
            return EXIT_INTERRUPTED
        if tally.failed:
            say("run the same command again to try the failed ones again")
        return EXIT_JOB_FAILED if tally.failed else 0

    def _look(self) -> bytearray:
        """For each input, whether its result is there. Raises ConfigError for a result that cannot be written."""
        done = bytearray(len(self._inputs))
        for at, source in enumerate(self._inputs):
            if self._folder.has_record(source.out) and not self._fresh:
                with suppress(Refused):  # The grid refuses it, with the reason.
                    key, _ = self._read(source)
                    done[at] = self._folder.is_ok(source.out, key)
            else:
                self._folder.check_free(source.out)
        return done

    async def _work(self, done: bytearray, tally: Tally) -> None:
        watching = Tasks()
        drawn = progress(tally)
        try:
            async with open_grid(self._place) as grid:
                grid.contents = self._contents
                watching.start_loop(partial(self._watch, grid, tally, drawn), name="progress of a map")
                jobs = grid.map(self._place.program, self._tasks(done, grid.client_id), **self._options)
                async with jobs as results:
                    async for result in results:
                        await self._ended(result, tally, drawn)
        finally:
            await watching.close()
            drawn.close()

    async def _tasks(self, done: bytearray, client_id: str) -> AsyncIterator[MapTask]:
        """The tasks without a result. Each input is read when the grid can take it."""
        for at, source in enumerate(self._inputs):
            if done[at]:
                continue
            self._taken += 1
            args = [arg.replace("{}", source.name) for arg in self._args]
            try:
                if must_wait_for_disk({source.name: Path(source.path)}):
                    key, content = await beside(lambda source=source: self._read(source), "wakugumi files")  # type: ignore[misc]
                else:
                    key, content = self._read(source)
            except Refused:  # The grid refuses it too, with the reason.
                yield MapTask(source=source, good_for="", args=args, files={source.name: Path(source.path)})
                continue
            job = map_job_id(key, client_id, self._place.program, self._salt)
            self._waiting_for[job] = None
            yield MapTask(source=source, good_for=key, args=args, files={source.name: content}, job_id=job)

    def _read(self, source: Input) -> tuple[str, Content]:
        """The key and the content of an input. Waits for the disk. Raises Refused."""
        content = _content(source.path)
        if content is not None and len(content) <= INLINE_FILE_BYTES_MAX:
            return self._keys.key(source.out, content), content
        brought = self._contents.by_reference(source.name, Path(source.path))
        if content is None:
            return self._keys.key_by_sha256(source.out, brought.ref.sha256), brought
        if sha256(content).hexdigest() != brought.ref.sha256:
            raise bad_request(f"the input {source.path} was changed while it was read")
        return self._keys.key(source.out, content), brought

    def _also(self) -> Iterator[str]:
        """Names and digests of the common files for the key. NUL bytes keep them apart from arguments."""
        for name, content in sorted((self._options.get("files") or {}).items()):
            if isinstance(content, Cached):
                yield f"\0cached\0{name}\0{content.cache_id}"
            else:
                assert isinstance(content, Path)
                yield f"\0file\0{name}\0{self._contents.ref_of(content)[0].sha256}"

    async def _ended(self, result: Result, tally: Tally, drawn: Bars | Lines) -> None:
        task = result.item
        assert isinstance(task, MapTask)
        source, *args = (os.fsencode(str(it)).decode(errors="replace") for it in (task.source.path, *task.args))
        record = Record.of(result, task.good_for, source, args)
        if result.is_complete:
            record = self._folder.put(task.source.out, result, record)
        else:
            put = partial(self._folder.put, task.source.out, result, record)
            record = await in_thread(put, ShownTransfer(result.archive_bytes, tally.note))
        self._waiting_for.pop(result.job_id, None)
        self._last_at = monotonic()
        ok = record.status == OK
        tally.add(ok=ok)
        tally.running = min(self._taken - tally.ended, self._place.parallel)
        if not ok:
            self._reasons[record.reason] += 1
            if tally.failed <= _SHOWN_FAILURES:
                _say_failure(drawn, task.source.out, record, result.stderr_end)
            elif tally.failed == _SHOWN_FAILURES + 1:
                drawn.say("further failures are only counted")
        drawn.show()

    async def _watch(self, grid: Grid, tally: Tally, drawn: Bars | Lines) -> None:
        """Redraws the progress, and asks for the reason when no result arrives."""
        asked = False
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            tally.running = min(self._taken - tally.ended, self._place.parallel)
            tally.sending = in_brief(grid.transfers())
            drawn.show()
            silent = monotonic() - self._last_at > _SILENT_S
            if silent and not asked and not self._place.path and self._waiting_for and grid.status().connected:
                asked = True
                job = next(iter(self._waiting_for))
                try:
                    answer = await grid.ask(AskExplain(job))
                except Refused:
                    continue
                if isinstance(answer, ExplainAnswer) and answer.state != "running":
                    drawn.say(f"waiting: {answer.reasons[0]}")
            elif not silent:
                asked = False


def _all_inputs(named: Sequence[str], listed: str | None) -> Inputs:
    inputs = Inputs()
    for path in named:
        inputs.add(path)
    if listed is not None:
        inputs.add_list(listed)
    if not len(inputs):
        where = f" in {' '.join(named)}"[:200] if named else ""
        raise ConfigError(f"there are no inputs{where}", "name files, or folders with files, after the program")
    inputs.settle()
    if inputs.left_out:
        say(f"{one(inputs.left_out, 'folder')} inside the named ones left out: only their own files are inputs")
    return inputs


def _content(path: str) -> bytes | None:
    """None if it is larger than a frame or cannot be read; the caller handles both."""
    try:
        if os.stat(path).st_size > PAYLOAD_BYTES_MAX:
            return None
        with open(path, "rb") as file:
            data = file.read(PAYLOAD_BYTES_MAX + 1)
    except OSError:
        return None
    return data if len(data) <= PAYLOAD_BYTES_MAX else None


def _say_failure(drawn: Bars | Lines, name: str, record: Record, stderr: str) -> None:
    how = f"exit code {record.exit_code}" if record.reason in {"", "exit"} else record.reason
    drawn.say(colour("failed:", "red"), f"{name} ({how})")
    for line in stderr.rstrip().splitlines()[-_SHOWN_LINES:]:
        drawn.say(f"    {line}")
