"""The worker as a process: `slots` between one leader's socket and the programs of `runner`.

    leader ◄── frames ──► Worker ◄── events, effects ──► slots
                            └── start, kill, load ──► runner

It dials, says hello, and dials again whenever the connection is lost; what runs goes on meanwhile. All decisions are
made in `slots`: here frames become events, and effects become frames or calls of the runner.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

from wakugumi.adapters.caches import CacheFolder
from wakugumi.adapters.drive import Drive
from wakugumi.adapters.loop import run
from wakugumi.adapters.machine import busy_share
from wakugumi.adapters.net import Address, Link, Owner, dial
from wakugumi.adapters.process import Programs
from wakugumi.adapters.signals import on_stop_signals
from wakugumi.adapters.tasks import Tasks
from wakugumi.core import slots_events as ev
from wakugumi.core.job import JobId, show_job_id
from wakugumi.core.policy import next_redial_s, with_jitter
from wakugumi.core.slots import Slots
from wakugumi.core.slots_events import SlotsDo, SlotsEvent
from wakugumi.core.subject import SubjectError, worker_patterns
from wakugumi.errors import ConfigError, Lost, PeerError
from wakugumi.limits import (
    CLOSE_DEADLINE_S,
    CPU_CAP,
    CPU_CAP_MAX,
    CPU_CAP_MIN,
    CREDIT_MAX,
    RECONNECT_MAX_S,
    WORKER_NAME_CHARS_MAX,
    WORKER_RECONNECT_FIRST_S,
    WORKER_SLOTS,
)
from wakugumi.roles.deliveries import Deliveries
from wakugumi.roles.runner import Runner
from wakugumi.roles.serving import Serving, serve, where_to_serve
from wakugumi.roles.supply import Supply
from wakugumi.wire import frame as fr
from wakugumi.wire import message as ms
from wakugumi.wire.frame import Frame

log = logging.getLogger("wakugumi.worker")

Dial: TypeAlias = Callable[[Owner], Awaitable[Link]]
"""Makes a connection that belongs to this owner. Raises Lost if it may succeed later."""


class WorkerSettings(msgspec.Struct, frozen=True):
    """What the command line and the environment say."""

    leader: Address
    programs: Path | None
    jobs_folder: Path
    named_programs: dict[str, Path] = {}
    patterns: str = ""
    name: str = ""
    slots: int = WORKER_SLOTS
    cpu_cap: float = CPU_CAP
    copy_in: bool = False
    """Programs are copied into each job's directory, for those that look beside themselves (SPEC W1)."""
    cache_folder: Path | None = None
    cache_bytes: int = 0
    serve: Address | None = None
    """Where other workers may fetch from it, and where they find that."""
    advertise: Address | None = None


def main_worker(settings: WorkerSettings) -> int:
    """A worker's process, until it is told to stop. Returns its exit code; raises ConfigError."""
    run(_serve(settings))
    return 0


async def _serve(settings: WorkerSettings) -> None:
    worker = Worker(
        settings.leader,
        Programs(settings.programs, settings.named_programs),
        settings.jobs_folder,
        patterns=settings.patterns,
        name=settings.name,
        slots=settings.slots,
        cpu_cap=settings.cpu_cap,
        copy_in=settings.copy_in,
        cache_folder=settings.cache_folder,
        cache_bytes=settings.cache_bytes,
        serve=settings.serve,
        advertise=settings.advertise,
    )
    on_stop_signals(asyncio.get_running_loop(), worker.request_stop)
    await worker.run()


class Worker:
    """One worker. Make it inside a running loop, then `run` it once."""

    def __init__(
        self,
        leader: Address | Dial,
        programs: Programs,
        jobs_folder: Path,
        *,
        patterns: str = "",
        name: str = "",
        slots: int = WORKER_SLOTS,
        cpu_cap: float | None = CPU_CAP,
        copy_in: bool = False,
        cache_folder: Path | None = None,
        cache_bytes: int = 0,
        serve: Address | None = None,
        advertise: Address | None = None,
    ) -> None:
        """Without a `cpu_cap` credit is never held back. What is kept of inputs goes into the `cache_folder`, or one
        below that of the jobs; `cache_bytes` of 0 is a share of the disk. Others fetch from it at `serve`.

        Raises ConfigError for what no leader would accept, and for folders that cannot be used.
        """
        _check(patterns, name, slots, cpu_cap)
        self._dial: Dial = partial(dial, leader) if isinstance(leader, Address) else leader
        self._serve_at = where_to_serve(leader if isinstance(leader, Address) else None, serve, advertise)
        self._advertise = advertise
        self._serving: Serving | None = None
        self._leader_url = f"http://{leader}" if isinstance(leader, Address) else ""
        self._link: Link | None = None
        self._unlinked = asyncio.Event()
        self._unlinked.set()
        self._why_lost = ""
        self._served = False
        self._blobs_met = False
        """In this life a leader has greeted us that takes what does not fit a frame."""
        self._withheld: dict[JobId, bytes] | None = None
        """Results of which a silent leader, which may be that one, is not yet told that they do not fit."""
        self._ignored: set[int] = set()
        self._stopped = asyncio.Event()
        self._slots = Slots(slots, float("inf") if cpu_cap is None else cpu_cap)
        self._runner = Runner(
            asyncio.get_running_loop(),
            programs,
            jobs_folder,
            self._ended,
            worker_name=name,
            is_owed=self._slots.owes,
            copy_in=copy_in,
        )
        self._deliveries = Deliveries(self._runner.load_whole, self._send_result, self._not_delivered)
        self.worker_id = self._runner.worker_id
        folder = CacheFolder(cache_folder or Path(self._runner.folder) / ".cache", cache_bytes)
        self._supply = Supply(asyncio.get_running_loop(), folder, self._runner.folder, self._send, self._input_changed)
        self._runner.supply = self._supply
        self._hello = fr.encode(
            fr.HELLO_WORKER,
            self.worker_id,
            subject=patterns,
            payload=ms.encode(ms.HelloWorker(name, list(ms.WANTS_WORKER), slots)),
        )
        self._drive: Drive[SlotsEvent, None, SlotsDo] = Drive(self._slots, self._perform, name="worker")
        self._post = self._drive.post
        self._on: dict[int, Callable[[Frame], None]] = {
            fr.ASSIGN_JOB: self._assign,
            fr.CONFIRM: self._confirm,
            fr.CANCEL: self._cancel,
            fr.FETCH: self._fetch,
            fr.HEARTBEAT: self._heartbeat,
            fr.WELCOME: self._welcome,
            fr.MISSING: self._missing,
            fr.CACHE_PUT: self._supply.on_cache_put,
            fr.CACHE_DROP: self._supply.on_cache_drop,
            fr.SOURCE: self._supply.on_source,
        }
        self._act: dict[type[object], Callable[[Any], None]] = {
            ev.StartProgram: self._start_program,
            ev.SendAck: self._send_ack,
            ev.SendCredit: self._send_credit,
            ev.KillProgram: self._kill_program,
            ev.LoadResult: self._load_result,
            ev.ForgetResult: self._forget_result,
            ev.MeasureCpu: self._measure_cpu,
            ev.SendHolding: self._send_holding,
            ev.SendFailure: self._send_failure,
            ev.SendLeaving: self._send_leaving,
            ev.SendHeartbeat: self._send_heartbeat,
            ev.Complain: self._complain,
            ev.HangUp: self._hang_up,
            ev.Stopped: self._stop,
        }

    async def run(self) -> None:
        """Serve until `request_stop` has had its effect. Raises ConfigError, else only for our own bugs."""
        self._post(ev.Recovered(self._runner.finished_before()))
        if self._serve_at is not None:
            self._serving = await serve(self._supply.folder.store, self._serve_at, self._advertise)
            self._supply.url, self._supply.key = self._serving.url, self._serving.key
        tasks = Tasks()
        stopped = tasks.start(self._stopped.wait(), name="worker stopped")
        linked = tasks.start(self._stay_linked(), name="worker's connection")
        try:
            await asyncio.wait({stopped, linked, self._drive.failed}, return_when=asyncio.FIRST_COMPLETED)
            for broken in (self._drive.failed, linked):
                if broken.done():
                    broken.result()
        finally:
            await tasks.close()
            await self._close()
        log.info("worker %s stopped", UUID(bytes_le=self.worker_id))

    def request_stop(self) -> None:
        """Finish what runs, deliver, and stop; asked again, stop now."""
        if self._slots.leaving:
            log.info("stopping now: running=%d, given up", self._slots.running)
        else:
            log.info(
                "draining: running=%d unconfirmed=%d; ask again to stop at once",
                self._slots.running,
                self._slots.unconfirmed,
            )
        self._post(ev.StopAsked())

    async def _stay_linked(self) -> None:
        """Dial, and dial again, with pauses that grow while no leader serves us."""
        clock = asyncio.get_running_loop().time
        pause_s = WORKER_RECONNECT_FIRST_S
        lost_at = clock()
        told = ("", 0.0)
        while True:
            began_at = clock()
            try:
                await self._dial(self)
            except Lost as error:
                self._why_lost = str(error)
                self._hang_up_quietly()
            await self._unlinked.wait()
            if self._served or clock() - began_at > RECONNECT_MAX_S:
                self._served = False
                pause_s = WORKER_RECONNECT_FIRST_S
                lost_at = clock()
            wait_s = with_jitter(pause_s, random.random())
            news = self._why_lost or "it hung up", pause_s
            level = logging.DEBUG if news == told else logging.WARNING  # once, and not twice a second
            log.log(level, "no leader: %s; trying again in %.1f s", news[0], wait_s)
            told = news
            self._why_lost = ""
            await asyncio.sleep(wait_s)
            pause_s = next_redial_s(pause_s, clock() - lost_at)

    async def _close(self) -> None:
        """First the programs, then the connection: its end makes the leader give their jobs to others."""
        self._drive.close()
        await self._deliveries.close()
        await self._runner.close()
        if self._serving is not None:
            await self._serving.close()
        await self._supply.close()
        if self._link is not None:
            self._link.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_DEADLINE_S):
                    await self._unlinked.wait()
            self._hang_up_quietly()

    def _hang_up_quietly(self) -> None:
        if self._link is not None:
            self._link.abort()

    # What the link calls.

    def on_open(self, link: Link) -> None:
        self._link = link
        self._unlinked.clear()
        self._ignored.clear()
        self._withheld = {} if self._blobs_met else None
        log.info("worker %s connected to the leader at %s", UUID(bytes_le=self.worker_id), link.peer)
        link.greet(self._hello)
        self._post(ev.Opened())

    def on_frame(self, link: Link, frame: Frame) -> None:
        handler = self._on.get(frame.type)
        if handler is not None:
            handler(frame)
        elif frame.type not in self._ignored:
            self._ignored.add(frame.type)
            name = fr.NAMES.get(frame.type, "unknown")
            log.warning("%s sent a frame of type %d (%s), which is ignored", link.peer, frame.type, name)

    def on_blocked(self, link: Link, blocked: bool) -> None:
        """Nothing to do: a leader that does not read gets no credit either, so little can pile up."""

    def on_lost(self, _link: Link) -> None:
        self._link = None
        self._unlinked.set()
        self._deliveries.lost()
        self._supply.lost()
        self._post(ev.LinkLost())

    # What the leader says.

    def _assign(self, frame: Frame) -> None:
        if frame.msg_id == fr.NO_ID:
            raise PeerError("an AssignJob carries the job's id, not zeros")
        self._served = True
        if self._withheld is not None:  # It assigns without a greeting, so it is an old one.
            withheld, self._withheld = self._withheld, None
            for job, payload in withheld.items():
                if job != frame.msg_id:
                    self._send_result(job, payload)
        self._post(ev.Assigned(JobId(frame.msg_id), frame.payload, ms.read_slots(frame.payload)))

    def _confirm(self, frame: Frame) -> None:
        jobs = ms.unpack_ids(frame.payload)
        self._deliveries.settled(jobs)
        self._post(ev.Confirmed(jobs))

    def _cancel(self, frame: Frame) -> None:
        jobs = ms.unpack_ids(frame.payload)
        self._deliveries.settled(jobs)
        self._post(ev.Cancelled(jobs))

    def _missing(self, frame: Frame) -> None:
        self._deliveries.missing(JobId(frame.corr_id), ms.read_missing(frame.payload))
        self._post(ev.Heard())

    def _fetch(self, frame: Frame) -> None:
        self._post(ev.Fetched(ms.unpack_ids(frame.payload)))

    def _heartbeat(self, _frame: Frame) -> None:
        self._post(ev.Heard())

    def _welcome(self, frame: Frame) -> None:
        welcome = ms.read_welcome(frame.payload)
        self._served = True
        self._withheld = None  # They are among what is held, and it fetches what it waits for.
        if self._link is not None:
            self._link.packs = ms.ZSTD in welcome.wants
        log.info("the leader speaks version %s", welcome.version)
        if ms.BLOBS in welcome.wants:
            self._blobs_met = True
            self._deliveries.connected(welcome.blobs or self._leader_url)
        self._supply.welcomed(welcome.blobs or self._leader_url if ms.BLOBS in welcome.wants else None)
        self._post(ev.Welcomed())

    # What the runner says.

    def _ended(self, job: JobId, payload: bytes, ok: bool, reason: str) -> None:
        self._post(ev.Ended(job, ok, reason, payload))

    # What the deliveries say.

    def _send_result(self, job: JobId, payload: bytes) -> None:
        if not self._deliveries.has_place:  # It is an old leader, and most results are as it knows them.
            short = self._runner.in_short(job, payload)
            if short is not payload and self._withheld is not None:
                self._withheld[job] = payload
                return
            payload = short
        self._send(fr.encode(fr.ACK_JOB, fr.NO_ID, job, "", payload))

    def _not_delivered(self, job: JobId, code: str, text: str) -> None:
        if not self._runner.runs(job):  # Assigned anew meanwhile, it will have another result.
            self._runner.unmark(job)
            self._send_failure(ev.SendFailure(job, code, text))

    def _input_changed(self, job: JobId) -> None:
        self._runner.kill(job, "input-changed")

    # What `slots` asks for.

    def _perform(self, effects: Sequence[SlotsDo]) -> None:
        act = self._act
        for effect in effects:
            act[type(effect)](effect)

    def _send(self, data: bytes) -> None:
        if self._link is not None:
            self._link.send(data)

    def _start_program(self, effect: ev.StartProgram) -> None:
        self._runner.start(effect.job, effect.payload)

    def _kill_program(self, effect: ev.KillProgram) -> None:
        self._runner.kill(effect.job, effect.code)

    def _load_result(self, effect: ev.LoadResult) -> None:
        payload = self._runner.load(effect.job)
        if payload is None:
            self._post(ev.ResultLoaded(effect.job, False, None))
        else:
            head = ms.read_ack(payload)
            self._post(ev.ResultLoaded(effect.job, head.status == ms.OK, payload, head.reason or ""))

    def _forget_result(self, effect: ev.ForgetResult) -> None:
        self._runner.unmark(effect.job)

    def _measure_cpu(self, _effect: ev.MeasureCpu) -> None:
        self._post(ev.CpuMeasured(self._runner.others_cpu_share()))

    def _send_holding(self, effect: ev.SendHolding) -> None:
        holding = ms.Holding(list(effect.running), list(effect.finished), list(effect.kept))
        self._send(fr.encode(fr.HOLDING, payload=ms.encode(holding)))

    def _send_ack(self, effect: ev.SendAck) -> None:
        self._send_result(effect.job, effect.payload)

    def _send_failure(self, effect: ev.SendFailure) -> None:
        result = ms.JobResult(show_job_id(effect.job), status=ms.FAILED, stderr=effect.text, reason=effect.code)
        self._send(fr.encode(fr.ACK_JOB, fr.NO_ID, effect.job, "", ms.encode(result)))

    def _send_credit(self, effect: ev.SendCredit) -> None:
        self._send(fr.encode(fr.CREDIT, payload=ms.write_credit(effect.amount)))

    def _send_leaving(self, _effect: ev.SendLeaving) -> None:
        self._send(fr.encode(fr.LEAVING))

    def _send_heartbeat(self, _effect: ev.SendHeartbeat) -> None:
        self._send(fr.encode(fr.HEARTBEAT, payload=ms.encode(ms.Load(busy_share()))))

    def _complain(self, effect: ev.Complain) -> None:
        log.warning("%s", effect.text)

    def _hang_up(self, effect: ev.HangUp) -> None:
        self._why_lost = effect.why
        self._hang_up_quietly()

    def _stop(self, _effect: ev.Stopped) -> None:
        self._stopped.set()


def _check(patterns: str, name: str, slots: int, cpu_cap: float | None) -> None:
    try:
        worker_patterns(patterns, name)
    except SubjectError as error:
        raise ConfigError(str(error), "patterns are dot-separated words with * and >: see docs/WORDS.md") from None
    if len(name) > WORKER_NAME_CHARS_MAX or not name.isprintable():
        raise ConfigError(f"a worker's name is at most {WORKER_NAME_CHARS_MAX} printable characters, not {name[:80]!r}")
    if not 1 <= slots <= CREDIT_MAX:
        raise ConfigError(f"a worker runs 1 to {CREDIT_MAX} jobs at once, not {slots}", "see WORKER_MAX_PAR")
    if cpu_cap is not None and not CPU_CAP_MIN <= cpu_cap <= CPU_CAP_MAX:
        raise ConfigError(f"the CPU cap is {CPU_CAP_MIN:.2f} to {CPU_CAP_MAX:.2f}, not {cpu_cap}", "see WORKER_CPU_CAP")
