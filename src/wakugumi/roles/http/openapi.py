"""What does each role answer over HTTP, in words that machines read? One table of operations, and OpenAPI 3.1 from it.

A problem is listed by its code: the error table has its status and what it means. A test compares the table with the
pages of each role, both ways, and schemathesis asks each role all that the documents allow and more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from wakugumi import __version__
from wakugumi.errors import CODES
from wakugumi.roles.http.openapi_schemas import (
    ASYNC,
    BLOB_HEADERS,
    CANCELLED,
    CAPACITY,
    FORM,
    GATEWAY_STATUS,
    GROUP_STATUS,
    HEALTH,
    JOB,
    JOB_PARAMETERS,
    JSON,
    KEPT_HEADERS,
    NODE_CAPACITY,
    PROBLEM,
    RANGE,
    REQUEST,
    RESULT_HEADERS,
    SHA256,
    SUBMITTED,
    UPLOAD_PARAMETERS,
    ZIP,
)

Json = dict[str, Any]

LEADER: Final = "leader"
NODE: Final = "node"
GATEWAY: Final = "gateway"
WORKER: Final = "worker"
ROLES: Final = (LEADER, NODE, GATEWAY, WORKER)
_TITLES: Final = {
    LEADER: "A group's leader",
    NODE: "A node",
    GATEWAY: "A gateway",
    WORKER: "A worker, for those who watch it",
}


class OkResponse(NamedTuple):
    """A successful response."""

    status: int
    text: str
    content: Mapping[str, Json] = MappingProxyType({})
    """Schemas by content type."""
    headers: Mapping[str, Json] = MappingProxyType({})


class Operation(NamedTuple):
    """A method on a path."""

    method: str
    path: str
    roles: tuple[str, ...]
    text: str
    answers: tuple[OkResponse, ...]
    codes: tuple[str, ...] = ()
    """Problems, each by its code; `415 bad-request` if its status is not that of the error table."""
    parameters: tuple[Json, ...] = ()
    body: Json | None = None

    @property
    def page(self) -> str:
        """The path as a role registers it: up to the first parameter."""
        return self.path.partition("{")[0]


_ZIPPED: Final = OkResponse(200, "The result: what the program made, and what it printed.", {ZIP: {}}, RESULT_HEADERS)
_PATH: Final = ("bad-request",)
_RECEIVED: Final = ("bad-request", "bad-name", "too-big", "too-slow", "disk", "disk-full")
_ENDED: Final = (
    *("unknown-program", "not-executable", "no-cache", "no-blob", "blob-broken", "timeout", "cancelled", "expired"),
    *("worker-error", "input-changed", "bad-result", "conflict"),
)
"""Ends of a job without an answer of its program."""
_GIVEN_UP: Final = ("dead", "worker-lost", "leader-lost", "ack-late", "input-lost", "bad-subject")
"""Ends of a job without an answer of its program, where other machines run it."""

OPERATIONS: Final = (
    Operation(
        "POST",
        "/run/{job}",
        (NODE,),
        "Run the node's program, or one that is named, on the form's file, and wait for its result. The same id again "
        "gives the same result; while it runs, 423.",
        (_ZIPPED._replace(headers=KEPT_HEADERS),),
        (*_RECEIVED, *_ENDED, "running", "busy", "stopping"),
        (JOB, *JOB_PARAMETERS, REQUEST),
        FORM,
    ),
    Operation(
        "POST",
        "/dispatch/{job}",
        (LEADER,),
        "Run a job on one of the group's workers or nodes, and wait for its result. The same id again waits for the "
        "same run, or gets its result.",
        (_ZIPPED,),
        (*_RECEIVED, *_ENDED, *_GIVEN_UP, "full", "busy", "stopping"),
        (JOB, *JOB_PARAMETERS, ASYNC),
        FORM,
    ),
    Operation(
        "POST",
        "/submit/{job}",
        (GATEWAY,),
        "Run a job in one of the gateway's groups. Whoever prefers respond-async is told at once where to ask; all "
        "others wait for the result.",
        (
            _ZIPPED,
            OkResponse(
                202, "It is accepted, for good.", {JSON: SUBMITTED}, {"Location": {"schema": {"type": "string"}}}
            ),
        ),
        (*_RECEIVED, *_ENDED, *_GIVEN_UP, "full", "busy", "stopping", "no-group"),
        (JOB, *JOB_PARAMETERS, ASYNC),
        FORM,
    ),
    Operation(
        "GET",
        "/status/{job}",
        (LEADER,),
        "Where is a job, and why?",
        (OkResponse(200, "Its state.", {JSON: GROUP_STATUS}),),
        (*_PATH, "unknown-job", "stopping"),
        (JOB,),
    ),
    Operation(
        "GET",
        "/status/{job}",
        (GATEWAY,),
        "Where is a job?",
        (OkResponse(200, "Its state.", {JSON: GATEWAY_STATUS}),),
        (*_PATH, "unknown-job"),
        (JOB,),
    ),
    Operation(
        "GET",
        "/result/{job}",
        (LEADER, GATEWAY),
        "The result of a job that is done.",
        (_ZIPPED,),
        (*_PATH, "unknown-job", "no-result", "full", "stopping", *_ENDED, *_GIVEN_UP),
        (JOB,),
    ),
    Operation(
        "GET",
        "/events/{job}",
        (GATEWAY,),
        "Each state of a job as it comes, until it is done or failed.",
        (OkResponse(200, "Server-sent events: `state`, with what /status says.", {"text/event-stream": {}}),),
        (*_PATH, "unknown-job", "busy"),
        (JOB,),
    ),
    Operation(
        "DELETE",
        "/jobs/{job}",
        (NODE, LEADER, GATEWAY),
        "Nobody wants this job any more. One that is done stays as it is.",
        (OkResponse(202, "Whether there was something to end.", {JSON: CANCELLED}),),
        (*_PATH, "unknown-job", "stopping"),
        (JOB,),
    ),
    Operation(
        "GET",
        "/health",
        ROLES,
        "May it be given work?",
        (OkResponse(200, "It may.", {JSON: HEALTH}), OkResponse(503, "It may not: `status` says why.", {JSON: HEALTH})),
    ),
    Operation(
        "GET",
        "/capacity",
        (NODE, WORKER),
        "How many jobs run, and how many could?",
        (OkResponse(200, "Its slots.", {JSON: NODE_CAPACITY}),),
    ),
    Operation(
        "GET",
        "/capacity",
        (LEADER, GATEWAY),
        "How many jobs run, wait, and could run?",
        (OkResponse(200, "The slots of all that it leads to.", {JSON: CAPACITY}),),
    ),
    Operation(
        "GET",
        "/metrics",
        ROLES,
        "All that it counts, for Prometheus: docs/reference/metrics.md.",
        (OkResponse(200, "The text format.", {"text/plain": {"type": "string"}}),),
    ),
    Operation(
        "GET",
        "/openapi.json",
        ROLES,
        "This document.",
        (OkResponse(200, "OpenAPI 3.1.", {JSON: {"type": "object", "required": ["openapi", "paths"]}}),),
    ),
    Operation(
        "GET",
        "/blobs/{sha256}",
        (LEADER,),
        "The content that has this hash: docs/reference/blobs.md.",
        (
            OkResponse(200, "All of it.", {"application/octet-stream": {}}, BLOB_HEADERS),
            OkResponse(206, "The part that was asked for.", {"application/octet-stream": {}}, BLOB_HEADERS),
        ),
        ("bad-name", "no-blob", "full", "416 bad-request"),
        (SHA256, RANGE),
    ),
    Operation(
        "HEAD",
        "/blobs/{sha256}",
        (LEADER,),
        "Is there content with this hash, and how large is it?",
        (OkResponse(200, "There is.", {}, BLOB_HEADERS),),
        ("bad-name", "no-blob"),
        (SHA256,),
    ),
    Operation(
        "PUT",
        "/blobs/{sha256}",
        (LEADER,),
        "Bring content. An upload that was cut off goes on where it ended.",
        (
            OkResponse(201, "It is here now.", {}, BLOB_HEADERS),
            OkResponse(200, "It was here before.", {}, BLOB_HEADERS),
        ),
        (
            *("bad-request", "bad-name", "415 bad-request", "blob-broken", "blob-busy", "409 conflict", "too-big"),
            *("full", "disk", "too-slow"),
        ),
        (SHA256, *UPLOAD_PARAMETERS),
        {"required": True, "content": {"application/octet-stream": {"schema": {"type": "string"}}}},
    ),
)


def operations_of(role: str) -> list[Operation]:
    return [operation for operation in OPERATIONS if role in operation.roles]


def document(role: str) -> bytes:
    """The role's document, as JSON."""
    paths: dict[str, Json] = {}
    for operation in operations_of(role):
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": f"Wakugumi: {_TITLES[role]}",
                "version": __version__,
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            },
            "servers": [{"url": "/"}],
            "paths": paths,
            "components": {"schemas": {"Problem": PROBLEM}},
        }
    )


def _operation(operation: Operation) -> Json:
    name = operation.page.strip("/").replace(".", "_")
    told: Json = {
        "operationId": f"{operation.method.lower()}_{name}",
        "summary": operation.text,
        "responses": {str(answer.status): _answer(answer) for answer in operation.answers} | dict(_problems(operation)),
    }
    if operation.parameters:
        told["parameters"] = list(operation.parameters)
    if operation.body is not None:
        told["requestBody"] = operation.body
    return told


def _answer(answer: OkResponse) -> Json:
    told: Json = {"description": answer.text}
    if answer.content:
        told["content"] = {kind: {"schema": schema} if schema else {} for kind, schema in answer.content.items()}
    if answer.headers:
        told["headers"] = dict(answer.headers)
    return told


def _problems(operation: Operation) -> Iterator[tuple[str, Json]]:
    """One response for each status, with its codes and their meanings."""
    by_status: dict[int, list[str]] = {}
    for said in ("denied", *operation.codes):
        own_status, _, code = said.rpartition(" ")
        by_status.setdefault(int(own_status or CODES[code].http_status), []).append(code)
    for status, codes in sorted(by_status.items()):
        told: Json = {"description": f"{HTTPStatus(status).phrase}: {', '.join(f'`{code}`' for code in codes)}"}
        if operation.method != "HEAD":
            told["content"] = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
        if status in {423, 503}:
            told["headers"] = {"Retry-After": {"schema": {"type": "string"}, "description": "In so many seconds."}}
        yield str(status), told
