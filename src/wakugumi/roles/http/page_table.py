"""Which pages do the roles serve over HTTP? One table, for routes, OpenAPI and docs/reference/http-pages.md.

A new page is a row here and a handler that its role binds to the row's name. A problem is listed by its code: the error
table has its status and its meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from wakugumi.adapters.http.page import Page, PageRoute
from wakugumi.core.access.decide import RIGHTS_OF, Right
from wakugumi.errors import CODES
from wakugumi.roles.http import openapi_schemas as schemas

Json = dict[str, Any]

LEADER: Final = "leader"
NODE: Final = "node"
GATEWAY: Final = "gateway"
WORKER: Final = "worker"
ROLES: Final = (LEADER, NODE, GATEWAY, WORKER)


class Answer(NamedTuple):
    """A successful response."""

    status: int
    text: str
    content: Mapping[str, Json] = MappingProxyType({})
    """Schemas by content type."""
    headers: Mapping[str, Json] = MappingProxyType({})


class PageText(NamedTuple):
    """A request, and all that may answer it."""

    request: str
    """Method and path."""
    roles: tuple[str, ...]
    text: str
    answers: tuple[Answer, ...]
    codes: tuple[str, ...] = ()
    """Problems, each by its code; `415 bad-request` if its status is not that of the error table."""
    parameters: tuple[Json, ...] = ()
    body: Json | None = None
    need: Right = Right.RUN
    """The right that its sender must have."""
    quiet: bool = False
    """Requests are logged for debugging only."""
    summary: str = ""
    """The text in the OpenAPI document, where it was published in other words."""

    @property
    def method(self) -> str:
        return self.request.partition(" ")[0]

    @property
    def path(self) -> str:
        return self.request.partition(" ")[2]

    @property
    def may(self) -> list[str]:
        """Roles of keys that have the right; none for a page that is open to all."""
        return [] if self.need is Right.OPEN else [role.value for role, has in RIGHTS_OF.items() if self.need in has]

    @property
    def prefix(self) -> str:
        """The path up to the first parameter, as the server finds it."""
        return self.path.partition("{")[0]

    @property
    def name(self) -> str:
        """Name of the page within its role: `post_run`."""
        return f"{self.method.lower()}_{self.prefix.strip('/').replace('.', '_').replace('/', '_')}"

    def problems(self) -> list[tuple[int, list[str]]]:
        """Codes of each status."""
        by_status: dict[int, list[str]] = {}
        for said in (*(() if self.need is Right.OPEN else ("401 denied",)), "denied", *self.codes):
            own_status, _, code = said.rpartition(" ")
            by_status.setdefault(int(own_status or CODES[code].http_status), []).append(code)
        return sorted(by_status.items())


def _json(status: int, text: str, schema: Json, headers: Json | None = None) -> Answer:
    return Answer(status, text, {schemas.JSON: schema}, headers or {})


_ZIPPED: Final = Answer(
    200, "The result: what the program made, and what it printed.", {schemas.ZIP: {}}, schemas.RESULT_HEADERS
)
_LOCATION: Final[Json] = {"Location": {"schema": {"type": "string"}}}
_PATH: Final = ("bad-request",)
_RECEIVED: Final = ("bad-request", "bad-name", "too-big", "too-slow", "disk", "disk-full")
_ENDED: Final = (
    *("unknown-program", "not-executable", "no-cache", "no-blob", "blob-broken", "timeout", "cancelled", "expired"),
    *("worker-error", "input-changed", "bad-result", "conflict"),
)
"""Ends of a job without an answer of its program."""
_GIVEN_UP: Final = ("dead", "worker-lost", "leader-lost", "ack-late", "input-lost", "bad-subject")
"""Ends of a job without an answer of its program, where other machines run it."""

PAGES: Final = (
    PageText(
        "POST /run/{job}",
        (NODE,),
        "Run the node's program, or one that is named, on the form's file, and wait for its result. The same id again "
        "gives the same result; while it runs, 423.",
        (_ZIPPED._replace(headers=schemas.KEPT_HEADERS),),
        (*_RECEIVED, *_ENDED, "running", "busy", "stopping"),
        (schemas.JOB, *schemas.JOB_PARAMETERS, schemas.REQUEST),
        schemas.FORM,
    ),
    PageText(
        "POST /dispatch/{job}",
        (LEADER,),
        "Run a job on one of the group's workers or nodes, and wait for its result. The same id again waits for the "
        "same run, or gets its result.",
        (_ZIPPED,),
        (*_RECEIVED, *_ENDED, *_GIVEN_UP, "full", "busy", "stopping"),
        (schemas.JOB, *schemas.JOB_PARAMETERS, schemas.ASYNC),
        schemas.FORM,
    ),
    PageText(
        "POST /submit/{job}",
        (GATEWAY,),
        "Run a job in one of the gateway's groups, and wait for its result; with respond-async, answer at once.",
        (_ZIPPED, _json(202, "It is accepted, for good.", schemas.SUBMITTED, _LOCATION)),
        (*_RECEIVED, *_ENDED, *_GIVEN_UP, "full", "busy", "stopping", "no-group"),
        (schemas.JOB, *schemas.JOB_PARAMETERS, schemas.ASYNC),
        schemas.FORM,
        summary="Run a job in one of the gateway's groups. Whoever prefers respond-async is told at once where to ask; "
        "all others wait for the result.",
    ),
    PageText(
        "GET /status/{job}",
        (LEADER,),
        "Where is a job, and why?",
        (_json(200, "Its state.", schemas.GROUP_STATUS),),
        (*_PATH, "unknown-job", "stopping"),
        (schemas.JOB,),
        quiet=True,
        need=Right.LOOK,
    ),
    PageText(
        "GET /status/{job}",
        (GATEWAY,),
        "Where is a job?",
        (_json(200, "Its state.", schemas.GATEWAY_STATUS),),
        (*_PATH, "unknown-job"),
        (schemas.JOB,),
        need=Right.LOOK,
    ),
    PageText(
        "GET /result/{job}",
        (LEADER, GATEWAY),
        "The result of a job that is done.",
        (_ZIPPED,),
        (*_PATH, "unknown-job", "no-result", "full", "stopping", *_ENDED, *_GIVEN_UP),
        (schemas.JOB,),
    ),
    PageText(
        "GET /events/{job}",
        (GATEWAY,),
        "Each state of a job as it comes, until it is done or failed.",
        (Answer(200, "Server-sent events: `state`, with what /status says.", {"text/event-stream": {}}),),
        (*_PATH, "unknown-job", "busy"),
        (schemas.JOB,),
        need=Right.LOOK,
    ),
    PageText(
        "DELETE /jobs/{job}",
        (NODE, LEADER, GATEWAY),
        "Cancel a job. One that is done stays as it is.",
        (_json(202, "Whether there was something to end.", schemas.CANCELLED),),
        (*_PATH, "unknown-job", "stopping"),
        (schemas.JOB,),
        summary="Nobody wants this job any more. One that is done stays as it is.",
    ),
    PageText(
        "GET /health",
        ROLES,
        "May it be given work?",
        (_json(200, "It may.", schemas.HEALTH), _json(503, "It may not: `status` says why.", schemas.HEALTH)),
        quiet=True,
        need=Right.OPEN,
    ),
    PageText(
        "GET /access/me",
        ROLES,
        "As whom is the sender known, and what may it do?",
        (_json(200, "Name, role, proof and rules.", schemas.KNOWN_AS),),
        need=Right.KNOWN,
    ),
    PageText(
        "GET /capacity",
        (NODE, WORKER),
        "How many jobs run, and how many could?",
        (_json(200, "Its slots.", schemas.NODE_CAPACITY),),
        quiet=True,
        need=Right.LOOK,
    ),
    PageText(
        "GET /capacity",
        (LEADER, GATEWAY),
        "How many jobs run, wait, and could run?",
        (_json(200, "The slots of all that it leads to.", schemas.CAPACITY),),
        quiet=True,
        need=Right.LOOK,
    ),
    PageText(
        "GET /metrics",
        ROLES,
        "All that it counts, for Prometheus: docs/reference/metrics.md.",
        (Answer(200, "The text format.", {"text/plain": {"type": "string"}}),),
        quiet=True,
        need=Right.LOOK,
    ),
    PageText(
        "GET /access/ca",
        (LEADER, NODE, GATEWAY),
        "The certificate of the authority that signs this server's and its keys' certificates.",
        (Answer(200, "PEM.", {"application/x-pem-file": {"type": "string"}}),),
        ("no-authority",),
        need=Right.OPEN,
        quiet=True,
    ),
    PageText(
        "POST /access/certificate",
        (LEADER, NODE, GATEWAY),
        "A certificate for the sender's key, for a request (CSR) in PEM: mTLS then counts as the key.",
        (Answer(200, "PEM.", {"application/x-pem-file": {"type": "string"}}),),
        ("bad-request", "too-big", "no-authority"),
        body={"required": True, "content": {"text/plain": {"schema": {"type": "string"}}}},
        need=Right.CONTENT,
    ),
    PageText(
        "GET /in/{word}",
        (LEADER, NODE, GATEWAY),
        "A browser opens a link of `waku link`, once, and is known by a cookie for 12 h.",
        (
            Answer(
                303, "The cookie, and the first page.", {}, {**_LOCATION, "Set-Cookie": {"schema": {"type": "string"}}}
            ),
        ),
        parameters=(schemas.LINK_WORD,),
        need=Right.OPEN,
    ),
    PageText(
        "GET /openapi.json",
        ROLES,
        "All pages of the role, for machines.",
        (Answer(200, "OpenAPI 3.1.", {schemas.JSON: {"type": "object", "required": ["openapi", "paths"]}}),),
        quiet=True,
        summary="This document.",
        need=Right.OPEN,
    ),
    PageText(
        "GET /blobs/{sha256}",
        (LEADER,),
        "The content that has this hash: docs/reference/blobs.md.",
        (
            Answer(200, "All of it.", {"application/octet-stream": {}}, schemas.BLOB_HEADERS),
            Answer(206, "The part that was asked for.", {"application/octet-stream": {}}, schemas.BLOB_HEADERS),
        ),
        ("bad-name", "no-blob", "full", "416 bad-request"),
        (schemas.SHA256, schemas.RANGE),
        quiet=True,
        need=Right.CONTENT,
    ),
    PageText(
        "HEAD /blobs/{sha256}",
        (LEADER,),
        "Is there content with this hash, and how large is it?",
        (Answer(200, "There is.", {}, schemas.BLOB_HEADERS),),
        ("bad-name", "no-blob"),
        (schemas.SHA256,),
        quiet=True,
        need=Right.CONTENT,
    ),
    PageText(
        "PUT /blobs/{sha256}",
        (LEADER,),
        "Bring content. An upload that was cut off goes on where it ended.",
        (
            Answer(201, "It is here now.", {}, schemas.BLOB_HEADERS),
            Answer(200, "It was here before.", {}, schemas.BLOB_HEADERS),
        ),
        (
            *("bad-request", "bad-name", "415 bad-request", "blob-broken", "blob-busy", "409 conflict", "too-big"),
            *("full", "disk", "too-slow"),
        ),
        (schemas.SHA256, *schemas.UPLOAD_PARAMETERS),
        {"required": True, "content": {"application/octet-stream": {"schema": {"type": "string"}}}},
        quiet=True,
        need=Right.CONTENT,
    ),
)


def pages_of(role: str) -> list[PageText]:
    return [page for page in PAGES if role in page.roles]


def page_routes(role: str, handlers: Mapping[str, Page]) -> list[PageRoute]:
    """Handlers by the names of their pages. Raises KeyError for a page that the table does not have."""
    pages = {page.name: page for page in pages_of(role)}
    return [
        PageRoute(pages[name].method, pages[name].prefix, handler, pages[name].quiet, pages[name].need)
        for name, handler in handlers.items()
    ]
