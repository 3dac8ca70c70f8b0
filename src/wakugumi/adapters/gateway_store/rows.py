"""How is a job written into a row of the table, and read from it?"""

from __future__ import annotations

from operator import attrgetter
from typing import Final

import msgspec

from wakugumi.core.gateway.rows import DONE, FAILED, QUEUED, RUNNING, Content, GatewayJob, InputAt
from wakugumi.core.ids import HTTP_CLIENT, JobId
from wakugumi.wire.percent import percent_decoded

COLUMNS: Final = "id, version, state, owner, accepted_at, changed_at, told"
"""Columns of a row without its contents, as `read_row` takes them."""
_STATES: Final = (QUEUED, RUNNING, DONE, FAILED)
"""States by the number in their column."""


class _RowExtras(msgspec.Struct, array_like=True):
    """Fields that no query uses."""

    name: str
    group: str
    is_async: bool
    key: str
    query: str
    headers: dict[str, str]
    tries: int
    status: int
    head: dict[str, str]
    body: tuple[int, str] | None
    answer: tuple[int, str] | None
    """Size and file of body and answer; the file is empty if the content is in the row."""
    request: str = ""
    input: tuple[bytes, int, int] | None = None
    """Where the body has its file. Older gateways neither write nor read it."""
    client: str = ""
    """Empty in rows of older gateways: the query or the headers for the group have it."""


_SAME: Final = _RowExtras.__struct_fields__[: _RowExtras.__struct_fields__.index("body")]
"""The first fields, which are written as they are; so is `request`."""
_same: Final = attrgetter(*_SAME)
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_RowExtras).decode


def row_values(row: GatewayJob) -> tuple[object, ...]:
    """Values of all columns but the contents."""
    body, answer = row.body, row.answer
    found = None if body is None else body.input
    told = _RowExtras(
        *(row.name, row.group, row.is_async, row.key, row.query, row.headers, row.tries, row.status, row.head),
        *(_place(body), _place(answer), row.request, found, row.client),
    )
    content = answer if row.is_final else body
    kept_bytes = 0 if content is None else content.size
    state = _STATES.index(row.state)
    return row.job, row.version, state, row.owner, row.accepted_at, row.changed_at, kept_bytes, _encode(told)


def read_row(found: tuple[bytes, int, int, str, float, float, bytes, bytes | None, bytes | None]) -> GatewayJob:
    """From COLUMNS, body and answer."""
    job, version, state, owner, accepted_at, changed_at, encoded, body, answer = found
    told = _decode(encoded)
    input_at = None if told.input is None else InputAt(*told.input)
    return GatewayJob(
        job=JobId(job),
        owner=owner,
        state=_STATES[state],
        body=None if told.body is None else Content(told.body[0], body, told.body[1], input_at),
        answer=None if told.answer is None else Content(told.answer[0], answer, told.answer[1]),
        version=version,
        accepted_at=accepted_at,
        changed_at=changed_at,
        request=told.request,
        client=told.client or _client_of_old(told),
        **dict(zip(_SAME, _same(told), strict=True)),
    )


def data_of(content: Content | None) -> bytes | None:
    """The bytes of a content that is in the row."""
    return None if content is None else content.data


def _place(content: Content | None) -> tuple[int, str] | None:
    return None if content is None else (content.size, content.file)


def _client_of_old(told: _RowExtras) -> str:
    """The client id as the group of the job found it."""
    for pair in told.query.split("&"):
        name, _, value = pair.replace("+", " ").partition("=")
        if value and percent_decoded(name) == "client":
            return percent_decoded(value)
    return told.headers.get("Waku-Client") or HTTP_CLIENT
