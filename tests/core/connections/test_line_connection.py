"""One connection by line: no line, half an input, and what is read after the answer."""

from __future__ import annotations

import pytest

from wakugumi.core.connections.line_connection import LineConnection
from wakugumi.errors import Lost, Refused
from wakugumi.limits.http import BODY_RECEIVED_MIN_S, LINGER_BYTES_MAX

pytestmark = pytest.mark.spec("N1")


@pytest.fixture
def connection() -> LineConnection:
    return LineConnection("peer")


def code(error: Refused | Lost) -> str:
    assert isinstance(error, Refused)
    return error.code


def test_without_a_line_the_client_is_told_why_or_has_left(connection: LineConnection) -> None:
    assert code(connection.no_line(5, is_late=True)) == "too-slow"
    assert code(connection.no_line(is_long=True)) == "bad-request"
    assert code(connection.no_line(3)) == "bad-request"
    assert isinstance(connection.no_line(), Lost)


def test_an_input_that_ends_early_is_refused_with_both_sizes(connection: LineConnection) -> None:
    connection.begin(10)
    connection.came(4, 1.0)
    assert connection.left == 6
    assert connection.pace.left_s == BODY_RECEIVED_MIN_S - 1.0
    assert connection.input_ended().message == "4 bytes came, and the line says 10"
    assert connection.input_late().code == "too-slow"


@pytest.mark.parametrize(
    ("size", "came", "half", "lingers"),
    [
        (None, 0, False, True),  # A line that is not whole, or wrong.
        (10, 4, False, True),
        (10, 10, False, False),
        (0, 0, False, False),
        (10, 10, True, True),
    ],
)
def test_further_bytes_are_read_unless_only_a_close_tells_the_end(
    connection: LineConnection, size: int | None, came: int, half: bool, lingers: bool
) -> None:
    if size is not None:
        connection.begin(size)
        connection.came(came, 0.0)
    assert connection.lingers(can_half_close=half) == lingers


def test_only_so_many_further_bytes_are_read(connection: LineConnection) -> None:
    assert connection.lingered(LINGER_BYTES_MAX - 1)
    assert not connection.lingered(1)
