"""What becomes of a job at a gateway? The job is a row of the shared store, and a flight while this gateway forwards
it.

    a row      the state that all gateways see (`adapters/gateway_store/interface.py`): owner, group, answer
    a flight   a task here that forwards one job to group after group (`roles/gateway/forward.py`); all requests of
               this gateway for the same job wait for the same flight, requests at another gateway for its row

The owner of a row forwards the job, and the first accepted result stays. A synchronous job that finds no group leaves
no row; an asynchronous one was accepted for good, and is offered until a group takes it. Jobs of a dead gateway are
taken over by another (`roles/gateway/housekeeping.py`). An unforeseen error is logged, and the job is forwarded anew, a
few times; the housekeeper finds and queues jobs that no task handles.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Final, NamedTuple

from msgspec.structs import replace

from wakugumi.adapters.gateway_store.interface import DONE, FAILED, QUEUED, RUNNING, GatewayJob, GatewayStore
from wakugumi.adapters.http.page import HttpRefusal
from wakugumi.adapters.http.spool import Content, Spool, Spools
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.core.ids import JobId
from wakugumi.core.metric_table import GATEWAY_JOB_TIME, GATEWAY_JOBS
from wakugumi.core.metrics import Counter, Timing
from wakugumi.errors import Lost, Refused
from wakugumi.limits.client import FULL_RETRY_FIRST_S
from wakugumi.limits.gateway import GATEWAY_AGAIN_MAX_S, GATEWAY_CRASHES_MAX, GATEWAY_FORWARDS_MAX
from wakugumi.limits.runner import RESULT_BYTES_MAX
from wakugumi.roles.gateway.body_quota import BodyQuota, Receiving
from wakugumi.roles.gateway.form import DIGEST_FORM, job_s_of
from wakugumi.roles.gateway.forward import Forwarder, NoBody, NoGroup, Parcel, Problem
from wakugumi.roles.gateway.group_calls import GroupAnswer, GroupCalls

log = logging.getLogger("wakugumi.gateway")

ANSWER_HEADERS: Final = (
    *("Content-Type", "Content-Disposition", "Waku-Job", "Waku-Status", "Waku-Exit-Code", "Waku-Reason"),
    *("Waku-Run-Seconds", "Waku-Worker", "Waku-Unpacked-Bytes", "Waku-Left-Out"),
)
"""Headers of an answer that are kept."""
NOT_A_JOB: Final = frozenset({"bad-request", "bad-name", "bad-subject", "conflict", "too-big", "too-slow", "denied"})
"""Codes of requests that never became a job: a synchronous one leaves no row."""


class ForwardAnswer(NamedTuple):
    """A group's answer: small, being received, or kept."""

    status: int
    head: dict[str, str]
    size: int | None
    body: Spool | Content


class FlightGone(NamedTuple):
    """The flight ended without any outcome: requests that still want the job begin anew."""


Outcome = ForwardAnswer | Problem | NoGroup | FlightGone
GONE: Final = FlightGone()


class Flight:
    """One job that this gateway forwards."""

    def __init__(
        self, row: GatewayJob, parcel: Parcel, body: Spool | None, request: Callable[[], str] = lambda: ""
    ) -> None:
        self.row = row
        self.request = request
        """The digest of the request being received; empty until the body is whole."""
        self.parcel = parcel
        self.body = body
        """The body being received; None if the body is in the row."""
        self._outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.waiters: set[asyncio.Future[Outcome]] = set()
        """One future per waiting request, which the request may cancel."""
        self.task: asyncio.Task[None] | None = None
        self.is_ending = False
        """The outcome is being written to the store."""

    @property
    def told(self) -> asyncio.Future[Outcome]:
        return self._outcome

    def tell(self, outcome: Outcome) -> None:
        """Sets the outcome; only the first call counts."""
        if self._outcome.done():
            return
        self._outcome.set_result(outcome)
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(outcome)
        self.waiters.clear()

    def take_back(self) -> None:
        """The outcome will not be whole. A request that has begun to read it is cut off; later requests wait."""
        if self._outcome.done():
            self._outcome = asyncio.get_running_loop().create_future()


class JobQueue:
    """Jobs in line, each once, with a fast test of membership."""

    def __init__(self) -> None:
        self._line: deque[JobId] = deque()
        self._members: set[JobId] = set()

    def __len__(self) -> int:
        return len(self._line)

    def __contains__(self, job: JobId) -> bool:
        return job in self._members

    def append(self, job: JobId) -> None:
        if job not in self._members:
            self._members.add(job)
            self._line.append(job)

    def popleft(self) -> JobId:
        job = self._line.popleft()
        self._members.remove(job)
        return job


class Gateway:
    """One of the gateways of a store."""

    def __init__(
        self, owner: str, store: GatewayStore, spools: Spools, calls: GroupCalls, quota: BodyQuota | None = None
    ) -> None:
        self.owner = owner
        self.store = store
        self.spools = spools
        self.calls = calls
        self.quota = quota or BodyQuota()
        self.flights: dict[JobId, Flight] = {}
        self.queue = JobQueue()
        """Asynchronous jobs of this gateway without a flight."""
        self.is_stopping = False
        self.forwarder = Forwarder(calls)
        self.outcomes = Counter(GATEWAY_JOBS)
        self.took = Timing(GATEWAY_JOB_TIME)
        self._forwarding: dict[JobId, int] = {}
        """Asynchronous jobs that were taken out of the queue and have not ended."""
        self._crashes: dict[JobId, int] = {}
        """Unforeseen errors while forwarding, by job."""
        self._entering: set[JobId] = set()
        """Jobs whose rows are being claimed here, and whose flights have not begun."""
        self._tasks = Tasks()

    def start(self, look_s: float) -> None:
        self._tasks.start_loop(partial(self._look_often, look_s), name="look for jobs that ended elsewhere")

    def sees_to(self, job: JobId) -> bool:
        """Does a task of this gateway forward the job, or will one soon?"""
        return job in self.flights or job in self.queue or job in self._forwarding or job in self._entering

    async def enter(
        self, new: GatewayJob, body: Spool, size: int | None, request: Callable[[], str]
    ) -> Flight | GatewayJob:
        """Enters a synchronous job, whose body may still be on its way: returns a flight of this gateway, or the row of
        the gateway that forwards the job. `request` returns the digest once the body is whole. Raises Refused."""
        is_first = new.job not in self._entering
        self._entering.add(new.job)
        try:
            row, is_ours = await self._claim(new, is_first)
            if not is_ours:
                return row
            return self._start(Flight(row, _parcel(row, size, lambda: body.data or body.pieces()), body, request))
        finally:
            if is_first:
                self._entering.discard(new.job)

    async def received(self, flight: Flight) -> None:
        """The body is whole: the row gets the digest of the request."""
        row, request = flight.row, flight.request()
        if not row.request and request:
            changed = await self.store.replace(row, replace(row, request=request))
            if changed is not None:  # If another gateway changed the row meanwhile, the end of the job finds out.
                flight.row = changed

    async def is_forsaken(self, row: GatewayJob) -> bool:
        """Is it a synchronous job whose gateway is gone?"""
        if row.is_final or row.is_async:
            return False
        if row.owner == self.owner:
            return row.job not in self.flights and row.job not in self._entering
        return not await self.store.is_held(row.owner)

    async def accept(self, new: GatewayJob, receiving: Receiving) -> GatewayJob:
        """The row of an asynchronous job, for good. `receiving` is the body's part of the quota. A body that is not
        needed is dropped. Raises Refused."""
        while True:
            row, is_new = await self.store.add(new)
            if not is_new:
                check_same(row, new.request)
            if is_new:
                kept: GatewayJob | None = row
            elif row.state == DONE or (row.is_async and not row.is_final):
                self._drop(new.files)
                kept = row
            elif row.state == FAILED or await self.is_forsaken(row):
                kept = await self.store.replace(row, new)
                self._drop(row.files if kept is not None else set())
                is_new = kept is not None
            elif not row.request:
                text = f"another request of the id {row.name} is being received"
                raise HttpRefusal(503, "busy", text, {"Retry-After": "1"}, "come again")
            else:  # The job runs for a waiting caller: from now on it runs for good.
                for_good = replace(row, is_async=True, key=new.key, query=new.query, headers=new.headers, body=new.body)
                kept = await self.store.replace(row, for_good)
            if kept is not None:
                if kept.body is not None and kept.body is new.body:
                    receiving.accepted(kept.body.size)
                try:
                    await self.store.flush()
                finally:  # Whether the client receives the answer or not, the row is there, and is ours.
                    if is_new:
                        self.queue.append(new.job)
                        self.pump()
                return kept

    async def cancel(self, row: GatewayJob) -> bool:
        """Cancels the job. False if it has ended."""
        while not row.is_final:
            told = {"code": "cancelled", "detail": "a client cancelled the job", "hint": ""}
            ended = replace(row, state=FAILED, status=410, head=told, body=None)
            if (kept := await self.store.replace(row, ended)) is not None:
                self._drop_later(row.files)
                self._ended_elsewhere(kept)
                if row.state == RUNNING and row.group in self.calls.groups.by_name:
                    await self.calls.cancel(row.group, row.name)
                return True
            found = await self.store.get(row.job)
            if found is None:
                return False
            row = found
        return False

    def pump(self) -> None:
        """Forwards queued asynchronous jobs, up to GATEWAY_FORWARDS_MAX at once."""
        while self.queue and len(self._forwarding) < GATEWAY_FORWARDS_MAX and not self.is_stopping:
            job = self.queue.popleft()
            self._forwarding[job] = self._forwarding.get(job, 0) + 1
            self._tasks.start(self._forward_queued(job), name="forward")

    async def give_up(self, flight: Flight) -> None:
        """The body will never be whole."""
        assert flight.task is not None
        flight.task.cancel()
        await asyncio.wait([flight.task])

    async def close(self) -> None:
        self.is_stopping = True
        await self._tasks.close()

    async def _look_often(self, look_s: float) -> None:
        while True:
            await asyncio.sleep(look_s)
            for flight in list(self.flights.values()):
                try:
                    row = await self.store.get(flight.row.job, contents=False)
                    if row is not None and row.is_final and not flight.is_ending:
                        whole = await self.store.get(flight.row.job)
                        self._ended_elsewhere(row if whole is None else whole)
                except Refused as error:
                    log.debug("check of ended jobs failed: %s", error)
                await asyncio.sleep(0)

    def _ended_elsewhere(self, row: GatewayJob) -> None:
        """The job was cancelled, or another gateway had the answer first: waiting requests get that outcome."""
        flight = self.flights.get(row.job)
        if flight is not None and not flight.is_ending and row.is_final and flight.task is not None:
            flight.take_back()
            flight.tell(outcome := outcome_of(row))
            self.outcomes.add(_word(outcome))
            flight.task.cancel()

    async def _claim(self, new: GatewayJob, is_first: bool) -> tuple[GatewayJob, bool]:
        """The row of this job, and whether this gateway forwards it: the row is new, failed before, or its gateway died
        and with it the waiting client."""
        while True:
            row, is_new = await self.store.add(new)
            if is_new:
                return row, True
            check_same(row, new.request)
            is_left = is_first and row.owner == self.owner and not row.is_async and row.job not in self.flights
            if not (row.state == FAILED or (is_left and not row.is_final) or await self.is_forsaken(row)):
                return row, False
            if (ours := await self.store.replace(row, new)) is not None:
                self._drop(row.files)
                return ours, True

    def _start(self, flight: Flight) -> Flight:
        self.flights[flight.row.job] = flight
        if flight.body is not None:
            flight.body.share()
        flight.task = self._tasks.start(self._fly(flight), name=f"forward {flight.row.name}")
        return flight

    async def _forward_queued(self, job: JobId) -> None:
        try:
            row = await self.store.get(job)
            if row is None or row.is_final or row.owner != self.owner:
                self._crashes.pop(job, None)
                return
            if job in self.flights:
                return
            if row.body is None:
                await self._end(row, lambda row: _failed(row, Problem(500, "input-lost", "the row has no body")))
                return
            flight = self._start(Flight(row, self._parcel_of(row, row.body), None))
            assert flight.task is not None
            await asyncio.wait([flight.task])
        except Refused as error:  # The store cannot be read now. The job is ours, and stays queued.
            log.warning("job waits: %s", error)
            await asyncio.sleep(GATEWAY_AGAIN_MAX_S)
            self.queue.append(job)
        finally:
            if self._forwarding[job] > 1:
                self._forwarding[job] -= 1
            else:
                del self._forwarding[job]
            self.pump()

    def _parcel_of(self, row: GatewayJob, body: Content) -> Parcel:
        return _parcel(row, body.size, lambda: self.spools.read(body))

    async def _fly(self, flight: Flight) -> None:
        clock = asyncio.get_running_loop().time
        began_at = clock()
        try:
            outcome = await self._carry(flight)
            flight.tell(outcome)
            self.outcomes.add(_word(outcome))
            self.took.took(clock() - began_at)
        except asyncio.CancelledError:
            await self._abandon(flight)
            raise
        except Refused as error:  # The store refused.
            log.warning("store refused job=%s: %s", flight.row.name, error)
            flight.take_back()
            flight.tell(Problem(503, error.code, error.message, error.hint))
            if flight.row.is_async:
                await asyncio.sleep(GATEWAY_AGAIN_MAX_S)
            await self._abandon(flight)
        except Exception as error:
            await self._crashed(flight, error)
        finally:
            del self.flights[flight.row.job]
            flight.tell(GONE)
            if flight.body is not None:
                flight.body.close()

    async def _crashed(self, flight: Flight, error: Exception) -> None:
        """An unforeseen error. The job may still be done: it is forwarded anew, but not for ever."""
        job = flight.row.job
        log.error("forwarding failed job=%s", flight.row.name, exc_info=error)
        problem = Problem(500, "worker-error", f"the gateway failed: {error!r}"[:500], "the gateway's log has more")
        flight.take_back()
        flight.tell(problem)
        crashes = self._crashes.pop(job, 0) + 1
        if flight.row.is_async and crashes >= GATEWAY_CRASHES_MAX:
            await self._fail(flight, problem)
            return
        if flight.row.is_async:
            self._crashes[job] = crashes
            await asyncio.sleep(min(FULL_RETRY_FIRST_S * 2**crashes, GATEWAY_AGAIN_MAX_S))
        await self._abandon(flight)

    async def _carry(self, flight: Flight) -> Outcome:
        """Forwards until there is an outcome. An asynchronous job waits for a group without limit."""

        async def went(group: str) -> bool:
            return await self._change(flight, lambda row: replace(row, state=RUNNING, group=group, tries=row.tries + 1))

        async def take(group: str, answer: GroupAnswer) -> ForwardAnswer:
            return await self._take(flight, group, answer)

        pause_s = FULL_RETRY_FIRST_S
        while True:
            outcome = await self.forwarder.forward(flight.parcel, flight.row.group, went, take)
            flight.is_ending = isinstance(outcome, ForwardAnswer | Problem)
            if isinstance(outcome, ForwardAnswer):
                return await self._keep(flight, outcome)
            if isinstance(outcome, Problem):
                return await self._fail(flight, outcome)
            if isinstance(outcome, NoBody):
                if flight.row.is_async:
                    return await self._fail(flight, Problem(500, "input-lost", outcome.detail))
                if await self.store.remove(flight.row):
                    return GONE
                flight.tell(GONE)
            elif outcome is None:
                row = await self.store.get(flight.row.job)
                return GONE if row is None else outcome_of(row)
            else:
                if not flight.row.is_async and await self.store.remove(flight.row):
                    return outcome
                flight.tell(outcome)
            if not await self._change(flight, lambda row: replace(row, state=QUEUED)):
                return GONE
            if (body := flight.row.body) is not None:  # The waiting request may be gone, and its body with it.
                flight.parcel = self._parcel_of(flight.row, body)
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, GATEWAY_AGAIN_MAX_S)

    async def _change(self, flight: Flight, change: Callable[[GatewayJob], GatewayJob]) -> bool:
        """Changes the row. False if the job has ended, or the row is gone."""
        while True:
            new = change(flight.row)
            if (new.state, new.group) == (flight.row.state, flight.row.group) and flight.row.version:
                return True
            if (changed := await self.store.replace(flight.row, new)) is not None:
                flight.row = changed
                return True
            row = await self.store.get(flight.row.job)
            if row is None or row.is_final:
                return False
            flight.row = row

    async def _take(self, flight: Flight, group: str, answer: GroupAnswer) -> ForwardAnswer:
        """Reads an answer. A large one is passed on while it is received. Raises Lost."""
        head = {name: value for name in ANSWER_HEADERS if (value := answer.header(name)) is not None}
        head["Waku-Group"] = group
        spool = self.spools.new(RESULT_BYTES_MAX, is_answer=True)
        answered = ForwardAnswer(200, head, answer.size, spool)
        try:
            pieces = answer.pieces()
            if not await spool.begin(pieces):
                flight.tell(answered)
                await spool.fill(pieces)
            if answer.size is not None and spool.size != answer.size:
                raise Lost(f"{answer.size - spool.size} bytes of the answer are missing", "dead")
        except BaseException:
            flight.take_back()
            spool.close()
            raise
        return answered

    async def _keep(self, flight: Flight, answered: ForwardAnswer) -> Outcome:
        """Keeps the answer. The first accepted result stays: an earlier one is the outcome."""
        assert isinstance(answered.body, Spool)
        try:
            content = await answered.body.keep(flight.row.job)
        finally:
            answered.body.close()
        state = FAILED if answered.head.get("Waku-Status") == "FAILED" else DONE
        kept = await self._end(
            flight.row,
            lambda row: replace(row, state=state, status=200, head=answered.head, answer=content, body=None),
            flight.request(),
        )
        if kept is None or kept.answer is not content:
            self._drop({content.file})
        return answered._replace(body=content) if kept is None else outcome_of(kept)

    async def _fail(self, flight: Flight, problem: Problem) -> Outcome:
        if not flight.row.is_async and problem.code in NOT_A_JOB and await self.store.remove(flight.row):
            return problem
        kept = await self._end(flight.row, lambda row: _failed(row, problem), flight.request())
        return problem if kept is None else outcome_of(kept)

    async def _end(
        self, row: GatewayJob, end: Callable[[GatewayJob], GatewayJob], request: str = ""
    ) -> GatewayJob | None:
        """The row after its end; None if the row is gone. `request` is the digest, if the row does not have it yet."""
        self._crashes.pop(row.job, None)
        while True:
            try:
                ended = end(row)
                if (kept := await self.store.replace(row, replace(ended, request=row.request or request))) is not None:
                    self._drop_later(row.files)
                    return kept
                found = await self.store.get(row.job)
            except Refused as error:
                if not row.is_async:
                    raise
                log.warning("end of job not stored job=%s: %s", row.name, error)
                await asyncio.sleep(GATEWAY_AGAIN_MAX_S)
                continue
            if found is None or found.is_final:
                return found
            row = found

    async def _abandon(self, flight: Flight) -> None:
        """A flight ends before its job. A job that was accepted for good stays, and is forwarded anew from its row."""
        try:
            if not flight.row.is_async and await self.store.remove(flight.row):
                return
            row = await self.store.get(flight.row.job)
        except Refused as error:
            log.warning("row not read, job queued again job=%s: %s", flight.row.name, error)
            is_open = True  # Perhaps: known when the store can be read again.
        else:
            is_open = row is not None and row.is_async and not row.is_final
        if is_open and not self.is_stopping:
            self.queue.append(flight.row.job)
            asyncio.get_running_loop().call_soon(self.pump)

    def _drop(self, files: set[str]) -> None:
        for file in files - {""}:
            self.spools.remove(file)

    def _drop_later(self, files: set[str]) -> None:
        """Removes files once their end is on the disk: otherwise power loss would leave a job without its body."""

        async def drop() -> None:
            try:
                await self.store.flush()
                self._drop(files)
            except Refused as error:
                log.warning("files not removed: %s", error)

        if files:
            self._tasks.start(drop(), name="drop")


def check_same(row: GatewayJob, request: str) -> None:
    """Raises Refused if the id was used for another request (SPEC L6), as far as both digests are known."""
    if row.request.startswith(DIGEST_FORM) and request and row.request != request:
        raise Refused("conflict", f"the job id {row.name} was used for another request")


def outcome_of(row: GatewayJob) -> Outcome:
    """The outcome in the row of an ended job."""
    if not row.is_final:
        return GONE
    if row.answer is None:
        return Problem(row.status, row.head.get("code", ""), row.head.get("detail", ""), row.head.get("hint", ""))
    return ForwardAnswer(row.status, row.head, row.answer.size, row.answer)


def _failed(row: GatewayJob, problem: Problem) -> GatewayJob:
    told = {"code": problem.code, "detail": problem.detail, "hint": problem.hint}
    return replace(row, state=FAILED, status=problem.status, head=told, body=None)


def _parcel(row: GatewayJob, size: int | None, body: Callable[[], bytes | AsyncIterator[bytes]]) -> Parcel:
    return Parcel(row.name, row.key or row.name, row.query, row.headers, job_s_of(row.query), size, body)


def _word(outcome: Outcome) -> str:
    match outcome:
        case ForwardAnswer():
            return "failed" if outcome.head.get("Waku-Status") == "FAILED" else "ok"
        case Problem():
            return outcome.code
        case NoGroup():
            return "no-group"
        case FlightGone():
            return "gone"
