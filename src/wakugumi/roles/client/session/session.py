"""How are a client's jobs kept alive over lost connections, and how long do they wait while no leader serves?

    Grid, MapWindow ──► jobs (`book`), room, questions (`ask`) ── events ──► failover
                                      Session ◄───────────────── effects ────┘
                                         └── `connections`: a LeaderLine for each ◄── frames ──► leader

`failover` decides about jobs and leaders, `patience` how long they wait without any; this file connects the parts and
hands them its effects. `served` has the deadline of its caller (defaults in `limits/client.py`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import assert_never

from wakugumi.adapters.access.dialled import url_of
from wakugumi.adapters.loop.drive import Drive
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.net.address import parse_address
from wakugumi.core.client import events as ev
from wakugumi.core.client.events import ClientDo, ClientEvent, LeaderNo
from wakugumi.core.client.failover import Failover
from wakugumi.core.client.leaders import Choice
from wakugumi.core.client.patience import LeaderPatience
from wakugumi.core.ids import ConnId, JobId
from wakugumi.core.transfers.upload_events import NO_VARIABLES
from wakugumi.errors import ConfigError, Lost, Refused, WakugumiError
from wakugumi.limits.client import ADOPT_GRACE_S, UNFINISHED_PER_CLIENT_MAX
from wakugumi.roles.client.ask import PendingQuestions
from wakugumi.roles.client.files.uploads import FileTransfer, Uploads
from wakugumi.roles.client.map_window import MapWindow
from wakugumi.roles.client.session.book import JobBook
from wakugumi.roles.client.session.connections import LeaderConnections, LeaderLine, LineListeners
from wakugumi.roles.client.session.leader_status import Endpoint, LeaderStatuses, Status
from wakugumi.roles.client.session.room import Room
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.hello import write_cap
from wakugumi.wire.messages.job import pack_ids


class Session:
    """Make it inside a running loop: it connects at once, until it is closed. `hello` makes a hello for a cap and
    the text of a key."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        hello: Callable[[int, str], bytes],
        *,
        cap: int,
        choice: Choice = "least",
        grace_s: float = ADOPT_GRACE_S,
        unfinished_max: int = UNFINISHED_PER_CLIENT_MAX,
        embedded: bool = False,
        old_leader: bool = False,
    ) -> None:
        self.tasks = Tasks()
        self._hello = hello
        self._statuses = LeaderStatuses(endpoints)
        self._machine = Failover(
            random.random,
            leaders=self._statuses.numbers,
            names=self._statuses.names,
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
        self._connections = LeaderConnections()
        self._send = self._connections.send
        self._uploads = Uploads(self._send, self._upload_refused, self._does_not_fit)
        self._uploads.failed.add_done_callback(self._drive_failed)
        self.jobs = JobBook(self._connections, self._uploads, self._post)
        self.room = Room(self.jobs, self._uploads, unfinished_max)
        self.questions = PendingQuestions(self._statuses, self._uploads, self._post)
        self._listeners = LineListeners(self._connections, self._statuses, self._uploads, self.questions, self._post)
        self._windows: set[MapWindow] = set()
        self._patience = LeaderPatience()
        self._patience_timer: asyncio.TimerHandle | None = None
        """Runs while no leader serves, unless the patience has no end."""
        self._served_once: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def served(self, deadline_s: float) -> None:
        """Returns once a leader serves us. Raises Refused("no-leader") if none does in time."""
        try:
            async with asyncio.timeout(deadline_s):
                await asyncio.shield(self._served_once)
        except TimeoutError:
            why = f"no leader at {self._statuses.name} within {deadline_s:g} s: {self._statuses.trouble}"
            raise Refused("no-leader", why, self._statuses.hint) from None

    def set_patience(self, patience_s: float | None) -> None:
        """How long jobs wait while no leader serves; for ever if None."""
        self._patience.patience_s = patience_s
        self._look_at_patience()

    def _look_at_patience(self) -> None:
        loop = asyncio.get_running_loop()
        waits = self.jobs.ended is None and not self._statuses.any_serves
        self._patience.look(loop.time(), waits=waits)
        if self._patience_timer is not None:
            self._patience_timer.cancel()
            self._patience_timer = None
        if (due_at := self._patience.due_at) is not None:
            self._patience_timer = loop.call_at(due_at, self._patience_over)

    def _patience_over(self) -> None:
        why = f"no leader at {self._statuses.name} for {self._patience.patience_s:g} s: {self._statuses.trouble}"
        self._end(Refused("no-leader", why, self._statuses.hint))

    async def close(self) -> None:
        """End unfinished jobs here; the leader keeps and finishes those that it has."""
        error = Refused("closed", "the client was closed before the job was done")
        for window in list(self._windows):
            window.close()
            window.fail(error)
        self._end(error)
        await asyncio.sleep(0)  # The drive handles posted events: the last confirms and cancels are still sent.
        await self._connections.close()
        self._drive.close()
        await self._uploads.close()
        await self.tasks.close()

    def status(self) -> Status:
        leaders = self._statuses.states(self._machine.states())
        serving = [leader for leader in leaders if leader.connected]
        return Status(
            leader=self._statuses.name,
            connected=bool(serving),
            old_leader=bool(serving) and all(leader.old_leader for leader in serving),
            unfinished=len(self.jobs.unfinished),
            trouble="" if serving else self._statuses.trouble,
            leaders=leaders,
        )

    def transfers(self) -> list[FileTransfer]:
        return self._uploads.transfers()

    def new_window(self, size: int) -> MapWindow:
        if self.jobs.ended is not None:
            raise self.jobs.ended
        window = MapWindow(self.jobs, self.room, size, self._windows.discard)
        self._windows.add(window)
        return window

    # Leaders.

    @property
    def leaders(self) -> list[str]:
        return self._statuses.names

    def serving(self) -> list[tuple[str, LeaderNo]]:
        """Names and numbers of leaders that speak our own types."""
        return self._statuses.serving()

    async def all_tried(self, deadline_s: float) -> None:
        """Returns once each leader has served or could not be reached, or the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(deadline_s):
                await self._statuses.tried()

    def add_leader(self, endpoint: Endpoint) -> None:
        """Raises ConfigError if the leader is one of ours already."""
        if self.jobs.ended is not None:
            raise self.jobs.ended
        self._post(ev.LeaderAdded(self._statuses.add(endpoint), endpoint.name))

    async def remove_leader(self, name: str) -> None:
        """Give the leader no further jobs; returns when it has none left, or is lost. Raises ConfigError."""
        endpoint = self._statuses.find(name)
        if endpoint is None:
            raise ConfigError(f"{name} is none of the leaders", f"they are {self._statuses.name}")
        if endpoint.parted is None:
            if not self._statuses.would_stay(endpoint):
                raise ConfigError(f"{name} is the only leader", "add another one first")
            endpoint.parted = asyncio.get_running_loop().create_future()
            self._post(ev.LeaderRemoved(endpoint.no))
        try:
            await asyncio.shield(endpoint.parted)
        except asyncio.CancelledError:
            if not endpoint.parted.cancelled():
                raise
            raise Refused("closed", f"{name} was added again, or the client was closed") from None

    # Effects of `failover`.

    def _perform(self, effects: Sequence[ClientDo]) -> None:
        for effect in effects:
            match effect:
                case ev.SendFrames(conn, frames):
                    frames = self._uploads.sendable(conn, frames)
                    self._send(conn, frames[0] if len(frames) == 1 else b"".join(frames))
                case ev.Deliver(results):
                    self.jobs.deliver(results)
                case ev.SendConfirms(conn, jobs):
                    self._send(conn, fr.encode(fr.CONFIRM, fr.NO_ID, fr.NO_ID, "", pack_ids(jobs)))
                case ev.Accepted(jobs):
                    self.jobs.accepted(jobs)
                case ev.SendClaims(conn, jobs):
                    self._send(conn, fr.encode(fr.CLAIM, payload=pack_ids(jobs)))
                case ev.SendCancels(conn, jobs):
                    self._send(conn, fr.encode(fr.CANCEL, payload=pack_ids(jobs)))
                case ev.SendClientHeartbeat(conn):
                    self._send(conn, fr.encode(fr.HEARTBEAT))
                case ev.SendCap(conn, cap):
                    self._send(conn, fr.encode(fr.CAP, payload=write_cap(cap)))
                case ev.GiveUp(key, code, text):
                    self.jobs.give_up(key, code, text)
                case ev.TellWhenLeaderWritten(conn):
                    self._connections.when_written(conn, partial(self._post, ev.LeaderWritten(conn)))
                case ev.SendFinds(conn, jobs):
                    self._send(conn, fr.encode(fr.FIND, payload=pack_ids(jobs)))
                case ev.SubmitGate(is_open):
                    self.room.gate = is_open and self.jobs.ended is None
                case ev.AnswerQuestion() | ev.NoAnswer():
                    self.questions.answer(effect)
                case ev.Dial(conn, leader, cap):
                    self._dial(conn, leader, cap)
                case ev.HangUp(conn, why):
                    self._connections.hang_up(conn, why)
                case ev.Ready():
                    self._ready(effect)
                case ev.AllRefused(code, text):
                    self._end(Refused(code, text))
                case ev.Away() | ev.Waiting() if self.jobs.ended is not None:
                    pass  # Expected after the end.
                case ev.Away():
                    self._statuses.disconnected(
                        effect, served_once=self._served_once.done(), unfinished=len(self.jobs.unfinished)
                    )
                    self._look_at_patience()
                case ev.Waiting():
                    self._statuses.waits(effect)
                case ev.WaitingOver():
                    self._statuses.wait_over(effect)
                case ev.Parted(leader, conn):
                    self._statuses.parted(leader)
                    self._look_at_patience()
                    self._connections.part(conn)
                case _:
                    assert_never(effect)
        self.room.wake()

    def _ready(self, effect: ev.Ready) -> None:
        self._statuses.connected(effect)
        self._look_at_patience()
        if not self._served_once.done():
            self._served_once.set_result(None)

    def _dial(self, conn: ConnId, leader: LeaderNo, cap: int) -> None:
        endpoint = self._statuses.get(leader)
        assert endpoint is not None

        async def dial() -> None:
            try:
                access = await endpoint.access()
                key, secured = "", ""
                if access is not None:
                    key = "" if access.key is None else access.key.text
                    secured = url_of(parse_address(endpoint.name), access)
                line = LeaderLine(conn, endpoint.name, self._hello(cap, key), self._listeners, secured)
                await endpoint.dialler(line, access)
            except Lost as error:
                self._post(ev.Disconnected(conn, str(error)))
            except WakugumiError as error:
                if self._statuses.are_several:
                    self._post(ev.Disconnected(conn, str(error)))
                else:
                    self._end(error)

        self.tasks.start(dial(), name=f"dial {endpoint.name}")

    # Reports of the uploads.

    def _upload_refused(self, conn: ConnId, about: bytes, no: Refused) -> None:
        """Content cannot be sent to the leader: handled as the leader's refusal."""
        if about in self.questions:
            self.questions.refuse(about, no)
        else:
            self._post(ev.JobRefused(conn, JobId(about), no.code, no.message))

    def _does_not_fit(self, conn: ConnId, about: bytes, no: Refused) -> None:
        """This leader takes no such files, or no variables: another one may."""
        self._post(ev.Unfit(conn, JobId(about), no.code, no.message, no.code == NO_VARIABLES))

    # The end.

    def _drive_failed(self, failed: asyncio.Future[None]) -> None:
        if not failed.cancelled() and (error := failed.exception()) is not None:
            self._end(Lost(f"internal error of the client: {error!r}"))

    def _end(self, error: WakugumiError) -> None:
        """There will be no more results: end all that is awaited."""
        if self.jobs.ended is not None:
            return
        self.jobs.ended = error
        self.room.gate = False
        self._statuses.end(str(error))
        self._uploads.release_all()
        for window in list(self._windows):
            window.fail(error)
        self.jobs.fail()
        self.questions.fail(error)
        if not self._served_once.done():
            self._served_once.set_exception(error)
            self._served_once.exception()  # Marked as retrieved: there may be no caller that waits for it.
        self.room.wake()
