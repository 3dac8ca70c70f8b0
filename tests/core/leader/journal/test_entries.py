"""What a journal holds is told apart by numbers that never change: old journals are read for good."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from wakugumi.core.ids import Attempt, ClientId, JobId, Tried, Verdict, WorkerId
from wakugumi.core.leader.journal.entries import (
    DropLeaves,
    ForgetClaim,
    ForgetJob,
    ForgetWorkerKey,
    KeepAttempt,
    KeepClaim,
    KeepDeadline,
    KeepDeclined,
    KeepDelivered,
    KeepJob,
    KeepOutcome,
    KeepResult,
    KeepWhole,
    KeepWorkerKey,
    LeaderKeep,
)
from wakugumi.core.requirements import Requirements
from wakugumi.core.subject import parse_pattern, parse_subject

JOB = JobId(b"j" * 16)
CLIENT = ClientId("c")
WORKER = WorkerId(b"w" * 16)
SUBJECT = parse_subject("job.assign.x")
ATTEMPT = Attempt(1, WORKER, "w", -3.0, -2.0, "exit", "out")
TAGGED: dict[int, LeaderKeep] = {
    1: KeepJob(JOB, CLIENT, 4, SUBJECT, "p", 9.0, 1, b"request", Requirements(priority=2), 7, b"digest"),
    2: KeepAttempt(JOB, WORKER, "w"),
    3: KeepOutcome(JOB, "exit", "out"),
    4: KeepResult(JOB, False, "exit", Verdict("dead", "it is"), ("blob",)),
    5: KeepDelivered(JOB),
    6: ForgetJob(JOB),
    7: KeepWhole(
        *(JOB, CLIENT, 4, SUBJECT, "p", 9.0, 1, -5.0, (ATTEMPT,), ATTEMPT, 7, 12, True, b"result", True, True),
        *(Requirements(slots=2), ("blob",), Tried((WORKER,)), b"digest"),
    ),
    8: DropLeaves(3),
    9: KeepDeadline(JOB, 2.5),
    10: KeepDeclined(JOB, WORKER, True),
    11: KeepClaim(JOB, WORKER, True, "", b"result", ("blob",), True, b"digest", (parse_pattern("job.>"),)),
    12: ForgetClaim(JOB, WORKER),
    13: KeepWorkerKey("rack-7", WORKER),
    14: ForgetWorkerKey("rack-7", WORKER),
}


def test_each_entry_has_its_number() -> None:
    assert {type(entry) for entry in TAGGED.values()} == set(get_args(LeaderKeep))
    for tag, entry in TAGGED.items():
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(entry))[0] == tag


@pytest.mark.parametrize("entry", TAGGED.values(), ids=lambda entry: type(entry).__name__)
def test_an_entry_is_read_as_it_was_written(entry: LeaderKeep) -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(entry), type=LeaderKeep) == entry
