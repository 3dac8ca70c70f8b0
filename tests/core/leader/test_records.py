"""What do the records of jobs, clients, workers and lanes say of themselves?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakugumi.core.ids import ClientId, ConnId, JobId, WorkerId
from wakugumi.core.leader.jobs.same_request import digest_of
from wakugumi.core.leader.jobs.states import TRANSITIONS, JobState
from wakugumi.core.leader.records import CRC_BITS, ClientRecord, JobRecord, Lane, PatternPool, WorkerRecord
from wakugumi.core.requirements import Requirements
from wakugumi.core.subject import parse_pattern, parse_subject
from wakugumi.limits.leader import UNDELIVERED_BYTES_PER_CLIENT_MAX
from wakugumi.limits.wire import GIVEN_BYTES_MAX

CALC = parse_subject("job.assign.calc")


def a_job(**fields: object) -> JobRecord:
    client = ClientRecord(ClientId("desk"))
    return JobRecord(JobId(b"j" * 16), client, CALC, "calc", 1.0, 0.0, b"", (), **fields)  # type: ignore[arg-type]


def a_worker() -> WorkerRecord:
    worker = WorkerRecord(WorkerId(bytes(range(16))), 1)
    worker.conn = ConnId(1)
    worker.credit = 2
    return worker


@pytest.mark.parametrize("before", JobState)
@pytest.mark.parametrize("after", JobState)
def test_a_job_changes_its_state_only_as_the_table_allows(before: JobState, after: JobState) -> None:
    job = a_job(state=before)
    if after in TRANSITIONS[before]:
        job.enter(after)
        assert job.state is after
    else:
        with pytest.raises(AssertionError):
            job.enter(after)
        assert job.state is before


@given(st.integers(0, 2**40), st.binary(min_size=16, max_size=16).filter(lambda raw: any(raw[4:])))
def test_a_digest_holds_size_and_request(size: int, request: bytes) -> None:
    job = a_job(digest=digest_of(size, request))
    assert (job.size, job.request) == (size, request)
    assert job.checksum == size << CRC_BITS, "a request with a digest needs no checksum"


@given(st.binary(max_size=100))
def test_a_job_of_an_older_journal_has_a_checksum_and_no_request(payload: bytes) -> None:
    job = a_job(digest=digest_of(len(payload), b"", payload=payload))
    assert (job.size, job.request) == (len(payload), b"")
    again = a_job(digest=digest_of(0, b"", checksum=job.checksum))
    assert again.digest == job.digest or not payload


@pytest.mark.parametrize(
    ("cap", "in_flight", "undelivered_bytes", "may_run"),
    [
        (0, 0, 0, False),
        (1, 0, 0, True),
        (1, 1, 0, False),
        (2, 1, UNDELIVERED_BYTES_PER_CLIENT_MAX - 1, True),
        (2, 1, UNDELIVERED_BYTES_PER_CLIENT_MAX, False),
    ],
)
def test_a_client_may_run_below_its_cap_and_with_room_for_results(
    cap: int, in_flight: int, undelivered_bytes: int, may_run: bool
) -> None:
    client = ClientRecord(ClientId("desk"))
    client.cap, client.in_flight, client.undelivered_bytes = cap, in_flight, undelivered_bytes
    assert client.may_run is may_run


def test_a_worker_without_a_name_is_called_by_its_id() -> None:
    worker = a_worker()
    by_id = worker.label
    assert len(by_id) == 8
    worker.set_name("mill")
    assert (worker.name, worker.label) == ("mill", "mill")
    worker.set_name("")
    assert (worker.name, worker.label) == ("", by_id)


@pytest.mark.parametrize(
    ("changes", "state", "credit"),
    [
        ({}, "ready", 2),
        ({"conn": None}, "away", 0),
        ({"leaving": True}, "leaving", 0),
        ({"draining": True}, "draining", 0),
        ({"rests": "no room"}, "resting", 2),
        ({"blocked": True}, "sending", 0),
        ({"unwritten_bytes": GIVEN_BYTES_MAX}, "sending", 0),
        ({"settled": False}, "busy", 0),
        ({"credit": 0}, "busy", 0),
        ({"credit": 0, "held_by": 0.9, "slots": 1}, "held back", 0),
        ({"conn": None, "leaving": True, "draining": True}, "away", 0),
    ],
)
def test_a_workers_state_says_why_it_gets_no_job(changes: dict[str, object], state: str, credit: int) -> None:
    worker = a_worker()
    for name, value in changes.items():
        setattr(worker, name, value)
    assert (worker.state, worker.usable_credit) == (state, credit)
    assert worker.serves == (state not in {"away", "leaving", "draining", "resting"})


def test_a_lane_gives_simple_jobs_to_workers_that_take_no_others() -> None:
    plain = PatternPool(parse_pattern("job.assign.calc"))
    simple = PatternPool(parse_pattern("job.assign.*"), simple_only=True)
    lane = Lane(CALC, [simple, plain])
    assert lane.pools_of(Requirements()) == [plain]
    assert lane.pools_of(Requirements(simple=True)) == lane.all_pools == [plain, simple]
    assert lane.all_pools != lane.pools
    lane.served_by([plain])
    assert lane.all_pools == [plain]
