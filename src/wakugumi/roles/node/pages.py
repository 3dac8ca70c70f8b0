"""How does a node answer over HTTP? (SPEC N2) `roles/http/page_table.py` has its pages."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from msgspec import structs

from wakugumi import __version__
from wakugumi.adapters.http.page import HttpRefusal, HttpRequest, PageRoute, Reply
from wakugumi.core import metric_table as table
from wakugumi.core.ids import ClientId, JobId
from wakugumi.core.metrics import Family
from wakugumi.core.node.entrance import check_cancel, unknown_job
from wakugumi.core.runner.metrics import run_families
from wakugumi.errors import Refused
from wakugumi.limits.node import RUNNING_RETRY_AFTER_S
from wakugumi.roles.access.guard import AccessGuard
from wakugumi.roles.http.access_pages import access_pages
from wakugumi.roles.http.envelope_response import envelope_of
from wakugumi.roles.http.job_request import ROOT, RUNS_AS, JobForm, check_sender, job_of
from wakugumi.roles.http.page_table import NODE, page_routes
from wakugumi.roles.http.receive_job import receive_job, takes_envelopes
from wakugumi.roles.http.status_pages import OK, STOPPING, wayside_pages
from wakugumi.roles.http.zip_response import answer_of
from wakugumi.roles.node.node import Node, show_time
from wakugumi.roles.runner.station import Finished
from wakugumi.wire.line import KEPT
from wakugumi.wire.messages.envelope import JOB, JOB_TYPE, RESULT_TYPE, TAKES
from wakugumi.wire.messages.hello import ENV
from wakugumi.wire.request_digest import HEADER, digest_in

_JSON: Final = "application/json"


def node_pages(node: Node, guard: AccessGuard | None = None) -> list[PageRoute]:
    """All pages of a node."""
    station, guard = node.station, guard or AccessGuard()
    return [
        *access_pages(NODE, guard),
        *page_routes(NODE, {"post_run": takes_envelopes(partial(_run, node)), "delete_jobs": partial(_cancel, node)}),
        *wayside_pages(
            NODE,
            __version__,
            lambda: STOPPING if station.stopping else OK,
            lambda: {"running": station.running, "limit": station.limit},
            lambda: node_families(node),
            {TAKES: f"{ENV}, {JOB}"} | ({RUNS_AS: ROOT} if station.rules.runs_as_root else {}),
            lambda: guard.degree,
        ),
    ]


def node_families(node: Node) -> Iterable[Family]:
    """Metrics of a node, and of the programs that it ran."""
    station = node.station
    yield from run_families(station.counts, running=station.running, limit=station.limit, free=station.free)
    yield table.NODE_RECEIVE_SLOTS.with_value(node.receive_slots.count)
    yield table.NODE_RECEIVING.with_value(node.receiving)
    yield table.NODE_ANSWERING.with_value(node.answering)
    yield table.NODE_RECEIVE_BUSY.with_value(node.receive_slots.refused)


async def _run(node: Node, visit: HttpRequest) -> Reply:
    name, job = job_of(visit)
    form, identity = JobForm.of(visit), visit.identity
    if visit.header("Content-Type") != JOB_TYPE:
        check_sender(identity, form)
    request = digest_in(visit.header(HEADER))
    node.drain.begin()
    is_ours = True
    try:
        early = await node.admit(job, visit.content_length, identity.sight(), request)
        finished = early or await _run_anew(node, visit, job, form, request)
        kept_at = finished.kept_at
        result, end = node.result_of(job, finished, identity.sight()), partial(_end, node, finished)
        is_ours = False  # The end of the answer calls `end_answer`.
        if visit.header("Accept") == RESULT_TYPE:
            reply = envelope_of(name, result, finished.payload, finished.parts, end)
        else:
            reply = await answer_of(name, result, finished.parts, end)
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
        job_request, received = await receive_job(visit, job, form, node.spools, node.input_bytes_max, sender.came)
    try:
        check_sender(visit.identity, JobForm(job_request.exec_name, (), ClientId(job_request.client_id), form.subject))
        await node.check_owner(job, visit.identity.sight())
        if node.station.is_running(job):  # Another request was quicker.
            raise _running(visit.job)
    except Refused:
        received.drop()
        raise
    if visit.header("Accept") != RESULT_TYPE:
        job_request = structs.replace(job_request, archive_output=True)
    running = node.run(job, job_request, received, request)
    del job_request, received  # They would be held for as long as the job runs.
    return await running


async def _cancel(node: Node, visit: HttpRequest) -> Reply:
    _name, job = job_of(visit)
    if (sight := visit.identity.sight()) is not None:
        check_cancel(sight, await node.known(job), visit.job)
    if node.station.cancel(job):
        return Reply(202, b'{"cancelled":true}', _JSON)
    finished = await node.station.finished(job)
    if finished is None:
        raise unknown_job(visit.job)
    finished.close()
    return Reply(202, b'{"cancelled":false}', _JSON)


def _end(node: Node, finished: Finished) -> None:
    finished.close()
    node.end_answer()


def _running(name: str) -> HttpRefusal:
    text = f"job {name} runs here already"
    return HttpRefusal(423, "running", text, {"Retry-After": str(RUNNING_RETRY_AFTER_S)})
