"""How does a leader answer by HTTP, on its own port? (SPEC G1) `roles/http/page_table.py` has its pages.

A small input stays in memory; a large one is put into the leader's place for blobs before its job is submitted.
A small input and a small answer need no thread.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from typing import Final

import msgspec
from msgspec import structs

from wakugumi import __version__
from wakugumi.adapters.blobs.place import Place
from wakugumi.adapters.blobs.store import Incoming
from wakugumi.adapters.http.page import HttpRequest, PageRoute, Reply
from wakugumi.adapters.http.upload import Received, receive_file
from wakugumi.adapters.jobdir.large_parts import ARCHIVE, STDERR, STDOUT
from wakugumi.adapters.net.compression import is_packed, unpack
from wakugumi.core.ids import ClientId, ConnId, JobId, Verdict, show_job_id
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.answer_records import CancelAnswer, ExplainAnswer, JobRow
from wakugumi.core.leader.questions import AskCancel, AskExplain, AskJob
from wakugumi.core.metric_table import LEADER_CONNECTIONS, LEADER_HTTP_BUSY, LEADER_HTTP_RECEIVING
from wakugumi.core.metrics import Counter, Family
from wakugumi.errors import Lost, PeerError, Refused
from wakugumi.limits.files import BLOB_BYTES_MAX, INLINE_FILE_BYTES_MAX
from wakugumi.roles.http.job_request import CLIENT, JobForm, job_of, request_of
from wakugumi.roles.http.page_table import LEADER, page_routes
from wakugumi.roles.http.status_pages import OK, STOPPING, wayside_pages
from wakugumi.roles.http.zip_response import answer_of
from wakugumi.roles.leader.effects import record_of
from wakugumi.roles.leader.files.blobs import LeaderBlobs
from wakugumi.roles.leader.http.clients import HttpCallers
from wakugumi.roles.leader.hub import Hub
from wakugumi.roles.leader.questions import Questions
from wakugumi.roles.leader.settings import LeaderSettings
from wakugumi.roles.leader.submit import Submissions
from wakugumi.wire.messages.job import JobResult, SubmitHead, read_result
from wakugumi.wire.messages.references import BlobRef, FileHead
from wakugumi.wire.node_request import marked
from wakugumi.wire.request_digest import payload_digest

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
    ) -> None:
        self._hub = hub
        self._submissions = submissions
        self._blobs = blobs
        self._settings = settings
        self.callers = HttpCallers(hub, questions, settings.http_cap)
        self.receiving = 0
        """Inputs that are being received."""
        self.busy = Counter(LEADER_HTTP_BUSY)
        self._is_first = True

    def routes(self) -> list[PageRoute]:
        handlers = {
            "post_dispatch": self.dispatch,
            "get_status": self.status,
            "get_result": self.result,
            "delete_jobs": self.cancel,
        }
        return [
            *page_routes(LEADER, handlers),
            *wayside_pages(LEADER, __version__, self._health, self._hub.capacity, self._families),
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

    async def close(self) -> None:
        await self.callers.close()

    async def dispatch(self, request: HttpRequest) -> Reply:
        """Run a job; wait for it if it runs already; return its result if it is done."""
        name, job = job_of(request)
        form = JobForm.of(request, _ALSO)
        if not form.program:
            form = form._replace(program=self._settings.program)
        self._check_open(job)
        with self._received():
            received = await self._receive(request)
        blobs: tuple[BlobRef, ...] = ()
        try:
            payload = request_of(form, job, received)
            head = SubmitHead(
                exec_name=form.program,
                files=None if received.content is not None else (FileHead(sha256=received.sha256, size=received.size),),
                **{name: form.fields[name] for name in SubmitHead.__struct_fields__ if name in form.fields},
            )
            event, blobs = self._submissions.event_of(
                ConnId(0), True, job, form.subject, head, payload, len(payload), payload_digest(payload)
            )
            event = structs.replace(event, requirements=marked(event.requirements, payload, by_http=True))
            if blobs and not self._hub.knows(job):
                await self._bring(received, blobs)
        finally:
            if received.path is not None:
                received.path.unlink(missing_ok=True)
        return await self._answer(request, name, form.client, job, lambda conn: structs.replace(event, conn=conn))

    async def status(self, request: HttpRequest) -> Reply:
        """Where is a job, and why?"""
        name, job = job_of(request)
        row = await self.callers.ask(AskJob(show_job_id(job)))
        why = await self.callers.ask(AskExplain(show_job_id(job)))
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
        """The ZIP of a finished job of any client."""
        name, job = job_of(request)
        row = await self.callers.ask(AskJob(show_job_id(job)))
        assert isinstance(row, JobRow)
        if _STATES[row.state] not in {"done", "failed"}:
            raise Refused("no-result", f"job {name} is {_STATES[row.state]}")
        # Not claimed as the client that submitted it: only that client confirms its result.
        return await self._answer(request, name, ClientId(CLIENT), job, lambda conn: ev.Claimed(conn, (job,)))

    async def cancel(self, request: HttpRequest) -> Reply:
        """Cancel a job. A finished one stays as it is."""
        name, job = job_of(request)
        answer = await self.callers.ask(AskCancel([show_job_id(job)]))
        assert isinstance(answer, CancelAnswer)
        if answer.unknown:
            raise Refused("unknown-job", f"the leader does not know job {name}, or no longer")
        return Reply(202, msgspec.json.encode({"cancelled": bool(answer.cancelled)}), _JSON)

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
        if self.receiving >= self._settings.http_received_max:
            self.busy.add("busy")
            raise Refused("busy", f"{self.receiving} inputs are being received")
        self.receiving += 1
        try:
            yield
        finally:
            self.receiving -= 1

    async def _receive(self, request: HttpRequest) -> Received:
        blobs = self._blobs
        if blobs is None:
            return await receive_file(request, Path(), bytes_max=INLINE_FILE_BYTES_MAX)
        folder = Path(tempfile.gettempdir()) if blobs.store is None else blobs.store.incoming
        return await receive_file(request, folder, bytes_max=BLOB_BYTES_MAX)

    async def _bring(self, received: Received, refs: Sequence[BlobRef]) -> None:
        """Put a large input into the leader's place, if it is not there. Raises Refused."""
        blobs = self._blobs
        assert blobs is not None
        assert received.path is not None
        (ref,), path = refs, received.path
        looked: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        blobs.expected.name(refs)  # Keeps the blob from being removed for BLOB_NAMED_S.
        blobs.missing(refs, lambda missing: None if looked.done() else looked.set_result(missing))
        if not await looked:
            return
        put = blobs.place.put if blobs.store is None else blobs.store.adopt
        try:
            await asyncio.to_thread(put, ref, path)
        except Lost as error:
            raise Refused("worker-error", f"the input cannot be put into the leader's place: {error}") from None
        blobs.expected.name(refs)  # Again, since the put may have been slow.

    # Answer of a job.

    async def _answer(
        self,
        request: HttpRequest,
        name: str,
        client: ClientId,
        job: JobId,
        say: Callable[[ConnId], ev.Submitted | ev.Claimed],
    ) -> Reply:
        effect = await self.callers.wait_for(request, client, job, say)
        try:
            reply = await self._reply(name, client, effect)
        except Refused:  # An error is an answer too: the job is over.
            self.callers.written(effect)
            raise
        return reply._replace(on_sent=lambda: self.callers.written(effect))

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
        if blobs.store is not None:
            store = blobs.store
            return await answer_of(name, record, {key: Path(store.path(ref.sha256)) for key, ref in refs.items()})
        folder = tempfile.mkdtemp(prefix="wakugumi-")
        parts = {key: Path(folder, key) for key in refs}
        try:
            await asyncio.to_thread(_fetch_all, blobs.place, refs, parts)
        except BaseException:
            rmtree(folder, ignore_errors=True)
            raise
        return await answer_of(name, record, parts, lambda: rmtree(folder, ignore_errors=True))


_PARTS: Final = (ARCHIVE, STDOUT, STDERR)


def _fetch_all(place: Place, refs: dict[str, BlobRef], parts: dict[str, Path]) -> None:
    """Raises Refused."""
    for key, ref in refs.items():
        try:
            place.fetch(ref, Incoming(ref, f"{parts[key]}.part", str(parts[key])))
        except Lost as error:
            raise Refused("worker-error", f"a result cannot be fetched: {error}") from None
