"""One leader and its connection, as data: what follows from it."""

from __future__ import annotations

import pytest

from wakugumi.core.client.events import LeaderNo
from wakugumi.core.client.leader_row import (
    CONFIRMED_MAX,
    NEEDS_BLOBS,
    NEEDS_ENV,
    LeaderConnection,
    LeaderRow,
    note_accepted,
)
from wakugumi.core.client.stages import Sent
from wakugumi.core.ids import ConnId, JobId
from wakugumi.limits.wire import GIVEN_BYTES_MAX


def job(number: int) -> JobId:
    return JobId(number.to_bytes(16, "big"))


@pytest.fixture
def row() -> LeaderRow:
    return LeaderRow(LeaderNo(1), 0, Sent(LeaderNo(1)), Sent(LeaderNo(1), accepted=True))


@pytest.fixture
def conn(row: LeaderRow) -> LeaderConnection:
    row.conn = LeaderConnection(ConnId(1), row, greeted_at=0.0, received_at=0.0, sent_cap=1)
    return row.conn


def test_a_leader_serves_once_its_greeting_is_over_and_is_spoken_to_once_it_is_our_own(
    row: LeaderRow, conn: LeaderConnection
) -> None:
    assert (row.serves, row.line, row.is_coming) == (False, None, True)
    conn.ready = True
    assert (row.serves, row.line, row.is_coming) == (True, None, False)
    conn.own = True
    assert row.line is conn


def test_a_leader_that_failed_or_was_removed_is_not_about_to_come(row: LeaderRow) -> None:
    row.failures = 1
    assert not row.is_coming
    row.failures, row.removed = 0, True
    assert not row.is_coming


def test_only_so_many_cancels_are_remembered_and_the_oldest_is_forgotten(row: LeaderRow) -> None:
    for number in range(CONFIRMED_MAX + 1):
        row.remember_cancel(job(number))
    assert len(row.cancels) == CONFIRMED_MAX
    assert job(0) not in row.cancels
    assert job(CONFIRMED_MAX) in row.cancels


@pytest.mark.parametrize(
    ("blobs", "env", "taken"),
    [(False, False, {0}), (True, False, {0, 1}), (False, True, {0, 2}), (True, True, {0, 1, 2, 3})],
)
def test_a_connection_takes_what_its_leader_said_that_it_takes(
    conn: LeaderConnection, blobs: bool, env: bool, taken: set[int]
) -> None:
    conn.takes_blobs, conn.takes_env = blobs, env
    every = (0, NEEDS_BLOBS, NEEDS_ENV, NEEDS_BLOBS | NEEDS_ENV)
    assert {needs for needs in every if conn.takes(needs)} == taken


def test_a_job_waits_once_enough_bytes_were_given(conn: LeaderConnection) -> None:
    conn.submit(job(1), b"x" * GIVEN_BYTES_MAX)
    conn.submit(job(2), b"y")
    assert len(conn.frames) == 1
    assert list(conn.later) == [job(2)]
    assert conn.is_written_to


def test_a_full_leader_that_took_all_it_was_offered_is_offered_twice_as_many(conn: LeaderConnection) -> None:
    conn.full, conn.full_delay_s, conn.probing = True, 1.0, {job(1), job(2)}
    note_accepted(conn, job(1))
    assert (conn.probes, conn.full_delay_s) == (1, 1.0)
    note_accepted(conn, job(2))
    assert (conn.probes, conn.full_delay_s) == (2, 0.0)
