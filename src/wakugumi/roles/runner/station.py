"""The place where a machine's jobs run, whoever wants them: a leader that it dialled, and callers of its own.

    leader ◄──► leader_link ──┐
                              ├── events, effects ──► slots         never more runs at once than there are slots
    node ── run, cancel ──────┘
                              └── start, kill, load ──► runner

All decisions are made in `slots`. A station without a leader serves its callers alone, and one that nobody calls is a
worker.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import UUID

from wakugumi.adapters.blobs.worker_cache import CacheFolder
from wakugumi.adapters.loop.drive import Drive
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.net.address import Address
from wakugumi.adapters.programs.named_programs import Programs
from wakugumi.adapters.programs.run_as import check_way
from wakugumi.core.ids import JobId
from wakugumi.core.runner import events as ev
from wakugumi.core.runner.counts import RunCounts
from wakugumi.core.runner.events import SlotsDo, SlotsEvent
from wakugumi.core.runner.slots import Slots
from wakugumi.core.subject import SubjectError, worker_patterns
from wakugumi.core.visible_text import is_plain_name
from wakugumi.errors import ConfigError, Refused
from wakugumi.limits.runner import CPU_CAP_MAX, CPU_CAP_MIN
from wakugumi.limits.scheduling import CREDIT_MAX
from wakugumi.limits.wire import WORKER_NAME_CHARS_MAX
from wakugumi.roles.runner.files.inputs import InputSupply
from wakugumi.roles.runner.files.serve import Serving, serve, where_to_serve
from wakugumi.roles.runner.files.uploaded_inputs import UploadedInputs
from wakugumi.roles.runner.leader_link import LeaderLink
from wakugumi.roles.runner.make_result import MadeResult
from wakugumi.roles.runner.runner import Runner
from wakugumi.roles.runner.settings import RunnerSettings
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.hello import WANTS_WORKER, HelloWorker
from wakugumi.wire.messages.job import OK, read_ack, read_slots
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.request_digest import payload_digest

log = logging.getLogger("wakugumi.worker")


class Finished:
    """A finished job's result. While it is open, what it names stays on the disk: close it, or use it as a context."""

    __slots__ = ("_let_go", "kept_at", "parts", "payload", "request")

    def __init__(
        self,
        payload: bytes,
        parts: Mapping[str, Path],
        let_go: Callable[[], None] | None = None,
        *,
        request: bytes = b"",
        kept_at: float | None = None,
    ) -> None:
        self.request = request
        """The digest of the request that was run; empty if it is not known."""
        self.kept_at = kept_at
        """Since when it was kept, by the machine's clock; None if it was made for whoever asked."""
        self.payload = payload
        """The encoded JobResult."""
        self.parts = parts
        """What did not fit it, by the names of `adapters.parts`: ARCHIVE, STDOUT, STDERR."""
        self._let_go = let_go

    def close(self) -> None:
        let_go, self._let_go = self._let_go, None
        if let_go is not None:
            let_go()

    def __enter__(self) -> Finished:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Station:
    """One machine's slots and what runs in them. Make it inside a running loop, then `serve` once."""

    def __init__(self, settings: RunnerSettings, programs: Programs | None = None) -> None:
        """Without `programs` they are those of the settings' folder.

        Raises ConfigError for what no leader would accept, and for folders that cannot be used.
        """
        leader, rules = settings.leader, settings.rules
        programs = Programs(settings.programs) if programs is None else programs
        _check(settings)
        self.rules = rules
        loop = asyncio.get_running_loop()
        self._serve_at = where_to_serve(
            leader if isinstance(leader, Address) else None, settings.serve, settings.advertise
        )
        self._advertise = settings.advertise
        self._serving: Serving | None = None
        self._stopped = asyncio.Event()
        self._waiting: dict[JobId, dict[asyncio.Future[ev.AnswerCaller], None]] = {}
        """Callers of this machine, by what they wait for."""
        self._brought: dict[JobId, tuple[bytes, UploadedInputs]] = {}
        """Files of jobs that were not started yet, and with which request they came."""
        self._reading: dict[JobId, int] = {}
        """Results that are open, and how often."""
        if rules.user is not None and settings.cache is not None:
            check_way(rules.user, "cache folder", os.path.abspath(settings.cache))
        self._slots = Slots(
            settings.slots,
            float("inf") if settings.cpu_cap is None else settings.cpu_cap,
            settings.done_ttl_s,
            rests=settings.rests,
            digest=payload_digest,
            old_leader=settings.old_leader,
        )
        self._drive: Drive[SlotsEvent, None, SlotsDo] = Drive(self._slots, self._perform, name="worker")
        self._post = self._drive.post
        self.link: LeaderLink | None = None

        def supply(jobs_folder: str) -> InputSupply:
            folder = CacheFolder(settings.cache or Path(jobs_folder) / ".cache", settings.cache_bytes)
            return InputSupply(loop, folder, jobs_folder, self._send, self._input_changed)

        with_leader = None if leader is None else supply
        self._runner = Runner(loop, settings, programs, self._ended, self._is_needed, with_leader)
        self.supply = self._runner.supply
        self.worker_id = self._runner.worker_id
        self._act: dict[type[object], Callable[[Any], None]] = {
            ev.StartProgram: self._start_program,
            ev.KillProgram: self._kill_program,
            ev.LoadResult: self._load_result,
            ev.ForgetResult: self._forget_result,
            ev.MeasureCpu: self._measure_cpu,
            ev.Probe: self._probe,
            ev.HealthChanged: self._health_changed,
            ev.AnswerCaller: self._answer_caller,
            ev.RefuseCaller: self._refuse_caller,
            ev.RunnerStopped: self._stop,
        }
        if leader is not None and self.supply is not None:
            unnamed = programs.default is not None
            hello = HelloWorker(settings.name, list(WANTS_WORKER), settings.slots, unnamed, rules.runs_as_root)
            frame = fr.encode(fr.HELLO_WORKER, self.worker_id, subject=settings.patterns, payload=encode(hello))
            self.link = LeaderLink(leader, frame, self._runner, self.supply, self._post)
            self._act |= self.link.act
        # Now, for what is there without being finished counts as interrupted: no caller may be faster.
        self._post(ev.Recovered(self._runner.kept.finished_before()))

    @property
    def folder(self) -> str:
        """Where the jobs' directories are, which is nobody else's."""
        return self._runner.folder

    @property
    def limit(self) -> int:
        """How many slots there are."""
        return self._slots.slots

    @property
    def running(self) -> int:
        """How many jobs run, whoever wants them."""
        return self._slots.running

    @property
    def free(self) -> int:
        """How many slots a caller can have now."""
        return self._slots.free

    @property
    def stopping(self) -> bool:
        return self._slots.leaving or self._stopped.is_set()

    @property
    def counts(self) -> RunCounts:
        return self._runner.counts

    def is_running(self, job: JobId) -> bool:
        """Does it run, or is it about to?"""
        return self._slots.has(job)

    async def run(
        self, job: JobId, payload: bytes, bring: Mapping[str, Path] | None = None, slots: int | None = None
    ) -> Finished:
        """The result of a job: the one it has, if that is OK; else that of the run which is under way, or of a new one.

        `bring` has files of this disk for those inputs that the request names without their content; they are the
        station's from now on, whatever becomes of the job. The request is read for its `slots` unless they are said.
        Whoever gives up waiting does not end the job. Raises Refused: busy, stopping, cancelled.
        """
        try:
            if self.stopping:
                raise Refused("stopping", "this machine takes no more jobs")
            if job in self._reading and not self._slots.has(job):
                return self._read_again(job)
            if bring and job not in self._waiting and not self._slots.has(job):
                self._brought[job] = payload, UploadedInputs(bring)
                bring = None
        finally:
            if bring:
                self._runner.discard(UploadedInputs(bring))
        told = self._wait(job, payload, read_slots(payload) if slots is None else slots)
        del payload, bring  # Others may wait for long, and must not hold what only the first one's run needs.
        return await self._told(job, told)

    def join(self, job: JobId) -> Coroutine[None, None, Finished] | None:
        """The result of the run that is under way, without a request of one's own: await it. It raises Refused, as
        `run` does. None if it does not run."""
        self._drive.flush()
        self._drive.flush()  # What the first one asked the disk for.
        if not self._slots.has(job):
            return None
        told = self._wait(job, b"", 1)
        self._drive.flush()  # Now, for a job that ends before we are heard would be run with nothing.
        return self._told(job, told)

    async def finished(self, job: JobId) -> Finished | None:
        """What the disk has of a job that does not run: OK or FAILED. None if nothing."""
        if self._slots.has(job) or self._stopped.is_set():
            return None
        whole = self._runner.kept.load_whole(job)
        return None if whole is None else self._open(job, whole.payload, whole.request, kept=True)

    def cancel(self, job: JobId) -> bool:
        """End it, whoever it is for; those who wait are told. False if it does not run."""
        if not self._slots.has(job):
            return False
        self._post(ev.CallerCancels(job))
        return True

    async def serve(self) -> None:
        """Until `request_stop` has had its effect. Raises ConfigError, else only for our own bugs."""
        if self._serve_at is not None and self.supply is not None:
            self._serving = await serve(self.supply.folder.store, self._serve_at, self._advertise)
            self.supply.url, self.supply.key = self._serving.url, self._serving.key
        tasks = Tasks()
        ends: set[asyncio.Future[Any]] = {self._drive.failed}
        ends.add(tasks.start(self._stopped.wait(), name="worker stopped"))
        if self.link is not None:
            ends.add(tasks.start_loop(self.link.stay_linked, name="worker's connection"))
        try:
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for end in done:
                end.result()
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

    async def _close(self) -> None:
        """First the programs, then the connection: its end makes the leader give their jobs to others."""
        self._stopped.set()
        self._drive.close()
        for job in list(self._waiting):
            self._refuse_caller(ev.RefuseCaller(job, "stopping", "this machine stops, and the job with it"))
        if self.link is not None:
            await self.link.deliveries.close()
        await self._runner.close()
        if self._serving is not None:
            await self._serving.close()
        if self.supply is not None:
            await self.supply.close()
        if self.link is not None:
            await self.link.close()

    # What the runner and the supply say.

    def _send(self, data: bytes) -> None:
        if self.link is not None:
            self.link.send(data)

    def _ended(self, job: JobId, end: MadeResult) -> None:
        self._post(ev.ProgramEnded(job, end.ok, end.reason, end.payload, end.ran_s, end.fault, end.request))

    def _is_needed(self, job: JobId) -> bool:
        return self._slots.owes(job) or job in self._reading

    def _input_changed(self, job: JobId) -> None:
        self._runner.kill(job, "input-changed")

    # What `slots` asks for.

    def _perform(self, effects: Sequence[SlotsDo]) -> None:
        act = self._act
        for effect in effects:
            act[type(effect)](effect)

    def _start_program(self, effect: ev.StartProgram) -> None:
        if self._brought and (brought := self._brought.pop(effect.job, None)) is not None:
            payload, files = brought
            if payload is effect.payload:
                self._runner.start(effect.job, payload, files)
                return
            self._runner.discard(files)
        self._runner.start(effect.job, effect.payload)

    def _kill_program(self, effect: ev.KillProgram) -> None:
        self._runner.kill(effect.job, effect.code)

    def _load_result(self, effect: ev.LoadResult) -> None:
        whole = self._runner.kept.load_whole(effect.job)
        if whole is None:
            self._post(ev.ResultLoaded(effect.job, False, None))
        else:
            head = read_ack(whole.payload)
            ok, reason = head.status == OK, head.reason or ""
            self._post(ev.ResultLoaded(effect.job, ok, whole.payload, reason, whole.request))

    def _forget_result(self, effect: ev.ForgetResult) -> None:
        self._runner.kept.unmark(effect.job)

    def _measure_cpu(self, _effect: ev.MeasureCpu) -> None:
        self._post(ev.CpuMeasured(self._runner.others_cpu_share()))

    def _probe(self, _effect: ev.Probe) -> None:
        self._runner.machine.probe(lambda why: self._post(ev.Probed(why)))

    def _health_changed(self, effect: ev.HealthChanged) -> None:
        if effect.why:
            log.warning("this machine is out of order, and takes no jobs until a try succeeds: %s", effect.why)
        else:
            log.info("this machine is in order again: a program could be started")

    def _answer_caller(self, effect: ev.AnswerCaller) -> None:
        self._drop_brought(effect.job)
        for told in self._waiting.pop(effect.job, ()):
            if not told.done():
                told.set_result(effect)

    def _refuse_caller(self, effect: ev.RefuseCaller) -> None:
        self._drop_brought(effect.job)
        waiting = self._waiting.pop(effect.job, ())
        self.counts.busy += len(waiting) if effect.code == "busy" else 0
        for told in waiting:
            if not told.done():
                told.set_exception(Refused(effect.code, effect.text))

    def _stop(self, _effect: ev.RunnerStopped) -> None:
        self._stopped.set()

    # What callers get.

    def _wait(self, job: JobId, payload: bytes, slots: int) -> asyncio.Future[ev.AnswerCaller]:
        told: asyncio.Future[ev.AnswerCaller] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(job, {})[told] = None
        self._post(ev.CallerWants(job, payload, slots))
        return told

    async def _told(self, job: JobId, told: asyncio.Future[ev.AnswerCaller]) -> Finished:
        try:
            answer = await told
            return self._open(job, answer.payload, answer.request, kept=answer.kept)
        finally:
            if (waiting := self._waiting.get(job)) is not None:
                waiting.pop(told, None)

    def _open(self, job: JobId, payload: bytes, request: bytes, *, kept: bool) -> Finished:
        """Raises Refused if what it names is gone."""
        parts = self._runner.kept.parts(job, payload)
        kept_at = self._runner.kept.done_at(job) if kept else None
        if not parts:
            return Finished(payload, parts, request=request, kept_at=kept_at)
        self._reading[job] = self._reading.get(job, 0) + 1

        def let_go() -> None:
            self._reading[job] -= 1
            if not self._reading[job]:
                del self._reading[job]

        return Finished(payload, parts, let_go, request=request, kept_at=kept_at)

    def _read_again(self, job: JobId) -> Finished:
        """Its result is being read by others: if it is a failure, a new run would take it away from under them."""
        whole = self._runner.kept.load_whole(job)
        if whole is None or read_ack(whole.payload).status != OK:
            text = "its last run failed, and others still read what that made: it runs again once they are done"
            raise Refused("busy", text, "come again in a moment")
        return self._open(job, whole.payload, whole.request, kept=True)

    def _drop_brought(self, job: JobId) -> None:
        if self._brought and (brought := self._brought.pop(job, None)) is not None:
            self._runner.discard(brought[1])


def _check(settings: RunnerSettings) -> None:
    name, slots, cpu_cap = settings.name, settings.slots, settings.cpu_cap
    try:
        worker_patterns(settings.patterns, name)
    except SubjectError as error:
        raise ConfigError(str(error), "patterns are dot-separated words with * and >: see docs/use/words.md") from None
    if len(name) > WORKER_NAME_CHARS_MAX or not is_plain_name(name):
        raise ConfigError(f"a worker's name is at most {WORKER_NAME_CHARS_MAX} printable characters, not {name[:80]!r}")
    if not 1 <= slots <= CREDIT_MAX:
        raise ConfigError(f"a worker runs 1 to {CREDIT_MAX} jobs at once, not {slots}", "see WORKER_MAX_PAR")
    if cpu_cap is not None and not CPU_CAP_MIN <= cpu_cap <= CPU_CAP_MAX:
        raise ConfigError(f"the CPU cap is {CPU_CAP_MIN:.2f} to {CPU_CAP_MAX:.2f}, not {cpu_cap}", "see WORKER_CPU_CAP")
