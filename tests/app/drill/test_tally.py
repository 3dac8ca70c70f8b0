"""What does a drill conclude from its marks?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from wakugumi.app.drill.marks import Marks
from wakugumi.app.drill.tally import Cause, Count, count

Told = Callable[..., Count]


ONE_JOB = """
    1.00 up leader.1 0
    1.10 accepted client.1 1
    1.20 start worker-1.1 1 700
    1.40 end worker-1.1 1 700
    1.50 result client.1 1 OK
"""


@pytest.fixture
def told(tmp_path: Path) -> Told:
    """Counts what was written down."""

    def tell(text: str, jobs: int = 1, kills: int = 0, leaders: int = 1) -> Count:
        path = tmp_path / "marks"
        path.write_text("".join(line.strip() + "\n" for line in text.splitlines() if line.strip()))
        marks = Marks(path)
        try:
            return count(marks.new(), jobs, kills, leaders)
        finally:
            marks.close()

    return tell


def test_a_quiet_drill_is_passed(told: Told) -> None:
    found = told(ONE_JOB)
    assert (found.accepted, found.finished, found.executions, found.beyond_one) == (1, 1, 1, 0)
    assert found.wrong == []


def test_an_accepted_job_without_a_result_is_lost(told: Told) -> None:
    found = told(ONE_JOB + "1.60 accepted client.1 2\n1.70 start worker-1.1 2 701", jobs=2)
    assert found.lost == [2]
    assert found.wrong == ["1 accepted job lost: 2"]


def test_a_job_that_the_leader_forgot_is_lost_also_if_it_was_handed_in_again(told: Told) -> None:
    found = told(
        """
        1.10 accepted client.1 1
        1.20 kill leader.1 0
        1.30 forgotten client.1 1
        1.40 accepted client.1 1
        1.50 start worker-1.1 1 700
        1.60 result client.1 1 OK
        """
    )
    assert (found.accepted, found.finished, found.lost) == (1, 1, [1])
    assert found.wrong == ["1 accepted job lost: 1"]


def test_a_job_that_was_never_accepted_is_not_lost_and_not_well(told: Told) -> None:
    found = told(ONE_JOB, jobs=3)
    assert (found.lost, found.never_accepted) == ([], 2)
    assert found.wrong == ["2 jobs never accepted"]


def test_a_failed_result_is_told(told: Told) -> None:
    found = told(ONE_JOB.replace("1 OK", "1 FAILED:dead"))
    assert (found.failed, found.wrong) == (1, ["1 job failed, and the program never does"])


def test_a_refused_job_is_told_with_the_reason(told: Told) -> None:
    found = told("1.10 accepted client.1 1\n1.50 refused client.1 1 conflict")
    assert found.wrong == ["1 accepted job lost: 1", "refused: 1 x conflict"]


def test_two_results_in_one_life_of_the_client_are_one_too_many(told: Told) -> None:
    twice = told(ONE_JOB + "1.60 result client.1 1 OK")
    assert twice.wrong == ["results delivered twice, of the jobs 1"]
    assert twice.finished == 1
    assert told(ONE_JOB + "1.60 result client.2 1 OK").wrong == []


def test_a_result_without_a_run_is_told(told: Told) -> None:
    found = told("1.10 accepted client.1 1\n1.50 result client.1 1 OK")
    assert found.wrong == ["results of programs that never ran, of the jobs 1"]


TWICE = """
    1.00 accepted client.1 1
    1.10 start worker-1.1 1 700
    {between}
    1.80 start worker-2.1 1 701
    1.90 result client.1 1 OK
"""


@pytest.mark.parametrize(
    ("between", "cause", "is_needed"),
    [
        ("1.20 kill worker-1.1 0\n1.21 cut worker-1.1 1", Cause.WORKER, True),
        ("1.15 end worker-1.1 1 700\n1.20 kill worker-1.1 0\n1.21 cut worker-1.1 1", Cause.WORKER, True),
        ("1.20 kill worker-1.1 0\n1.21 cut worker-1.1 1\n1.30 kill leader.1 0", Cause.WORKER, True),
        ("1.15 end worker-1.1 1 700\n1.20 kill worker-1.1 0", Cause.WORKER_LATER, False),
        ("1.20 kill leader.1 0", Cause.LEADER, False),
        ("1.20 kill client.1 0\n1.30 kill leader.1 0", Cause.LEADER, False),
        ("1.20 kill client.1 0", Cause.CLIENT, False),
        ("1.20 stop worker-1.1 0\n1.40 go worker-1.1 0", Cause.STOPPED, False),
        ("1.20 kill worker-2.0 0\n1.21 cut worker-2.0 1", Cause.NOTHING, False),
        ("", Cause.NOTHING, False),
    ],
)
def test_every_run_beyond_the_first_has_its_cause(between: str, cause: Cause, is_needed: bool, told: Told) -> None:
    found = told(TWICE.format(between=between))
    assert found.beyond_one == 1
    assert {why: number for why, number in found.why.items() if number} == {cause: 1}
    assert found.again == {1: cause}
    assert (found.wrong == []) is is_needed


ADOPTED = """
    1.00 up leader-1.1 0
    1.00 up leader-2.1 0
    1.10 accepted client.1 1
    1.20 start worker-1.1 1 700
    1.30 {fault} leader-1.1 0
    {back:.2f} {returns} leader-1.{life} 0
    {again:.2f} start worker-{worker}.1 1 701
    60.00 end worker-{worker}.1 1 701
    60.10 result client.1 1 OK
"""


@pytest.mark.spec("K5")
@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        ({}, Cause.ADOPTED),
        ({"fault": "freeze", "returns": "go", "life": 1}, Cause.ADOPTED),
        ({"again": 10.0}, Cause.LEADER),
        ({"back": 3.0}, Cause.LEADER),
        ({"worker": 3}, Cause.LEADER),
    ],
    ids=["away for long", "frozen for long", "adopted too early", "back in time", "run again by the same leader"],
)
def test_a_job_is_adopted_only_if_its_leader_was_away_for_as_long_as_the_client_waits(
    changed: dict[str, object], cause: Cause, told: Told
) -> None:
    words = {"fault": "kill", "returns": "up", "back": 20.0, "life": 2, "again": 12.0, "worker": 2} | changed
    found = told(ADOPTED.format(**words), kills=words["fault"] == "kill", leaders=2)
    assert found.again == {1: cause}
    assert (found.wrong == []) == (cause is Cause.ADOPTED)


def test_what_the_others_did_while_one_was_frozen_is_compared_with_before(told: Told) -> None:
    results = [(90 + number / 10, number) for number in range(100)]
    results += [(100 + number / 5, 100 + number) for number in range(75)]
    lines = [f"{at:.2f} result client.1 {number + 1} OK" for at, number in results]
    found = told("\n".join([*lines[:100], "100.00 freeze leader-2.1 0", *lines[100:], "130.00 go leader-2.1 0"]), 175)
    assert found.through_freeze is not None
    assert (found.through_freeze.before, found.through_freeze.after, found.through_freeze.for_s) == (10, 5, 30)
    assert ("others while one was frozen", "50%") in {row[:2] for row in found.rows()}


def test_a_kill_after_the_second_run_explains_nothing(told: Told) -> None:
    found = told(TWICE.format(between="") + "1.95 kill worker-1.1 0\n1.96 kill leader.1 0")
    assert found.why[Cause.NOTHING] == 1
    assert len(found.wrong) == 1


def test_each_further_run_is_counted_and_the_worst_cause_named(told: Told) -> None:
    text = TWICE.format(between="1.20 kill worker-1.1 0\n1.21 cut worker-1.1 1")
    found = told(text.replace("1.90 result", "1.82 kill leader.1 0\n1.85 start worker-3.1 1 702\n1.90 result"))
    assert (found.executions, found.beyond_one) == (3, 2)
    assert (found.why[Cause.WORKER], found.why[Cause.LEADER]) == (1, 1)
    assert found.again == {1: Cause.LEADER}


@pytest.mark.parametrize(
    ("began_at", "back", "cause"),
    [
        (3.30, "", Cause.AWAY),
        (2.90, "", Cause.WORKER_LATER),
        (3.30, "2.50 up worker-1.2 0", Cause.WORKER_LATER),
        (3.30, "2.50 start worker-1.2 2 800", Cause.WORKER_LATER),
        (3.30, "2.50 up worker-11.2 0", Cause.AWAY),
    ],
    ids=["away for long", "given away too soon", "back and idle", "back and at work", "another was back"],
)
@pytest.mark.spec("L4")
def test_a_result_on_a_killed_workers_disk_is_waited_for_as_long_as_a_leader_does(
    began_at: float, back: str, cause: Cause, told: Told
) -> None:
    killed = f"1.15 end worker-1.1 1 700\n1.20 kill worker-1.1 0\n{back}"
    found = told(TWICE.format(between=killed).replace("1.80", str(began_at)).replace("1.90", "3.90"))
    assert found.again == {1: cause}
    assert (found.wrong == []) is (cause is Cause.AWAY)
    assert found.notes[0].startswith("1 execution beyond one, and 0 were running on killed workers")


def test_a_directory_that_an_earlier_life_left_is_not_counted_as_running(told: Told) -> None:
    found = told(ONE_JOB + "1.60 kill worker-1.2 0\n1.61 cut worker-1.2 1")
    assert found.running_on_killed == 0


def test_kills_are_counted_by_kind_and_by_whether_they_met_work(told: Told) -> None:
    found = told(
        "0.90 kill worker-1.1 0\n" + ONE_JOB.replace("1.20", "1.15 kill worker-2.1 0\n1.16 kill leader.1 0\n1.20")
    )
    assert (found.kills, found.kills_with_work) == ({"worker": 2, "leader": 1}, 2)


def test_fewer_kills_than_planned_are_no_pass(told: Told) -> None:
    text = ONE_JOB + "1.60 kill leader.1 0\n1.70 kill worker-1.1 0\n"
    assert told(text, kills=2).wrong == []
    assert told(text, kills=3).wrong == ["2 of 3 planned kills happened: less was tried than asked for"]


def test_the_longest_pause_is_one_with_a_job_to_wait_for(told: Told) -> None:
    found = told(
        """
        1.00 accepted client.1 1
        2.50 result client.1 1 OK
        9.00 accepted client.1 2
        9.10 accepted client.1 3
        9.20 result client.1 2 OK
        9.30 kill client.1 0
        11.20 result client.2 3 OK
        """,
        jobs=3,
    )
    assert found.longest_pause_s == pytest.approx(2.0)


def test_a_restarted_leader_is_timed_from_its_listening_to_the_next_start(told: Told) -> None:
    found = told(
        """
        1.00 up leader.1 0
        1.50 start worker-1.1 1 700
        2.00 kill leader.1 0
        2.40 up leader.2 0
        2.50 up worker-1.1 0
        2.60 start worker-1.1 2 701
        2.90 start worker-1.1 3 702
        3.00 kill leader.2 0
        3.40 up leader.3 0
        3.50 kill leader.3 0
        3.70 start worker-1.1 4 703
        4.00 up leader.4 0
        4.40 start worker-1.1 5 704
        """,
        jobs=5,
    )
    spread = found.to_assignment
    assert spread is not None
    assert (spread.count, spread.least, spread.median, spread.most) == pytest.approx((2, 0.2, 0.3, 0.4))


def test_a_process_that_ended_by_itself_is_told(told: Told) -> None:
    assert told(ONE_JOB + "1.60 died worker-1.1 0 code 1").wrong == ["ended without being killed: worker-1.1 (code 1)"]


def test_the_table_says_what_each_row_means(told: Told) -> None:
    table = told(TWICE.format(between="1.20 kill leader.1 0\n1.30 up leader.1 0")).rows()
    shown = {what.strip(): number for what, number, _ in table}
    assert shown["lost"] == "0"
    assert shown["executions beyond one"] == "1"
    assert shown["a leader was killed"] == "1"
    assert all(meaning for _, _, meaning in table)
