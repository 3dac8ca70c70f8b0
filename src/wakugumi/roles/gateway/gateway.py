"""How does the gateway's machine act? Rows in the store, bodies and answers in spools, calls to groups; and the HTTP
requests that wait for it.

All decisions are in `core/gateway`. A request or a try that the machine names by a number is found here.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from msgspec.structs import replace

from wakugumi.adapters.access.dialled import AccessSources
from wakugumi.adapters.gateway_store.interface import GatewayStore
from wakugumi.adapters.http.page import HttpRequest
from wakugumi.adapters.loop.acts import ActPerformer, first_step
from wakugumi.adapters.loop.drive import Drive
from wakugumi.adapters.spool import Spool, SpoolReader, Spools
from wakugumi.core.flows import Abandon, Act, FlowEvent, Perform
from wakugumi.core.gateway import events as ev
from wakugumi.core.gateway.body_quota import BodyQuota, Receiving
from wakugumi.core.gateway.groups import Groups
from wakugumi.core.gateway.housekeeping import Housekeeper
from wakugumi.core.gateway.machine import GatewayMachine
from wakugumi.core.gateway.rows import Content, GatewayJob, InputAt, Totals
from wakugumi.core.gateway.state import GatewayBounds
from wakugumi.core.gateway.under_way import Flight, JobQueue
from wakugumi.core.ids import JobId
from wakugumi.core.step import LogLine
from wakugumi.errors import Lost
from wakugumi.roles.gateway.form import Seen, job_s_of
from wakugumi.roles.gateway.group_calls import GroupCalls

log = logging.getLogger("wakugumi.gateway")

_ROUNDS: Final = 16
"""Acts of one flow that are answered within a turn of the loop: more than a job has."""
_LEAVE_S: Final = 2.0
"""Time for jobs under way to be given up when the gateway ends; others take them over anyway."""


class Ended:
    """No further state follows."""


class GatewayRequest:
    """One HTTP request, until it is answered."""

    def __init__(self, number: int, visit: HttpRequest) -> None:
        self.number = number
        self.visit = visit
        self.answer: asyncio.Future[ev.Answer] = asyncio.get_running_loop().create_future()
        self.reader: bytes | SpoolReader = b""
        """The answer that was opened for this request."""
        self.states: asyncio.Queue[GatewayJob | Ended | None] | None = None
        """States for a client that watches. Each is read before the next is put."""

    def close_reader(self) -> None:
        """The opened answer will not be read."""
        if isinstance(self.reader, SpoolReader):
            self.reader.close()

    async def send_state(self, row: GatewayJob | None) -> None:
        assert self.states is not None
        self.states.put_nowait(row)
        await self.states.join()


class _Coming:
    """A body that is being received."""

    def __init__(self, spool: Spool, receiving: Receiving, pieces: AsyncIterator[bytes], seen: Seen) -> None:
        self.spool = spool
        self.receiving = receiving
        self.pieces = pieces
        self.seen = seen

    def received(self) -> ev.BodyReceived:
        return ev.BodyReceived(self.spool.is_whole, self.spool.size, self.seen.digest)

    async def begin(self) -> ev.BodyReceived:
        with self.spool.in_use():
            await self.spool.begin(self.pieces)
        return self.received()

    async def finish(self) -> ev.BodyReceived:
        with self.spool.in_use():
            await self.spool.fill(self.pieces)
        return self.received()

    async def keep(self, job: JobId) -> Content:
        return replace(await _keep(self.spool, job), input=self.seen.input)

    def close(self) -> None:
        self.spool.close()
        self.receiving.close()


class Gateway:
    """One of the gateways of a store. Make it inside a running loop, `start` it, and `leave` in the end."""

    def __init__(
        self,
        owner: str,
        store: GatewayStore,
        spools: Spools,
        groups: Groups,
        bounds: GatewayBounds,
        *,
        queue_bytes: int,
        body_bytes_max: int,
        access: AccessSources | None = None,
    ) -> None:
        """`access`: sources of the keys for groups."""
        self.owner = owner
        self.store = store
        self.spools = spools
        self.quota = BodyQuota(queue_bytes)
        self._bounds = bounds
        self._groups = groups
        self._body_bytes_max = body_bytes_max
        self._requests: dict[int, GatewayRequest] = {}
        self._bodies: dict[int, _Coming] = {}
        self._count = 0
        self.idle = asyncio.Event()
        """Set while no submission is under way."""
        self.idle.set()
        self._left = asyncio.Event()
        self._has_ended = False
        self.machine: GatewayMachine
        self._drive: Drive[ev.GatewayEvent, None, ev.GatewayDo]
        self.calls = GroupCalls(groups, spools, self._post, connect_s=bounds.answer_s, access=access)
        self._acts = ActPerformer(self._perform, self._answered)
        self._by_type: dict[type[Act[Any]], Callable[[Any], Any]] = {
            ev.GetRow: lambda act: first_step(store.get(act.job, contents=act.contents)),
            ev.AddRow: lambda act: first_step(store.add(act.row)),
            ev.ReplaceRow: lambda act: first_step(store.replace(act.old, act.new)),
            ev.RemoveRow: lambda act: first_step(store.remove(act.row)),
            ev.FlushRows: lambda _: store.flush(),
            ev.HoldLease: lambda act: first_step(store.hold(owner, act.lease_s)),
            ev.IsHeld: lambda act: first_step(store.is_held(act.owner)),
            ev.FindOrphans: lambda act: first_step(store.orphans(act.most, but=owner)),
            ev.FindOpen: lambda act: first_step(store.open_jobs(owner, act.most, act.after)),
            ev.FindOldest: lambda act: first_step(store.oldest(act.most, act.age_s)),
            ev.CountRows: lambda _: self._count_rows(),
            ev.TidyStore: lambda _: store.tidy(),
            ev.BeginBody: lambda act: self._begin_body(act.request),
            ev.FinishBody: lambda act: self._bodies[act.request].finish(),
            ev.KeepBody: lambda act: first_step(self._bodies[act.request].keep(act.job)),
            ev.FinishAnswer: lambda act: self.calls.finish(act.number),
            ev.KeepAnswer: lambda act: first_step(_keep(self.calls.spool(act.number), act.job)),
            ev.OpenAnswer: self._open_answer,
            ev.ListFiles: lambda act: spools.beside(lambda: list(spools.names(act.age_s))),
            ev.RemoveFiles: self._remove_files,
            ev.Dispatch: self._dispatch,
            ev.SinceMoved: lambda act: self.calls.since_moved(act.number),
            ev.CancelAt: lambda act: self.calls.cancel(act.group, act.name),
            ev.PollGroup: lambda act: self.calls.poll(act.group),
            ev.FindGone: self._find_gone,
            ev.SendState: lambda act: self._requests[act.request].send_state(act.row),
        }

    async def start(self) -> None:
        """Takes the lease, and begins. Raises Refused."""
        await self.store.hold(self.owner, self._bounds.lease_s)
        now = asyncio.get_running_loop().time()
        self.machine = GatewayMachine(
            self.owner, self._groups, self._bounds, job_s_of=job_s_of, chance=random.random, now=now
        )
        self._drive = Drive(self.machine, self._do, name="gateway", rounds=_ROUNDS)
        self._drive.post(ev.GatewayStarts())

    @property
    def failed(self) -> asyncio.Future[None]:
        """Done with the error if the machine failed: then the process should end."""
        return self._drive.failed

    @property
    def flights(self) -> dict[JobId, Flight]:
        return self.machine.flights.by_job

    @property
    def queue(self) -> JobQueue:
        return self.machine.flights.queue

    @property
    def keeper(self) -> Housekeeper:
        return self.machine.keeper

    @property
    def is_stopping(self) -> bool:
        return self.machine.state.is_stopping

    def stop(self, *, leaves: bool = False) -> None:
        """Takes no new jobs. `leaves`: jobs under way are given up, and requests that wait are answered."""
        self._drive.post(ev.GatewayStops(leaves))

    async def leave(self) -> None:
        """Gives up jobs under way: others may take them over at once."""
        if self._has_ended:
            return
        self._drive.post(ev.GatewayStops(leaves=True))
        with suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_S):
                await self._left.wait()
        await self.end()
        await self.store.release(self.owner)

    async def end(self) -> None:
        """Stops where it is. Others take jobs over when the lease has run out."""
        self._has_ended = True
        self._drive.close()
        self.machine.close()
        await self._acts.close()
        for body in self._bodies.values():
            body.close()
        for request in self._requests.values():
            request.answer.cancel()
            request.close_reader()
        await self.calls.close()

    # For pages.

    def request(self, visit: HttpRequest) -> GatewayRequest:
        self._count += 1
        return GatewayRequest(self._count, visit)

    def receive(
        self, request: GatewayRequest, pieces: AsyncIterator[bytes], seen: Seen, *, is_async: bool
    ) -> ev.BodyReceived | None:
        """The request has a body. A small one that has arrived, of a client that waits, is returned, and may be
        refused; any other is received when the machine says so. Raises Refused."""
        receiving, size = self.quota.receive(), request.visit.content_length
        if is_async:
            pieces = receiving.pieces(pieces, size)
        coming = _Coming(self.spools.new(self._body_bytes_max), receiving, pieces, seen)
        received: ev.BodyReceived | None = None
        if request.visit.is_whole and not is_async and size is not None and size <= self.spools.memory_max:
            try:
                whole = first_step(coming.begin())
            except Exception:
                coming.close()
                raise
            assert isinstance(whole, ev.BodyReceived)
            received = whole
        self._bodies[request.number] = coming
        return received

    def post(self, request: GatewayRequest, event: ev.JobSubmitted | ev.JobAsked) -> None:
        self._requests[request.number] = request
        if isinstance(event, ev.JobSubmitted):
            self.idle.clear()
        self._drive.post_now(event)

    async def answer(self, request: GatewayRequest) -> ev.Answer:
        """Raises what the machine answered, if it is an error."""
        try:
            answer = await request.answer
        except asyncio.CancelledError:
            self.give_up(request)
            request.close_reader()
            raise
        if isinstance(answer, Exception):
            raise answer
        return answer

    def give_up(self, request: GatewayRequest) -> None:
        """The request ends before its answer."""
        if request.number in self._requests:
            self._drive.post(ev.CallerLeft(request.number))

    def _post(self, event: ev.GatewayEvent) -> None:
        self._drive.post(event)

    def _answered(self, event: FlowEvent) -> None:
        self._drive.post_now(event)

    # Effects.

    def _do(self, effects: Sequence[ev.GatewayDo]) -> None:
        for effect in effects:
            match effect:
                case Perform() | Abandon():
                    self._acts.do(effect)
                case ev.ReplyTo():
                    self._reply(effect)
                case ev.DropBody():
                    if (body := self._bodies.pop(effect.request, None)) is not None:
                        body.close()
                case ev.BodyAccepted():
                    if (body := self._bodies.get(effect.request)) is not None:  # Otherwise the next count sees it.
                        body.receiving.accepted(effect.size)
                case ev.CloseTry():
                    self.calls.close_try(effect.number)
                case ev.ReleaseAnswer():
                    self.calls.release(effect.number, is_kept=effect.is_kept)
                case ev.DropFiles():
                    for name in effect.names:
                        self.spools.remove(name)
                case LogLine():
                    log.log(effect.level, "%s", effect.text, exc_info=effect.error)
                case ev.GatewayLeft():
                    self._left.set()

    def _reply(self, effect: ev.ReplyTo) -> None:
        request = self._requests.pop(effect.request)
        is_read = not request.answer.done() and isinstance(effect.answer, ev.OpenedAnswer)
        if not is_read:
            request.close_reader()
        if not request.answer.done():
            request.answer.set_result(effect.answer)
            if request.states is not None:
                request.states.put_nowait(Ended())
        if self.machine.requests.submits == 0:
            self.idle.set()

    def _perform(self, act: Act[Any]) -> Any:
        return self._by_type[type(act)](act)

    def _begin_body(self, number: int) -> Any:
        """A body that has arrived is received without a wait."""
        work = self._bodies[number].begin()
        return first_step(work) if self._requests[number].visit.is_whole else work

    async def _count_rows(self) -> Totals:
        begun = self.quota.count_begins()
        totals = await self.store.totals()
        self.quota.counted(totals.open_bytes, begun)
        return totals

    def _open_answer(self, act: ev.OpenAnswer) -> bool:
        try:
            if isinstance(act.body, Content):
                reader = self.spools.open(act.body)
            else:
                reader = self.calls.spool(act.body).pieces()
        except Lost as error:
            log.debug("answer not opened: %s", error)
            return False
        if act.request in self._requests:
            self._requests[act.request].reader = reader
        elif isinstance(reader, SpoolReader):
            reader.close()
        return True

    async def _remove_files(self, act: ev.RemoveFiles) -> None:
        """In a thread, for a large file takes long."""

        def remove() -> None:
            for name in act.names:
                self.spools.remove(name)

        await self.spools.beside(remove)

    async def _dispatch(self, act: ev.Dispatch) -> ev.GroupReply:
        content, coming = act.content, self._bodies.get(act.request)
        try:
            if content is not None:
                body = self.spools.open(content)
            elif coming is not None:
                body = coming.spool.data or coming.spool.pieces()
            else:
                raise Lost("the request has ended")
        except Lost as error:
            raise ev.NoBodyLost(str(error)) from None

        def known() -> InputAt | None:
            return content.input if content is not None else None if coming is None else coming.seen.input

        reply = await self.calls.dispatch(act, body, known if act.as_file else lambda: None)
        return reply if coming is None else reply._replace(digest=coming.seen.digest)

    def _find_gone(self, act: ev.FindGone) -> tuple[int, ...]:
        requests = self._requests
        return tuple(number for number in act.requests if number not in requests or requests[number].visit.is_gone)


async def _keep(spool: Spool, job: JobId) -> Content:
    with spool.in_use():
        return await spool.keep(job)
