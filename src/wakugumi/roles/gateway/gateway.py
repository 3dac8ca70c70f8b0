"""What becomes of a job at a gateway? It is a row of the shared store, and a flight while this gateway forwards it.

    a row      what all gateways know (`adapters/gateway_store/interface.py`): whose it is, where it is, its answer
    a flight   a task here that forwards one job to group after group (`roles/gateway/forward.py`); all who want the
               same job from this gateway wait for the same flight, those at another gateway for its row

Whoever holds a row forwards it, and the first accepted result stays. A synchronous job that finds no group leaves no
row; an asynchronous one was accepted for good, and is offered until a group takes it. What a dead gateway had is taken
over by another (`roles/gateway/housekeeping.py`). What fails here in a way that nobody foresaw is logged, and the job
is forwarded anew, a few times; a job that nobody sees to all the same is found by the keeper, and queued again.
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
"""What is kept of an answer's head."""
NOT_A_JOB: Final = frozenset({"bad-request", "bad-name", "bad-subject", "conflict", "too-big", "too-slow", "denied"})
"""Codes of what never became a job: a synchronous one leaves no row."""


class ForwardAnswer(NamedTuple):
    """A group's answer: small, on its way, or kept."""

    status: int
    head: dict[str, str]
    size: int | None
    body: Spool | Content


class FlightGone(NamedTuple):
    """This flight ended without any outcome: who still wants the job asks anew."""


Outcome = ForwardAnswer | Problem | NoGroup | FlightGone
GONE: Final = FlightGone()


class Flight:
    """One job that this gateway forwards."""

    def __init__(
        self, row: GatewayJob, parcel: Parcel, body: Spool | None, request: Callable[[], str] = lambda: ""
    ) -> None:
        self.row = row
        self.request = request
        """The digest of what is received just now; empty until it is whole."""
        self.parcel = parcel
        self.body = body
        """What is received just now; None if it comes out of the row."""
        self._outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.waiters: set[asyncio.Future[Outcome]] = set()
        """Of each who waits, one of its own, which it may cancel."""
        self.task: asyncio.Task[None] | None = None
        self.is_ending = False
        """Its outcome is being written down."""

    @property
    def told(self) -> asyncio.Future[Outcome]:
        return self._outcome

    def tell(self, outcome: Outcome) -> None:
        """Only the first time counts."""
        if self._outcome.done():
            return
        self._outcome.set_result(outcome)
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(outcome)
        self.waiters.clear()

    def take_back(self) -> None:
        """What was told will not be whole. Who has begun to read it is cut off; who comes from now on waits."""
        if self._outcome.done():
            self._outcome = asyncio.get_running_loop().create_future()


class JobQueue:
    """Jobs in line, each once. Whether one is in it is known at once, however many there are."""

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
        """Asynchronous jobs of ours that no flight has yet."""
        self.is_stopping = False
        self.forwarder = Forwarder(calls)
        self.outcomes = Counter(
            "wakugumi_gateway_jobs_total", "Jobs that this gateway forwarded, by outcome.", "outcome"
        )
        self.took = Timing("wakugumi_gateway_job_seconds", "From the first group to the outcome.")
        self._forwarding: dict[JobId, int] = {}
        """Asynchronous jobs that were taken out of the queue and have not ended, be it well or not."""
        self._crashes: dict[JobId, int] = {}
        """How often forwarding a job failed in a way that nobody foresaw."""
        self._entering: set[JobId] = set()
        """Jobs whose rows are being claimed here, and whose flights have not begun."""
        self._tasks = Tasks()

    def start(self, look_s: float) -> None:
        self._tasks.start_loop(partial(self._look_often, look_s), name="look for jobs that ended elsewhere")

    def sees_to(self, job: JobId) -> bool:
        """Somebody here is about to forward it, or does."""
        return job in self.flights or job in self.queue or job in self._forwarding or job in self._entering

    async def enter(
        self, new: GatewayJob, body: Spool, size: int | None, request: Callable[[], str]
    ) -> Flight | GatewayJob:
        """A synchronous job, whose body may still be on its way: a flight of ours, or the row of who forwards it.
        `request` tells its digest once it is whole. Raises Refused."""
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
        """All of its body is there: from now on it is known which request it is."""
        row, request = flight.row, flight.request()
        if not row.request and request:
            changed = await self.store.replace(row, replace(row, request=request))
            if changed is not None:  # If someone else changed it meanwhile, its end says so.
                flight.row = changed

    async def is_forsaken(self, row: GatewayJob) -> bool:
        """A synchronous job whose gateway is gone."""
        if row.is_final or row.is_async:
            return False
        if row.owner == self.owner:
            return row.job not in self.flights and row.job not in self._entering
        return not await self.store.is_held(row.owner)

    async def accept(self, new: GatewayJob, receiving: Receiving) -> GatewayJob:
        """The row of an asynchronous job, for good. `receiving` is what its body has of the quota. The body is
        dropped if it is not needed. Raises Refused."""
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
            else:  # It runs for one who waits: from now on it runs for good.
                for_good = replace(row, is_async=True, key=new.key, query=new.query, headers=new.headers, body=new.body)
                kept = await self.store.replace(row, for_good)
            if kept is not None:
                if kept.body is not None and kept.body is new.body:
                    receiving.accepted(kept.body.size)
                try:
                    await self.store.flush()
                finally:  # Whether its client hears of it or not, the row is there, and is ours.
                    if is_new:
                        self.queue.append(new.job)
                        self.pump()
                return kept

    async def cancel(self, row: GatewayJob) -> bool:
        """Nobody wants it any more. False if it has ended."""
        while not row.is_final:
            told = {"code": "cancelled", "detail": "someone cancelled the job", "hint": ""}
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
        """Forward asynchronous ones, as many as may be at once."""
        while self.queue and len(self._forwarding) < GATEWAY_FORWARDS_MAX and not self.is_stopping:
            job = self.queue.popleft()
            self._forwarding[job] = self._forwarding.get(job, 0) + 1
            self._tasks.start(self._forward_queued(job), name="forward")

    async def give_up(self, flight: Flight) -> None:
        """Its body will never be whole."""
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
                    log.debug("cannot check which jobs ended at another gateway: %s", error)
                await asyncio.sleep(0)

    def _ended_elsewhere(self, row: GatewayJob) -> None:
        """Someone cancelled it, or another gateway had its answer first: nobody need wait for ours."""
        flight = self.flights.get(row.job)
        if flight is not None and not flight.is_ending and row.is_final and flight.task is not None:
            flight.take_back()
            flight.tell(outcome := outcome_of(row))
            self.outcomes.add(_word(outcome))
            flight.task.cancel()

    async def _claim(self, new: GatewayJob, is_first: bool) -> tuple[GatewayJob, bool]:
        """The row of this job, and whether it is ours to forward: it is new, failed before, or its gateway died and
        with it the client that waited there."""
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
        except Refused as error:  # The store cannot be read just now. The job is ours, and stays queued.
            log.warning("a job waits: %s", error)
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
        except Refused as error:  # the store says no
            log.warning("job %s: %s", flight.row.name, error)
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
        """Nobody foresaw this. The job may still be done: it is forwarded anew, but not for ever."""
        job = flight.row.job
        log.error("job %s could not be forwarded", flight.row.name, exc_info=error)
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
        """Until there is an outcome. An asynchronous job waits for a group as long as it takes."""

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
            if (body := flight.row.body) is not None:  # Whoever waited here may be gone, and with it what it sent.
                flight.parcel = self._parcel_of(flight.row, body)
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, GATEWAY_AGAIN_MAX_S)

    async def _change(self, flight: Flight, change: Callable[[GatewayJob], GatewayJob]) -> bool:
        """False if there is nothing more to change: it has ended, or is gone."""
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
        """Read an answer. A large one is passed on while it comes. Raises Lost."""
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
        """The first accepted result stays: whoever was earlier, that one is the outcome."""
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
        """The row as it has ended; None if there is none any more. `request` is the digest, if the row does not have it
        yet."""
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
                log.warning("job %s has ended, and that cannot be written down: %s", row.name, error)
                await asyncio.sleep(GATEWAY_AGAIN_MAX_S)
                continue
            if found is None or found.is_final:
                return found
            row = found

    async def _abandon(self, flight: Flight) -> None:
        """A flight ends before its job does. What was accepted for good stays, and is forwarded anew from its row."""
        try:
            if not flight.row.is_async and await self.store.remove(flight.row):
                return
            row = await self.store.get(flight.row.job)
        except Refused as error:
            log.warning("job %s is left as it is: %s", flight.row.name, error)
            is_open = True  # perhaps: that is seen when the store can be read again
        else:
            is_open = row is not None and row.is_async and not row.is_final
        if is_open and not self.is_stopping:
            self.queue.append(flight.row.job)
            asyncio.get_running_loop().call_soon(self.pump)

    def _drop(self, files: set[str]) -> None:
        for file in files - {""}:
            self.spools.remove(file)

    def _drop_later(self, files: set[str]) -> None:
        """Once it is on the disk that nobody needs them: otherwise power loss would leave a job without its body."""

        async def drop() -> None:
            try:
                await self.store.flush()
                self._drop(files)
            except Refused as error:
                log.warning("%s", error)

        if files:
            self._tasks.start(drop(), name="drop")


def check_same(row: GatewayJob, request: str) -> None:
    """Raises Refused if its id was used for another request than this one (SPEC L6), as far as both are known."""
    if row.request.startswith(DIGEST_FORM) and request and row.request != request:
        raise Refused("conflict", f"the job id {row.name} was used for another request")


def outcome_of(row: GatewayJob) -> Outcome:
    """What a row says of a job that has ended."""
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
