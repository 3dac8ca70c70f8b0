"""How are a client's jobs kept alive over connections that come and go? `failover` decides; this is its hands.

    Grid, Window ── start, claim, ask, cancel ──► Session ◄── events, effects ──► failover
                                                     └── a Line for each connection ◄── frames ──► leader

It knows every unfinished job by its id, and ends each of them exactly once: with a result, with a refusal, or, when the
session itself ends, with the reason for that.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from wakugumi.adapters.loop.drive import Drive
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.net.link import Link
from wakugumi.core.client import events as ev
from wakugumi.core.client.events import ANY_LEADER, ClientDo, ClientEvent, LeaderNo
from wakugumi.core.client.failover import Failover
from wakugumi.core.client.leaders import Choice
from wakugumi.core.ids import ConnId, JobId
from wakugumi.errors import ConfigError, Lost, PeerError, Refused, WakugumiError
from wakugumi.limits.client import ADOPT_GRACE_S, LEADERS_PER_CLIENT_MAX, UNFINISHED_PER_CLIENT_MAX
from wakugumi.limits.units import MIB
from wakugumi.limits.wire import CLOSE_DEADLINE_S
from wakugumi.roles.client.files.inputs import NOTHING, Brings
from wakugumi.roles.client.files.uploads import NO_VARIABLES, FileTransfer, Uploads
from wakugumi.roles.client.job import Job
from wakugumi.roles.client.leader_status import Endpoint, LeaderStatuses, Status
from wakugumi.roles.client.map_window import MapWindow
from wakugumi.roles.client.request import Request
from wakugumi.roles.client.result import Result
from wakugumi.wire import frame as fr
from wakugumi.wire.frame import Frame
from wakugumi.wire.messages.cache import PROGRESS, CachePutResult, read_cache_result
from wakugumi.wire.messages.hello import BLOBS, CAPS, ENV, FINDS, ZSTD, Welcome, read_welcome, write_cap
from wakugumi.wire.messages.job import (
    FAILED,
    JobResult,
    empty_result,
    pack_ids,
    read_missing,
    read_refusal,
    read_result,
    unpack_ids,
)

log = logging.getLogger("wakugumi.client")

UNFINISHED_BYTES_MAX: Final = 256 * MIB
"""Requests of unfinished jobs are kept to be sent again; beyond this `submit` waits."""


class Session:
    """Make it inside a running loop: it dials at once, and until it is closed. `hello` makes one for a cap."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        hello: Callable[[int], bytes],
        *,
        cap: int,
        choice: Choice = "least",
        grace_s: float = ADOPT_GRACE_S,
        unfinished_max: int = UNFINISHED_PER_CLIENT_MAX,
        embedded: bool = False,
        old_leader: bool = False,
    ) -> None:
        self.tasks = Tasks()
        self.unfinished_max = unfinished_max
        self._endpoints = LeaderStatuses(endpoints)
        self._hello = hello
        self._names: dict[ConnId, str] = {}
        """Whose connection it is."""
        self._places: dict[ConnId, str] = {}
        """Where the leader at its end keeps what does not fit a frame; also of the last ones that ended."""
        self._links: dict[ConnId, Link] = {}
        self._no_links = asyncio.Event()
        self._no_links.set()
        self._jobs: dict[JobId, Job] = {}
        self._bytes = 0
        self._claimants: dict[JobId, int] = {}
        """How many wait for each job that was not submitted here."""
        self._asks: dict[bytes, asyncio.Future[ev.AnswerQuestion]] = {}
        self._on_progress: dict[bytes, Callable[[CachePutResult], None]] = {}
        """Whoever wants to know how far a put is."""
        self._uploads = Uploads(self.tasks, self._send, self._upload_refused, self._does_not_fit)
        self._windows: set[MapWindow] = set()
        self._waiting: deque[Callable[[], int]] = deque()
        """Whoever waits for room: each call tells how many jobs will be started because of it, later."""
        self._gate = False
        self._patience_s: float | None = None
        self._lonely: asyncio.TimerHandle | None = None
        """Runs while no leader serves, if that is borne only for so long."""
        self._ended: WakugumiError | None = None
        self._served_once: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._machine = Failover(
            random.random,
            leaders=self._endpoints.numbers,
            names=self._endpoints.names,
            cap=cap,
            choice=choice,
            grace_s=grace_s,
            unfinished_max=unfinished_max,
            embedded=embedded,
            old_leader=old_leader,
        )
        self._drive: Drive[ClientEvent, object, ClientDo] = Drive(self._machine, self._perform, name="client")
        self._drive.failed.add_done_callback(self._drive_failed)
        self._post = self._drive.post

    async def served(self, deadline_s: float) -> None:
        """Returns once a leader serves us. Raises Refused("no-leader") if none does in time."""
        try:
            async with asyncio.timeout(deadline_s):
                await asyncio.shield(self._served_once)
        except TimeoutError:
            why = f"no leader at {self._endpoints.name} within {deadline_s:g} s: {self._endpoints.trouble}"
            raise Refused("no-leader", why, self._endpoints.hint) from None

    def bear_loneliness(self, patience_s: float | None) -> None:
        """How long jobs wait while no leader serves; for ever if None."""
        self._patience_s = patience_s
        self._look_for_company()

    def _look_for_company(self) -> None:
        alone = self._ended is None and self._patience_s is not None and not self._endpoints.are_served
        if self._lonely is not None and not alone:
            self._lonely.cancel()
            self._lonely = None
        elif self._lonely is None and alone and self._patience_s is not None:
            self._lonely = asyncio.get_running_loop().call_later(self._patience_s, self._too_lonely)

    def _too_lonely(self) -> None:
        why = f"no leader at {self._endpoints.name} for {self._patience_s:g} s: {self._endpoints.trouble}"
        self._end(Refused("no-leader", why, self._endpoints.hint))

    async def close(self) -> None:
        """End what is unfinished here; the leader keeps and does what it has."""
        error = Refused("closed", "the client was closed before the job was done")
        for window in list(self._windows):
            window.close()
            window.fail(error)
        self._end(error)
        await asyncio.sleep(0)  # The drive handles what was posted: the last confirms and cancels leave with us.
        for link in list(self._links.values()):
            link.close()
        try:
            async with asyncio.timeout(CLOSE_DEADLINE_S):
                await self._no_links.wait()
        except TimeoutError:
            for link in list(self._links.values()):
                link.abort()
        self._drive.close()
        await self.tasks.close()

    def status(self) -> Status:
        leaders = self._endpoints.states(self._machine.states())
        serving = [leader for leader in leaders if leader.connected]
        return Status(
            leader=self._endpoints.name,
            connected=bool(serving),
            old_leader=bool(serving) and all(leader.old_leader for leader in serving),
            unfinished=len(self._jobs),
            trouble="" if serving else self._endpoints.trouble,
            leaders=leaders,
        )

    # Its leaders.

    @property
    def leaders(self) -> list[str]:
        return self._endpoints.names

    async def all_tried(self, deadline_s: float) -> None:
        """Returns once each leader has served or could not be reached, or the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(deadline_s):
                await self._endpoints.tried()

    def add_leader(self, endpoint: Endpoint) -> None:
        """Raises ConfigError if it is one of ours already."""
        if self._ended is not None:
            raise self._ended
        self._post(ev.LeaderAdded(self._endpoints.add(endpoint), endpoint.name))

    async def remove_leader(self, name: str) -> None:
        """It gets no further jobs; returns when it has none left, or is lost. Raises ConfigError."""
        endpoint = self._endpoints.find(name)
        if endpoint is None:
            raise ConfigError(f"{name} is none of the leaders", f"they are {self._endpoints.name}")
        if endpoint.parted is None:
            if not self._endpoints.would_stay(endpoint):
                raise ConfigError(f"{name} is the only leader", "add another one first")
            endpoint.parted = asyncio.get_running_loop().create_future()
            self._post(ev.LeaderRemoved(endpoint.no))
        try:
            await asyncio.shield(endpoint.parted)
        except asyncio.CancelledError:
            if not endpoint.parted.cancelled():
                raise
            raise Refused("closed", f"{name} was added again, or the client was closed") from None

    def serving(self) -> list[tuple[str, LeaderNo]]:
        """Those that speak our own types, by their names."""
        return self._endpoints.serving()

    # Jobs and questions.

    @property
    def room(self) -> int:
        """How many jobs may be started now."""
        if not self._gate or self._bytes + self._uploads.held_bytes >= UNFINISHED_BYTES_MAX:
            return 0
        return self.unfinished_max - len(self._jobs)

    @property
    def must_wait(self) -> bool:
        """There is no room, or others were here before."""
        return bool(self._waiting) or self.room <= 0

    async def admission(self) -> None:
        """Wait for room, in line with the others who do."""
        put = self._waiting.append
        while True:
            if self._ended is not None:
                raise self._ended
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            put(lambda turn=turn: _give(turn))  # type: ignore[misc]
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():  # It was our turn: the next one may have it.
                    self._tell_room()
                raise
            if self.room > 0:
                return
            put = self._waiting.appendleft  # Somebody was quicker: who was first in line stays first.

    def on_room(self, call: Callable[[], int]) -> None:
        self._waiting.append(call)

    def start(self, request: Request, item: object, leader: LeaderNo = ANY_LEADER) -> tuple[Job, bool]:
        """The job, and whether it is a new one. Raises Refused if its id is under way for another request."""
        if self._ended is not None:
            raise self._ended
        known = self._jobs.get(request.job)
        if known is not None:
            if known.request.frame != request.frame:
                what = "under way for another request" if known.request.frame else "being waited for with `wait`"
                raise Refused("conflict", f"the job id {request.id} is {what}")
            return known, False
        job = Job(request, item, self)
        self._jobs[request.job] = job
        self._bytes += len(request.frame)
        if request.is_held:
            self._uploads.hold(request.job, request.frame, request.brings, env=request.env)
        self._post(ev.Submit(request.job, request.frame, leader, request.given))
        return job, True

    async def claim(self, key: JobId, name: str, leader: LeaderNo = ANY_LEADER) -> Result:
        """The result of a job that someone submitted before, to this leader if one is named."""
        job = self._jobs.get(key)
        if job is not None:
            return await (self._await_claim(key, job) if key in self._claimants else job)
        if self._ended is not None:
            raise self._ended
        self._jobs[key] = job = Job(Request(key, name, "", b""), None, self)
        self._claimants[key] = 0
        self._post(ev.ClaimJob(key, leader))
        return await self._await_claim(key, job)

    async def _await_claim(self, key: JobId, job: Job) -> Result:
        """The claim lives as long as somebody waits for it."""
        self._claimants[key] += 1
        try:
            return await job
        finally:
            self._claimants[key] -= 1
            if not self._claimants[key]:
                del self._claimants[key]
                if not job.done():
                    self._jobs.pop(key, None)
                    self._post(ev.Forget(key))

    def find(self, key: JobId) -> Job | None:
        return self._jobs.get(key)

    def cancel(self, jobs: Iterable[Job]) -> None:
        keys = [job.request.job for job in jobs]
        if keys:
            self._post(ev.Cancel(keys))
            for key in keys:
                self._uploads.cancel(key)

    async def ask(
        self,
        ask: bytes,
        frame: bytes,
        leader: str = "",
        brings: Brings = NOTHING,
        on_progress: Callable[[CachePutResult], None] | None = None,
    ) -> ev.AnswerQuestion:
        """Ask this leader, or whoever serves; it may ask back for what this `brings` along, and tell how far it is.
        Raises Refused if it is one that cannot be asked, or ConfigError."""
        if self._ended is not None:
            raise self._ended
        endpoint = self._endpoints.find(leader) if leader else None
        if leader and endpoint is None:
            raise ConfigError(f"{leader} is none of the leaders", f"they are {self._endpoints.name}")
        future: asyncio.Future[ev.AnswerQuestion] = asyncio.get_running_loop().create_future()
        self._asks[ask] = future
        if brings:
            self._uploads.hold(ask, frame, brings)
        if on_progress is not None:
            self._on_progress[ask] = on_progress
        self._post(ev.Ask(ask, frame, endpoint.no if endpoint is not None else ANY_LEADER))
        try:
            return await future
        finally:
            del self._asks[ask]
            self._uploads.release(ask)
            self._on_progress.pop(ask, None)
            if not future.done() or future.cancelled():
                self._post(ev.Forget(ask))

    def transfers(self) -> list[FileTransfer]:
        return self._uploads.transfers()

    def new_window(self, size: int) -> MapWindow:
        if self._ended is not None:
            raise self._ended
        window = MapWindow(self, size)
        self._windows.add(window)
        return window

    def window_closed(self, window: MapWindow) -> None:
        self._windows.discard(window)

    # What the lines call.

    def opened(self, conn: ConnId, link: Link, name: str) -> None:
        self._links[conn] = link
        self._names[conn] = name
        self._no_links.clear()
        self._uploads.came(conn)
        self._endpoints.opened(name)
        self._post(ev.Connected(conn))

    def welcomed(self, conn: ConnId, welcome: Welcome) -> None:
        place = None
        if BLOBS in welcome.wants:
            place = self._places[conn] = welcome.blobs or f"http://{self._names[conn]}"
            if len(self._places) > 2 * LEADERS_PER_CLIENT_MAX:
                gone = next((each for each in self._places if each not in self._links), None)
                if gone is not None:
                    del self._places[gone]
        wants = welcome.wants
        env = ENV in wants
        self._uploads.welcomed(conn, place, env=env)
        self._post(ev.Welcomed(conn, CAPS in wants, place is not None, FINDS in wants, env))

    def missing(self, conn: ConnId, about: bytes, blobs: Sequence[str]) -> None:
        self._post(ev.FilesWanted(conn, JobId(about)))
        self._uploads.missing(conn, about, blobs)

    def cache_told(self, conn: ConnId, frame: Frame) -> None:
        """How far a put is, or how it ended."""
        told = read_cache_result(frame.payload)
        if told.status != PROGRESS:
            self._post(ev.QuestionAnswered(conn, frame.corr_id, False, frame.payload))
            return
        self._post(ev.Heard(conn))
        if (on_progress := self._on_progress.get(frame.corr_id)) is not None:
            on_progress(told)

    def refused(self, conn: ConnId, frame: Frame) -> None:
        if frame.corr_id in self._asks:
            self._post(ev.QuestionAnswered(conn, frame.corr_id, True, frame.payload))
            return
        refusal = read_refusal(frame.payload)
        self._post(ev.JobRefused(conn, JobId(frame.corr_id), refusal.code, refusal.message))

    def lost(self, conn: ConnId, why: str) -> None:
        self._uploads.lost(conn)
        del self._links[conn]
        del self._names[conn]
        if not self._links:
            self._no_links.set()
        self._post(ev.Disconnected(conn, why))

    # What the drive calls.

    def _perform(self, effects: Sequence[ClientDo]) -> None:
        for effect in effects:
            match effect:
                case ev.SendFrames(conn, frames):
                    frames = self._uploads.sendable(conn, frames)
                    self._send(conn, frames[0] if len(frames) == 1 else b"".join(frames))
                case ev.Deliver(results):
                    self._deliver(results)
                case ev.SendConfirms(conn, jobs):
                    self._send(conn, fr.encode(fr.CONFIRM, fr.NO_ID, fr.NO_ID, "", pack_ids(jobs)))
                case ev.Accepted(jobs):
                    self._accepted(jobs)
                case ev.SendClaims(conn, jobs):
                    self._send(conn, fr.encode(fr.CLAIM, payload=pack_ids(jobs)))
                case ev.SendCancels(conn, jobs):
                    self._send(conn, fr.encode(fr.CANCEL, payload=pack_ids(jobs)))
                case ev.SendClientHeartbeat(conn):
                    self._send(conn, fr.encode(fr.HEARTBEAT))
                case ev.SendCap(conn, cap):
                    self._send(conn, fr.encode(fr.CAP, payload=write_cap(cap)))
                case ev.GiveUp(key, code, text):
                    self._give_up(key, code, text)
                case ev.TellWhenLeaderWritten(conn):
                    self._tell_when_written(conn)
                case ev.SendFinds(conn, jobs):
                    self._send(conn, fr.encode(fr.FIND, payload=pack_ids(jobs)))
                case ev.SubmitGate(is_open):
                    self._gate = is_open and self._ended is None
                case ev.AnswerQuestion() | ev.NoAnswer():
                    self._answer(effect)
                case _:
                    self._connection_changed(effect)
        if self._waiting:
            self._tell_room()

    def _connection_changed(self, effect: ClientDo) -> None:
        match effect:
            case ev.Dial(conn, leader, cap):
                endpoint = self._endpoints.get(leader)
                assert endpoint is not None
                self.tasks.start(self._dial(conn, endpoint, cap), name=f"dial {endpoint.name}")
            case ev.HangUp(conn, why):
                if (link := self._links.get(conn)) is not None:
                    log.warning("leaving %s: %s", self._names[conn], why)
                    link.abort()
            case ev.Ready():
                self._endpoints.came(effect)
                self._look_for_company()
                if not self._served_once.done():
                    self._served_once.set_result(None)
            case ev.Away() | ev.Waiting() if self._ended is not None:
                pass  # That is what leaving is.
            case ev.Away():
                self._endpoints.went(effect, served_once=self._served_once.done(), unfinished=len(self._jobs))
                self._look_for_company()
            case ev.Waiting():
                self._endpoints.waits(effect)
            case ev.WaitingOver():
                self._endpoints.wait_over(effect)
            case ev.Parted(leader, conn):
                self._endpoints.parted(leader)
                self._look_for_company()
                if (link := self._links.get(conn)) is not None:
                    link.close()
            case _:
                raise AssertionError(effect)

    async def _dial(self, conn: ConnId, endpoint: Endpoint, cap: int) -> None:
        try:
            await endpoint.dialler(LeaderLine(self, conn, endpoint.name, self._hello(cap), self._post))
        except Lost as error:
            self._post(ev.Disconnected(conn, str(error)))
        except WakugumiError as error:
            self._end(error)

    def _send(self, conn: ConnId, data: bytes) -> None:
        link = self._links.get(conn)
        if link is not None:
            link.send(data)

    def _tell_when_written(self, conn: ConnId) -> None:
        link = self._links.get(conn)
        if link is not None:
            link.when_written(partial(self._post, ev.LeaderWritten(conn)))

    def _deliver(self, results: Sequence[ev.ResultCame]) -> None:
        jobs = self._jobs
        for event in results:
            job = jobs.pop(event.job, None)
            if job is None:
                continue
            self._bytes -= len(job.request.frame)
            if job.request.is_held:
                self._uploads.release(event.job)
            try:
                # Nobody looks at the id in a record: the one that its user knows will do.
                record = read_result(event.job, event.payload) if event.payload else empty_result(job.id)
            except PeerError as error:
                record = JobResult(job.id, status=FAILED, stderr=str(error), reason="bad-result")
            place = self._places.get(event.conn, "")
            job.end(Result(record, job.request.id, job.item, self._names.get(event.conn, ""), place))

    def _accepted(self, keys: Sequence[JobId]) -> None:
        jobs = self._jobs
        for key in keys:
            job = jobs.get(key)
            if job is not None:
                job.accept()

    def _give_up(self, key: JobId, code: str, text: str) -> None:
        job = self._jobs.pop(key, None)
        if job is None:
            return
        self._bytes -= len(job.request.frame)
        told = self._uploads.refusal(key) if job.request.is_held else None
        if job.request.is_held:
            self._uploads.release(key)
        if code == "cancelled":  # As the leader itself says it: a cancelled job has a result.
            record = JobResult(job.id, "", job.request.program, FAILED, stderr=text, reason=code)
            job.end(Result(record, job.id, job.item))
        elif told is not None and (told.code, told.message) == (code, text):
            job.end(told)  # It came from here, and its hint with it.
        else:
            job.end(Refused(code, text))

    def _answer(self, effect: ev.AnswerQuestion | ev.NoAnswer) -> None:
        future = self._asks.get(effect.ask)
        if future is None or future.done():
            return
        if isinstance(effect, ev.AnswerQuestion):
            future.set_result(effect)
        else:
            future.set_exception(Refused(effect.code, effect.text))

    def _upload_refused(self, conn: ConnId, about: bytes, no: Refused) -> None:
        """What a leader asked for cannot get there: as if it had refused what needs it."""
        future = self._asks.get(about)
        if future is None:
            self._post(ev.JobRefused(conn, JobId(about), no.code, no.message))
        elif not future.done():
            future.set_exception(no)
            self._post(ev.Forget(about))

    def _does_not_fit(self, conn: ConnId, about: bytes, no: Refused) -> None:
        """This leader takes no such files, or no variables: another one may."""
        self._post(ev.Unfit(conn, JobId(about), no.code, no.message, no.code == NO_VARIABLES))

    def _tell_room(self) -> None:
        promised = 0
        while self._waiting and (self._ended is not None or self.room > promised):
            promised += self._waiting.popleft()()

    def _drive_failed(self, failed: asyncio.Future[None]) -> None:
        if not failed.cancelled() and (error := failed.exception()) is not None:
            self._end(Lost(f"the client failed by a bug of its own: {error!r}"))

    def _end(self, error: WakugumiError) -> None:
        """There will be no more results: tell everyone who waits for one."""
        if self._ended is not None:
            return
        self._ended = error
        self._gate = False
        self._endpoints.end(str(error))
        self._uploads.close()
        for window in list(self._windows):
            window.fail(error)
        jobs, self._jobs = self._jobs, {}
        for job in jobs.values():
            job.end(error)
        for future in self._asks.values():
            if not future.done():
                future.set_exception(error)
        if not self._served_once.done():
            self._served_once.set_exception(error)
            self._served_once.exception()  # Whoever waits for it gets it, and nobody has to.
        self._tell_room()


class LeaderLine:
    """One connection of a client: frames in, events out."""

    def __init__(
        self, session: Session, conn: ConnId, name: str, hello: bytes, post: Callable[[ClientEvent], None]
    ) -> None:
        self._session = session
        self._conn = conn
        self._name = name
        self._hello = hello
        self._post = post
        self._ignored_one = False

    def on_open(self, link: Link) -> None:
        link.greet(self._hello)
        self._session.opened(self._conn, link, self._name)

    def on_frame(self, link: Link, frame: Frame) -> None:
        kind = frame.type
        if kind == fr.RESULT:
            # Not JobId(…): on the busiest path of all, a name costs as much as the event.
            self._post(ev.ResultCame(self._conn, frame.corr_id, frame.payload))  # type: ignore[arg-type]
        elif kind == fr.RECEIPT:
            self._post(ev.Receipts(self._conn, unpack_ids(frame.payload)))
        elif kind == fr.HEARTBEAT:
            self._post(ev.Heard(self._conn))
        elif kind == fr.REFUSAL:
            self._session.refused(self._conn, frame)
        elif kind == fr.ASK:
            self._post(ev.QuestionAnswered(self._conn, frame.corr_id, frame.subject == "refused", frame.payload))
        elif kind == fr.FOUND and frame.subject in {"unknown", "failed", "known"}:
            self._post(ev.JobsFound(self._conn, frame.subject, unpack_ids(frame.payload)))  # type: ignore[arg-type]
        elif kind == fr.WELCOME:
            welcome = read_welcome(frame.payload)
            link.packs = ZSTD in welcome.wants
            self._session.welcomed(self._conn, welcome)
        elif kind == fr.MISSING:
            self._session.missing(self._conn, frame.corr_id, read_missing(frame.payload))
        elif kind == fr.CACHE_ACK:
            self._session.cache_told(self._conn, frame)
        elif not self._ignored_one:
            self._ignored_one = True
            log.warning("%s sent a frame of type %d, which is ignored", link.peer, kind)

    def on_alive(self, _link: Link) -> None:
        self._post(ev.Heard(self._conn))

    def on_blocked(self, _link: Link, blocked: bool) -> None:
        self._post(ev.LeaderBlocked(self._conn, blocked))

    def on_lost(self, link: Link) -> None:
        self._session.lost(self._conn, link.why_closed or "the connection ended")


def _give(turn: asyncio.Future[None]) -> int:
    if turn.done():
        return 0
    turn.set_result(None)
    return 1
