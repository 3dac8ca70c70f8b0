"""The workers a leader knows: who is in which pool, and which of them comes first."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wakugumi.core.backoff import POLICIES, Ranking, most_credit, round_robin, score
from wakugumi.core.ids import ConnId, JobId, WorkerId
from wakugumi.core.leader.records import WorkerRecord
from wakugumi.core.leader.scheduling.roster import Roster
from wakugumi.core.requirements import Requirements
from wakugumi.core.subject import Pattern, Subject, matches, parse_pattern, parse_subject
from wakugumi.limits.scheduling import CREDIT_MAX

CALC = parse_subject("job.assign.calc")
DRAW = parse_subject("job.assign.draw")


def join(roster: Roster, name: str, *patterns: str, credit: int = 0) -> WorkerRecord:
    worker = roster.add(WorkerId(name.encode().ljust(16, b".")))
    worker.set_name(name)
    roster.connect(worker, ConnId(worker.number), tuple(parse_pattern(pattern) for pattern in patterns or (">",)))
    give(roster, worker, credit)
    return worker


def give(roster: Roster, worker: WorkerRecord, credit: int) -> None:
    worker.credit += credit
    roster.changed(worker)


def best(roster: Roster, subject: Subject) -> WorkerRecord | None:
    roster.rank_changed()
    roster.check()
    return roster.best(roster.pools_for(subject))


def take(roster: Roster, subject: Subject, number: int) -> str:
    """The name of the worker that gets this job."""
    worker = best(roster, subject)
    assert worker is not None
    roster.take_turn(worker, roster.pools_for(subject))
    roster.assign(worker, JobId(number.to_bytes(16, "little")))
    roster.check()
    return worker.name


@pytest.mark.spec("L2")
def test_a_worker_without_credit_or_with_another_pattern_is_no_choice() -> None:
    roster = Roster()
    join(roster, "poor", "job.assign.calc")
    join(roster, "other", "job.assign.draw.>", credit=9)
    assert best(roster, CALC) is None


@pytest.mark.spec("L2")
def test_most_credit_first_then_least_running() -> None:
    roster = Roster()
    join(roster, "a", credit=2)
    join(roster, "b", credit=3)
    assert [take(roster, CALC, number) for number in range(5)] == ["b", "a", "b", "a", "b"]
    assert best(roster, CALC) is None


@pytest.mark.spec("L2")
def test_round_robin_ignores_how_much_credit_there_is() -> None:
    roster = Roster(round_robin)
    join(roster, "a", credit=2)
    join(roster, "b", credit=9)
    join(roster, "c", credit=3)
    assert "".join(take(roster, CALC, number) for number in range(9)) == "abcabcbcb"


@pytest.mark.spec("L2")
def test_an_answer_counts_in_the_rank_although_no_credit_came_with_it() -> None:
    roster = Roster()
    a, b = join(roster, "a", credit=4), join(roster, "b", credit=4)
    for number in range(4):
        take(roster, CALC, number)
    assert (len(a.jobs), len(b.jobs)) == (2, 2)
    b.jobs.popitem()
    roster.changed(b)
    assert best(roster, CALC) is b


@pytest.mark.spec("L2")
def test_the_best_of_several_pools_is_the_best_of_all_their_members() -> None:
    roster = Roster()
    join(roster, "a", "job.assign.calc", "job.assign.*", credit=2)
    join(roster, "b", "job.assign.>", credit=3)
    join(roster, "c", "job.*.calc", credit=4)
    assert "".join(take(roster, CALC, number) for number in range(9)) == "cbcabcabc"
    assert best(roster, CALC) is None


@pytest.mark.spec("F7")
def test_credit_is_gone_with_the_connection() -> None:
    roster = Roster()
    worker = join(roster, "a", credit=4)
    assert best(roster, CALC) is worker
    worker.away_until = 1.0
    emptied = roster.disconnect(worker)
    assert [pool.pattern for pool in emptied] == [">"]
    assert best(roster, CALC) is None
    born = roster.connect(worker, ConnId(99), (Pattern("job.assign.*"),))
    assert [pool.pattern for pool in born] == ["job.assign.*"]
    assert worker.credit == 0
    assert best(roster, CALC) is None


@pytest.mark.spec("L2")
def test_a_worker_that_comes_back_for_other_subjects_is_no_choice_for_those_it_had() -> None:
    roster = Roster()
    worker, _ = join(roster, "a", "job.assign.calc", credit=4), join(roster, "b", "job.assign.calc")
    assert best(roster, CALC) is worker
    roster.disconnect(worker)
    roster.connect(worker, ConnId(99), (Pattern("job.assign.draw"),))
    give(roster, worker, 4)
    assert best(roster, CALC) is None
    assert best(roster, DRAW) is worker


def test_a_pool_lives_as_long_as_it_has_a_member() -> None:
    roster = Roster()
    a, b = join(roster, "a", "job.assign.calc"), join(roster, "b", "job.assign.calc")
    assert len(roster.pools_for(CALC)) == 1
    a.away_until = b.away_until = 1.0
    assert roster.disconnect(a) == []
    assert len(roster.disconnect(b)) == 1
    assert roster.pools_for(CALC) == []
    roster.remove(a)
    roster.check()
    assert list(roster) == [b]
    assert len(roster) == 0


@pytest.mark.parametrize("hindrance", ["draining", "leaving", "blocked"])
def test_a_worker_that_may_not_be_given_work_keeps_its_credit(hindrance: str) -> None:
    roster = Roster()
    worker = join(roster, "a", credit=4)
    setattr(worker, hindrance, True)
    roster.changed(worker)
    assert best(roster, CALC) is None
    setattr(worker, hindrance, False)
    roster.changed(worker)
    assert best(roster, CALC) is worker
    assert worker.credit == 4


def test_a_worker_says_in_a_word_how_it_is() -> None:
    roster = Roster()
    worker = join(roster, "a")
    words = [worker.state]
    worker.credit = 1
    words.append(worker.state)
    worker.draining = True
    words.append(worker.state)
    worker.leaving = True
    words.append(worker.state)
    roster.disconnect(worker)
    words.append(worker.state)
    assert words == ["busy", "ready", "draining", "leaving", "away"]


def test_a_worker_is_found_by_its_name_its_id_and_the_first_digits_of_it() -> None:
    roster = Roster()
    uuid = UUID("00112233-4455-6677-8899-aabbccddeeff")
    worker = roster.add(WorkerId(uuid.bytes_le))
    assert worker.label == "00112233"
    worker.set_name("rack-7")
    assert worker.label == "rack-7"
    for text in ("rack-7", str(uuid), str(uuid).upper(), uuid.hex, "00112233"):
        assert roster.find(text) is worker
    for text in ("rack", "RACK-7", "0011", "", "33221100"):
        assert roster.find(text) is None


def test_a_pool_does_not_grow_with_what_its_members_do_elsewhere() -> None:
    roster = Roster()
    a = join(roster, "a", "job.assign.calc", "job.assign.draw")
    b = join(roster, "b", "job.assign.calc", "job.assign.draw", credit=1)
    for number in range(2_000):
        give(roster, a, 2)
        while (worker := best(roster, CALC)) is not None:
            roster.assign(worker, JobId(number.to_bytes(16, "little")))
            worker.jobs.clear()
            roster.changed(worker)
    give(roster, b, 1)
    assert best(roster, DRAW) is b
    (pool,) = roster.pools_for(DRAW)
    assert len(pool.heap) < 200


patterns = st.sampled_from([">", "job.>", "job.assign.*", "job.assign.calc", "job.*.draw", "other.>"])


@pytest.mark.spec("L2")
@settings(max_examples=60, deadline=None)
@given(st.data(), st.permutations([most_credit, round_robin, score]), st.integers(1, 3))
def test_the_choice_is_always_the_one_a_look_at_all_workers_would_make(
    data: st.DataObject, rankings: list[Ranking], in_use: int
) -> None:
    rankings = rankings[:in_use]
    roster = Roster(*rankings)
    workers: list[WorkerRecord] = []
    for number in range(data.draw(st.integers(5, 40))):
        what = data.draw(
            st.sampled_from(["join", "credit", "credit", "assign", "assign", "ack", "load", "drain", "leave"])
        )
        worker = data.draw(st.sampled_from(workers)) if workers else None
        if what == "join" or worker is None:
            wanted = data.draw(st.lists(patterns, min_size=1, max_size=3, unique=True))
            workers.append(join(roster, f"w{number}", *wanted))
            workers[-1].slots = CREDIT_MAX
        elif what == "credit":
            give(roster, worker, data.draw(st.integers(1, 3)))
        elif what == "ack" and worker.jobs:
            worker.jobs.popitem()
            roster.changed(worker)
        elif what == "load":
            roster.loaded(worker, data.draw(st.floats(0, 1)))
        elif what == "drain":
            worker.draining = not worker.draining
            roster.changed(worker)
        elif what == "leave":
            worker.away_until = 0.0
            worker.jobs.clear()
            roster.disconnect(worker)
            roster.remove(worker)
            workers.remove(worker)
        for subject in (CALC, DRAW):
            able = [w for w in workers if w.usable_credit and any(matches(pattern, subject) for pattern in w.patterns)]
            found = best(roster, subject)
            for order, ranking in enumerate(rankings):
                ranks = {w.name: ranking(w.credit, len(w.jobs), w.turn, w.number, w.load) for w in able}
                expected = min(able, key=lambda w: ranks[w.name], default=None)
                assert roster.best(roster.pools_for(subject), order) is expected
                roomy = min((w for w in able if w.credit >= 2), key=lambda w: ranks[w.name], default=None)
                assert roster.best_with_room(roster.pools_for(subject), order, Requirements(slots=2)) is roomy
            if what == "assign" and found is not None:
                roster.take_turn(found, roster.pools_for(subject))
                roster.assign(found, JobId(number.to_bytes(15, "little") + subject[-1:].encode()))
                roster.check()


def test_the_default_ranking_is_most_credit() -> None:
    assert POLICIES["most-credit"].ranking is most_credit
