"""How does a program put files on the workers beforehand? By a manifest, to every leader. (SPEC C1, C2)

    Grid.put_cache ─► names, sizes, SHA-256 ─► each leader: Missing ─► blobs (`uploads`) ─► progress ─► a summary

A cache is never overwritten: the same put again has no effect, a new name is added, other content under a known name is
refused.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from wakugumi.core.leader.answer_records import Answer, CacheRow, CachesAnswer
from wakugumi.core.names import check_cache_id, check_file_names
from wakugumi.core.subject import SubjectError, parse_pattern
from wakugumi.errors import JobFailed, PeerError, Refused, bad_request
from wakugumi.limits.files import PUT_DEADLINE_MAX_S, PUT_LEADER_GRACE_S
from wakugumi.limits.wire import FILES_PER_CACHE_MAX, PAYLOAD_BYTES_MAX
from wakugumi.roles.client.files.inputs import Cached, Content, InputBlob, InputContents
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.cache import (
    PROGRESS,
    SKIPPED,
    CacheEntry,
    CachePutRequest,
    CachePutResult,
    read_cache_result,
)
from wakugumi.wire.messages.job import FAILED, OK, read_refusal
from wakugumi.wire.messages.payload import encode

if TYPE_CHECKING:
    from wakugumi.roles.client.session.session import Session

log = logging.getLogger("wakugumi.client")

ALL_WORKERS: Final = "job.assign.>"
_NO_WORKER: Final = "no-worker"
"""Code of a leader without a matching worker."""

CacheFiles: TypeAlias = Mapping[str, Content] | Path
"""Files by their names in the cache; a Path of a folder stands for all files below it."""


class CacheFailure(msgspec.Struct, frozen=True):
    """A worker without the cache, and why."""

    worker: str
    message: str


class CacheSummary(msgspec.Struct, frozen=True):
    """Outcome of a put, or its progress."""

    cache: str
    status: str
    """OK, SKIPPED (all workers had the cache), FAILED; PROGRESS until then"""
    message: str
    sent: int = 0
    """Workers that should have the cache."""
    ok: int = 0
    skipped: int = 0
    """Workers that had the cache already."""
    failed: int = 0
    silent: int = 0
    """Workers that have not answered in time."""
    waiting: int = 0
    failures: Sequence[CacheFailure] = ()
    """Failed workers, as far as they gave a reason."""
    unasked: Sequence[str] = ()
    """Leaders whose workers were not asked, because the leader is not connected."""
    code: str = ""
    """Why the put failed, if not because of its workers: `no-worker` (none matches), `conflict` (other content under a
    known name), or another code of docs/reference/errors.md."""

    @property
    def succeeded(self) -> bool:
        """As many workers have the cache as requested."""
        return self.status in {OK, SKIPPED}

    def check(self) -> CacheSummary:
        """Raises JobFailed if too few workers have the cache."""
        if not self.succeeded:
            why = "".join(f"; {each.worker}: {each.message}" for each in self.failures[:3])
            raise JobFailed(f"too few workers have the cache {self.cache}: {self.message}{why}")
        return self


def summary_of(cache: str, results: Mapping[str, CachePutResult]) -> CacheSummary:
    """Outcomes of several leaders as one. A leader without a matching worker answers FAILED; this counts only if no
    other leader has one."""
    rows = [row for row in results.values() if row.sent or row.failures] or list(results.values())
    rows += [row for row in results.values() if row not in rows and row.code != _NO_WORKER]
    states = {row.status for row in rows}
    status = next((each for each in (FAILED, PROGRESS, OK) if each in states), SKIPPED)
    if len(results) == 1:
        message = next(iter(results.values())).message
    else:
        message = "; ".join(f"{leader}: {row.message}" for leader, row in results.items() if row.message)
    return CacheSummary(
        cache,
        status,
        message,
        sum(row.sent for row in rows),
        sum(row.ok for row in rows),
        sum(row.skipped for row in rows),
        sum(row.failed for row in rows),
        sum(row.silent for row in rows),
        sum(row.waiting for row in rows),
        [CacheFailure(each.worker, each.message) for row in rows for each in row.failures],
        code=min((row.code for row in rows if row.code), key=_NO_WORKER.__eq__, default=""),
    )


class CachePut:
    """One put, ready to be sent to any number of leaders. The constructor reads the disk. Raises Refused."""

    def __init__(
        self,
        contents: InputContents,
        cache: str,
        files: CacheFiles,
        *,
        target: str = ALL_WORKERS,
        within_s: float,
        share: float = 1.0,
        pinned: bool = False,
        progress: bool = False,
    ) -> None:
        check_cache_id(cache)
        _check(target, within_s, share)
        self.cache = cache
        self._within_s = within_s
        self._subject = f"cache.put.{target}"
        blobs = _blobs_of(contents, files)
        self.attached = {each.ref.sha256: each for each in blobs}
        entries = [CacheEntry(each.name, None, each.ref.sha256, each.ref.size) for each in blobs]
        record = CachePutRequest(cache, entries, target, within_s, share, pinned, progress)
        self._payload = encode(record)
        if len(self._payload) > PAYLOAD_BYTES_MAX:
            raise Refused(
                "too-big",
                f"the names of {len(entries)} files take {len(self._payload):,} bytes, and a frame has room for "
                f"{PAYLOAD_BYTES_MAX:,}",
                hint=_PACK,
            )

    async def to_each(
        self, session: Session, leaders: Sequence[str], on_progress: Callable[[CacheSummary], None] | None
    ) -> CacheSummary:
        """Put to all of these leaders at once. Raises Refused if all of them refuse, or are lost and not back in time;
        if only some do, the summary reports a failure."""
        results: dict[str, CachePutResult] = {}
        refusals: list[Refused] = []

        async def to(leader: str) -> None:
            def progress(result: CachePutResult) -> None:
                results[leader] = result
                if on_progress is not None:
                    _report(on_progress, summary_of(self.cache, results))

            try:
                results[leader] = await self._while_there(session, leader, self._to(session, leader, progress))
            except Refused as no:
                refusals.append(no)
                results[leader] = CachePutResult(self.cache, FAILED, no.message, code=no.code)

        running = [session.tasks.start(to(name), name=f"put {self.cache} at {name}", quiet=True) for name in leaders]
        try:
            await asyncio.gather(*running)
        finally:
            for task in running:
                task.cancel()
        if len(refusals) == len(leaders):
            raise refusals[0]
        summary = summary_of(self.cache, {leader: results[leader] for leader in leaders})
        there = set(leaders)
        unasked = [leader for leader in session.leaders if leader not in there]
        return msgspec.structs.replace(summary, unasked=unasked)

    async def _while_there(
        self, session: Session, leader: str, asked: Coroutine[None, None, CachePutResult]
    ) -> CachePutResult:
        """A connected leader gets all the time it needs. A leader that is disconnected when the time is over, and still
        is after a grace, is given up. Raises Refused."""
        answer: asyncio.Task[CachePutResult] = session.tasks.start(asked, name=f"ask {leader}", quiet=True)
        was_away, pause_s = False, self._within_s
        try:
            while not (await asyncio.wait({answer}, timeout=pause_s))[0]:
                is_away = leader not in {name for name, _ in session.serving()}
                if was_away and is_away:
                    raise Refused(
                        "no-leader",
                        f"the leader {leader} was lost, and is not back after {self._within_s:g} s",
                        hint="repeat the put when the leader is back; it resumes where this one ended",
                    )
                was_away, pause_s = is_away, PUT_LEADER_GRACE_S
            return answer.result()
        finally:
            answer.cancel()

    async def _to(self, session: Session, leader: str, on_progress: Callable[[CachePutResult], None]) -> CachePutResult:
        """The leader's final answer. Raises Refused."""
        ask = os.urandom(16)
        frame = fr.encode(fr.CACHE_PUT, ask, subject=self._subject, payload=self._payload)
        answer = await session.questions.ask(ask, frame, leader, self.attached, on_progress)
        if answer.refused:
            no = read_refusal(answer.payload)
            raise Refused(no.code, no.message)
        result = read_cache_result(answer.payload)
        if result.status not in {OK, SKIPPED, FAILED}:
            raise PeerError(f"the leader's answer to a put has the status {result.status[:80]!r}")
        return result


def rows_of(answers: Mapping[str, Answer | Refused]) -> list[CacheRow]:
    """Answers of all leaders that know a cache. Raises Refused if none does, or one cannot do what was asked."""
    rows: list[CacheRow] = []
    refusals: list[Refused] = []
    for answer in answers.values():
        if isinstance(answer, Refused):
            refusals.append(answer)
        elif isinstance(answer, CachesAnswer):
            rows += answer.rows
        else:
            assert isinstance(answer, CacheRow)
            rows.append(answer)
    worst = min(refusals, key=lambda no: no.code == "no-cache", default=None)
    if worst is not None and (worst.code != "no-cache" or not rows):
        raise worst
    return rows


def _report(on_progress: Callable[[CacheSummary], None], summary: CacheSummary) -> None:
    try:
        on_progress(summary)
    except Exception:  # An error of the user's callback must not end the put.
        log.exception("on_progress failed")


_PACK: Final = "pack small files into one archive, and let the program open that"


def _check(target: str, within_s: float, share: float) -> None:
    try:
        parse_pattern(target)
    except SubjectError as error:
        raise Refused("bad-subject", str(error)) from None
    if not 0 < within_s <= PUT_DEADLINE_MAX_S:
        raise bad_request(f"within_s is more than 0 and at most {PUT_DEADLINE_MAX_S:.0f} s, not {within_s:g}")
    if not 0 <= share <= 1:
        raise bad_request(f"a share of the workers is 0 to 1, not {share:g}")


def _blobs_of(contents: InputContents, files: CacheFiles) -> list[InputBlob]:
    """All files by reference, in the order of their names."""
    named: dict[str, bytes | str | Path] = {}
    for name, content in _contents_of(files):
        if len(named) == FILES_PER_CACHE_MAX:
            raise Refused(
                "bad-request", f"more than {FILES_PER_CACHE_MAX:,} files: so many can go into one put", hint=_PACK
            )
        if name in named:
            raise Refused("bad-name", f"the name {name[:80]!r} is given twice")
        named[name] = content
    if not named:
        raise bad_request("there are no files to put")
    check_file_names(named)
    return [contents.by_reference(name, named[name]) for name in sorted(named)]


def _contents_of(files: CacheFiles) -> Iterator[tuple[str, bytes | str | Path]]:
    if isinstance(files, os.PathLike):
        if not os.path.isdir(files):
            raise bad_request(f"{files} is no folder: name files with their names, as in {{'a.bin': Path('a.bin')}}")
        yield from files_below(os.fspath(files))
        return
    for name, content in files.items():
        if isinstance(content, Cached | InputBlob):
            raise bad_request(f"{name!r} is in a cache already: put what it is made of")
        if isinstance(content, os.PathLike) and os.path.isdir(content):
            yield from files_below(os.fspath(content), f"{name}/")
        elif isinstance(content, bytes | bytearray | memoryview | str | os.PathLike):
            yield name, content
        else:
            raise TypeError(f"the content of {name!r} is bytes, text or a Path, not {type(content).__name__}")


def files_below(folder: str, prefix: str = "") -> Iterator[tuple[str, Path]]:
    """Every file below a folder, hidden ones too: a data set is whole or useless. A link counts as its target inside
    the folder; a link to a folder or out of the folder is refused, not silently left out."""
    top = os.path.realpath(folder)
    folders = [top]
    while folders:
        at = folders.pop()
        try:
            found = sorted(os.scandir(at), key=lambda entry: entry.name)
        except OSError as error:
            raise bad_request(f"the folder {at} cannot be read: {error.strerror}") from None
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
                continue
            real = os.path.realpath(entry.path)
            if entry.is_symlink() and os.path.commonpath([top, real]) != top:
                raise bad_request(f"{entry.path} is a link that leads outside of {folder}")
            if not _is_file(real):
                raise bad_request(_why_not(entry.path))
            yield prefix + os.path.relpath(entry.path, top), Path(real)


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False


def _why_not(path: str) -> str:
    """Why the file cannot be put."""
    if os.path.isdir(path):
        return f"{path} is a link to a folder, and those are not followed: put the folder itself, under this name"
    if os.path.islink(path) and not os.path.exists(path):
        return f"{path} is a link that leads nowhere"
    return f"{path} is neither a file nor a folder, and cannot be put"
