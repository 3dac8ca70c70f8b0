"""How does a gateway answer? (SPEC G2, G3) `roles/http/page_table.py` has its pages.

The machine decides (`core/gateway/requests.py`); here its answers become replies.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Final

import msgspec

from wakugumi.adapters.http.page import HttpRefusal, HttpRequest, PageRoute, Reply, Stream
from wakugumi.core.gateway.events import (
    Answer,
    JobAccepted,
    JobAsked,
    JobCancelled,
    JobSubmitted,
    KnownRow,
    OpenedAnswer,
)
from wakugumi.core.gateway.outcomes import NoGroup, Problem
from wakugumi.core.gateway.rows import GatewayJob
from wakugumi.errors import CODES, Lost, Refused
from wakugumi.limits.gateway import GATEWAY_BODY_BYTES_MAX, GATEWAY_RETRY_AFTER_S
from wakugumi.roles.gateway.form import (
    ASYNC,
    Seen,
    form_pieces,
    headers_for_group,
    job_s_of,
    query_for_group,
    wants_async,
)
from wakugumi.roles.gateway.gateway import Ended, Gateway, GatewayRequest
from wakugumi.roles.http.job_request import JobForm, check_sender, job_of
from wakugumi.roles.http.page_table import GATEWAY, page_routes

_JSON: Final = "application/json"
_ZIP: Final = "application/zip"
_EXIT_CODE: Final = re.compile("-?[0-9]{1,9}")
_RETRY_AFTER: Final = {"Retry-After": f"{GATEWAY_RETRY_AFTER_S:.0f}"}


class GatewayPages:
    """The pages of one gateway."""

    def __init__(self, gateway: Gateway, *, body_bytes_max: int = GATEWAY_BODY_BYTES_MAX) -> None:
        self._gateway = gateway
        self._body_bytes_max = body_bytes_max

    def routes(self) -> list[PageRoute]:
        handlers = {
            "post_submit": self.submit,
            "get_status": self.status,
            "get_result": self.result,
            "get_events": self.watch,
            "delete_jobs": self.cancel,
        }
        return page_routes(GATEWAY, handlers)

    @property
    def submits(self) -> int:
        """Submissions under way."""
        return self._gateway.machine.requests.submits

    @property
    def events(self) -> int:
        """Clients that receive events."""
        return self._gateway.machine.requests.watchers

    async def submit(self, visit: HttpRequest) -> Reply:
        name, job = job_of(visit)
        form = JobForm.of(visit, also=(ASYNC,))
        check_sender(visit.identity, form)
        is_async = wants_async(visit)
        query = query_for_group(visit)
        request = self._gateway.request(visit)
        seen = Seen(form, job)
        pieces = form_pieces(visit, self._body_bytes_max, seen)
        received = self._gateway.receive(request, pieces, seen, is_async=is_async)
        asked = JobSubmitted(
            request.number,
            job,
            name,
            is_async,
            form.fields.get("key", ""),
            query,
            headers_for_group(visit, form.client),
            job_s_of(query),
            visit.content_length,
            self._gateway.store.is_short,
            received,
            form.client,
            visit.identity.sight(),
        )
        return await self._reply(request, asked)

    async def status(self, visit: HttpRequest) -> Reply:
        return await self._ask(visit, "status")

    async def result(self, visit: HttpRequest) -> Reply:
        return await self._ask(visit, "result")

    async def cancel(self, visit: HttpRequest) -> Reply:
        return await self._ask(visit, "cancel")

    async def watch(self, visit: HttpRequest) -> Reply:
        name, job = job_of(visit)
        request = self._gateway.request(visit)
        request.states = asyncio.Queue()
        self._gateway.post(request, JobAsked(request.number, job, name, "events", visit.identity.sight()))
        states = self._states(request)
        try:
            first = await anext(states)  # A refusal is answered before any event.
        except Refused as no:
            raise _http_refusal(no) from None
        return Reply(200, Stream(None, _events(first, states)), "text/event-stream", {"Cache-Control": "no-store"})

    async def _ask(self, visit: HttpRequest, question: str) -> Reply:
        name, job = job_of(visit)
        request = self._gateway.request(visit)
        return await self._reply(request, JobAsked(request.number, job, name, question, visit.identity.sight()))

    async def _reply(self, request: GatewayRequest, asked: JobSubmitted | JobAsked) -> Reply:
        """Raises HttpRefusal, or Lost if the client has left."""
        self._gateway.post(request, asked)
        try:
            return _reply_of(await self._gateway.answer(request), request)
        except HttpRefusal:
            raise
        except Refused as no:
            raise _http_refusal(no) from None

    async def _states(self, request: GatewayRequest) -> AsyncGenerator[GatewayJob | None, None]:
        """States of the job, and None where nothing has changed for a while. Raises Refused."""
        states = request.states
        assert states is not None
        try:
            while not isinstance(state := await states.get(), Ended):
                yield state
                states.task_done()
            await self._gateway.answer(request)
        finally:
            self._gateway.give_up(request)


async def _events(first: GatewayJob | None, states: AsyncGenerator[GatewayJob | None, None]) -> AsyncIterator[bytes]:
    try:
        yield _event(first)
        async for row in states:
            yield _event(row)
    finally:
        await states.aclose()


def _http_refusal(no: Refused) -> HttpRefusal:
    status = CODES[no.code].http_status
    return HttpRefusal(status, no.code, no.message, dict(_RETRY_AFTER) if status == 503 else {}, no.hint)


def _event(row: GatewayJob | None) -> bytes:
    return b": still here\n\n" if row is None else b"event: state\ndata: " + msgspec.json.encode(told(row)) + b"\n\n"


def _reply_of(answer: Answer, request: GatewayRequest) -> Reply:
    """Raises HttpRefusal."""
    match answer:
        case OpenedAnswer(status, head, size, data):
            return _answer(status, head, request.reader if data is None else data, size)
        case JobAccepted(row):
            return _accepted(row)
        case KnownRow(row):
            return Reply(200, msgspec.json.encode(told(row)), _JSON, {"Cache-Control": "no-store"})
        case JobCancelled(is_cancelled):
            return Reply(202, msgspec.json.encode({"cancelled": is_cancelled}), _JSON)
        case Problem(status, code, detail, hint):
            raise HttpRefusal(status, code, detail, dict(_RETRY_AFTER) if status == 503 else {}, hint)
        case NoGroup(detail, again_s):
            raise HttpRefusal(503, "no-group", detail, {"Retry-After": f"{math.ceil(again_s)}"})
        case _:
            raise Lost("the request was given up", "dead")


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
