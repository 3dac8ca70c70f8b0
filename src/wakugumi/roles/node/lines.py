"""What does a node answer to a line? (SPEC N1) The ZIP if the program ended well; else the reason, in one line.

A job that runs here already is waited for: all requests for it get the same result. The ZIP's comment tells that a
result was kept, and since when.
"""

from __future__ import annotations

from functools import partial

from msgspec import structs

from wakugumi.adapters.http.upload import receive_pieces
from wakugumi.adapters.lines.server import LineCall, LinePage, LineReply
from wakugumi.core.ids import ClientId, JobId, job_id_from_name
from wakugumi.errors import Refused
from wakugumi.roles.http.job_request import JobForm, check_sender, default_client, request_of
from wakugumi.roles.http.zip_response import answer_of, raise_unless_answer
from wakugumi.roles.node.node import Node, show_time
from wakugumi.roles.runner.station import Finished
from wakugumi.wire.line import KEPT, write_busy, write_err, write_exit, write_ok
from wakugumi.wire.messages.job import OK


def line_page(node: Node) -> LinePage:
    return partial(_answer, node)


async def _answer(node: Node, call: LineCall) -> LineReply:
    try:
        job = job_id_from_name(call.line.job)
    except ValueError as error:
        raise Refused("bad-name", str(error)) from None
    form, sight = JobForm(client=ClientId(default_client(call.identity))), call.identity.sight()
    check_sender(call.identity, form)
    node.drain.begin()
    is_ours = True
    try:
        early = await node.admit(job, call.line.size, sight)
        finished = early or await _join(node, call, job) or await _run(node, call, job, form)
        result = node.result_of(job, finished, sight)
        if result.status != OK:
            finished.close()
            raise_unless_answer(call.line.job, result)
            if result.reason in {"exit", None} and result.exit_code is not None:
                return LineReply(write_exit(result.exit_code))
            return LineReply(write_err(result.reason or "exit", result.stderr.strip()[-500:]))

        def end() -> None:
            finished.close()
            node.end_answer()

        is_ours = False  # The end of the answer calls `end_answer`.
        note = "" if finished.kept_at is None else f"{KEPT}: {show_time(finished.kept_at)}"
        body = (await answer_of(call.line.job, result, finished.parts, end, note=note)).body
        size = len(body) if isinstance(body, bytes) else body.size
        assert size is not None
        return LineReply(write_ok(size), body, hear_out=True)
    except Refused as error:
        if error.code in {"busy", "stopping"}:
            return LineReply(write_busy(node.retry_after_s))
        raise
    finally:
        if is_ours:
            node.end_answer()


async def _join(node: Node, call: LineCall, job: JobId) -> Finished | None:
    """Waits for a running job; the input of this call is dropped. None if the job does not run."""
    joined = node.station.join(job) if node.station.is_running(job) else None
    if joined is None:
        return None
    call.drop()
    return await call.unless_gone(joined)


async def _run(node: Node, call: LineCall, job: JobId, form: JobForm) -> Finished:
    line = call.line
    async with node.receive_slot(line.size) as sender:
        pieces, bytes_max = call.pieces(), node.input_bytes_max
        received = await receive_pieces(pieces, line.size, line.file_name, node.spools, bytes_max, sender.came)
    try:
        await node.check_owner(job, call.identity.sight())
    except Refused:
        received.drop()
        raise
    request = structs.replace(request_of(form, job, received), archive_output=True)
    running = node.run(job, request, received)
    del request, received
    return await call.unless_gone(running)
