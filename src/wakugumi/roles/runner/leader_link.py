"""How does a machine's slots machine talk to its leader? Frames become events, and effects become frames.

    leader ◄── frames ──► LeaderLink ◄── events, effects ──► slots
                              └── large results ──► deliveries; inputs and caches ──► supply

The link connects, sends its hello, and reconnects whenever the connection is lost; running jobs continue meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from wakugumi.adapters.access.dialled import AccessSources, url_of
from wakugumi.adapters.machine.cpu_use import busy_share
from wakugumi.adapters.net.address import Address
from wakugumi.adapters.net.connect import dial
from wakugumi.adapters.net.link import Link
from wakugumi.adapters.zip.take_output import result_for_frames
from wakugumi.core.connections.redial import Redial
from wakugumi.core.ids import JobId, show_job_id
from wakugumi.core.runner import events as ev
from wakugumi.core.runner.events import SlotsEvent
from wakugumi.core.runner.programs.separation import UNJUDGED, Separation
from wakugumi.errors import ConfigError, Lost, PeerError
from wakugumi.limits.wire import CLOSE_DEADLINE_S
from wakugumi.roles.runner.files.inputs import InputSupply
from wakugumi.roles.runner.files.send_results import ResultUploads
from wakugumi.roles.runner.runner import Runner
from wakugumi.roles.runner.settings import Dial
from wakugumi.wire import frame as fr
from wakugumi.wire.frame import Frame
from wakugumi.wire.messages.control import Holding, Load, Rest
from wakugumi.wire.messages.hello import BLOBS, RESTS, ZSTD, read_welcome
from wakugumi.wire.messages.job import (
    FAILED,
    JobResult,
    read_missing,
    read_refusal,
    read_slots,
    unpack_ids,
    write_credit,
)
from wakugumi.wire.messages.payload import encode

if TYPE_CHECKING:
    from wakugumi.adapters.access.entry import AccessEntry

log = logging.getLogger("wakugumi.worker")


class LeaderLink:
    """The connection to one leader, across reconnects. Create it inside a running loop."""

    def __init__(
        self,
        leader: Address | Dial,
        hello: Callable[[str], bytes],
        runner: Runner,
        supply: InputSupply,
        post: Callable[[SlotsEvent], None],
        sources: AccessSources | None = None,
        where_rules: Separation = UNJUDGED,
    ) -> None:
        """`hello` makes a hello with the text of a key; `sources` have the key and its grid's authority; `where_rules`
        is the separation from programs where keys have rules."""
        self._where_rules = where_rules
        self.barred: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Fails with ConfigError if this machine may not serve its leader as it was started."""
        self._leader = leader
        self._sources = sources or AccessSources()
        self._leader_url = f"http://{leader}" if isinstance(leader, Address) else ""
        self._make_hello = hello
        self._key = ""
        """Text of the key for the connection that is being made."""
        self._secured = False
        """That connection is one to a leader that proves who it is."""
        self._runner = runner
        self._post = post
        self._link: Link | None = None
        self._unlinked = asyncio.Event()
        self._unlinked.set()
        self._why_lost = ""
        self._served = False
        self._has_met_blobs = False
        """A leader with blobs has greeted this process."""
        self._withheld: dict[JobId, tuple[bytes, bytes]] | None = None
        """Large results withheld until the leader turns out to be old; None if it is known. Set only if a leader with
        blobs was met before: the silent leader may be that one."""
        self._ignored: set[int] = set()
        self.deliveries = ResultUploads(runner.kept.load_whole, self._send_result, self._not_delivered)
        self._supply = supply
        self._on: dict[int, Callable[[Frame], None]] = {
            fr.ASSIGN_JOB: self._assign,
            fr.CONFIRM: self._confirm,
            fr.CANCEL: self._cancel,
            fr.FETCH: self._fetch,
            fr.HEARTBEAT: self._heartbeat,
            fr.WELCOME: self._welcome,
            fr.MISSING: self._missing,
            fr.RESTING: self._rest_known,
            fr.CACHE_PUT: supply.on_cache_put,
            fr.CACHE_DROP: supply.on_cache_drop,
            fr.SOURCE: supply.on_source,
            fr.REFUSAL: self._refused,
        }
        self.act: dict[type[object], Callable[[Any], None]] = {
            ev.SendAck: self._send_ack,
            ev.TellWhenResultsWritten: self._tell_when_written,
            ev.SendCredit: self._send_credit,
            ev.SendHolding: self._send_holding,
            ev.SendFailure: self._send_failure,
            ev.SendLeaving: self._send_leaving,
            ev.SendResting: self._send_resting,
            ev.SendRunnerHeartbeat: self._send_heartbeat,
            ev.ComplainAboutLeader: self._complain,
            ev.HangUpOnLeader: self._hang_up,
        }
        """Effects of `slots` that concern the leader."""

    def send(self, data: bytes) -> None:
        """Send a frame if there is a connection."""
        if self._link is not None:
            self._link.send(data)

    async def stay_linked(self) -> None:
        """Connect and reconnect, with growing pauses while no leader serves this machine."""
        clock = asyncio.get_running_loop().time
        redial = Redial(clock())
        logged = ("", 0.0)
        while True:
            redial.begin(clock())
            try:
                await self._connect()
            except (Lost, ConfigError) as error:
                self._why_lost = str(error)
                self._hang_up_quietly()
            await self._unlinked.wait()
            wait_s = redial.pause(clock(), random.random(), served=self._served)
            self._served = False
            reason = self._why_lost or "it hung up", redial.base_s
            level = logging.DEBUG if reason == logged else logging.WARNING  # A repeated reason is no news.
            log.log(level, "no leader: %s; retry_s=%.1f", reason[0], wait_s)
            logged = reason
            self._why_lost = ""
            await asyncio.sleep(wait_s)

    def in_file(self) -> AccessEntry | None:
        """The leader's entry in the access file. Raises ConfigError."""
        return self._sources.in_file(self._leader) if isinstance(self._leader, Address) else None

    async def _connect(self) -> None:
        """Raises Lost, or ConfigError for an access file that cannot be used."""
        leader = self._leader
        if not isinstance(leader, Address):
            await leader(self)
            return
        access = await self._sources.entry(leader)
        self._secured = access is not None
        self._key = "" if access is None or access.key is None else access.key.text
        self._leader_url = url_of(leader, access)
        await dial(leader, self, access)

    async def close(self) -> None:
        """Flush queued frames if the leader reads them, then disconnect."""
        if self._link is not None:
            self._link.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_DEADLINE_S):
                    await self._unlinked.wait()
            self._hang_up_quietly()

    def _hang_up_quietly(self) -> None:
        if self._link is not None:
            self._link.abort()

    # Called by the link.

    def on_open(self, link: Link) -> None:
        self._link = link
        self._unlinked.clear()
        self._ignored.clear()
        self._withheld = {} if self._has_met_blobs else None
        log.info("connected to the leader worker=%s peer=%s", UUID(bytes_le=self._runner.worker_id), link.peer)
        link.greet(self._make_hello(self._key))
        self._post(ev.Opened(self._secured))

    def on_frame(self, _link: Link, frame: Frame) -> None:
        handler = self._on.get(frame.type)
        if handler is not None:
            handler(frame)
        else:
            self._ignore(frame)

    def _ignore(self, frame: Frame) -> None:
        if frame.type not in self._ignored and self._link is not None:
            self._ignored.add(frame.type)
            name = fr.NAMES.get(frame.type, "unknown")
            log.warning("frame ignored peer=%s type=%d name=%s", self._link.peer, frame.type, name)

    def on_alive(self, _link: Link) -> None:
        self._post(ev.LeaderAlive())

    def on_blocked(self, link: Link, blocked: bool) -> None:
        """Needs no action: `slots` asks when its frames are written before it sends more than a buffer should hold."""

    def on_lost(self, _link: Link) -> None:
        self._link = None
        self._unlinked.set()
        self.deliveries.lost()
        self._supply.lost()
        self._post(ev.LinkLost())

    # Frames of the leader.

    def _assign(self, frame: Frame) -> None:
        if frame.msg_id == fr.NO_ID:
            raise PeerError("an AssignJob carries the job's id, not zeros")
        self._served = True
        if self._withheld is not None:  # An old leader assigns without a welcome.
            withheld, self._withheld = self._withheld, None
            for job, result in withheld.items():
                if job != frame.msg_id:
                    self._send_result(job, *result)
        self._post(ev.Assigned(JobId(frame.msg_id), frame.payload, read_slots(frame.payload)))

    def _confirm(self, frame: Frame) -> None:
        jobs = unpack_ids(frame.payload)
        self.deliveries.settled(jobs)
        self._post(ev.ResultsConfirmed(jobs))

    def _cancel(self, frame: Frame) -> None:
        jobs = unpack_ids(frame.payload)
        self.deliveries.settled(jobs)
        self._post(ev.Cancelled(jobs))

    def _refused(self, frame: Frame) -> None:
        """The leader does not let this worker in. A refusal of anything else is none that a worker asked for."""
        if frame.corr_id != fr.NO_ID:
            self._ignore(frame)
            return
        self._why_lost = f"it refuses this worker: {read_refusal(frame.payload).message}"
        if self._link is not None:
            self._link.close()

    def _missing(self, frame: Frame) -> None:
        self.deliveries.missing(JobId(frame.corr_id), read_missing(frame.payload))
        self._post(ev.LeaderAlive())

    def _fetch(self, frame: Frame) -> None:
        self._post(ev.Fetched(unpack_ids(frame.payload)))

    def _rest_known(self, _frame: Frame) -> None:
        self._post(ev.RestKnown())

    def _heartbeat(self, _frame: Frame) -> None:
        self._post(ev.LeaderAlive())

    def _welcome(self, frame: Frame) -> None:
        welcome = read_welcome(frame.payload)
        if welcome.keys_have_rules and self._where_rules.refused:
            if not self.barred.done():
                self.barred.set_exception(ConfigError(self._where_rules.refused, self._where_rules.hint))
            return
        self._served = True
        self._withheld = None  # Holding lists them, and the leader fetches the ones that it waits for.
        if self._link is not None:
            self._link.packs = ZSTD in welcome.wants
        log.info("the leader speaks version %s", welcome.version)
        if BLOBS in welcome.wants:
            self._has_met_blobs = True
            self.deliveries.connected(welcome.blobs or self._leader_url)
        self._supply.welcomed(welcome.blobs or self._leader_url if BLOBS in welcome.wants else None)
        self._post(ev.LeaderWelcomed(RESTS in welcome.wants))

    # Called by the deliveries.

    def _send_result(self, job: JobId, payload: bytes, request: bytes) -> None:
        if not self.deliveries.has_place:  # An old leader; most results fit a frame.
            short = self._runner.kept.in_short(job, payload)
            if short is not payload and self._withheld is not None:
                self._withheld[job] = payload, request
                return
            payload = short
        self.send(fr.encode(fr.ACK_JOB, request or fr.NO_ID, job, "", result_for_frames(job, payload)))

    def _not_delivered(self, job: JobId, code: str, text: str) -> None:
        if self._runner.client_of(job) is None:  # A new run of the job will have another result.
            self._runner.kept.unmark(job)
            self._send_failure(ev.SendFailure(job, code, text))

    # Effects of `slots`.

    def _send_holding(self, effect: ev.SendHolding) -> None:
        holding = Holding(list(effect.running), list(effect.finished), list(effect.kept))
        self.send(fr.encode(fr.HOLDING, payload=encode(holding)))

    def _send_ack(self, effect: ev.SendAck) -> None:
        self._send_result(effect.job, effect.payload, effect.request)

    def _tell_when_written(self, _effect: ev.TellWhenResultsWritten) -> None:
        if self._link is not None:
            self._link.when_written(partial(self._post, ev.ResultsWritten()))

    def _send_failure(self, effect: ev.SendFailure) -> None:
        result = JobResult(
            show_job_id(effect.job),
            status=FAILED,
            stderr=effect.text,
            reason=effect.code,
            not_begun=msgspec.UNSET if effect.begun else True,
        )
        self.send(fr.encode(fr.ACK_JOB, fr.NO_ID, effect.job, "", encode(result)))

    def _send_credit(self, effect: ev.SendCredit) -> None:
        self.send(fr.encode(fr.CREDIT, payload=write_credit(effect.amount)))

    def _send_leaving(self, _effect: ev.SendLeaving) -> None:
        self.send(fr.encode(fr.LEAVING))

    def _send_resting(self, effect: ev.SendResting) -> None:
        self.send(fr.encode(fr.RESTING, payload=encode(Rest(effect.why))))

    def _send_heartbeat(self, effect: ev.SendRunnerHeartbeat) -> None:
        self.send(fr.encode(fr.HEARTBEAT, payload=encode(Load(busy_share(), effect.held_by))))

    def _complain(self, effect: ev.ComplainAboutLeader) -> None:
        log.warning("%s", effect.text)

    def _hang_up(self, effect: ev.HangUpOnLeader) -> None:
        self._why_lost = effect.why
        self._hang_up_quietly()
