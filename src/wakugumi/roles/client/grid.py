"""What does a program call to have jobs done? `connect` gives a Grid; everything else follows from it.

    Grid.submit ─► Request (`request`) ─► Session (`session`) ─► leader … result ─► Job (`job`), to be awaited
    Grid.map    ─► MapWindow (`map_window`): a bounded number of jobs at once
    Grid.ask    ─► a question to a leader (`ask`), and its answer

Jobs survive lost connections: they wait and are sent again, and of several leaders one may be lost. `submit` waits
while no leader takes jobs (back pressure). A Grid lives in one event loop; `blocking` is its twin for programs without
one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from os import PathLike
from typing import Final, Unpack
from uuid import UUID, uuid4, uuid5

from wakugumi.adapters.access.dialled import AccessSources
from wakugumi.adapters.loop.threads import beside
from wakugumi.adapters.net.address import Address, parse_access_line, parse_address, parse_keyed_address
from wakugumi.adapters.net.connect import dial
from wakugumi.core.client.leaders import Choice
from wakugumi.core.ids import show_job_id
from wakugumi.core.leader import answer_records as an
from wakugumi.core.leader import questions as qu
from wakugumi.core.names import check_cache_id
from wakugumi.errors import ConfigError, Refused
from wakugumi.limits.client import ADOPT_GRACE_MAX_S, ADOPT_GRACE_S, CONNECT_DEADLINE_S, UNFINISHED_PER_CLIENT_MAX
from wakugumi.limits.files import PUT_DEADLINE_S, UPLOADS_AT_ONCE_MAX
from wakugumi.limits.leader import BROADCAST_DEADLINE_S, CLIENT_CAP_DEFAULT, CLIENT_CAP_MAX, LIST_ROWS_DEFAULT
from wakugumi.limits.runner import JOB_TIMEOUT_MAX_S
from wakugumi.limits.units import KIB
from wakugumi.roles.client.ask import ABOUT_ONE, answer_that_knows, ask_one, ask_several
from wakugumi.roles.client.broadcast import AskedLeader, Broadcast
from wakugumi.roles.client.files.inputs import NO_FILES, InputContents, JobFiles, must_wait_for_disk
from wakugumi.roles.client.files.uploads import FileTransfer
from wakugumi.roles.client.identity import check_client_id, default_client_id
from wakugumi.roles.client.job import Job
from wakugumi.roles.client.job_spec import (
    BroadcastOptions,
    JobName,
    JobSpec,
    MapOptions,
    SubmitOptions,
    takes,
)
from wakugumi.roles.client.map_window import MapWindow, Results
from wakugumi.roles.client.put_cache import ALL_WORKERS, CacheFiles, CachePut, CacheSummary, rows_of
from wakugumi.roles.client.request import Plan, Requests, given_id
from wakugumi.roles.client.result import Result
from wakugumi.roles.client.session.leader_status import Endpoint, Status
from wakugumi.roles.client.session.session import Session
from wakugumi.wire import frame as fr
from wakugumi.wire.access_line import Key
from wakugumi.wire.messages.hello import HEARTBEATS, WANTS_CLIENT, HelloClient
from wakugumi.wire.messages.payload import encode

LEADER_PORT: Final = 5000
_TURN_AFTER_BYTES: Final = 256 * KIB
"""Bytes submitted in a row before the loop gets a turn: jobs of a long plain loop leave while it still submits."""
_ALL_COME_WITHIN_S: Final = 0.5
"""Time for further leaders to connect once the first serves: otherwise that one would get all of the first jobs and
keep them."""
_ALL_TRIED_WITHIN_S: Final = 2.0
"""Time for several leaders to connect before each is asked: an old leader is recognized after a second."""
_BYTES_BESIDE: Final = KIB
"""Bytes added for each job to its own in `_TURN_AFTER_BYTES`."""


@asynccontextmanager
async def connect(
    url: str,
    *,
    client_id: str | None = None,
    cap: int = CLIENT_CAP_DEFAULT,
    choice: Choice = "least",
    grace_s: float = ADOPT_GRACE_S,
    connect_timeout_s: float = CONNECT_DEADLINE_S,
    patience_s: float | None = None,
    unfinished_max: int = UNFINISHED_PER_CLIENT_MAX,
    old_leader: bool = False,
    access: str | PathLike[str] | None = None,
) -> AsyncIterator[Grid]:
    """A Grid over the leader at `url` (`host:port` or `waku://host:port`), or over several: `waku://a:5000,b:5000`.

    A key stands in the URL (`waku://name:digest-secret@host:port`), or beside the address in the file `access`
    [default: WAKU_ACCESS, else ~/.config/wakugumi/access.toml]. With a key the connection is encrypted, and the leader
    must prove who it is; a leader that refuses the key raises Refused("denied").

    `cap` is the number of this client's jobs that may run at once, divided evenly over all leaders. A job goes to the
    leader with the least of its share in flight, or with the `choice` "round-robin" to each in turn. Jobs of a lost
    leader wait `grace_s` for it; then others adopt them. Raises Refused("no-leader") if none answers within
    `connect_timeout_s`. Later, lost connections are made anew, and jobs wait: for ever, or until no leader has served
    for `patience_s`; then unfinished jobs end with the same refusal. A leader that does not greet gets no job, unless
    `old_leader` allows leaders of the first version.
    """
    if patience_s is not None and not 0 < patience_s <= JOB_TIMEOUT_MAX_S:
        raise ConfigError(f"patience_s is above 0 and at most {JOB_TIMEOUT_MAX_S:.0f} s, not {patience_s:g}")
    sources, leaders = AccessSources(access), parse_access_line(url, LEADER_PORT)
    grid = Grid(
        [_endpoint(address, key, sources) for address, key in leaders],
        client_id=client_id or default_client_id(sources.key_name(*leaders[0])),
        sources=sources,
        cap=cap,
        choice=choice,
        grace_s=grace_s,
        unfinished_max=unfinished_max,
        old_leader=old_leader,
    )
    try:
        await grid.served(connect_timeout_s)
        await grid.all_tried(_ALL_COME_WITHIN_S)
        grid.set_patience(patience_s)
        yield grid
    finally:
        await grid.close()


class Grid:
    """Connections to one or several leaders, made anew when lost. Made by `connect`."""

    def __init__(
        self,
        leaders: Sequence[Endpoint],
        *,
        client_id: str,
        cap: int,
        choice: Choice = "least",
        grace_s: float = ADOPT_GRACE_S,
        unfinished_max: int = UNFINISHED_PER_CLIENT_MAX,
        embedded: bool = False,
        old_leader: bool = False,
        sources: AccessSources | None = None,
    ) -> None:
        """`sources`: where keys of leaders that are added are found."""
        _check(client_id, cap, choice, grace_s)
        self.client_id = client_id
        self.cap = cap
        self._sources = sources or AccessSources()
        self.contents = InputContents()
        """Reads files for jobs, and remembers their SHA-256."""
        self._reading = asyncio.Semaphore(UPLOADS_AT_ONCE_MAX)
        self._requests = Requests(client_id)
        wants = [want for want in WANTS_CLIENT if not embedded or want != HEARTBEATS]

        def hello(share: int, key: str) -> bytes:
            record = HelloClient(client_id, share, wants, key)
            return fr.encode(fr.HELLO_CLIENT, subject=client_id, payload=encode(record))

        self._session = Session(
            leaders,
            hello,
            cap=cap,
            choice=choice,
            grace_s=grace_s,
            unfinished_max=unfinished_max,
            embedded=embedded,
            old_leader=old_leader,
        )
        self._bytes_in_a_row = 0

    @takes(SubmitOptions)
    async def submit(self, program: str, **options: Unpack[SubmitOptions]) -> Job:
        """Submit a job; waits while no leader takes jobs. Raises Refused for an invalid job.

        A program that ends with a non-zero exit or takes longer than `timeout_s` is a Result with the reason `exit` or
        `timeout`, after as many further runs as `retries` allows. `await` the Job for its Result.
        """
        spec = JobSpec.of(program, options)
        request = self._requests.make(spec, await self._load(spec))
        self._bytes_in_a_row += len(request.frame) + _BYTES_BESIDE
        if self._bytes_in_a_row >= _TURN_AFTER_BYTES:
            self._bytes_in_a_row = 0
            await asyncio.sleep(0)
        if self._session.room.must_wait:
            await self._session.room.admission()
        return self._session.jobs.start(request, None)[0]

    @takes(SubmitOptions)
    async def run(self, program: str, **options: Unpack[SubmitOptions]) -> Result:
        """`submit`, and wait for the result. Cancelled while it waits, it cancels the job."""
        job = await self.submit(program, **options)
        try:
            return await job
        except asyncio.CancelledError:
            await job.cancel()
            raise

    @takes(MapOptions)
    def map(
        self,
        program: str,
        items: Iterable[object] | AsyncIterable[object],
        *,
        window: int | None = None,
        **options: Unpack[MapOptions],
    ) -> Results:
        """One job per item, results as they finish, for any number of items in fixed memory.

        An item is one argument (a str or a number), a list or tuple of arguments, a Path (an input file, whose name is
        the argument), a dict of `submit`'s keyword arguments, or a Task. Options that an item does not give are taken
        from this call; `args` of this call stand before the item's own. Each result has its `item`. A failed or refused
        job is a result that is not `ok`; an exception of the items themselves ends the loop. `window` bounds the number
        of jobs at once [default: twice the cap, at least 16]. Leaving the loop cancels them.
        """
        common = JobSpec.of(program, options, MapOptions)
        source = items if isinstance(items, AsyncIterable) else iter(items)

        async def plan() -> Plan:
            return Plan(self._requests, common, await self._load(common), self.contents)

        return Results(self.new_window(window), plan, source, self._session.tasks)

    @takes(BroadcastOptions)
    def broadcast(
        self, program: str, *, within_s: float = BROADCAST_DEADLINE_S, **options: Unpack[BroadcastOptions]
    ) -> Broadcast:
        """Have every matching worker run the program once, and loop over their results.

        Workers that join later are not included. A worker that has not answered within `within_s` counts as silent: its
        result is not `ok`, and its reason is `silent`. The `summary` counts all of them.
        """
        if not 0 < within_s <= JOB_TIMEOUT_MAX_S:
            raise Refused("bad-request", f"within_s is more than 0 and at most {JOB_TIMEOUT_MAX_S:.0f} s", hint="")

        spec = JobSpec.of(program, options, BroadcastOptions)

        async def begin() -> tuple[list[AskedLeader], list[str]]:
            loaded = await self._load(spec)
            if self._session.room.must_wait:
                await self._session.room.admission()
            await self.all_tried(_ALL_TRIED_WITHIN_S)
            leaders = self._session.serving()
            if not leaders:
                raise Refused("not-supported", "an old leader does not support broadcasts")
            base = str(uuid4()) if spec.job_id is None else given_id(spec.job_id)[1]
            asked = []
            for name, number in leaders:
                one = base if len(self.leaders) == 1 else _broadcast_id(base, name)
                request = self._requests.make(JobSpec(job_id=one).over(spec), loaded, within_s)
                asked.append(AskedLeader(name, number, self._session.jobs.start(request, None, number)[0]))
            there = {name for name, _ in leaders}
            return asked, [name for name in self.leaders if name not in there]

        return Broadcast(self._session, begin)

    async def put_cache(
        self,
        cache: str,
        files: CacheFiles,
        *,
        target: str = ALL_WORKERS,
        within_s: float = PUT_DEADLINE_S,
        share: float = 1.0,
        pinned: bool = False,
        on_progress: Callable[[CacheSummary], None] | None = None,
    ) -> CacheSummary:
        """Have every worker whose patterns overlap `target` keep these files beforehand; jobs name them by
        `files={"a.bin": Cached(cache)}`. Raises Refused for files that cannot be put.

        The Path of a folder, as `files` or as the content of a name, stands for all files below it, hidden ones too. A
        cache is never overwritten: present files are skipped, new names are added, other content under a present name
        fails. Returns when every worker has answered, or `within_s` is over, or a `share` of them (0 to 1) has the
        files; `check()` of the summary raises JobFailed if too few have them. Workers that join later get them
        automatically. A `pinned` cache is not evicted. A lost leader that is not back 10 s after `within_s` counts as
        failed; if it is the only one, Refused("no-leader") is raised.
        """
        async with self._reading:
            put = await beside(
                lambda: CachePut(
                    self.contents,
                    cache,
                    files,
                    target=target,
                    within_s=within_s,
                    share=share,
                    pinned=pinned,
                    progress=on_progress is not None,
                ),
                "wakugumi files",
            )
        await self.all_tried(_ALL_TRIED_WITHIN_S)
        return await put.to_each(self._session, self._serving_or_first(), on_progress)

    async def caches(self, limit: int = LIST_ROWS_DEFAULT) -> list[an.CacheRow]:
        """Caches at all leaders; a cache of several leaders has one row for each."""
        return rows_of(await self.ask_each(qu.AskCaches(limit)))

    async def cache(self, cache: str) -> an.CacheAnswer:
        """Content of the cache, and which workers have it. Raises Refused("no-cache")."""
        answer = await self.ask(qu.AskCache(check_cache_id(cache)))
        assert isinstance(answer, an.CacheAnswer)
        return answer

    async def pin_cache(self, cache: str, *, pinned: bool = True) -> list[an.CacheRow]:
        """Pin the cache, or unpin it, at every leader that has it. Raises Refused("no-cache")."""
        return rows_of(await self.ask_each(qu.AskPin(check_cache_id(cache), pinned)))

    async def drop_cache(self, cache: str) -> list[an.CacheRow]:
        """Remove the cache from every leader that has it and from all their workers. Raises Refused("no-cache")."""
        return rows_of(await self.ask_each(qu.AskDropCache(check_cache_id(cache))))

    async def wait(self, job_id: JobName) -> Result:
        """The result of a job that was submitted before. Raises Refused("unknown-job")."""
        return await self._session.jobs.claim(*given_id(job_id))

    async def cancel(self, *job_ids: JobName) -> an.CancelAnswer:
        """Cancel jobs of any client, and return the outcome."""
        keys = [given_id(job_id)[0] for job_id in job_ids]
        own = [job for key in keys if (job := self._session.jobs.find(key)) is not None]
        others = [show_job_id(key) for key in keys if self._session.jobs.find(key) is None]
        self._session.jobs.cancel(own)
        whole = an.CancelAnswer(len(own), 0, others)
        if others:
            answers = list((await self.ask_each(qu.AskCancel(others))).values())
            for answer in answers:
                if isinstance(answer, an.CancelAnswer):
                    whole = whole.beside(answer)
                elif isinstance(answer, Refused) and all(isinstance(each, Refused) for each in answers):
                    raise answer
        return whole

    async def ask(self, question: qu.Question, leader: str | None = None) -> an.Answer:
        """Ask this leader a question, or any that serves. Waits if it is disconnected. Raises Refused.

        Without a leader's address, a question about one job, worker or cache goes to every leader that serves.
        """
        if leader is not None:
            return await ask_one(self._session.questions, question, str(parse_address(leader, LEADER_PORT)))
        if len(self.leaders) > 1 and isinstance(question, ABOUT_ONE):
            return answer_that_knows(await self.ask_each(question))
        return await ask_one(self._session.questions, question)

    async def ask_each(self, question: qu.Question) -> dict[str, an.Answer | Refused]:
        """Ask every leader that serves, by its address. If none serves, the first is awaited."""
        await self.all_tried(_ALL_TRIED_WITHIN_S)
        return await ask_several(self._session.questions, question, self._serving_or_first())

    def _serving_or_first(self) -> list[str]:
        """Leaders that serve; if none does, the first, which is then awaited."""
        return [row.leader for row in self.status().leaders if row.connected] or self.leaders[:1]

    def status(self) -> Status:
        """State of the connections."""
        return self._session.status()

    def transfers(self) -> list[FileTransfer]:
        """Files that are being read, or sent to a leader."""
        reading = [
            FileTransfer(row.name, row.done_bytes, row.total_bytes, "reading")
            for row in list(self.contents.readings.values())
        ]
        return reading + self._session.transfers()

    @property
    def leaders(self) -> list[str]:
        """Addresses of the leaders."""
        return self._session.leaders

    def add_leader(self, url: str) -> None:
        """Add a leader: it gets its share as soon as it serves. Raises ConfigError if it is one of them already."""
        self._session.add_leader(_endpoint(*parse_keyed_address(url, LEADER_PORT), self._sources))

    async def remove_leader(self, url: str) -> None:
        """Give a leader no further jobs, wait for its unfinished ones, and disconnect. If it is lost meanwhile, others
        adopt them. Raises ConfigError if the address is not one of the leaders, or the only one.
        """
        await self._session.remove_leader(str(parse_address(url, LEADER_PORT)))

    async def all_tried(self, deadline_s: float) -> None:
        """Returns once each of several leaders serves or could not be reached, or the time is over."""
        if len(self.leaders) > 1:
            await self._session.all_tried(deadline_s)

    def set_patience(self, patience_s: float | None) -> None:
        """How long jobs wait while no leader serves; for ever if None."""
        self._session.set_patience(patience_s)

    async def served(self, deadline_s: float) -> None:
        """Returns once a leader serves us. Raises Refused("no-leader") if none does in time."""
        await self._session.served(deadline_s)

    async def close(self) -> None:
        """Disconnect. The leader keeps and finishes the jobs that it has; `wait` gets their results later."""
        self.contents.close()
        await self._session.close()

    async def _load(self, spec: JobSpec) -> JobFiles:
        files = spec.given.get("files")
        if not files:
            return NO_FILES
        if not must_wait_for_disk(files):
            return self.contents.load(files)
        async with self._reading:
            return await beside(lambda: self.contents.load(files), "wakugumi files")

    def new_window(self, size: int | None) -> MapWindow:
        if size is None:
            size = min(max(2 * self.cap, 16), self._session.room.jobs_max)
        if not 1 <= size <= self._session.room.jobs_max:
            raise ValueError(f"a window is 1 to {self._session.room.jobs_max} jobs, not {size}")
        return self._session.new_window(size)


def _endpoint(address: Address, key: Key | None, sources: AccessSources) -> Endpoint:
    return Endpoint(str(address), partial(dial, address), partial(sources.entry, address, key))


def _check(client_id: str, cap: int, choice: str, grace_s: float) -> None:
    check_client_id(client_id)
    if not 1 <= cap <= CLIENT_CAP_MAX:
        raise ConfigError(f"a client's cap is 1 to {CLIENT_CAP_MAX} jobs at once, not {cap}")
    if choice not in {"least", "round-robin"}:
        raise ConfigError(f"the choice of a leader is 'least' or 'round-robin', not {choice!r}")
    if not 0 < grace_s <= ADOPT_GRACE_MAX_S:  # NaN is refused, too.
        raise ConfigError(
            f"the grace for a lost leader is above 0 and at most {ADOPT_GRACE_MAX_S:.0f} s, not {grace_s:g}"
        )


def _broadcast_id(job_id: str, leader: str) -> str:
    """Each leader's part of a broadcast has its own id, the same each time."""
    return str(uuid5(UUID(bytes_le=given_id(job_id)[0]), leader))
