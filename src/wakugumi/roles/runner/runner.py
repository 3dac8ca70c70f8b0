"""How does an assigned job become a result? (SPEC W1, W3–W6, W8)

    start ─► directory, inputs ─► program ─► archive, `.done` ─► on_end(id, result)

Every failure becomes a FAILED result with a code and a text in its stderr, never an exception. All calls are made in
the loop's thread. Work of more than a millisecond goes to a thread, so that no connection waits for a disk.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import TypeAlias, TypeVar

import msgspec

from wakugumi.adapters.files import refused
from wakugumi.adapters.jobdir.directory import SMALL_BYTES, SMALL_FILES, JobDir
from wakugumi.adapters.jobdir.folder import JobsFolder
from wakugumi.adapters.loop.threads import is_no_thread
from wakugumi.adapters.machine.cpu_use import OthersCpu
from wakugumi.adapters.programs.marks import Mark, end_marked
from wakugumi.adapters.programs.named_programs import Programs
from wakugumi.adapters.programs.processes import Processes, RunningProgram
from wakugumi.adapters.programs.resource_limits import JobBounds, bounds_of
from wakugumi.adapters.programs.run_as import check_reach, check_way
from wakugumi.adapters.zip.write import TooBig
from wakugumi.core.environment import check_settable
from wakugumi.core.ids import JobId, show_job_id
from wakugumi.core.runner.counts import RunCounts
from wakugumi.errors import ConfigError, Refused, Sick
from wakugumi.limits.runner import (
    LARGE_WORK_BYTES,
)
from wakugumi.roles.runner.check_request import check_request
from wakugumi.roles.runner.files.inputs import InputSupply
from wakugumi.roles.runner.files.place_inputs import JobInputs, NotLinked
from wakugumi.roles.runner.files.uploaded_inputs import UploadedInputs
from wakugumi.roles.runner.job_threads import JobThreads
from wakugumi.roles.runner.kept_jobs import KeptJobs
from wakugumi.roles.runner.machine_probe import PROBE, MachineProbe
from wakugumi.roles.runner.make_result import MadeResult, conclude, refuse
from wakugumi.roles.runner.settings import RunnerSettings
from wakugumi.wire.messages.job import JobRequest, JobResult, read_request, write_result
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.request_digest import request_digest

T = TypeVar("T")

log = logging.getLogger("wakugumi.runner")

JobTicket: TypeAlias = bytes | JobRequest
"""A request as `slots` hands it back: the payload of a frame, or the request of a caller of this machine."""


class Run:
    """One job in progress; parts that it does not have yet are None."""

    __slots__ = "child", "digest", "directory", "inputs", "job_id", "kill_code", "name", "request", "uploads", "write"

    def __init__(self, job_id: JobId, uploads: UploadedInputs | None) -> None:
        self.job_id = job_id
        self.name = show_job_id(job_id)
        self.request = JobRequest(self.name)
        self.digest = b""
        """Digest of the request; empty until it is known."""
        self.directory: JobDir | None = None
        self.child: RunningProgram | None = None
        self.inputs: JobInputs | None = None
        """Inputs on loan from the supply."""
        self.uploads = uploads
        """Inputs uploaded as files of this disk, which belong to the job."""
        self.write: Callable[[JobResult], bytes] = encode
        """Encodes the result: as JSON for the leader, in an envelope for callers of this machine."""
        self.kill_code = ""
        """Code of the result if the job was killed."""


class Runner:
    """Runs jobs, one per `start`, and keeps finished ones for their time."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: RunnerSettings,
        programs: Programs,
        on_end: Callable[[JobId, MadeResult], None],
        is_owed: Callable[[JobId], bool] = lambda _: False,
        supply: Callable[[str], InputSupply] | None = None,
    ) -> None:
        """`on_end` gets the job's id and its result. `is_owed`: a finished job is kept beyond its time while this is
        true (W7). `supply` makes the source of inputs that are not in a request, for this jobs folder.

        Raises ConfigError if the jobs folder cannot be used, or no thread can be started.
        """
        self._loop = loop
        self._settings = settings
        self._programs = programs
        self._on_end = on_end
        rules = settings.rules
        self._folder = JobsFolder(settings.jobs, rules.user)
        if rules.user is not None:
            folders = [("folder with the programs", path) for path in programs.folders]
            try:
                for what, path in folders:
                    check_way(rules.user, what, path)
                check_reach(rules.user, [*folders, ("jobs folder", self._folder.path)])
            except ConfigError:
                self._folder.close()
                raise
        if not settings.shares_folder and self._folder.path != os.path.abspath(settings.jobs):
            self._folder.close()
            raise ConfigError(
                f"another process has the jobs folder {settings.jobs}, and the finished jobs in it",
                "end that one first, or choose another folder with --jobs",
            )
        try:
            self._threads = JobThreads()
        except ConfigError:
            self._folder.close()
            raise
        self.worker_id = self._folder.worker_id()
        """A leader recognizes the worker by this id (SPEC L4), also after a restart: the folder keeps it."""
        self._worker_name = settings.name or self.worker_id[:4][::-1].hex()
        mark = Mark(self.worker_id)
        if not self._folder.is_new:
            end_marked(mark)  # Before one of these jobs can start again.
        self._processes = Processes(
            loop,
            self._program_ended,
            output_bytes_max=settings.output_bytes_max,
            kill_grace_s=settings.kill_grace_s,
            mark=mark,
            rules=rules,
        )
        self._others_cpu = OthersCpu(self._processes.cpu_s)
        self._runs: dict[JobId, Run] = {}
        self._by_name: dict[str, Run] = {}
        self.kept = KeptJobs(
            loop,
            self._folder,
            self._runs,
            is_owed,
            self._threads.small.submit,
            done_ttl_s=settings.done_ttl_s,
            interrupted_ttl_s=settings.interrupted_ttl_s,
        )
        self.machine = MachineProbe(
            loop, self._folder, self._processes, self._threads.small, settings.disk_free_min_bytes
        )
        self.counts = RunCounts()
        self._closed = False
        self.supply = None if supply is None else supply(self._folder.path)

    @property
    def running(self) -> int:
        return len(self._runs)

    @property
    def folder(self) -> str:
        """Folder of the job directories: inside the configured one, if another worker uses that."""
        return self._folder.path

    def client_of(self, job_id: JobId) -> str | None:
        return run.request.client_id if (run := self._runs.get(job_id)) is not None else None

    def start(self, job_id: JobId, ticket: JobTicket, uploads: UploadedInputs | None = None) -> None:
        """Run a job. `on_end` is called later, never from inside this call. Files of an earlier run are removed.

        `uploads`: inputs that the request names without content; they belong to the runner from now on.
        """
        if job_id in self._runs or self._closed:
            log.warning("job not started, as it runs or the runner is closed job=%s", show_job_id(job_id))
            if uploads is not None:
                self.discard(uploads)
            return
        self.counts.started += 1
        run = self._runs[job_id] = Run(job_id, uploads)
        self._by_name[run.name] = run
        self._try(run, self._prepare, ticket)

    def kill(self, job_id: JobId, code: str = "cancelled") -> None:
        """End a job with a FAILED result of this code. A job that has just ended keeps its own result."""
        run = self._runs.get(job_id)
        if run is not None and not run.kill_code:
            run.kill_code = code
            if run.child is not None:
                self._processes.kill(run.child, code, _why_killed(code))
            elif self.supply is not None and self.supply.cancel(job_id):
                self._loop.call_soon(self._fail, run, Refused(code, _why_killed(code)))

    def discard(self, uploads: UploadedInputs) -> None:
        """Remove unneeded uploads, in a thread: a large file takes time."""
        if self._closed:
            uploads.remove()
        else:
            self._threads.small.submit(uploads.remove)

    def own_cpu_s(self) -> float:
        """CPU seconds used by this runner's jobs so far, ended and running."""
        return self._processes.cpu_s()

    def others_cpu_share(self) -> float:
        """Share of the machine's CPU, 0 to 1, used by other programs than this worker and its jobs."""
        return self._others_cpu.share(self._loop.time())

    async def close(self) -> None:
        """End all jobs, with grace; they leave no result and no process."""
        self._closed = True
        self.kept.close()
        self.machine.close()
        await self._processes.close()
        await self._threads.close()
        for run in list(self._runs.values()):
            if run.directory is not None and not self._settings.interrupted_ttl_s and not run.directory.is_marked:
                run.directory.remove()
            self._leave(run)
        self._folder.close()

    # From the request to the program.

    def _prepare(self, run: Run, ticket: JobTicket) -> None:
        request = read_request(ticket) if isinstance(ticket, bytes) else ticket
        run.write = write_result if request is ticket else encode
        run.request = request if request.job_id else msgspec.structs.replace(request, job_id=run.name)
        if sum([len(file.content or b"") for file in request.files]) <= SMALL_BYTES:
            run.digest = request_digest(request)
        check_request(request)
        if request.env:
            check_settable(request.env, self._settings.rules.env)
        program = self._programs.resolve(request.exec_name)
        bounds = bounds_of(request.limits, self._settings.rules.limits)
        self.machine.check_disk()

        def equip(inputs: JobInputs | Refused | None) -> None:
            if isinstance(inputs, Refused):
                raise inputs
            run.inputs = inputs
            if not self._closed:
                self._equip(run, program, bounds)

        files = request.files
        if run.uploads is not None:
            files = [file for file in files if file.name not in run.uploads.files]
        absent = next((file for file in files if file.content is None), None)
        if absent is None:
            equip(None)
            return
        if self.supply is None:
            code = "no-cache" if absent.cache_id else "no-blob" if absent.sha256 else "bad-request"
            raise Refused(code, f"the content of {absent.name!r} is not in the request, and not here")
        inputs = self.supply.provide(
            run.job_id, request.exec_name, files, lambda inputs: self._try(run, lambda _: equip(inputs))
        )
        if inputs is not None:
            equip(inputs)

    def _equip(self, run: Run, program: str, bounds: JobBounds | None) -> None:
        """Put all inputs into the job's directory, and start its program."""
        files, inputs, uploads = run.request.files, run.inputs, run.uploads
        run.directory = directory = self._folder.make(run.name)

        def place() -> str:
            run.digest = run.digest or request_digest(run.request)
            place_other = None if inputs is None else inputs.place
            directory.place(files, place_other if uploads is None else uploads.place(place_other))
            if not self._settings.copy_program:
                return program
            source = self._programs.open(program)
            try:
                return directory.place_program(program, source)
            finally:
                os.close(source)

        def launch(program: str) -> None:
            if uploads is not None:
                self.discard(uploads)
                run.uploads = None
            self._launch(run, directory, program, bounds)

        size = sum([len(file.content or b"") for file in files]) + (inputs.copied_bytes if inputs is not None else 0)
        if self._settings.copy_program or size > SMALL_BYTES or len(files) > SMALL_FILES or not run.digest:
            self._in_thread(run, place, launch, large=size > LARGE_WORK_BYTES)
            return
        try:
            place_other = None if inputs is None else inputs.place_at_once
            directory.place(files, place_other if uploads is None else uploads.place(place_other, at_once=True))
        except NotLinked:
            run.directory = directory = self._folder.make(run.name)
            self._in_thread(run, place, launch)
        else:
            launch(program)

    def _launch(self, run: Run, directory: JobDir, program: str, bounds: JobBounds | None) -> None:
        if run.kill_code:
            raise Refused(run.kill_code, _why_killed(run.kill_code))
        if run.inputs is not None:
            directory.lent = run.inputs.linked
        request = run.request
        args = request.args
        if not request.exec_name and self._programs.default is not None:
            args = self._programs.default.arguments(args, [f"{directory.path}/{file.name}" for file in request.files])
        try:
            command = [os.fsencode(program), *[argument.encode() for argument in args]]
        except UnicodeEncodeError:
            raise Refused("bad-request", "an argument is not Unicode text") from None
        timeout_s = self._settings.timeout_s if request.timeout_s is None else request.timeout_s
        directory.hand_over()
        capture = self._folder.captures.take()
        try:
            run.child = self._processes.start(
                run.name, command, directory.path, capture, timeout_s=timeout_s, bounds=bounds, env=request.env
            )
        except BaseException:
            self._folder.captures.give_back(capture, abandoned=True)
            raise

    # From the program's end to the result.

    def _program_ended(self, child: RunningProgram) -> None:
        if child.job == PROBE:
            self.machine.ended(child)
        elif not self._closed:
            self._try(self._by_name[child.job], self._conclude, child)

    def _conclude(self, run: Run, child: RunningProgram) -> None:
        directory = run.directory
        assert directory is not None
        directory.request = run.digest

        def go_on() -> None:
            if self._closed or run.kill_code:
                raise Refused(run.kill_code or "worker-error", _why_killed(run.kill_code or "the worker stops"))

        def ended(*, however_large: bool = True) -> MadeResult:
            name, kept_s = self._worker_name, self._settings.done_ttl_s
            return conclude(run.request, child, directory, name, kept_s, go_on, run.write, however_large=however_large)

        def ended_unless_large() -> MadeResult | None:
            try:
                return ended(however_large=False)
            except TooBig:
                return None

        def finish(end: MadeResult | None) -> None:
            if end is None:
                self._in_thread(run, ended, finish, large=True)
            else:
                self._finish(run, end)

        if directory.reopen() and child.capture.out_bytes + child.capture.err_bytes <= SMALL_BYTES:
            self._finish(run, ended())
        else:
            self._in_thread(run, ended_unless_large, finish)

    def _fail(self, run: Run, error: BaseException) -> None:
        """Finish a job that cannot be run, or whose result cannot be kept, with this error."""
        if self._closed:
            return
        if isinstance(error, OSError):
            error = refused(error, "the job cannot be run here")
        elif isinstance(error, MemoryError):
            error = Sick("worker-error", "the job cannot be run here: no memory is left")
        elif is_no_thread(error):
            error = Sick("worker-error", "the job cannot be run here: no thread can be started")
        if isinstance(error, Refused):
            code, text = error.code, error.message
        else:
            log.error("internal error job=%s", run.name, exc_info=error)
            code, text = "worker-error", f"the worker failed: {type(error).__name__}"
        sick = isinstance(error, Sick)
        if sick:
            log.warning("job failed by this machine's fault job=%s: %s", run.name, text)
        end = refuse(run.request, run.child, code, text, self._worker_name, sick=sick)

        def record() -> bool:
            try:
                if run.directory is not None:
                    run.directory.remove()
                run.directory = self._folder.record(run.name, end.payload, run.digest)
            except Refused:  # A full disk: the result is sent once, and not kept.
                return False
            except Exception:
                log.exception("failure not kept job=%s", run.name)
                return False
            return True

        if run.child is None and run.inputs is None:
            self._finish(run, end, kept=record())
        else:  # There may be many files to remove.
            self._in_thread(run, record, lambda kept: self._finish(run, end, kept=kept))

    def _finish(self, run: Run, end: MadeResult, *, kept: bool = True) -> None:
        if kept:
            self.kept.keep(run.job_id, self._loop.time())
        child = run.child
        if child is None:
            self.counts.ended(end.reason, None, 0.0)
        else:
            self.counts.ended(end.reason, child.exit_code, child.ended_at - child.started_at)
        self._leave(run)
        try:
            self._on_end(run.job_id, end._replace(request=run.digest))
        except Exception:
            log.exception("result not accepted job=%s", run.name)

    def _leave(self, run: Run) -> None:
        del self._runs[run.job_id]
        del self._by_name[run.name]
        if run.directory is not None:
            run.directory.close()
        if run.inputs is not None:
            run.inputs.release()
        if run.uploads is not None:
            self.discard(run.uploads)
        if run.child is not None:
            self._folder.captures.give_back(run.child.capture, abandoned=run.child.abandoned)

    # Steps that may fail, here or in a thread.

    def _try(self, run: Run, step: Callable[..., None], *arguments: object) -> None:
        try:
            step(run, *arguments)
        except Exception as error:
            # Later in the loop: the caller is not ready for the end yet.
            self._loop.call_soon(self._fail, run, error)

    def _in_thread(self, run: Run, work: Callable[[], T], then: Callable[[T], None], *, large: bool = False) -> None:
        """`large` work may take hours: it runs in a pool of its own."""

        def back(done: asyncio.Future[T]) -> None:
            if self._closed:
                if not done.cancelled():
                    done.exception()  # Mark it as retrieved.
                return
            try:
                then(done.result())
            except Exception as error:
                self._fail(run, error)

        pool = self._threads.large if large else self._threads.small
        self._loop.run_in_executor(pool, work).add_done_callback(back)


def _why_killed(code: str) -> str:
    if code == "input-changed":
        return "another job wrote to an input that this job shares: run it again"
    return "the job was cancelled" if code == "cancelled" else f"the job was ended: {code}"
