"""What does each role answer over HTTP, in words that machines read? OpenAPI 3.1, made from the table of pages.

schemathesis asks each role all that the documents allow and more.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

import msgspec

from wakugumi import __version__
from wakugumi.core.access.decide import Right
from wakugumi.roles.http.openapi_schemas import PROBLEM, SECURITY
from wakugumi.roles.http.page_table import GATEWAY, LEADER, NODE, WORKER, Answer, Json, PageText, pages_of

_TITLES: Final = {
    LEADER: "A group's leader",
    NODE: "A node",
    GATEWAY: "A gateway",
    WORKER: "A worker, for those who watch it",
}


def document(role: str) -> bytes:
    """The role's document, as JSON."""
    paths: dict[str, Json] = {}
    for page in pages_of(role):
        paths.setdefault(page.path, {})[page.method.lower()] = _operation(page)
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
            "components": {"schemas": {"Problem": PROBLEM}, "securitySchemes": SECURITY},
        }
    )


def _operation(page: PageText) -> Json:
    told: Json = {
        "operationId": page.name,
        "summary": page.summary or page.text,
        "responses": {str(answer.status): _answer(answer) for answer in page.answers}
        | {str(status): _problem(page, status, codes) for status, codes in page.problems()},
    }
    if page.need is Right.OPEN:
        told["security"] = []
    else:
        told["description"] = (
            f"Needs the right `{page.need.value}`, which keys with these roles have: {', '.join(page.may)}."
        )
        # The last one: a user of the server's machine shows nothing.
        told["security"] = [*({name: [page.need.value]} for name in SECURITY), {}]
    if page.parameters:
        told["parameters"] = list(page.parameters)
    if page.body is not None:
        told["requestBody"] = page.body
    return told


def _answer(answer: Answer) -> Json:
    told: Json = {"description": answer.text}
    if answer.content:
        told["content"] = {kind: {"schema": schema} if schema else {} for kind, schema in answer.content.items()}
    if answer.headers:
        told["headers"] = dict(answer.headers)
    return told


def _problem(page: PageText, status: int, codes: list[str]) -> Json:
    """The response of a status, with its codes."""
    told: Json = {"description": f"{HTTPStatus(status).phrase}: {', '.join(f'`{code}`' for code in codes)}"}
    if page.method != "HEAD":
        told["content"] = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    if status == 401:
        told["headers"] = {"WWW-Authenticate": {"schema": {"type": "string"}}}
    if status in {423, 503}:
        told["headers"] = {"Retry-After": {"schema": {"type": "string"}, "description": "In so many seconds."}}
    return told
