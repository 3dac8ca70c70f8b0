"""How does a leader answer by HTTP, on its own port? (SPEC G1) `roles/http/page_table.py` has its pages.

A small input stays in memory; a large one is put into the leader's place for blobs before its job is submitted.
A small input and a small answer need no thread.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec
from msgspec import structs

from wakugumi import __version__
from wakugumi.adapters.http.page import HttpRequest, PageRoute, Reply
from wakugumi.adapters.http.upload import Received
from wakugumi.adapters.jobdir.large_parts import ARCHIVE, STDERR, STDOUT
from wakugumi.adapters.net.compression import is_packed, unpack
from wakugumi.adapters.spool import Spools
from wakugumi.core.access.decide import check_submit
from wakugumi.core.access.identity import Role
from wakugumi.core.connections.received_inputs import ReceivedInputs
from wakugumi.core.ids import ClientId, ConnId, JobId, Verdict, show_job_id
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.answer_records import CancelAnswer, ExplainAnswer, JobRow
from wakugumi.core.leader.questions import AskCancel, AskExplain, AskJob
from wakugumi.core.metric_table import LEADER_CONNECTIONS, LEADER_HTTP_BUSY, LEADER_HTTP_RECEIVING
from wakugumi.core.metrics import Counter, Family
from wakugumi.errors import PeerError, Refused
from wakugumi.limits.files import BLOB_BYTES_MAX, INLINE_FILE_BYTES_MAX
from wakugumi.roles.access.guard import AccessGuard
from wakugumi.roles.http.access_pages import access_pages
from wakugumi.roles.http.job_request import CLIENT, JobForm, job_of, with_program
from wakugumi.roles.http.page_table import LEADER, page_routes
from wakugumi.roles.http.receive_job import receive_job, takes_envelopes
from wakugumi.roles.http.status_pages import OK, STOPPING, wayside_pages
from wakugumi.roles.http.zip_response import answer_of
from wakugumi.roles.leader.effects import record_of
from wakugumi.roles.leader.files.blobs import LeaderBlobs
from wakugumi.roles.leader.http.clients import HttpCallers
from wakugumi.roles.leader.hub import Hub
from wakugumi.roles.leader.questions import Questions
from wakugumi.roles.leader.settings import LeaderSettings
from wakugumi.roles.leader.submit import Submissions
from wakugumi.wire.messages.envelope import JOB, TAKES
from wakugumi.wire.messages.job import JobResult, bytes_as_json, head_of, read_result, write_request
from wakugumi.wire.messages.references import BlobRef
from wakugumi.wire.node_request import marked_by_http
from wakugumi.wire.request_digest import request_digest

_JSON: Final = "application/json"
_ALSO: Final = ("async",)
"""Parameters of a gateway, which forwards queries unchanged. A leader ignores them: each request waits for its job."""
_STATES: Final = {"queued": "queued", "backoff": "queued", "running": "running", "ok": "done", "failed": "failed"}


class GroupPages:
    """The pages of one leader."""

    def __init__(
        self,
        hub: Hub,
        submissions: Submissions,
        questions: Questions,
        blobs: LeaderBlobs | None,
        settings: LeaderSettings,
        guard: AccessGuard,
    ) -> None:
        self._hub = hub
        self._guard = guard
        self._submissions = submissions
        self._blobs = blobs
        self._spools = Spools(Path(tempfile.gettempdir())) if blobs is None else blobs.spools
        self._settings = settings
        self.callers = HttpCallers(hub, questions, settings.http_cap)
        self._inputs = ReceivedInputs(settings.http_received_max)
        self.busy = Counter(LEADER_HTTP_BUSY)
        self._is_first = True

    def routes(self) -> list[PageRoute]:
        handlers = {
            "post_dispatch": takes_envelopes(self.dispatch),
            "get_status": self.status,
            "get_result": self.result,
            "delete_jobs": self.cancel,
        }
        return [
            *page_routes(LEADER, handlers),
            *access_pages(LEADER, self._guard),
            *wayside_pages(
                *(LEADER, __version__, self._health, self._hub.capacity, self._families, {TAKES: JOB}),
                degree=lambda: self._guard.degree,
            ),
        ]

    def _health(self) -> str:
        if self._hub.stopping:
            return STOPPING
        stalled = self._hub.why_stalled()
        return f"nothing is committed: {stalled}" if stalled else OK

    def _families(self) -> list[Family]:
        return [
            *self._hub.meters.families(asyncio.get_running_loop().time()),
            LEADER_CONNECTIONS.with_value(self._hub.connections),
            LEADER_HTTP_RECEIVING.with_value(self.receiving),
            self.busy.family(),
        ]

    @property
    def receiving(self) -> int:
        """Inputs that are being received."""
        return self._inputs.count

    def close(self) -> None:
        self.callers.close()

    async def dispatch(self, request: HttpRequest) -> Reply:
        """Run a job; wait for it if it runs already; return its result if it is done."""
        name, job = job_of(request)
        form = JobForm.of(request, _ALSO)
        self._check_open(job)
        bytes_max = INLINE_FILE_BYTES_MAX if self._blobs is None else BLOB_BYTES_MAX
        with self._received():
            wanted, received = await receive_job(request, job, form, self._spools, bytes_max)
        try:
            if not wanted.exec_name:
                wanted = with_program(wanted, self._settings.program)
            wanted = structs.replace(wanted, archive_output=True)
            payload, digest = write_request(wanted), request_digest(wanted)
            event, blobs = self._submissions.event_of(
                ConnId(0), True, job, form.subject, head_of(wanted), payload, bytes_as_json(payload), digest
            )
            event = structs.replace(event, requirements=marked_by_http(event.requirements, wanted))
            check_submit(request.identity, wanted.client_id, event.program, event.subject)
            if blobs and not self._hub.knows(job):
                await self._bring(received, blobs)
        finally:
            received.drop()
        self._check_owner(request, name, job, wanted.client_id)
        return await self._answer(request, name, ClientId(wanted.client_id), job, event)

    async def status(self, request: HttpRequest) -> Reply:
        """Where is a job, and why?"""
        name, job = job_of(request)
        row = await self.callers.ask(AskJob(show_job_id(job)), request.identity)
        why = await self.callers.ask(AskExplain(show_job_id(job)), request.identity)
        assert isinstance(row, JobRow)
        assert isinstance(why, ExplainAnswer)
        told = {
            "job": name,
            "id": row.job,
            "state": _STATES[row.state],
            "attempts": row.attempts,
            "client": row.client,
            "program": row.program,
            "subject": row.subject,
            "worker": row.worker,
            "age_s": round(row.age_s, 3),
            "reason": row.reason,
            "why": "; ".join(why.reasons),
        }
        return Reply(200, msgspec.json.encode(told), _JSON)

    async def result(self, request: HttpRequest) -> Reply:
        """The ZIP of a finished job of any client that the sender may see."""
        name, job = job_of(request)
        row = await self.callers.ask(AskJob(show_job_id(job)), request.identity)
        assert isinstance(row, JobRow)
        if _STATES[row.state] not in {"done", "failed"}:
            raise Refused("no-result", f"job {name} is {_STATES[row.state]}")
        self._check_owner(request, name, job)
        # Not claimed as the client that submitted it: only that client confirms its result.
        return await self._answer(request, name, ClientId(CLIENT), job, ev.Claimed(ConnId(0), (job,)))

    async def cancel(self, request: HttpRequest) -> Reply:
        """Cancel a job. A finished one stays as it is."""
        name, job = job_of(request)
        answer = await self.callers.ask(AskCancel([show_job_id(job)]), request.identity)
        assert isinstance(answer, CancelAnswer)
        if answer.unknown:
            raise Refused("unknown-job", f"the leader does not know job {name}, or no longer")
        return Reply(202, msgspec.json.encode({"cancelled": bool(answer.cancelled)}), _JSON)

    def _check_owner(self, request: HttpRequest, name: str, job: JobId, client: str | None = None) -> None:
        """A job of another client is neither joined nor claimed. A gateway may see all jobs, but the `client` that it
        speaks for may not. Raises Refused."""
        who, owner = request.identity, self._hub.owner(job)
        if owner is None:
            return
        sight = who.sight()
        is_hidden = sight is not None and not sight.sees(owner)
        if is_hidden or (client is not None and who.role is Role.GATEWAY and owner != client):
            raise Refused("denied", f"job {name} belongs to another client", "choose another id")

    # Submission of a job.

    def _check_open(self, job: JobId) -> None:
        """Refuse a job before its input is received, if the leader would refuse it anyway. Raises Refused."""
        if self._is_first:
            self._is_first = False
            self.callers.adopt(self._hub.unclaimed(ClientId(CLIENT)))
        if self._hub.behind:
            self.busy.add("full")
            raise Refused("full", "the leader's disk does not keep up")
        why = self._hub.why_not(job)
        if why is not None:
            self.busy.add(why.code)
            raise Refused(why.code, why.text)

    @contextmanager
    def _received(self) -> Iterator[None]:
        try:
            self._inputs.begin()
        except Refused as error:
            self.busy.add(error.code)
            raise
        try:
            yield
        finally:
            self._inputs.end()

    async def _bring(self, received: Received, refs: Sequence[BlobRef]) -> None:
        """Put a large input into the leader's place, if it is not there. Raises Refused."""
        blobs = self._blobs
        assert blobs is not None
        assert received.path is not None
        looked: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        blobs.expected.name(refs)  # Keeps the blob from being removed for BLOB_NAMED_S.
        blobs.missing(refs, lambda missing: None if looked.done() else looked.set_result(missing))
        if not await looked:
            return
        await blobs.put(refs[0], received.path)

    # Answer of a job.

    async def _answer(
        self,
        request: HttpRequest,
        name: str,
        client: ClientId,
        job: JobId,
        event: ev.Submitted | ev.Claimed,
    ) -> Reply:
        given = await self.callers.wait_for(request, client, job, event)
        try:
            reply = await self._reply(name, client, given.effect)
        except Refused:  # An error is an answer too: the job is over.
            self.callers.written(given)
            raise
        return reply._replace(on_sent=lambda: self.callers.written(given))

    async def _reply(self, name: str, client: ClientId, effect: ev.SendResult) -> Reply:
        job, result = effect.job, effect.result
        if isinstance(result, Verdict):
            return await answer_of(name, record_of(job, client, effect.program, result))
        try:
            record = read_result(job, unpack(result) if is_packed(result) else result)
        except PeerError as error:
            raise Refused("bad-result", str(error)) from None
        refs = {
            key: ref
            for key, ref in zip(_PARTS, (record.archive_blob, record.stdout_blob, record.stderr_blob), strict=True)
            if isinstance(ref, BlobRef)
        }
        return await (self._large_answer(name, record, refs) if refs else answer_of(name, record))

    async def _large_answer(self, name: str, record: JobResult, refs: dict[str, BlobRef]) -> Reply:
        blobs = self._blobs
        if blobs is None:
            raise Refused("no-blob", "this leader keeps no blobs any more")
        with ExitStack() as files:
            try:
                parts = {
                    key: files.enter_context(await asyncio.to_thread(blobs.open, ref)) for key, ref in refs.items()
                }
            except Refused as no:
                if no.code == "no-blob":
                    raise Refused("expired", f"the files of job {name}'s result are gone") from None
                raise
            return await answer_of(name, record, parts, files.pop_all().close)


_PARTS: Final = (ARCHIVE, STDOUT, STDERR)
