"""What becomes of a job at a gateway? The job is a row of the shared store, and a flight while this gateway forwards
it.

    a row      the state that all gateways see (`rows.py`): owner, group, answer
    a flight   a flow here that forwards one job to group after group (`forward.py`); all requests of this gateway for
               the same job wait for the same flight, requests at another gateway for its row

The owner of a row forwards the job, and the first accepted result stays. A synchronous job that finds no group leaves
no row; an asynchronous one was accepted for good, and is offered until a group takes it. `housekeeping.py` takes over
jobs of dead gateways, and queues jobs that no flow handles. An unforeseen error is no end: a job has a few of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from msgspec.structs import replace

from wakugumi.core.access.identity import Sight
from wakugumi.core.flows import FlowCancelled
from wakugumi.core.gateway.bodies import Body
from wakugumi.core.gateway.events import (
    AddRow,
    BodyAccepted,
    FinishAnswer,
    FlushRows,
    GetRow,
    GroupReply,
    IsHeld,
    KeepAnswer,
    ReleaseAnswer,
    RemoveRow,
    ReplaceRow,
)
from wakugumi.core.gateway.forward import Forwarder, Parcel
from wakugumi.core.gateway.outcomes import (
    GONE,
    ForwardAnswer,
    NoBody,
    Outcome,
    Problem,
    failed_row,
    outcome_of,
    outcome_word,
)
from wakugumi.core.gateway.rows import DONE, FAILED, QUEUED, RUNNING, Content, GatewayJob
from wakugumi.core.gateway.state import GatewayState
from wakugumi.core.gateway.tries import Tries, Try
from wakugumi.core.gateway.under_way import Flight, JobQueue
from wakugumi.core.ids import JobId
from wakugumi.core.metric_table import GATEWAY_JOB_TIME, GATEWAY_JOBS
from wakugumi.core.metrics import Counter, Timing
from wakugumi.core.step import DEBUG, ERROR, WARNING
from wakugumi.errors import Lost, Refused
from wakugumi.limits.client import FULL_RETRY_FIRST_S
from wakugumi.limits.gateway import GATEWAY_AGAIN_MAX_S, GATEWAY_CRASHES_MAX, GATEWAY_FORWARDS_MAX

RowChange: TypeAlias = Callable[[GatewayJob], GatewayJob]
NOT_A_JOB: Final = frozenset({"bad-request", "bad-name", "bad-subject", "conflict", "too-big", "too-slow", "denied"})
"""Codes of requests that never became a job: a synchronous one leaves no row."""


class Flights:
    """All jobs that one gateway forwards, or will."""

    def __init__(self, state: GatewayState, tries: Tries) -> None:
        self._state = state
        self._flows = state.flows
        self._tries = tries
        self.forwarder = Forwarder(state, tries)
        self.by_job: dict[JobId, Flight] = {}
        self.queue = JobQueue()
        """Asynchronous jobs of this gateway without a flight."""
        self.outcomes = Counter(GATEWAY_JOBS)
        self.took = Timing(GATEWAY_JOB_TIME)
        self._forwarding: dict[JobId, int] = {}
        """Asynchronous jobs that were taken out of the queue and have not ended."""
        self._crashes: dict[JobId, int] = {}
        """Unforeseen errors while forwarding, by job."""
        self._entering: set[JobId] = set()
        """Jobs whose rows are being claimed here, and whose flights have not begun."""

    def handles(self, job: JobId) -> bool:
        """Does a flow of this gateway forward the job, or will one soon?"""
        return job in self.by_job or job in self.queue or job in self._forwarding or job in self._entering

    # For requests.

    async def enter(self, new: GatewayJob, body: Body, job_s: float, sight: Sight | None) -> Flight | GatewayJob:
        """Enters a synchronous job, whose body may still be on its way: returns a flight of this gateway, or the row of
        the gateway that forwards the job. Raises Refused."""
        is_first = new.job not in self._entering
        self._entering.add(new.job)
        try:
            row, is_ours = await self._claim(new, is_first, sight)
            if not is_ours:
                return row
            if (flight := self.by_job.get(row.job)) is not None:  # Another request was first while the row was claimed.
                return flight
            parcel = Parcel(row.name, row.key or row.name, row.query, row.headers, job_s, body.size, body, None)
            return self._start(Flight(self._state, row, parcel, body))
        finally:
            if is_first:
                self._entering.discard(new.job)

    async def body_is_whole(self, flight: Flight) -> None:
        """The row gets the digest of the request."""
        row, request = flight.row, flight.request
        if not row.request and request:
            changed = await ReplaceRow(row, replace(row, request=request))
            if changed is not None:  # If another gateway changed the row meanwhile, the end of the job finds out.
                flight.row = changed

    async def is_forsaken(self, row: GatewayJob) -> bool:
        """Is it a synchronous job whose gateway is gone?"""
        if row.is_final or row.is_async:
            return False
        if row.owner == self._state.owner:
            return row.job not in self.by_job and row.job not in self._entering
        return not await IsHeld(row.owner)

    async def accept(self, new: GatewayJob, request: int, sight: Sight | None) -> GatewayJob:
        """The row of an asynchronous job, for good. A body that is not needed is dropped. Raises Refused."""
        while True:
            row, is_new = await AddRow(new)
            if not is_new:
                row.check_repeat(new.request, sight)
            takes_body = is_new
            if is_new:
                kept: GatewayJob | None = row
            elif row.state == DONE or (row.is_async and not row.is_final):
                self._state.drop_files(new.files)
                kept = row
            elif row.state == FAILED or await self.is_forsaken(row):
                row.check_owned(sight)
                kept = await ReplaceRow(row, new)
                self._state.drop_files(row.files if kept is not None else set())
                is_new = takes_body = kept is not None
            elif not row.request:
                raise Refused("busy", f"another request of the id {row.name} is being received", "come again")
            else:  # The job runs for a waiting caller: from now on it runs for good.
                for_good = replace(row, is_async=True, key=new.key, query=new.query, headers=new.headers, body=new.body)
                kept = await ReplaceRow(row, for_good)
                takes_body = kept is not None
            if kept is not None:
                if takes_body and new.body is not None:
                    self._flows.emit(BodyAccepted(request, new.body.size))
                try:
                    await FlushRows()
                finally:  # Whether the client receives the answer or not, the row is there, and is ours.
                    if is_new:
                        self.queue.append(new.job)
                        self.pump()
                return kept

    async def cancel(self, row: GatewayJob) -> bool:
        """Cancels the job. False if it has ended."""
        problem = Problem(410, "cancelled", "a client cancelled the job")
        while not row.is_final:
            if (kept := await ReplaceRow(row, failed_row(row, problem))) is not None:
                self._state.drop_files_later(row.files)
                self._ended_elsewhere(kept)
                if row.state == RUNNING and row.group in self._state.groups.by_name:
                    await self._tries.cancel(row.group, row.name)
                return True
            found = await GetRow(row.job)
            if found is None or found.client != row.client:
                return False
            row = found
        return False

    async def give_up(self, flight: Flight) -> None:
        """The body will never be whole."""
        assert flight.flow is not None
        flight.flow.cancel()
        await flight.flow.ended

    def pump(self) -> None:
        """Forwards queued asynchronous jobs, up to GATEWAY_FORWARDS_MAX at once."""
        while self.queue and len(self._forwarding) < GATEWAY_FORWARDS_MAX and not self._state.is_stopping:
            job = self.queue.popleft()
            self._forwarding[job] = self._forwarding.get(job, 0) + 1
            self._state.start(partial(self._forward_queued, job), "forward")

    async def look(self) -> None:
        """Finds jobs under way that have ended elsewhere."""
        for flight in list(self.by_job.values()):
            try:
                row = await GetRow(flight.row.job, contents=False)
                if row is not None and row.is_final and not flight.is_ending:
                    self._ended_elsewhere(await GetRow(flight.row.job) or row)
            except Refused as error:
                self._state.log(DEBUG, f"check of ended jobs failed: {error}")

    def _ended_elsewhere(self, row: GatewayJob) -> None:
        """The job was cancelled, or another gateway had the answer first: waiting requests get that outcome."""
        flight = self.by_job.get(row.job)
        if flight is not None and not flight.is_ending and row.is_final and flight.flow is not None:
            flight.take_back()
            flight.outcome.keep(outcome := flight.outcome_in(row))
            self.outcomes.add(outcome_word(outcome))
            flight.flow.cancel()

    async def _claim(self, new: GatewayJob, is_first: bool, sight: Sight | None) -> tuple[GatewayJob, bool]:
        """The row of this job, and whether this gateway forwards it: the row is new, failed before, or its gateway died
        and with it the waiting client."""
        while True:
            row, is_new = await AddRow(new)
            if is_new:
                return row, True
            row.check_repeat(new.request, sight)
            is_left = is_first and row.owner == self._state.owner and not row.is_async and row.job not in self.by_job
            if not (row.state == FAILED or (is_left and not row.is_final) or await self.is_forsaken(row)):
                return row, False
            row.check_owned(sight)
            if (ours := await ReplaceRow(row, new)) is not None:
                self._state.drop_files(row.files)
                return ours, True

    # Flights.

    def _start(self, flight: Flight) -> Flight:
        self.by_job[flight.row.job] = flight
        if flight.body is not None:
            flight.body.share()
        flight.flow = self._state.start(partial(self._fly, flight), f"forward {flight.row.name}")
        return flight

    async def _forward_queued(self, job: JobId) -> None:
        try:
            row = await GetRow(job)
            if row is None or row.is_final or row.owner != self._state.owner:
                self._crashes.pop(job, None)
                return
            if self._state.is_stopping or job in self.by_job:
                return
            if row.body is None:
                await self._end(row, lambda row: failed_row(row, Problem(500, "input-lost", "the row has no body")))
                return
            flight = self._start(Flight(self._state, row, self._parcel_of(row, row.body), None))
            assert flight.flow is not None
            await flight.flow.ended
        except Exception as error:  # The store cannot be read now. The job is ours, and stays queued.
            self._state.log(WARNING, f"job waits: {error}")
            await self._flows.pause(GATEWAY_AGAIN_MAX_S)
            self.queue.append(job)
        finally:
            if self._forwarding[job] > 1:
                self._forwarding[job] -= 1
            else:
                del self._forwarding[job]
            self.pump()

    def _parcel_of(self, row: GatewayJob, body: Content) -> Parcel:
        job_s = self._state.job_s_of(row.query)
        return Parcel(row.name, row.key or row.name, row.query, row.headers, job_s, body.size, None, body)

    async def _fly(self, flight: Flight) -> None:
        began_at = self._flows.now
        try:
            outcome = await self._carry(flight)
            flight.outcome.keep(outcome)
            self.outcomes.add(outcome_word(outcome))
            self.took.took(self._flows.now - began_at)
            if outcome == GONE or isinstance(outcome, Problem):  # Another client's job may have the id now, and wait.
                await self._abandon(flight)
        except FlowCancelled:
            await self._abandon(flight)
            raise
        except Refused as error:  # The store refused.
            self._state.log(WARNING, f"store refused job={flight.row.name}: {error}")
            flight.take_back()
            flight.outcome.keep(Problem(503, error.code, error.message, error.hint))
            if flight.row.is_async:
                await self._flows.pause(GATEWAY_AGAIN_MAX_S)
            await self._abandon(flight)
        except Exception as error:
            await self._crashed(flight, error)
        finally:
            if self.by_job.get(flight.row.job) is flight:
                del self.by_job[flight.row.job]
            flight.outcome.keep(GONE)
            if flight.body is not None:
                flight.body.close()

    async def _crashed(self, flight: Flight, error: Exception) -> None:
        """An unforeseen error. The job may still be done: it is forwarded anew, but not for ever."""
        job = flight.row.job
        self._state.log(ERROR, f"forwarding failed job={flight.row.name}", error)
        problem = Problem(500, "worker-error", f"the gateway failed: {error!r}"[:500], "the gateway's log has more")
        flight.take_back()
        flight.outcome.keep(problem)
        crashes = self._crashes.pop(job, 0) + 1
        if flight.row.is_async and crashes >= GATEWAY_CRASHES_MAX:
            await self._fail(flight, problem)
            return
        if flight.row.is_async:
            self._crashes[job] = crashes
            await self._flows.pause(min(FULL_RETRY_FIRST_S * 2**crashes, GATEWAY_AGAIN_MAX_S))
        await self._abandon(flight)

    async def _carry(self, flight: Flight) -> Outcome:
        """Forwards until there is an outcome. An asynchronous job waits for a group without limit."""

        async def begin(group: str) -> bool:
            return await self._change(flight, lambda row: replace(row, state=RUNNING, group=group, tries=row.tries + 1))

        async def take(one: Try, reply: GroupReply) -> ForwardAnswer:
            return await self._take(flight, one, reply)

        pause_s = FULL_RETRY_FIRST_S
        while True:
            outcome = await self.forwarder.forward(flight.parcel, flight.row.group, begin, take)
            flight.is_ending = isinstance(outcome, ForwardAnswer | Problem)
            if isinstance(outcome, ForwardAnswer):
                return await self._keep(flight, outcome)
            if isinstance(outcome, Problem):
                return await self._fail(flight, outcome)
            if isinstance(outcome, NoBody):
                if flight.row.is_async:
                    return await self._fail(flight, Problem(500, "input-lost", outcome.detail))
                if await RemoveRow(flight.row):
                    return GONE
                flight.outcome.keep(GONE)
            elif outcome is None:
                return flight.outcome_in(await GetRow(flight.row.job))
            else:
                if not flight.row.is_async and await RemoveRow(flight.row):
                    return outcome
                flight.outcome.keep(outcome)
            if not await self._change(flight, lambda row: replace(row, state=QUEUED)):
                return GONE
            if (body := flight.row.body) is not None:  # The waiting request may be gone, and its body with it.
                flight.parcel = self._parcel_of(flight.row, body)
            await self._flows.pause(pause_s * (0.5 + 0.5 * self._state.chance()))
            pause_s = min(2 * pause_s, GATEWAY_AGAIN_MAX_S)

    async def _change(self, flight: Flight, change: RowChange) -> bool:
        """Changes the row. False if the job has ended, or the row is gone."""
        while True:
            new = change(flight.row)
            if (new.state, new.group) == (flight.row.state, flight.row.group) and flight.row.version:
                return True
            if (changed := await ReplaceRow(flight.row, new)) is not None:
                flight.row = changed
                return True
            row = await GetRow(flight.row.job)
            if row is None or row.is_final or not flight.is_of(row):
                return False
            flight.row = row

    async def _take(self, flight: Flight, one: Try, reply: GroupReply) -> ForwardAnswer:
        """Receives an answer, and keeps it. A large one is read by clients while it is received, but for its last byte:
        that follows when the row is stored. Raises Lost."""
        head = reply.head | {"Waku-Group": one.group}
        if (content := reply.content) is None:
            flight.streamed = one.number
            flight.outcome.keep(ForwardAnswer(200, head, reply.size, one.number))
        try:
            size = await FinishAnswer(one.number) if content is None else content.size
            if reply.size is not None and size != reply.size:
                raise Lost(f"{reply.size - size} bytes of the answer are missing", "dead")
            flight.is_ending = True
            self._tries.received(one)
            content = content or await KeepAnswer(one.number, flight.row.job)
        except BaseException:
            flight.is_ending = False
            self._release(flight, is_kept=False)
            raise
        return ForwardAnswer(200, head, content.size, content)

    async def _keep(self, flight: Flight, answered: ForwardAnswer) -> Outcome:
        """Stores the answer. The first accepted result stays: an earlier one is the outcome. Without its row the answer
        is dropped: another gateway may run the job by now."""
        content = answered.body
        assert isinstance(content, Content)
        state = FAILED if answered.head.get("Waku-Status") == "FAILED" else DONE
        try:
            kept = await self._end(
                flight.row,
                lambda row: replace(row, state=state, status=200, head=answered.head, answer=content, body=None),
                flight.request,
            )
        except BaseException:
            self._release(flight, is_kept=False)
            raise
        is_kept = kept is not None and kept.answer == content
        self._release(flight, is_kept=is_kept)
        if not is_kept:
            self._state.drop_files({content.file} - {""})
        return flight.outcome_in(kept)

    def _release(self, flight: Flight, *, is_kept: bool) -> None:
        """Clients that read the answer get its last byte, or are cut off and ask again."""
        if not is_kept:
            flight.take_back()
        if flight.streamed:
            self._flows.emit(ReleaseAnswer(flight.streamed, is_kept))
            flight.streamed = 0

    async def _fail(self, flight: Flight, problem: Problem) -> Outcome:
        if not flight.row.is_async and problem.code in NOT_A_JOB and await RemoveRow(flight.row):
            return problem
        kept = await self._end(flight.row, lambda row: failed_row(row, problem), flight.request)
        return problem if kept is None else outcome_of(kept)

    async def _end(self, row: GatewayJob, end: RowChange, request: str = "") -> GatewayJob | None:
        """The row after its end; None if the row is gone. `request` is the digest, if the row does not have it yet."""
        self._crashes.pop(row.job, None)
        while True:
            try:
                ended = end(row)
                if (kept := await ReplaceRow(row, replace(ended, request=row.request or request))) is not None:
                    self._state.drop_files_later(row.files)
                    return kept
                found = await GetRow(row.job)
            except Refused as error:
                if not row.is_async:
                    raise
                self._state.log(WARNING, f"end of job not stored job={row.name}: {error}")
                await self._flows.pause(GATEWAY_AGAIN_MAX_S)
                continue
            if found is None or found.is_final or found.client != row.client:
                return found if found is not None and found.client == row.client else None
            row = found

    async def _abandon(self, flight: Flight) -> None:
        """A flight ends before its job. A job that was accepted for good stays, and is forwarded anew from its row."""
        try:
            if not flight.row.is_async and await RemoveRow(flight.row):
                return
            row = await GetRow(flight.row.job)
        except Exception as error:
            self._state.log(WARNING, f"row not read, job queued again job={flight.row.name}: {error}")
            is_open = True  # Perhaps: known when the store can be read again.
        else:
            is_open = row is not None and row.is_async and not row.is_final
        if is_open and not self._state.is_stopping:
            self.queue.append(flight.row.job)
            self.pump()

    def check(self) -> None:
        assert len(self._forwarding) <= GATEWAY_FORWARDS_MAX
        for job, flight in self.by_job.items():
            assert flight.row.job == job
            assert flight.flow is not None
            assert not flight.flow.ended.is_kept
        assert all(count > 0 for count in self._forwarding.values())
