"""Where do a machine's jobs run? In its slots, for the leader that it connects to and for its own callers.

    leader ◄──► leader_link ──┐
                              ├── events, effects ──► slots         never more jobs at once than slots
    node ── run, cancel ──────┘
                              └── start, kill, load ──► runner

All decisions are made in `slots`. A station without a leader serves only its callers; a station without callers is a
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

from msgspec import structs

from wakugumi.adapters.access.dialled import AccessSources
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
from wakugumi.roles.runner.runner import JobTicket, Runner
from wakugumi.roles.runner.settings import RunnerSettings
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.hello import WANTS_WORKER, HelloWorker
from wakugumi.wire.messages.job import OK, JobRequest, read_ack
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.request_digest import payload_digest, request_digest

log = logging.getLogger("wakugumi.worker")


class Finished:
    """A finished job's result. While it is open, its files stay on disk: close it, or use it as a context."""

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
        """Digest of the request that was run; empty if unknown."""
        self.kept_at = kept_at
        """Time since when the result is kept, by the machine's clock; None if it was made for this caller."""
        self.payload = payload
        """The encoded JobResult."""
        self.parts = parts
        """Files that did not fit the payload, by the names in `adapters.jobdir.large_parts`: ARCHIVE, STDOUT,
        STDERR."""
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
    """One machine's slots and the jobs in them. Create it inside a running loop, then `serve` once."""

    def __init__(self, settings: RunnerSettings, programs: Programs | None = None) -> None:
        """`programs`: by default those in the settings' folder.

        Raises ConfigError for settings that no leader would accept, and for folders that cannot be used.
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
        """Waiting callers of this machine, by job."""
        self._uploads: dict[JobId, tuple[JobRequest, UploadedInputs]] = {}
        """Uploaded inputs of jobs that have not started yet, with the request that they belong to."""
        self._reading: dict[JobId, int] = {}
        """Number of open results by job."""
        if rules.user is not None and settings.cache is not None:
            check_way(rules.user, "cache folder", os.path.abspath(settings.cache))
        self._slots = Slots(
            settings.slots,
            float("inf") if settings.cpu_cap is None else settings.cpu_cap,
            settings.done_ttl_s,
            rests=settings.rests,
            digest=_digest_of,
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
            plain = HelloWorker(settings.name, list(WANTS_WORKER), settings.slots, unnamed, rules.runs_as_root)

            def hello(key: str) -> bytes:
                payload = encode(structs.replace(plain, key=key))
                return fr.encode(fr.HELLO_WORKER, self.worker_id, subject=settings.patterns, payload=payload)

            sources = AccessSources(settings.access)
            self.link = LeaderLink(leader, hello, self._runner, self.supply, self._post, sources, settings.where_rules)
            self._act |= self.link.act
        # Before any caller can start a job: unfinished jobs on disk count as interrupted.
        self._post(ev.Recovered(self._runner.kept.finished_before()))

    @property
    def folder(self) -> str:
        """Folder of the job directories, used by no other process."""
        return self._runner.folder

    @property
    def limit(self) -> int:
        """Number of slots."""
        return self._slots.slots

    @property
    def running(self) -> int:
        """Number of running jobs."""
        return self._slots.running

    @property
    def free(self) -> int:
        """Number of slots that a caller can have now."""
        return self._slots.free

    @property
    def stopping(self) -> bool:
        return self._slots.leaving or self._stopped.is_set()

    @property
    def counts(self) -> RunCounts:
        return self._runner.counts

    def is_running(self, job: JobId) -> bool:
        """Whether the job runs or is about to."""
        return self._slots.has(job)

    def client_of(self, job: JobId) -> str | None:
        """Client of a job whose program has been started; None if there is none."""
        return self._runner.client_of(job)

    async def run(
        self, job: JobId, request: JobRequest, bring: Mapping[str, Path] | None = None, slots: int | None = None
    ) -> Finished:
        """The result of a job: the kept one if it is OK, else of the run in progress, or of a new run.

        `bring`: files of this disk for inputs that the request names without content; they belong to the station from
        now on. `slots`: by default those in the request. A caller that stops waiting does not end the job. Raises
        Refused: busy, stopping, cancelled.
        """
        try:
            if self.stopping:
                raise Refused("stopping", "this machine takes no more jobs")
            if job in self._reading and not self._slots.has(job):
                return self._read_again(job)
            if bring and job not in self._waiting and not self._slots.has(job):
                self._uploads[job] = request, UploadedInputs(bring)
                bring = None
        finally:
            if bring:
                self._runner.discard(UploadedInputs(bring))
        answer = self._wait(job, request, request.slots if slots is None else slots)
        del request, bring  # Many callers may wait long, and only the first one's run needs these.
        return await self._result_of(job, answer)

    def join(self, job: JobId) -> Coroutine[None, None, Finished] | None:
        """Awaitable result of the run in progress, without a request. It raises Refused, as `run` does. None if the job
        does not run."""
        self._drive.flush()
        self._drive.flush()  # Events that the effects of the first flush posted.
        if not self._slots.has(job):
            return None
        answer = self._wait(job, JobRequest(""), 1)
        self._drive.flush()  # At once: if the job ended before this event, it would run again with no request.
        return self._result_of(job, answer)

    async def finished(self, job: JobId) -> Finished | None:
        """The kept result of a job that does not run, OK or FAILED; None if there is none."""
        if self._slots.has(job) or self._stopped.is_set():
            return None
        whole = self._runner.kept.load_whole(job)
        return None if whole is None else self._open(job, whole.payload, whole.request, kept=True)

    def cancel(self, job: JobId) -> bool:
        """End a job; its waiting callers get an answer. False if it does not run."""
        if not self._slots.has(job):
            return False
        self._post(ev.CallerCancels(job))
        return True

    async def serve(self) -> None:
        """Run until `request_stop` takes effect. Raises ConfigError; any other exception is a bug."""
        if self._serve_at is not None and self.supply is not None:
            access = self.link.in_file() if self.link is not None else None
            self._serving = await serve(self.supply.folder.store, self._serve_at, self._advertise, access)
            self.supply.url, self.supply.key = self._serving.url, self._serving.key
        tasks = Tasks()
        ends: set[asyncio.Future[Any]] = {self._drive.failed}
        ends.add(tasks.start(self._stopped.wait(), name="worker stopped"))
        if self.supply is not None:
            ends.add(self.supply.failed)
        if self.link is not None:
            ends |= {self.link.deliveries.failed, self.link.barred}
            ends.add(tasks.start_loop(self.link.stay_linked, name="worker's connection"))
        try:
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for end in done:
                end.result()
        finally:
            await tasks.close()
            await self._close()
        log.info("stopped worker=%s", UUID(bytes_le=self.worker_id))

    def request_stop(self) -> None:
        """Finish running jobs, deliver their results, and stop; on a second call, stop now."""
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
        """End the programs before the connection: its end makes the leader reassign their jobs."""
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

    # Called by the runner and the supply.

    def _send(self, data: bytes) -> None:
        if self.link is not None:
            self.link.send(data)

    def _ended(self, job: JobId, end: MadeResult) -> None:
        self._post(ev.ProgramEnded(job, end.ok, end.reason, end.payload, end.ran_s, end.fault, end.request))

    def _is_needed(self, job: JobId) -> bool:
        return self._slots.owes(job) or job in self._reading

    def _input_changed(self, job: JobId) -> None:
        self._runner.kill(job, "input-changed")

    # Effects of `slots`.

    def _perform(self, effects: Sequence[SlotsDo]) -> None:
        act = self._act
        for effect in effects:
            act[type(effect)](effect)

    def _start_program(self, effect: ev.StartProgram) -> None:
        ticket = effect.ticket
        assert isinstance(ticket, JobTicket)
        if self._uploads and (uploads := self._uploads.pop(effect.job, None)) is not None:
            request, files = uploads
            if request is ticket:
                self._runner.start(effect.job, request, files)
                return
            self._runner.discard(files)
        self._runner.start(effect.job, ticket)

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
            log.warning("machine out of order, no jobs are taken until a probe succeeds: %s", effect.why)
        else:
            log.info("machine in order again")

    def _answer_caller(self, effect: ev.AnswerCaller) -> None:
        self._drop_uploads(effect.job)
        for answer in self._waiting.pop(effect.job, ()):
            if not answer.done():
                answer.set_result(effect)

    def _refuse_caller(self, effect: ev.RefuseCaller) -> None:
        self._drop_uploads(effect.job)
        waiting = self._waiting.pop(effect.job, ())
        self.counts.busy += len(waiting) if effect.code == "busy" else 0
        for answer in waiting:
            if not answer.done():
                answer.set_exception(Refused(effect.code, effect.text))

    def _stop(self, _effect: ev.RunnerStopped) -> None:
        self._stopped.set()

    # Answers to callers.

    def _wait(self, job: JobId, request: JobRequest, slots: int) -> asyncio.Future[ev.AnswerCaller]:
        answer: asyncio.Future[ev.AnswerCaller] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(job, {})[answer] = None
        self._post(ev.CallerWants(job, request, slots))
        return answer

    async def _result_of(self, job: JobId, answer: asyncio.Future[ev.AnswerCaller]) -> Finished:
        try:
            got = await answer
            return self._open(job, got.payload, got.request, kept=got.kept)
        finally:
            if (waiting := self._waiting.get(job)) is not None:
                waiting.pop(answer, None)

    def _open(self, job: JobId, payload: bytes, request: bytes, *, kept: bool) -> Finished:
        """Raises Refused if files that the result names are gone."""
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
        """The kept result, while others read it. Refuses after a failure: a new run would remove the files being
        read."""
        whole = self._runner.kept.load_whole(job)
        if whole is None or read_ack(whole.payload).status != OK:
            text = "its last run failed, and others still read what that made: it runs again once they are done"
            raise Refused("busy", text, "come again in a moment")
        return self._open(job, whole.payload, whole.request, kept=True)

    def _drop_uploads(self, job: JobId) -> None:
        if self._uploads and (uploads := self._uploads.pop(job, None)) is not None:
            self._runner.discard(uploads[1])


def _digest_of(ticket: object) -> bytes:
    assert isinstance(ticket, JobTicket)
    return payload_digest(ticket) if isinstance(ticket, bytes) else request_digest(ticket)


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
