"""What is a client of a gateway answered, and when? (SPEC G2, G3)

    submit    the answer itself, of the flight here or of another gateway's row; or `JobAccepted`, for good
    status    the row
    result    the answer, once there is one
    events    each state as it changes
    cancel    whether the job was cancelled

A known job is answered once the body has shown that it is the same request; at once, if the row has no digest.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from wakugumi.core.flows import Flow, FlowCancelled, Promise
from wakugumi.core.gateway.bodies import Body
from wakugumi.core.gateway.events import (
    Answer,
    BeginBody,
    FindGone,
    GetRow,
    JobAccepted,
    JobAsked,
    JobCancelled,
    JobSubmitted,
    KeepBody,
    KnownRow,
    OpenAnswer,
    OpenedAnswer,
    RemoveRow,
    ReplyTo,
    SendState,
)
from wakugumi.core.gateway.flights import Flights
from wakugumi.core.gateway.outcomes import GONE, ForwardAnswer, NoGroup, Outcome, Problem, outcome_of
from wakugumi.core.gateway.rows import DONE, RUNNING, Content, GatewayJob
from wakugumi.core.gateway.state import GatewayState
from wakugumi.core.gateway.under_way import Flight
from wakugumi.core.ids import JobId
from wakugumi.core.metric_table import GATEWAY_BUSY
from wakugumi.core.metrics import Counter
from wakugumi.core.step import WARNING
from wakugumi.errors import Lost, Refused
from wakugumi.limits.gateway import GATEWAY_EVENTS_MAX, GATEWAY_QUEUE_MAX

_LOOK_FIRST_S: Final = 0.01
_LOOK_MAX_S: Final = 0.25
"""Pause between two looks at a row of another gateway while a request waits for it: short at first, then longer."""


class GatewayRequests:
    """All requests of one gateway."""

    def __init__(self, state: GatewayState, flights: Flights) -> None:
        self._state = state
        self._flows = state.flows
        self._flights = flights
        self.open_requests: dict[int, Flow[None]] = {}
        self._waiting: dict[int, Flow[Any]] = {}
        """Submissions that wait for an outcome, whose clients may leave."""
        self.submits = 0
        """Submissions under way."""
        self.watchers = 0
        """Clients that receive events."""
        self.busy = Counter(GATEWAY_BUSY)

    def submit(self, event: JobSubmitted) -> None:
        self._begin(event.request, partial(self._submit, event))

    def ask(self, event: JobAsked) -> None:
        work = {"status": self._status, "result": self._result, "events": self._watch, "cancel": self._cancel}
        self._begin(event.request, partial(work[event.question], event))

    def left(self, request: int) -> None:
        """The client has left: its seat is free, and a flight goes on."""
        if (flow := self.open_requests.get(request)) is not None:
            flow.cancel()

    def stop(self) -> None:
        """The gateway leaves: all requests are answered."""
        for flow in list(self.open_requests.values()):
            flow.interrupt(_stopping())

    async def look(self) -> None:
        """Finds waiting requests whose clients have left."""
        if self._waiting:
            for request in await FindGone(tuple(self._waiting)):
                if (flow := self._waiting.get(request)) is not None:
                    flow.interrupt(Lost("the caller left", "dead"))

    def _begin(self, request: int, work: Callable[[], Coroutine[Any, Any, Answer]]) -> None:
        self.open_requests[request] = self._state.start(partial(self._answer, request, work), "request")

    async def _answer(self, request: int, work: Callable[[], Coroutine[Any, Any, Answer]]) -> None:
        answer: Answer = Lost("the gateway ends", "dead")
        try:
            answer = await work()
        except FlowCancelled:
            raise
        except Exception as error:
            answer = error
        finally:
            del self.open_requests[request]
            self._flows.emit(ReplyTo(request, answer))

    # Submissions.

    async def _submit(self, ask: JobSubmitted) -> Answer:
        body = Body(self._state, ask.request, ask.size)
        try:
            row = None if self._is_new(ask) else await self._row(ask)
            if row is not None and not row.request and (answer := await self._known_answer(ask, row)) is not None:
                return answer
            if ask.is_short and (row is None or row.state != DONE):
                self.busy.add("disk-full")
                text = "there is hardly any room on the gateway's disk"
                raise Refused("disk-full", text, "free room on it (--state DIR)")
            self._check_seat()
            self.submits += 1
            try:
                return await self._receive(ask, row, body)
            finally:
                self.submits -= 1
        finally:
            body.stop()

    async def _row(self, ask: JobSubmitted, *, contents: bool = True) -> GatewayJob | None:
        """Raises Refused if the id belongs to another client."""
        row = await GetRow(ask.job, contents)
        if row is not None:
            row.check_seen(ask.sight)
        return row

    def _is_new(self, ask: JobSubmitted) -> bool:
        """May the job be taken for a new one? Its body and a group are there, so a known row is found when the new one
        is added."""
        if ask.received is None or ask.is_short or self._flights.handles(ask.job):
            return False
        return self._state.groups.is_any_there

    async def _receive(self, ask: JobSubmitted, row: GatewayJob | None, body: Body) -> Answer:
        """Receives the body of a submission that has a seat. `row` is what was known of the job before."""
        body.received(ask.received or await BeginBody(ask.request))
        if ask.is_async or (row is not None and row.request):
            await body.whole()
        if row is not None and body.is_whole:
            row.check_same(body.digest)
            if (answer := await self._known_answer(ask, row)) is not None:
                return answer
        new = GatewayJob(
            job=ask.job,
            name=ask.name,
            owner=self._state.owner,
            is_async=ask.is_async,
            key=ask.key,
            query=ask.query,
            headers=ask.headers,
            request=body.digest,
            client=ask.client,
        )
        return await (self._accept(ask, new) if ask.is_async else self._wait(ask, new, body))

    def _check_seat(self) -> None:
        """Raises Refused."""
        seats = self._state.bounds.submits_max
        if self._state.is_stopping:
            self.busy.add("stopping")
            raise _stopping()
        if self.submits >= seats:
            self.busy.add("busy")
            raise Refused("busy", f"{seats} submissions are served already", "come again, or ask another gateway")

    async def _known_answer(self, ask: JobSubmitted, row: GatewayJob) -> Answer | None:
        """The immediate answer for a job that is done."""
        if row.state != DONE:
            return None
        return JobAccepted(row) if ask.is_async else await self._kept_answer(ask.request, row)

    async def _accept(self, ask: JobSubmitted, new: GatewayJob) -> Answer:
        if len(self._flights.queue) >= GATEWAY_QUEUE_MAX:
            self.busy.add("full")
            raise Refused("full", f"{GATEWAY_QUEUE_MAX} jobs wait here")
        row = replace(new, body=await KeepBody(ask.request, ask.job))
        accepted: Promise[Answer] = Promise(self._flows)
        # A flow of its own: a client that leaves now must not leave a row behind that no flow handles.
        self._state.start(partial(self._accept_for_good, row, ask, accepted), f"accept {ask.name}")
        answer = await accepted
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _accept_for_good(self, row: GatewayJob, ask: JobSubmitted, accepted: Promise[Answer]) -> None:
        try:
            accepted.keep(JobAccepted(await self._flights.accept(row, ask.request, ask.sight)))
        except Exception as error:
            accepted.keep(error)
            if row.body is not None:
                await self._take_back(row.job, row.body)

    async def _take_back(self, job: JobId, body: Content) -> None:
        """The job was not accepted. If its row names the body nevertheless, the body is kept."""
        if not body.file:
            return
        try:
            row = await GetRow(job)
        except Refused as error:  # A sweep will find the file.
            self._state.log(WARNING, f"body not removed file={body.file}: {error}")
            return
        if row is None or body.file not in row.files:
            self._state.drop_files({body.file})

    async def _wait(self, ask: JobSubmitted, new: GatewayJob, body: Body) -> Answer:
        """Waits for the outcome of the job, forwarded by this gateway or another. The body is received until there is
        an answer, from one flight to the next. Raises Refused if the id turns out to be of another request."""
        flights, pause_s = self._flights, 0.0
        while True:
            if (flight := flights.by_job.get(ask.job)) is None:
                order = self._state.groups.order(new.key or new.name, self._flows.now)
                if not order:
                    self.busy.add("no-group")
                    raise Refused("no-group", "every group is gone")
                first = replace(new, state=RUNNING, group=order[0], tries=1, request=body.digest)
                entered = await flights.enter(first, body, ask.job_s, ask.sight)
                if isinstance(entered, GatewayJob):
                    outcome = outcome_of(entered) if entered.is_final else await self._settled(ask, entered)
                else:
                    flight = entered
                    is_ours = flight.body is body
                    outcome = await (self._flown(ask, flight, body) if is_ours else self._outcome(ask, flight))
            else:
                outcome = await self._outcome(ask, flight)
            is_ours = flight is not None and flight.body is body
            if not is_ours and isinstance(outcome, ForwardAnswer | Problem):
                # A flight that began meanwhile may know its request before the row does.
                flight = flight or flights.by_job.get(ask.job)
                await body.whole()
                row = await self._row(ask, contents=False)
                for known in (row, None if flight is None else flight.known_row):
                    if known is not None:
                        known.check_same(body.digest)
            if (answer := await self._reply(ask, outcome)) is not None:
                return answer
            await self._flows.pause(pause_s)
            pause_s = min(max(2 * pause_s, _LOOK_FIRST_S), _LOOK_MAX_S)

    async def _flown(self, ask: JobSubmitted, flight: Flight, body: Body) -> Outcome:
        """The outcome of a flight whose body may still be on its way. The outcome may come first; then the rest of the
        body is not needed."""
        if not body.is_whole:
            body.fill()
            await self._flows.first_of(body.ended, flight.outcome)
        if body.failure is not None:
            await self._flights.give_up(flight)
            raise body.failure
        if body.is_whole:
            await self._flights.body_is_whole(flight)
        return await self._outcome(ask, flight)

    async def _outcome(self, ask: JobSubmitted, flight: Flight) -> Outcome:
        """Raises Lost when the client has left: its seat is free, and the flight goes on. Raises Refused if the flight
        is of another client's job."""
        flight.row.check_seen(ask.sight)
        assert self._flows.current is not None
        self._waiting[ask.request] = self._flows.current
        try:
            return await flight.outcome
        finally:
            del self._waiting[ask.request]

    async def _settled(self, ask: JobSubmitted, row: GatewayJob) -> Outcome:
        """The outcome of a job of another gateway, or of one that waits here for its turn."""
        pause_s = _LOOK_FIRST_S
        while True:
            if (flight := self._flights.by_job.get(row.job)) is not None:
                return await self._outcome(ask, flight)
            found = await self._row(ask, contents=False)
            if found is None or found.is_final or await self._flights.is_forsaken(found):
                whole = await self._row(ask)
                return GONE if whole is None else outcome_of(whole)
            if await FindGone((ask.request,)):
                raise Lost("the caller left", "dead")
            await self._flows.pause(pause_s)
            pause_s = min(2 * pause_s, _LOOK_MAX_S)

    async def _reply(self, ask: JobSubmitted, outcome: Outcome) -> Answer | None:
        """None: the request begins anew."""
        if isinstance(outcome, ForwardAnswer):
            if (opened := await self._opened(ask.request, outcome)) is not None:
                return opened
            # The answer is kept now, or broke off before this request; or its file is gone.
            row = await self._row(ask)
            return None if row is None or row.answer is None else await self._kept_answer(ask.request, row)
        if isinstance(outcome, NoGroup):
            self.busy.add("no-group")
        return None if outcome == GONE else outcome

    async def _kept_answer(self, request: int, row: GatewayJob) -> Answer | None:
        """None if the answer's file is gone. Then the row is removed as well."""
        assert row.answer is not None
        answer = ForwardAnswer(row.status, row.head, row.answer.size, row.answer)
        if (opened := await self._opened(request, answer)) is not None:
            return opened
        self._state.log(WARNING, f"answer gone, row removed job={row.name}")
        await RemoveRow(row)
        return None

    async def _opened(self, request: int, answer: ForwardAnswer) -> OpenedAnswer | None:
        """None if the answer's file is gone, or the try has ended that received it."""
        status, head, size, body = answer
        if isinstance(body, Content) and body.data is not None:
            return OpenedAnswer(status, head, size, body.data)
        return OpenedAnswer(status, head, size) if await OpenAnswer(request, body) else None

    # Questions.

    async def _known(self, ask: JobAsked, *, contents: bool = False) -> GatewayJob:
        """Raises Refused: a job out of sight is unknown."""
        row = await GetRow(ask.job, contents)
        if row is None or not row.is_seen(ask.sight):
            raise Refused("unknown-job", f"no gateway knows the job {ask.name}", "send it to /submit")
        return row

    async def _status(self, ask: JobAsked) -> Answer:
        return KnownRow(await self._known(ask))

    async def _result(self, ask: JobAsked) -> Answer:
        row = await self._known(ask, contents=True)
        if row.answer is None:
            why = f"failed: {row.head.get('detail', '')}" if row.is_final else f"is {row.state}"
            raise Refused("no-result", f"the job {row.name} {why}")
        if (kept := await self._kept_answer(ask.request, row)) is None:
            raise Refused("no-result", f"the answer of the job {row.name} is gone from the disk", "send it again")
        return kept

    async def _cancel(self, ask: JobAsked) -> Answer:
        row = await self._known(ask)
        row.check_owned(ask.sight)
        return JobCancelled(await self._flights.cancel(row))

    async def _watch(self, ask: JobAsked) -> Answer:
        """Sends each state as it changes, and returns the last row."""
        found: GatewayJob | None = await self._known(ask)
        if self.watchers >= GATEWAY_EVENTS_MAX:
            raise Refused("busy", f"{GATEWAY_EVENTS_MAX} clients receive events already", "ask /status")
        self.watchers += 1
        try:
            sent: tuple[str, str] | None = None
            sent_at, pause_s = self._flows.now, _LOOK_FIRST_S
            while True:
                if found is None or not found.is_seen(ask.sight):
                    return GONE
                if (now := (found.state, found.group)) != sent:
                    sent, sent_at, pause_s = now, self._flows.now, _LOOK_FIRST_S
                    await SendState(ask.request, found)
                    if found.is_final:
                        return KnownRow(found)
                elif self._flows.now - sent_at >= self._state.bounds.heartbeat_s:
                    sent_at = self._flows.now
                    await SendState(ask.request, None)
                await self._flows.pause(pause_s)
                pause_s = min(2 * pause_s, _LOOK_MAX_S)
                found = await GetRow(ask.job, contents=False)
        finally:
            self.watchers -= 1

    def check(self) -> None:
        assert 0 <= self.submits <= self._state.bounds.submits_max
        assert 0 <= self.watchers <= GATEWAY_EVENTS_MAX
        assert self.submits + self.watchers <= len(self.open_requests)
        assert self._waiting.keys() <= self.open_requests.keys()


def _stopping() -> Refused:
    return Refused("stopping", "this gateway is shutting down", "ask another one")
