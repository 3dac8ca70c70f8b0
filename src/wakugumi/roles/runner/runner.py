"""How does a job, once it has been given to us, become a result? (SPEC W1, W3–W6, W8)

    start ─► directory, inputs ─► program ─► archive, `.done` ─► on_end(id, how it ended)

Whatever goes wrong on the way is a FAILED result with a code of the error table and words in its stderr, never an
exception. All calls are made in the loop's thread. What is small is done there and then; what takes longer than a
millisecond goes to a thread, so that no connection waits for a disk.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from wakugumi.adapters.files import refused, remove_tree
from wakugumi.adapters.jobdir.directory import SMALL_BYTES, SMALL_FILES, JobDir
from wakugumi.adapters.jobdir.folder import JobsFolder
from wakugumi.adapters.jobdir.large_parts import Whole, parts_of
from wakugumi.adapters.loop.threads import is_no_thread, started_pool
from wakugumi.adapters.machine.cpu_use import OthersCpu
from wakugumi.adapters.machine.start_probe import a_program, check_machine, check_room
from wakugumi.adapters.programs.marks import Mark, end_marked
from wakugumi.adapters.programs.named_programs import Programs
from wakugumi.adapters.programs.processes import Processes, RunningProgram
from wakugumi.adapters.programs.resource_limits import JobBounds
from wakugumi.adapters.programs.run_as import check_reach, check_way
from wakugumi.adapters.zip.write_memory import TooBig
from wakugumi.core.environment import check_env, check_settable
from wakugumi.core.ids import JobId, show_job_id
from wakugumi.core.names import check_file_names
from wakugumi.core.runner.counts import RunCounts
from wakugumi.core.runner.finished import FOUND_MAX, age_found_s
from wakugumi.errors import ConfigError, PeerError, Refused, Sick
from wakugumi.limits.runner import (
    DONE_TTL_S,
    JOB_TIMEOUT_MAX_S,
    KEPT_JOBS_MAX,
    LARGE_WORK_BYTES,
)
from wakugumi.limits.wire import ARGS_PER_JOB_MAX, FILES_PER_JOB_MAX
from wakugumi.roles.runner.files.inputs import InputSupply
from wakugumi.roles.runner.files.place_inputs import JobInputs, NotLinked
from wakugumi.roles.runner.files.uploaded_inputs import UploadedInputs
from wakugumi.roles.runner.make_result import MadeResult, conclude, refuse, too_big
from wakugumi.roles.runner.settings import RunnerSettings
from wakugumi.wire.messages.job import JobRequest, read_request, read_result
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.request_digest import request_digest

T = TypeVar("T")

log = logging.getLogger("wakugumi.runner")

_DISK_LOOK_S: Final = 1.0
"""How often free room is asked for: a thousand jobs a second share one answer."""
_SWEEP_S: Final = 1.0
_BITE_S: Final = 0.002
"""How long the loop may be busy with removing before others have their turn."""
_BETWEEN_BITES_S: Final = 0.01
_PROBE: Final = "probe"
"""No job is called so."""
_PROBE_S: Final = 10.0
"""A program that does nothing and takes longer cannot be said to run."""
_THREADS: Final = 2
"""For inputs and results that take longer than a millisecond, and as many for those that take longer than seconds:
packing leaves the interpreter's lock alone, so two keep two CPUs busy."""


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
    ) -> None:
        """`on_end` gets the job's id, and its encoded result with what the worker must know of it.

        `is_owed` says whether a finished job's result is still waited for: then it is kept beyond its time (W7).
        Raises ConfigError if the jobs folder cannot be used, or no thread can be started.
        """
        self._loop = loop
        self._settings = settings
        self._programs = programs
        self._on_end = on_end
        self._is_owed = is_owed
        rules = settings.rules
        self._disk_looked_at = -math.inf
        self._disk_is_low: Sick | None = None
        self._probing: Callable[[str], None] | None = None
        """Who waits to hear whether a program can be started."""
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
            # Now: the end of a job must not need a new thread.
            self._threads = started_pool(_THREADS, "waku-jobdir")
            try:
                self._large_threads = started_pool(_THREADS, "waku-large")
            except RuntimeError:
                self._threads.shutdown()
                raise
        except RuntimeError as error:
            self._folder.close()
            raise ConfigError(
                f"the worker cannot start its {2 * _THREADS} threads: {error}",
                "look at `ulimit -u`, `ulimit -v` and the control group's pids.max and memory.max",
            ) from None
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
        self._kept: dict[JobId, float] = {}
        """Finished jobs, and the time at which those of the same second began to end."""
        self._seconds: deque[tuple[float, list[JobId]]] = deque()
        """The same by time, oldest first: there may be hundreds of thousands. One that ran again stands here twice."""
        self._remains: deque[tuple[float, JobId]] = deque()
        """What interrupted jobs left, and when it goes, the next first."""
        self.counts = RunCounts()
        self._sweeper = loop.call_later(_SWEEP_S, self._sweep_on)
        self._closed = False
        self.supply: InputSupply | None = None
        """Where inputs come from that are not in the request."""

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

    def load(self, job_id: JobId) -> bytes | None:
        """The encoded result of a finished job, from disk. None if there is none (any more) that can be trusted."""
        return None if job_id in self._runs else self._folder.load(show_job_id(job_id))

    def load_whole(self, job_id: JobId) -> Whole | None:
        """The same, the files that it names, and the digest of its request."""
        return None if job_id in self._runs else self._folder.load_whole(show_job_id(job_id))

    def done_at(self, job_id: JobId) -> float | None:
        """When a finished job that is kept here was done, by the machine's clock."""
        return self._folder.done_at(show_job_id(job_id))

    def parts(self, job_id: JobId, payload: bytes) -> Mapping[str, Path]:
        """The files that a finished job's result names by their hashes, by their names. Raises Refused."""
        if not _names_parts(payload):
            return {}
        try:
            parts = parts_of(read_result(job_id, payload), f"{self._folder.path}/{show_job_id(job_id)}")
        except (OSError, ValueError, PeerError):
            raise Refused("worker-error", "what the job made is no longer on the disk") from None
        return {part.path.name: part.path for part in parts}

    def in_short(self, job_id: JobId, payload: bytes) -> bytes:
        """The result as a leader is told that takes nothing beside frames: FAILED, if some of it does not fit one."""
        if not _names_parts(payload):
            return payload
        where = f"{self._folder.path}/{show_job_id(job_id)}"
        return encode(too_big(read_result(job_id, payload), where, self._settings.done_ttl_s))

    def discard(self, brought: UploadedInputs) -> None:
        """Nobody needs them any more, or not under these names. A large file takes its time to go."""
        if self._closed:
            brought.remove()
        else:
            self._threads.submit(brought.remove)

    def forget(self, job_id: JobId) -> None:
        """Remove what is kept of a finished job, now."""
        if job_id not in self._runs:
            self._kept.pop(job_id, None)
            self._remove(job_id, self._folder.remove)

    def unmark(self, job_id: JobId) -> None:
        """A failure that must not answer for a later run, whatever becomes of this process. Its files stay for now."""
        if job_id not in self._runs:
            self._folder.unmark(show_job_id(job_id))

    def finished_before(self) -> list[tuple[JobId, float]]:
        """Once, at the start: the jobs that ended in an earlier life and their age in seconds.

        What was interrupted then is removed in its time. `load` has the last word on each: power may have been lost.
        They stay for a while yet, but no more of them than a leader can be told of: see `finished`.
        """
        found = self._folder.finished(self._settings.interrupted_ttl_s)
        now = self._loop.time()
        oldest_first = sorted(found, key=lambda one: -one[1])
        for job_id, age_s in oldest_first[:-FOUND_MAX]:
            self._keep(job_id, now - age_s)
        for job_id, age_s in oldest_first[-FOUND_MAX:]:
            self._keep(job_id, now - age_found_s(age_s, self._settings.done_ttl_s))
        until = now + self._settings.interrupted_ttl_s
        self._remains.extend(sorted((until - age_s, job_id) for job_id, age_s in self._folder.interrupted))
        return found

    def sweep(self) -> bool:
        """Remove what was kept for its time, for some milliseconds. True if there is more. It is called by itself."""
        now = self._loop.time()
        stop_at = now + _BITE_S
        while self._remains and self._remains[0][0] <= now:
            _, job_id = self._remains.popleft()
            if job_id not in self._runs and job_id not in self._kept:
                self._remove(job_id, lambda _: False)
        while self._seconds and self._seconds[0][0] + 1.0 + self._kept_s() <= now:
            second, jobs = self._seconds[0]
            while jobs:
                job_id = jobs.pop()
                if self._kept.get(job_id) != second or job_id in self._runs:
                    continue
                if self._is_owed(job_id):
                    self._keep(job_id, now)
                    continue
                del self._kept[job_id]
                self._remove(job_id, self._folder.retire)
                if self._loop.time() >= stop_at:
                    return True
            self._seconds.popleft()
        return False

    def own_cpu_s(self) -> float:
        """CPU seconds that its jobs have used so far, ended and running."""
        return self._processes.cpu_s()

    def others_cpu_share(self) -> float:
        """How much of the machine others than this worker and its jobs use, 0 to 1."""
        return self._others_cpu.share(self._loop.time())

    def probe(self, told: Callable[[str], None]) -> None:
        """Try whether a program can be started here. `told` is called later, with why not, or nothing if one was."""
        if self._probing is not None or self._closed:
            return
        self._probing = told
        self._disk_looked_at = -math.inf
        done = self._loop.run_in_executor(
            self._threads, check_machine, self._folder.path, self._settings.disk_free_min_bytes
        )
        done.add_done_callback(self._start_probe)

    def _start_probe(self, checked: asyncio.Future[None]) -> None:
        if self._closed:
            checked.exception()
            return
        try:
            checked.result()
            if (command := a_program()) is None:
                self._probed("")
                return
            capture = self._folder.captures.take()
            try:
                self._processes.start(_PROBE, command, self._folder.path, capture, timeout_s=_PROBE_S)
            except BaseException:
                self._folder.captures.give_back(capture, abandoned=True)
                raise
        except Refused as no:
            self._probed(no.message)
        except Exception as error:
            log.exception("the machine could not be tried")
            self._probed(repr(error))

    def _probe_ended(self, child: RunningProgram) -> None:
        why = child.why or f"a program that does nothing ended with exit code {child.exit_code}"
        try:
            self._folder.captures.give_back(child.capture, abandoned=child.abandoned)
        finally:
            self._probed(why if child.reason or child.exit_code else "")

    def _probed(self, why: str) -> None:
        told, self._probing = self._probing, None
        if told is not None and not self._closed:
            told(why)

    async def close(self) -> None:
        """End all jobs, with grace; they leave no result. Nothing of them runs afterwards."""
        self._closed = True
        self._sweeper.cancel()
        await self._processes.close()
        for pool in (self._threads, self._large_threads):
            try:
                await asyncio.to_thread(pool.shutdown)
            except RuntimeError:  # No thread can be started: then the loop waits for them.
                pool.shutdown()
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
        _check(request)
        if request.env:
            check_settable(request.env, self._settings.rules.env)
        program = self._programs.resolve(request.exec_name)
        bounds = JobBounds(request.limits) if request.limits is not None else None
        self._check_disk()

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

    def _check_disk(self) -> None:
        now = self._loop.time()
        if now - self._disk_looked_at >= _DISK_LOOK_S:
            self._disk_looked_at = now
            self._disk_is_low = None
            try:
                check_room(self._folder.path, self._settings.disk_free_min_bytes)
            except Sick as low:
                self._disk_is_low = low
        if self._disk_is_low is not None:
            raise Sick(self._disk_is_low.code, self._disk_is_low.message)

    # From the program's end to the result.

    def _program_ended(self, child: RunningProgram) -> None:
        if child.job == _PROBE:
            self._probe_ended(child)
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
            self._keep(run.job_id, self._loop.time())
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

        pool = self._large_threads if large else self._threads
        self._loop.run_in_executor(pool, work).add_done_callback(back)

    # What is kept.

    def _kept_s(self) -> float:
        """How long finished jobs stay now. If there are too many, the oldest go earlier."""
        most_s = self._settings.done_ttl_s
        return most_s if len(self._kept) <= KEPT_JOBS_MAX else min(most_s, DONE_TTL_S)

    def _keep(self, job_id: JobId, ended_at: float) -> None:
        if not self._seconds or ended_at >= self._seconds[-1][0] + 1.0:
            self._seconds.append((ended_at, []))
        second, jobs = self._seconds[-1]
        self._kept[job_id] = second
        jobs.append(job_id)

    def _remove(self, job_id: JobId, remove: Callable[[str], bool]) -> None:
        name = show_job_id(job_id)
        if not remove(name):
            self._threads.submit(_remove_all, f"{self._folder.path}/{name}")

    def _sweep_on(self) -> None:
        try:
            pause = _BETWEEN_BITES_S if self.sweep() else _SWEEP_S
        except Exception:
            log.exception("finished jobs could not be removed")
            pause = _SWEEP_S
        self._sweeper = self._loop.call_later(pause, self._sweep_on)


def _check(request: JobRequest) -> None:
    """Raises Refused for a request that cannot be run, whoever tries."""
    if len(request.args) > ARGS_PER_JOB_MAX:
        raise Refused("bad-request", f"a job has at most {ARGS_PER_JOB_MAX} arguments, not {len(request.args)}")
    if len(request.files) > FILES_PER_JOB_MAX:
        raise Refused("bad-request", f"a job has at most {FILES_PER_JOB_MAX} files, not {len(request.files)}")
    if request.timeout_s is not None and not 0 < request.timeout_s <= JOB_TIMEOUT_MAX_S:
        raise Refused("bad-request", f"a timeout is above 0 and at most {JOB_TIMEOUT_MAX_S:g} s")
    check_file_names([file.name for file in request.files])
    if request.env:
        check_env(request.env)


def _names_parts(payload: bytes) -> bool:
    """Does a result name files by their hashes? As we write it; in a text, quotes are not bare."""
    return b'Blob":{"Sha256":' in payload


def _why_killed(code: str) -> str:
    if code == "input-changed":
        return "another job wrote to an input that this one had too: it has to be run again"
    return "the job was cancelled" if code == "cancelled" else f"the job was ended: {code}"


def _remove_all(path: str) -> None:
    try:
        remove_tree(path)
    except OSError as error:
        log.warning("%s cannot be removed: %s", path, error.strerror)
