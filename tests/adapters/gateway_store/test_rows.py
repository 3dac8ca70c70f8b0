"""How is a job written into a row of the table, and read from it?"""

from __future__ import annotations

import msgspec
import pytest

from wakugumi.adapters.gateway_store.rows import COLUMNS, data_of, read_row, row_values
from wakugumi.core.gateway.rows import DONE, FAILED, QUEUED, RUNNING, Content, GatewayJob, InputAt
from wakugumi.core.ids import JobId

FULL = GatewayJob(
    job=JobId(bytes(range(16))),
    name="monday",
    owner="g1",
    state=DONE,
    group="a",
    is_async=True,
    key="k",
    query="x=1",
    headers={"a": "b"},
    body=Content(3, b"abc", "", InputAt(b"{}", 1, 2)),
    tries=2,
    status=200,
    head={"c": "d"},
    answer=Content(9_000_000, None, "file"),
    version=4,
    accepted_at=1.5,
    changed_at=2.5,
    request="digest",
    client="ann",
)


def read_back(row: GatewayJob) -> GatewayJob:
    *values, kept_bytes, told = row_values(row)
    assert isinstance(kept_bytes, int)
    return read_row((*values, told, data_of(row.body), data_of(row.answer)))  # type: ignore[arg-type]


@pytest.mark.parametrize("row", [FULL, GatewayJob(job=FULL.job, name="", owner="")])
def test_a_row_is_read_as_it_was_written(row: GatewayJob) -> None:
    assert read_back(row) == row


def test_each_field_is_written() -> None:
    """A row in which every field differs from its default: a field that is not written would fail above."""
    plain = GatewayJob(job=JobId(bytes(16)), name="", owner="")
    assert not [name for name in GatewayJob.__struct_fields__ if getattr(FULL, name) == getattr(plain, name)]


@pytest.mark.parametrize(("state", "number"), [(QUEUED, 0), (RUNNING, 1), (DONE, 2), (FAILED, 3)])
def test_the_number_of_a_state_is_part_of_the_file(state: str, number: int) -> None:
    row = msgspec.structs.replace(FULL, state=state)
    assert dict(zip(COLUMNS.split(", "), row_values(row)))["state"] == number
    assert read_back(row) == row


@pytest.mark.parametrize(("state", "size"), [(RUNNING, 3), (DONE, 9_000_000)])
def test_the_body_of_an_open_job_and_the_answer_of_an_ended_one_are_counted(state: str, size: int) -> None:
    assert row_values(msgspec.structs.replace(FULL, state=state))[6] == size


def test_rows_of_older_and_newer_gateways_are_read() -> None:
    """Fields are told by their place: older gateways know fewer of them."""
    *values, _, told = row_values(FULL)
    fields = msgspec.msgpack.decode(told)  # type: ignore[arg-type]
    older, newer = msgspec.msgpack.encode(fields[:-2]), msgspec.msgpack.encode([*fields, "more"])
    assert read_row((*values, newer, b"abc", None)) == FULL  # type: ignore[arg-type]
    no_place = msgspec.structs.replace(FULL, body=Content(3, b"abc"), client="http")
    assert read_row((*values, older, b"abc", None)) == no_place  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("query", "headers", "client"),
    [
        ("client=a%2Eb&x=1", {"Waku-Client": "c"}, "a.b"),
        ("x=1&client=a+b", {}, "a b"),
        ("client=&x=1", {"Waku-Client": "c"}, "c"),
        ("", {"Waku-Client": "c"}, "c"),
        ("x=client", {}, "http"),
    ],
)
def test_a_row_of_an_older_gateway_has_the_client_that_its_group_saw(
    query: str, headers: dict[str, str], client: str
) -> None:
    *values, _, told = row_values(msgspec.structs.replace(FULL, query=query, headers=headers))
    older = msgspec.msgpack.encode(msgspec.msgpack.decode(told)[:-1])  # type: ignore[arg-type]
    assert read_row((*values, older, b"abc", None)).client == client  # type: ignore[arg-type]
