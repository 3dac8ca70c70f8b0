"""A part is told by its broadcast and its worker, and its subject is that worker's alone."""

from __future__ import annotations

import pytest

from wakugumi.core.ids import JobId, WorkerId
from wakugumi.core.leader.jobs.broadcast import (
    PARTS,
    BroadcastPart,
    list_of,
    own_subject,
    owner_of,
    part_id,
    read_list,
)
from wakugumi.core.subject import is_valid_subject

pytestmark = pytest.mark.spec("S5")

ONE, TWO = WorkerId(b"1" * 16), WorkerId(b"2" * 16)


def test_a_subject_of_a_worker_tells_its_owner_and_nobody_can_submit_to_it() -> None:
    assert owner_of(own_subject(ONE)) == ONE
    assert own_subject(ONE) != own_subject(TWO)
    assert owner_of("job.assign.calc") is None
    assert not own_subject(ONE).startswith("job.assign")
    assert is_valid_subject("job.assign.calc")


def test_a_part_has_the_same_id_each_time_and_another_one_for_each_worker_and_broadcast() -> None:
    jobs = [JobId(bytes([number]) * 16) for number in range(2)]
    ids = {part_id(job, worker) for job in jobs for worker in (ONE, TWO)}
    assert len(ids) == 4
    assert ids == {part_id(job, worker) for job in jobs for worker in (ONE, TWO)}


def test_the_list_of_parts_is_read_as_it_was_written() -> None:
    parts = [BroadcastPart("00" * 16, "rack-1"), BroadcastPart("ff" * 16, "häuschen")]
    verdict = list_of(parts)
    assert verdict.code == PARTS
    assert read_list(verdict.text) == parts
