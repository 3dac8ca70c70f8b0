"""`waku map`: how is one job run per input, so that nothing is done twice and nothing is lost?

    inputs ─► is its result there? ─► task ─► grid ─► result ─► out folder
              (keys, output)            (one at a time, when there is room)

The first pass over the inputs marks those with a result; the second runs the rest. Memory grows by one byte per input.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final, Unpack

from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.loop.threads import beside
from wakugumi.app import EXIT_INTERRUPTED
from wakugumi.app.show.downloads import ShownTransfer, in_thread
from wakugumi.app.show.output import colour, one, say
from wakugumi.app.show.progress import Bars, Lines, Tally, in_brief, progress
from wakugumi.app.stoppable import Stopped, run
from wakugumi.app.work.map.inputs import Input, Inputs
from wakugumi.app.work.map.keys import Keys, map_job_id, program_digest
from wakugumi.app.work.map.output import OutFolder, Record, say_left_out
from wakugumi.app.work.map.read_input import InputReader, common_files
from wakugumi.app.work.target import JobTarget, open_grid
from wakugumi.core.leader.answer_records import ExplainAnswer
from wakugumi.core.leader.questions import AskExplain
from wakugumi.errors import EXIT_JOB_FAILED, Refused, hint_for
from wakugumi.roles.client.files.inputs import InputContents, must_wait_for_disk
from wakugumi.roles.client.grid import Grid
from wakugumi.roles.client.job_spec import MapOptions, SubmitOptions, Task
from wakugumi.roles.client.result import Result
from wakugumi.wire.messages.job import OK

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
    """The key by which its result is recognised (`keys`)."""

    def __init__(self, source: Input, good_for: str, **options: Unpack[SubmitOptions]) -> None:
        super().__init__(**options)
        object.__setattr__(self, "source", source)
        object.__setattr__(self, "good_for", good_for)


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
        also = common_files(options.get("files") or {}, self._contents)
        self._read = InputReader(Keys(program, [*args, *also], options.get("env") or {}), self._contents).read
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


def _say_failure(drawn: Bars | Lines, name: str, record: Record, stderr: str) -> None:
    how = f"exit code {record.exit_code}" if record.reason in {"", "exit"} else record.reason
    drawn.say(colour("failed:", "red"), f"{name} ({how})")
    for line in stderr.rstrip().splitlines()[-_SHOWN_LINES:]:
        drawn.say(f"    {line}")
