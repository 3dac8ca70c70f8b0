"""How does a node answer over HTTP? (SPEC N2) `roles/http/page_table.py` has its pages."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from wakugumi import __version__
from wakugumi.adapters.http.page import HttpRefusal, HttpRequest, PageRoute, Reply
from wakugumi.adapters.http.upload import Received, receive_file
from wakugumi.core import metric_table as table
from wakugumi.core.ids import JobId
from wakugumi.core.metrics import Family
from wakugumi.core.runner.metrics import run_families
from wakugumi.errors import Refused
from wakugumi.limits.node import RUNNING_RETRY_AFTER_S
from wakugumi.roles.http.job_request import ROOT, RUNS_AS, TAKES, JobForm, job_of, request_of
from wakugumi.roles.http.page_table import NODE, page_routes
from wakugumi.roles.http.status_pages import OK, STOPPING, wayside_pages
from wakugumi.roles.http.zip_response import answer_of
from wakugumi.roles.node.node import Node, show_time
from wakugumi.roles.runner.station import Finished
from wakugumi.wire.line import KEPT
from wakugumi.wire.messages.hello import ENV
from wakugumi.wire.request_digest import HEADER, digest_in

_JSON: Final = "application/json"


def node_pages(node: Node) -> list[PageRoute]:
    """All pages of a node."""
    station = node.station
    return [
        *page_routes(NODE, {"post_run": partial(_run, node), "delete_jobs": partial(_cancel, node)}),
        *wayside_pages(
            NODE,
            __version__,
            lambda: STOPPING if station.stopping else OK,
            lambda: {"running": station.running, "limit": station.limit},
            lambda: node_families(node),
            {TAKES: ENV} | ({RUNS_AS: ROOT} if station.rules.runs_as_root else {}),
        ),
    ]


def node_families(node: Node) -> Iterable[Family]:
    """Metrics of a node, and of the programs that it ran."""
    station = node.station
    yield from run_families(station.counts, running=station.running, limit=station.limit, free=station.free)
    yield table.NODE_RECEIVE_SLOTS.with_value(node.receive_slots)
    yield table.NODE_RECEIVING.with_value(node.receiving)
    yield table.NODE_ANSWERING.with_value(node.answering)
    yield table.NODE_RECEIVE_BUSY.with_value(node.receive_busy)


async def _run(node: Node, visit: HttpRequest) -> Reply:
    name, job = job_of(visit)
    form = JobForm.of(visit)
    request = digest_in(visit.header(HEADER))
    node.begin_answer()
    is_ours = True
    try:
        early = await node.admit(job, visit.content_length, request)
        finished = early or await _run_anew(node, visit, job, form, request)
        kept_at = finished.kept_at
        result = node.result_of(job, finished)
        is_ours = False  # The end of the answer calls `end_answer`.
        reply = await answer_of(name, result, finished.parts, partial(_end, node, finished))
        if kept_at is not None:
            reply = reply._replace(headers={**reply.headers, KEPT: show_time(kept_at)})
        if early is not None and visit.content_length != 0:
            # The rest of the body must not be read as the next request.
            reply = reply._replace(headers={**reply.headers, "Connection": "close"}, hear_out=True)
        return reply
    finally:
        if is_ours:
            node.end_answer()


async def _run_anew(node: Node, visit: HttpRequest, job: JobId, form: JobForm, request: bytes) -> Finished:
    if node.station.is_running(job):
        raise _running(visit.job)
    async with node.receive_slot(visit.content_length) as sender:
        received = await receive_file(visit, node.folder, bytes_max=node.input_bytes_max, came=sender.came)
    if node.station.is_running(job):  # Another request was quicker.
        _drop(received)
        raise _running(visit.job)
    running = node.run(job, request_of(form, job, received), received, request)
    del received  # It would be held for as long as the job runs.
    return await running


async def _cancel(node: Node, visit: HttpRequest) -> Reply:
    _name, job = job_of(visit)
    if node.station.cancel(job):
        return Reply(202, b'{"cancelled":true}', _JSON)
    finished = await node.station.finished(job)
    if finished is None:
        raise Refused("unknown-job", f"no job {visit.job} runs here, or is kept", "")
    finished.close()
    return Reply(202, b'{"cancelled":false}', _JSON)


def _end(node: Node, finished: Finished) -> None:
    finished.close()
    node.end_answer()


def _running(name: str) -> HttpRefusal:
    text = f"job {name} runs here already"
    return HttpRefusal(423, "running", text, {"Retry-After": str(RUNNING_RETRY_AFTER_S)})


def _drop(received: Received) -> None:
    if received.path is not None:
        received.path.unlink(missing_ok=True)
