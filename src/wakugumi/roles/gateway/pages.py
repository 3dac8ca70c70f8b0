"""What does a gateway answer? (SPEC G2, G3)

    POST   /submit/{job}     the answer itself, or 202 and a status URL if the client prefers that
    GET    /status/{job}     queued, running, done or failed
    GET    /result/{job}     the answer, once there is one
    GET    /events/{job}     each state as it changes, as server-sent events
    DELETE /jobs/{job}       cancels the job

A known job is answered once the body has shown that it is the same request; at once, if the row has no digest.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import msgspec

from wakugumi.adapters.gateway_store.interface import DONE, RUNNING, GatewayJob
from wakugumi.adapters.http.page import HttpRefusal, HttpRequest, PageRoute, Reply, Stream
from wakugumi.adapters.http.spool import Content, Spool
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.core.ids import JobId
from wakugumi.core.metric_table import GATEWAY_BUSY
from wakugumi.core.metrics import Counter
from wakugumi.errors import Lost, Refused
from wakugumi.limits.gateway import (
    GATEWAY_BODY_BYTES_MAX,
    GATEWAY_EVENTS_MAX,
    GATEWAY_QUEUE_MAX,
    GATEWAY_RETRY_AFTER_S,
    GATEWAY_SUBMITS_MAX,
)
from wakugumi.limits.wire import HEARTBEAT_S
from wakugumi.roles.gateway.form import ASYNC, Seen, form_pieces, headers_for_group, query_for_group, wants_async
from wakugumi.roles.gateway.forward import NoGroup, Problem
from wakugumi.roles.gateway.gateway import Flight, FlightGone, ForwardAnswer, Gateway, Outcome, check_same, outcome_of
from wakugumi.roles.http.job_request import JobForm, job_of

log = logging.getLogger("wakugumi.gateway")

_JSON: Final = "application/json"
_ZIP: Final = "application/zip"
_EXIT_CODE: Final = re.compile("-?[0-9]{1,9}")
_LOOK_FIRST_S: Final = 0.01
_LOOK_MAX_S: Final = 0.25
"""Pause between two looks at a row of another gateway while a request waits for it: short at first, then longer."""
_RETRY_AFTER: Final = {"Retry-After": f"{GATEWAY_RETRY_AFTER_S:.0f}"}


class GatewayPages:
    """The pages of one gateway."""

    def __init__(
        self,
        gateway: Gateway,
        *,
        body_bytes_max: int = GATEWAY_BODY_BYTES_MAX,
        submits_max: int = GATEWAY_SUBMITS_MAX,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        self._gateway = gateway
        self._body_bytes_max = body_bytes_max
        self._submits_max = submits_max
        self._heartbeat_s = heartbeat_s
        self._tasks = Tasks()
        self._waiting: dict[asyncio.Future[Outcome], HttpRequest] = {}
        """Requests that wait for an outcome."""
        self.submits = 0
        """Submissions under way."""
        self.idle = asyncio.Event()
        """Set while no submission is under way."""
        self.idle.set()
        self.events = 0
        """Clients that receive events."""
        self.busy = Counter(GATEWAY_BUSY)

    def pages(self) -> list[PageRoute]:
        return [
            PageRoute("POST", "/submit/", self.submit),
            PageRoute("GET", "/status/", self.status),
            PageRoute("GET", "/result/", self.result),
            PageRoute("GET", "/events/", self.watch),
            PageRoute("DELETE", "/jobs/", self.cancel),
        ]

    def start(self, look_s: float) -> None:
        self._tasks.start_loop(partial(self._look_often, look_s), name="look who left")

    async def close(self) -> None:
        await self._tasks.close()

    async def submit(self, visit: HttpRequest) -> Reply:
        name, job = job_of(visit)
        form = JobForm.of(visit, also=(ASYNC,))
        is_async = wants_async(visit)
        row = await self._gateway.store.get(job)
        if row is not None and not row.request and (reply := await self._known_reply(row, is_async)) is not None:
            return reply
        new = GatewayJob(
            job=job,
            name=name,
            owner=self._gateway.owner,
            is_async=is_async,
            key=form.fields.get("key", ""),
            query=query_for_group(visit),
            headers=headers_for_group(visit),
        )
        if self._gateway.store.is_short and (row is None or row.state != DONE):
            self.busy.add("disk-full")
            raise Refused(
                "disk-full", "there is hardly any room on the gateway's disk", "free room on it (--state DIR)"
            )
        with self._seat(), self._gateway.quota.receiving() as receiving:
            spool = self._gateway.spools.new(self._body_bytes_max)
            try:
                seen = Seen(form)
                coming = form_pieces(visit, self._body_bytes_max, seen)
                if is_async:
                    coming = receiving.pieces(coming, visit.content_length)
                is_whole = await spool.begin(coming)
                if not is_whole and (is_async or (row is not None and row.request)):
                    await spool.fill(coming)
                    is_whole = True
                if row is not None and is_whole:
                    check_same(row, seen.digest)
                    if (reply := await self._known_reply(row, is_async)) is not None:
                        return reply
                new = msgspec.structs.replace(new, request=seen.digest)
                if not is_async:
                    return await self._wait(visit, new, spool, None if is_whole else coming, seen)
                if len(self._gateway.queue) >= GATEWAY_QUEUE_MAX:
                    self.busy.add("full")
                    raise HttpRefusal(503, "full", f"{GATEWAY_QUEUE_MAX} jobs wait here", _RETRY_AFTER)
                body = await spool.keep(job)
                try:
                    return _accepted(await self._gateway.accept(msgspec.structs.replace(new, body=body), receiving))
                except BaseException:
                    await self._take_back(job, body)
                    raise
            finally:
                spool.close()

    async def _known_reply(self, row: GatewayJob, is_async: bool) -> Reply | None:
        """The immediate reply for a job that is done."""
        if row.state != DONE:
            return None
        return _accepted(row) if is_async else await self._kept(row)

    async def status(self, visit: HttpRequest) -> Reply:
        row = await self._known(visit)
        return Reply(200, msgspec.json.encode(told(row)), _JSON, {"Cache-Control": "no-store"})

    async def result(self, visit: HttpRequest) -> Reply:
        row = await self._known(visit, contents=True)
        if row.answer is None:
            why = f"failed: {row.head.get('detail', '')}" if row.is_final else f"is {row.state}"
            raise Refused("no-result", f"the job {row.name} {why}")
        if (kept := await self._kept(row)) is None:
            raise Refused("no-result", f"the answer of the job {row.name} is gone from the disk", "send it again")
        return kept

    async def watch(self, visit: HttpRequest) -> Reply:
        row = await self._known(visit)
        if self.events >= GATEWAY_EVENTS_MAX:
            raise HttpRefusal(
                503, "busy", f"{GATEWAY_EVENTS_MAX} clients receive events already", _RETRY_AFTER, "ask /status"
            )
        headers = {"Cache-Control": "no-store"}
        return Reply(200, Stream(None, self._events(row)), "text/event-stream", headers)

    async def cancel(self, visit: HttpRequest) -> Reply:
        row = await self._known(visit)
        done = {"cancelled": await self._gateway.cancel(row)}
        return Reply(202, msgspec.json.encode(done), _JSON)

    @contextmanager
    def _seat(self) -> Iterator[None]:
        if self._gateway.is_stopping:
            self.busy.add("stopping")
            raise HttpRefusal(503, "stopping", "this gateway is shutting down", _RETRY_AFTER, "ask another one")
        if self.submits >= self._submits_max:
            self.busy.add("busy")
            text = f"{self._submits_max} submissions are served already"
            raise HttpRefusal(503, "busy", text, _RETRY_AFTER, "come again, or ask another gateway")
        self.submits += 1
        self.idle.clear()
        try:
            yield
        finally:
            self.submits -= 1
            if self.submits == 0:
                self.idle.set()

    async def _wait(
        self, visit: HttpRequest, new: GatewayJob, spool: Spool, coming: AsyncIterator[bytes] | None, seen: Seen
    ) -> Reply:
        """Waits for the outcome of the job, forwarded by this gateway or another. `coming` is the rest of the body:
        receiving goes on until there is a reply, from one flight to the next. Raises Refused if the id turns out to be
        of another request."""
        gateway = self._gateway
        filling: asyncio.Task[None] | None = None
        pause_s = 0.0
        try:
            while True:
                is_ours = False
                if (flight := gateway.flights.get(new.job)) is None:
                    order = gateway.calls.order(new.key or new.name)
                    if not order:
                        self.busy.add("no-group")
                        raise HttpRefusal(503, "no-group", "every group is gone", _RETRY_AFTER)
                    first = msgspec.structs.replace(new, state=RUNNING, group=order[0], tries=1)
                    size = spool.size if spool.is_whole else visit.content_length
                    entered = await gateway.enter(first, spool, size, lambda: seen.digest)
                    if isinstance(entered, GatewayJob):
                        outcome = outcome_of(entered) if entered.is_final else await self._settled(visit, entered)
                    else:
                        if filling is None and coming is not None:
                            filling = self._tasks.start(spool.fill(coming), name="receive", quiet=True)
                        is_ours = True
                        outcome = await self._flown(visit, entered, filling)
                else:
                    outcome = await self._told(visit, flight)
                if not is_ours and isinstance(outcome, ForwardAnswer | Problem):
                    if coming is not None and not spool.is_whole:
                        await (spool.fill(coming) if filling is None else filling)
                    if (row := await gateway.store.get(new.job, contents=False)) is not None:
                        check_same(row, seen.digest)
                if (reply := await self._reply(new.job, outcome)) is not None:
                    return reply
                await asyncio.sleep(pause_s)
                pause_s = min(max(2 * pause_s, _LOOK_FIRST_S), _LOOK_MAX_S)
        finally:
            if filling is not None:
                filling.cancel()
                await asyncio.gather(filling, return_exceptions=True)

    async def _flown(self, visit: HttpRequest, flight: Flight, filling: asyncio.Task[None] | None) -> Outcome:
        """The outcome of a flight whose body may still be on its way. The outcome may come first; then the rest of the
        body is not needed."""
        if filling is not None:
            either: list[asyncio.Future[Any]] = [filling, flight.told]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if filling.done() and filling.exception() is not None:
                await self._gateway.give_up(flight)
                filling.result()
            if filling.done():
                await self._gateway.received(flight)
        return await self._told(visit, flight)

    async def _told(self, visit: HttpRequest, flight: Flight) -> Outcome:
        """Raises Lost when the client has left: its seat is free, and the flight goes on."""
        if flight.told.done():
            return flight.told.result()
        waiter: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        flight.waiters.add(waiter)
        self._waiting[waiter] = visit
        try:
            return await waiter
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if waiter.cancelled() and task is not None and not task.cancelling():
                raise Lost("the caller left", "dead") from None
            raise
        finally:
            del self._waiting[waiter]
            flight.waiters.discard(waiter)

    async def _look_often(self, look_s: float) -> None:
        while True:
            await asyncio.sleep(look_s)
            for waiter, visit in list(self._waiting.items()):
                if visit.is_gone:
                    waiter.cancel()

    async def _settled(self, visit: HttpRequest, row: GatewayJob) -> Outcome:
        """The outcome of a job of another gateway, or of one that waits here for its turn."""
        pause_s = _LOOK_FIRST_S
        gateway = self._gateway
        while True:
            if (flight := gateway.flights.get(row.job)) is not None:
                return await self._told(visit, flight)
            found = await gateway.store.get(row.job, contents=False)
            if found is None or found.is_final or await gateway.is_forsaken(found):
                whole = await gateway.store.get(row.job)
                return FlightGone() if whole is None else outcome_of(whole)
            if visit.is_gone:
                raise Lost("the caller left", "dead")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LOOK_MAX_S)

    async def _reply(self, job: JobId, outcome: Outcome) -> Reply | None:
        """None: the request begins anew. Raises HttpRefusal."""
        match outcome:
            case ForwardAnswer(status, head, size, body):
                try:
                    if isinstance(body, Content):
                        return _answer(status, head, self._gateway.spools.open(body), body.size)
                    return _answer(status, head, body.pieces(), size)
                except Lost:  # The answer is kept now, or broke off before this request; or its file is gone.
                    row = await self._gateway.store.get(job)
                    return None if row is None or row.answer is None else await self._kept(row)
            case Problem(status, code, detail, hint):
                headers = _RETRY_AFTER if status == 503 else {}
                raise HttpRefusal(status, code, detail, dict(headers), hint)
            case NoGroup(detail, again_s):
                self.busy.add("no-group")
                raise HttpRefusal(503, "no-group", detail, {"Retry-After": f"{math.ceil(again_s)}"})
            case FlightGone():
                return None

    async def _kept(self, row: GatewayJob) -> Reply | None:
        """None if the answer's file is gone. Then the row is removed as well."""
        assert row.answer is not None
        try:
            return _answer(row.status, row.head, self._gateway.spools.open(row.answer), row.answer.size)
        except Lost as error:
            log.warning("answer gone, row removed job=%s: %s", row.name, error)
            await self._gateway.store.remove(row)
            return None

    async def _known(self, visit: HttpRequest, *, contents: bool = False) -> GatewayJob:
        name, job = job_of(visit)
        row = await self._gateway.store.get(job, contents=contents)
        if row is None:
            raise Refused("unknown-job", f"no gateway knows the job {name}", "send it to /submit")
        return row

    async def _take_back(self, job: JobId, body: Content) -> None:
        """The job was not accepted. If its row names the body nevertheless, the body is kept."""
        if body.file:
            row = await self._gateway.store.get(job)
            if row is None or body.file not in row.files:
                self._gateway.spools.remove(body.file)

    async def _events(self, row: GatewayJob) -> AsyncIterator[bytes]:
        clock = asyncio.get_running_loop().time
        self.events += 1
        try:
            said: tuple[str, str] | None = None
            spoke_at, pause_s = clock(), _LOOK_FIRST_S
            found: GatewayJob | None = row
            while found is not None:
                if (now := (found.state, found.group)) != said:
                    said, spoke_at, pause_s = now, clock(), _LOOK_FIRST_S
                    yield b"event: state\ndata: " + msgspec.json.encode(told(found)) + b"\n\n"
                    if found.is_final:
                        return
                elif clock() - spoke_at >= self._heartbeat_s:
                    spoke_at = clock()
                    yield b": still here\n\n"
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LOOK_MAX_S)
                found = await self._gateway.store.get(row.job, contents=False)
        finally:
            self.events -= 1


def told(row: GatewayJob) -> dict[str, Any]:
    """A job in the form of /status and /events."""
    said: dict[str, Any] = {"job": row.name, "state": row.state, "async": row.is_async, "tries": row.tries}
    if row.group:
        said["group"] = row.group
    said["accepted"], said["changed"] = row.accepted_at, row.changed_at
    if row.is_final and row.answer is None:
        said |= {"status": "FAILED", "reason": row.head.get("code", ""), "detail": row.head.get("detail", "")}
    elif row.is_final:
        said["status"] = row.head.get("Waku-Status", "OK")
        if (reason := row.head.get("Waku-Reason")) is not None:
            said["reason"] = reason
        if (code := row.head.get("Waku-Exit-Code")) is not None:
            said["exit_code"] = int(code) if _EXIT_CODE.fullmatch(code) else code
        said["result"] = f"/result/{row.name}"
    return said


def _accepted(row: GatewayJob) -> Reply:
    where = f"/status/{row.name}"
    body = {"job": row.name, "state": row.state, "status": where, "result": f"/result/{row.name}"}
    return Reply(202, msgspec.json.encode(body), _JSON, {"Location": where})


def _answer(status: int, head: dict[str, str], body: bytes | AsyncIterator[bytes], size: int | None) -> Reply:
    """A browser saves every answer and shows none of it, whatever type the group gave."""
    headers = {name: value for name, value in head.items() if name != "Content-Type"}
    if not headers.get("Content-Disposition", "").startswith("attachment"):
        headers["Content-Disposition"] = "attachment"
    content_type = _ZIP if head.get("Content-Type", _ZIP) == _ZIP else "application/octet-stream"
    return Reply(status, body if isinstance(body, bytes) else Stream(size, body), content_type, headers)
