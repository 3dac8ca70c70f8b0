"""How does a job, once it has been given to us, become a result? (SPEC W1, W3–W6, W8)

    start ─► directory, inputs ─► program ─► archive, `.done` ─► on_end(id, how it ended)

Whatever goes wrong on the way is a FAILED result with a code of the error table and words in its stderr, never an
exception. All calls are made in the loop's thread. What is small is done there and then; what takes longer than a
millisecond goes to a thread, so that no connection waits for a disk.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import TypeVar

import msgspec

from wakugumi.adapters.files import refused
from wakugumi.adapters.jobdir.directory import SMALL_BYTES, SMALL_FILES, JobDir
from wakugumi.adapters.jobdir.folder import JobsFolder
from wakugumi.adapters.loop.threads import is_no_thread
from wakugumi.adapters.machine.cpu_use import OthersCpu
from wakugumi.adapters.programs.marks import Mark, end_marked
from wakugumi.adapters.programs.named_programs import Programs
from wakugumi.adapters.programs.processes import Processes, RunningProgram
from wakugumi.adapters.programs.resource_limits import JobBounds
from wakugumi.adapters.programs.run_as import check_reach, check_way
from wakugumi.adapters.zip.write_memory import TooBig
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
from wakugumi.wire.messages.job import JobRequest, read_request
from wakugumi.wire.request_digest import request_digest

T = TypeVar("T")

log = logging.getLogger("wakugumi.runner")


class Run:
    """One job on its way; what it does not have yet is None."""

    __slots__ = ("brought", "child", "digest", "directory", "goods", "job_id", "kill_code", "name", "request")

    def __init__(self, job_id: JobId, brought: UploadedInputs | None) -> None:
        self.job_id = job_id
        self.name = show_job_id(job_id)
        self.request = JobRequest(self.name)
        self.digest = b""
        """Of the request, once it is known."""
        self.directory: JobDir | None = None
        self.child: RunningProgram | None = None
        self.goods: JobInputs | None = None
        """Inputs that it has on loan."""
        self.brought = brought
        """Inputs that came as files of this disk, which are its own."""
        self.kill_code = ""
        """Someone wants it ended."""


class Runner:
    """Runs jobs, one `start` each, and answers for those that have ended until their time is over."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: RunnerSettings,
        programs: Programs,
        on_end: Callable[[JobId, MadeResult], None],
        is_owed: Callable[[JobId], bool] = lambda _: False,
        supply: Callable[[str], InputSupply] | None = None,
    ) -> None:
        """`on_end` gets the job's id, and its encoded result with what the worker must know of it.

        `is_owed` says whether a finished job's result is still waited for: then it is kept beyond its time (W7).
        `supply` makes for this jobs folder where inputs come from that are not in a request.
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
        """By it a leader knows the worker again (SPEC L4), also after a restart: it belongs to the folder."""
        self._worker_name = settings.name or self.worker_id[:4][::-1].hex()
        mark = Mark(self.worker_id)
        if not self._folder.is_new:
            end_marked(mark)  # Before a job can start again that still runs.
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
        """Where the jobs' directories are: in the folder asked for, if another worker has that."""
        return self._folder.path

    def runs(self, job_id: JobId) -> bool:
        return job_id in self._runs

    def start(self, job_id: JobId, payload: bytes, brought: UploadedInputs | None = None) -> None:
        """Run a job. `on_end` is called later, never from inside this. What was kept of an earlier run is removed.

        What was `brought` are inputs that the request names without their content: the runner's own from now on.
        """
        if job_id in self._runs or self._closed:
            log.warning("job=%s is running already, or the runner is closed: not started", show_job_id(job_id))
            if brought is not None:
                self.discard(brought)
            return
        self.counts.started += 1
        run = self._runs[job_id] = Run(job_id, brought)
        self._by_name[run.name] = run
        self._try(run, self._prepare, payload)

    def kill(self, job_id: JobId, code: str = "cancelled") -> None:
        """End a job; its result will be FAILED with this code. One that has just ended keeps its own."""
        run = self._runs.get(job_id)
        if run is not None and not run.kill_code:
            run.kill_code = code
            if run.child is not None:
                self._processes.kill(run.child, code, _why_killed(code))
            elif self.supply is not None and self.supply.cancel(job_id):
                self._loop.call_soon(self._fail, run, Refused(code, _why_killed(code)))

    def discard(self, brought: UploadedInputs) -> None:
        """Nobody needs them any more, or not under these names. A large file takes its time to go."""
        if self._closed:
            brought.remove()
        else:
            self._threads.small.submit(brought.remove)

    def own_cpu_s(self) -> float:
        """CPU seconds that its jobs have used so far, ended and running."""
        return self._processes.cpu_s()

    def others_cpu_share(self) -> float:
        """How much of the machine others than this worker and its jobs use, 0 to 1."""
        return self._others_cpu.share(self._loop.time())

    async def close(self) -> None:
        """End all jobs, with grace; they leave no result. Nothing of them runs afterwards."""
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

    def _prepare(self, run: Run, payload: bytes) -> None:
        request = read_request(payload)
        run.request = request if request.job_id else msgspec.structs.replace(request, job_id=run.name)
        if len(payload) <= SMALL_BYTES:
            run.digest = request_digest(request)
        check_request(request)
        if request.env:
            check_settable(request.env, self._settings.rules.env)
        program = self._programs.resolve(request.exec_name)
        bounds = JobBounds(request.limits) if request.limits is not None else None
        self.machine.check_disk()

        def equip(goods: JobInputs | Refused | None) -> None:
            if isinstance(goods, Refused):
                raise goods
            run.goods = goods
            if not self._closed:
                self._equip(run, program, bounds)

        absent = next((file for file in request.files if file.content is None), None)
        files = request.files
        if absent is not None and run.brought is not None:
            files = [file for file in files if file.name not in run.brought.files]
            absent = next((file for file in files if file.content is None), None)
        if absent is None:
            equip(None)
            return
        if self.supply is None:
            code = "no-cache" if absent.cache_id else "no-blob" if absent.sha256 else "bad-request"
            raise Refused(code, f"the content of {absent.name!r} is not in the request, and not here")
        goods = self.supply.bring(
            run.job_id, request.exec_name, files, lambda goods: self._try(run, lambda _: equip(goods))
        )
        if goods is not None:
            equip(goods)

    def _equip(self, run: Run, program: str, bounds: JobBounds | None) -> None:
        """All inputs are here: put them into the job's directory, and start its program."""
        files, goods, brought = run.request.files, run.goods, run.brought
        run.directory = directory = self._folder.make(run.name)

        def place() -> str:
            run.digest = run.digest or request_digest(run.request)
            bring = None if goods is None else goods.place
            directory.place(files, bring if brought is None else brought.place(bring))
            if not self._settings.copy_program:
                return program
            source = self._programs.open(program)
            try:
                return directory.place_program(program, source)
            finally:
                os.close(source)

        def launch(program: str) -> None:
            if brought is not None:
                self.discard(brought)
                run.brought = None
            self._launch(run, directory, program, bounds)

        size = sum([len(file.content or b"") for file in files]) + (goods.copied_bytes if goods is not None else 0)
        if self._settings.copy_program or size > SMALL_BYTES or len(files) > SMALL_FILES or not run.digest:
            self._in_thread(run, place, launch, large=size > LARGE_WORK_BYTES)
            return
        try:
            bring = None if goods is None else goods.place_at_once
            directory.place(files, bring if brought is None else brought.place_at_once(bring))
        except NotLinked:
            run.directory = directory = self._folder.make(run.name)
            self._in_thread(run, place, launch)
        else:
            launch(program)

    def _launch(self, run: Run, directory: JobDir, program: str, bounds: JobBounds | None) -> None:
        if run.kill_code:
            raise Refused(run.kill_code, _why_killed(run.kill_code))
        if run.goods is not None:
            directory.lent = run.goods.linked
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
            kept_s = self._settings.done_ttl_s
            request, worker = run.request, self._worker_name
            return conclude(request, child, directory, worker, kept_s, go_on, however_large=however_large)

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

        little = child.capture.out_bytes + child.capture.err_bytes <= SMALL_BYTES
        if directory.reopen() and little:
            self._finish(run, ended())
        else:
            self._in_thread(run, ended_unless_large, finish)

    def _fail(self, run: Run, error: BaseException) -> None:
        """It cannot be run, or what it made cannot be kept: then this is its result."""
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
            log.error("job=%s failed by a bug of ours", run.name, exc_info=error)
            code, text = "worker-error", f"the worker failed: {type(error).__name__}"
        sick = isinstance(error, Sick)
        if sick:
            log.warning("job=%s fails by this machine's fault: %s", run.name, text)
        end = refuse(run.request, run.child, code, text, self._worker_name, sick=sick)

        def record() -> bool:
            try:
                if run.directory is not None:
                    run.directory.remove()
                run.directory = self._folder.record(run.name, end.payload, run.digest)
            except Refused:  # a full disk: then the result is sent once, and not kept
                return False
            except Exception:
                log.exception("job=%s failed, and that could not be kept", run.name)
                return False
            return True

        if run.child is None and run.goods is None:
            self._finish(run, end, kept=record())
        else:  # who knows how much there is to remove
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
            log.exception("job=%s ended, and nobody took its result", run.name)

    def _leave(self, run: Run) -> None:
        del self._runs[run.job_id]
        del self._by_name[run.name]
        if run.directory is not None:
            run.directory.close()
        if run.goods is not None:
            run.goods.release()
        if run.brought is not None:
            self.discard(run.brought)
        if run.child is not None:
            self._folder.captures.give_back(run.child.capture, abandoned=run.child.abandoned)

    # Steps that may fail, here or in a thread.

    def _try(self, run: Run, step: Callable[..., None], *arguments: object) -> None:
        try:
            step(run, *arguments)
        except Exception as error:
            # Soon, not now: whoever called us is not ready to hear of the end yet.
            self._loop.call_soon(self._fail, run, error)

    def _in_thread(self, run: Run, work: Callable[[], T], then: Callable[[T], None], *, large: bool = False) -> None:
        """What is `large` may take hours: it waits for its like, and nobody else waits for it."""

        def back(done: asyncio.Future[T]) -> None:
            if self._closed:
                if not done.cancelled():
                    done.exception()  # Whatever became of it: nobody waits for it any more.
                return
            try:
                then(done.result())
            except Exception as error:
                self._fail(run, error)

        pool = self._threads.large if large else self._threads.small
        self._loop.run_in_executor(pool, work).add_done_callback(back)


def _why_killed(code: str) -> str:
    if code == "input-changed":
        return "another job wrote to an input that this one had too: it has to be run again"
    return "the job was cancelled" if code == "cancelled" else f"the job was ended: {code}"
