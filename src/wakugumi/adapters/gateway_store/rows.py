"""How is a job written into a row of the table, and read from it?"""

from __future__ import annotations

from typing import Final

import msgspec

from wakugumi.core.gateway.rows import DONE, FAILED, QUEUED, RUNNING, Content, GatewayJob
from wakugumi.core.ids import JobId

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


_SAME: Final = [name for name in _RowExtras.__struct_fields__ if name not in {"body", "answer"}]
"""Fields of a job that are written as they are."""
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_RowExtras).decode


def row_values(row: GatewayJob) -> tuple[object, ...]:
    """Values of all columns but the contents."""
    same = {name: getattr(row, name) for name in _SAME}
    told = _RowExtras(body=_place(row.body), answer=_place(row.answer), **same)
    content = row.answer if row.is_final else row.body
    kept_bytes = 0 if content is None else content.size
    state = _STATES.index(row.state)
    return row.job, row.version, state, row.owner, row.accepted_at, row.changed_at, kept_bytes, _encode(told)


def read_row(found: tuple[bytes, int, int, str, float, float, bytes, bytes | None, bytes | None]) -> GatewayJob:
    """From COLUMNS, body and answer."""
    job, version, state, owner, accepted_at, changed_at, encoded, body, answer = found
    told = _decode(encoded)
    return GatewayJob(
        job=JobId(job),
        owner=owner,
        state=_STATES[state],
        body=None if told.body is None else Content(told.body[0], body, told.body[1]),
        answer=None if told.answer is None else Content(told.answer[0], answer, told.answer[1]),
        version=version,
        accepted_at=accepted_at,
        changed_at=changed_at,
        **{name: getattr(told, name) for name in _SAME},
    )


def data_of(content: Content | None) -> bytes | None:
    """The bytes of a content that is in the row."""
    return None if content is None else content.data


def _place(content: Content | None) -> tuple[int, str] | None:
    return None if content is None else (content.size, content.file)
