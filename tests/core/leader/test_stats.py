"""What was the work like: counts, delays and run times per subject and per group, in bounded room."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import ceil
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.kit.leader_storm import KINDS, Storm
from tests.kit.leader_world import World, a_world, subject

from wakugumi.core.buckets import BOUNDS_S, BUCKETS_PER_DOUBLING, OTHERS, SHORTEST_S
from wakugumi.core.ids import JobId, show_job_id
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.answer_records import Figures, GroupRow, StatusAnswer, SubjectRow, TopAnswer
from wakugumi.core.leader.jobs.broadcast import owner_of
from wakugumi.core.leader.journal.entries import KeepDeclined, KeepJob, KeepOutcome, KeepResult, KeepWhole, LeaderKeep
from wakugumi.core.leader.questions import AskRequeue, AskStatus, AskTop
from wakugumi.core.leader.stats import BROADCASTS, MARKS_KEPT, Cell, Stats, spread
from wakugumi.core.step import Step
from wakugumi.core.subject import Subject, group_of, worker_patterns
from wakugumi.limits.leader import FAILURES_KEPT_MAX, STATS_CELLS_MAX, SWEEP_S

pytestmark = pytest.mark.spec("L8")

EVERYTHING = worker_patterns("job.assign.>")
WEEK_S = 7 * 86_400.0


@pytest.fixture
def world() -> Iterator[World]:
    with a_world() as world:
        yield world


def status(world: World) -> StatusAnswer:
    answer = world.ask(AskStatus())
    assert isinstance(answer, StatusAnswer)
    return answer


def of_subject(world: World, word: str) -> Figures:
    (row,) = [row for row in status(world).subjects if row.subject == subject(word)]
    return row.figures


def of_group(world: World, name: str) -> Figures:
    return group(world, name).figures


def group(world: World, name: str) -> GroupRow:
    (row,) = [row for row in status(world).groups if row.group == name]
    return row


# Quantiles.


def exact(values: Sequence[float], share: float) -> float:
    return sorted(values)[max(0, ceil(share * len(values)) - 1)]


@given(st.lists(st.floats(0.0, WEEK_S), min_size=1, max_size=300))
def test_a_quantile_is_told_to_within_a_bucket(waits: list[float]) -> None:
    stats = Stats(0.0)
    for wait_s in waits:
        stats.assigned(EVERYTHING, subject("a"), wait_s)
    (cells,) = stats.by_subject().values()
    told = stats.figures(cells, 0.0).dispatch_delay
    assert told.count == len(waits)
    for share, told_s in ((0.50, told.p50_s), (0.95, told.p95_s), (0.99, told.p99_s)):
        truth_s = exact(waits, share)
        assert truth_s < told_s <= max(SHORTEST_S, truth_s * 2 ** (1 / BUCKETS_PER_DOUBLING) * (1 + 1e-9))


def test_the_buckets_reach_from_a_tenth_of_a_millisecond_to_a_week_and_longer_is_told_as_that() -> None:
    assert BOUNDS_S[0] == SHORTEST_S == 0.0001
    assert WEEK_S < BOUNDS_S[-1] < 1.01 * WEEK_S
    stats = Stats(0.0)
    for wait_s in (-1.0, 30 * WEEK_S):
        stats.assigned(EVERYTHING, subject("a"), wait_s)
    (cells,) = stats.by_subject().values()
    told = stats.figures(cells, 0.0).dispatch_delay
    assert (told.count, told.p50_s, told.p99_s) == (2, BOUNDS_S[0], BOUNDS_S[-1])


def test_of_nothing_there_is_no_quantile() -> None:
    assert spread([0] * (len(BOUNDS_S) + 1)).count == 0


# The life of a job, counted.


def test_a_job_is_counted_from_its_submit_to_its_result(world: World) -> None:
    desk = world.client()
    (job,) = desk.submits(1)
    assert of_subject(world, "calc") == Figures(recent=of_subject(world, "calc").recent)
    assert of_subject(world, "calc").recent.submitted_per_s == 1.0
    world.wait(2.0)
    worker = world.worker("w", credit=1)
    worker.gets(job)
    assert of_subject(world, "calc").running == of_group(world, "*").running == 1
    world.wait(0.5)
    worker.acks(job)
    desk.gets_result(job)
    for told in (of_subject(world, "calc"), of_group(world, "*")):
        assert (told.running, told.dispatched, told.finished_ok, told.finished_failed) == (0, 1, 1, 0)
        assert 2.0 < told.dispatch_delay.p50_s < 2.4
        assert 0.5 < told.run_time.p99_s < 0.6
        assert told.recent.dispatch_delay == told.dispatch_delay
        assert told.recent.run_time == told.run_time


def test_what_is_queued_again_waits_from_then_on(world: World) -> None:
    desk, worker = world.client(), world.worker("w", old=True, credit=1)
    (job,) = desk.submits(1)
    worker.gets(job)
    world.wait(60.0)
    worker.leaves()
    world.wait(0.001)
    world.worker("v", credit=1).gets(job)
    told = of_subject(world, "calc")
    assert (told.redelivered, told.dispatched, told.running) == (1, 2, 1)
    assert told.dispatch_delay.p99_s < 0.002, "the time with the lost worker is no wait"
    assert told.run_time.count == 0, "nobody answered"


def test_a_dead_job_and_its_attempts_count_where_they_were_lost() -> None:
    with a_world(attempts_max=2) as world:
        desk = world.client()
        (job,) = desk.submits(1, "left.job")
        for name in ("a", "b"):
            worker = world.worker(name, "job.assign.left.>", old=True, credit=1)
            worker.gets(job)
            worker.leaves()
        desk.gets_failure(job, "dead")
        for told in (of_subject(world, "left.job"), of_group(world, "left")):
            assert (told.dispatched, told.redelivered, told.dead, told.finished_failed) == (2, 1, 1, 1)
            assert told.running == told.run_time.count == 0
        world.ask(AskRequeue())
        assert of_subject(world, "left.job").recent.submitted_per_s == 2.0


def test_what_is_cancelled_in_its_queue_counts_for_its_subject_and_for_no_group(world: World) -> None:
    desk = world.client()
    (job,) = desk.submits(1)
    desk.cancels(job)
    desk.gets_failure(job, "cancelled")
    assert of_subject(world, "calc").finished_failed == 1
    assert status(world).groups == []


def test_a_cancelled_run_has_no_run_time(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=1)
    (job,) = desk.submits(1)
    worker.gets(job)
    world.wait(1.0)
    desk.cancels(job)
    desk.gets_failure(job, "cancelled")
    worker.gets_cancel(job)
    told = of_subject(world, "calc")
    assert (told.finished_failed, told.run_time.count, told.running) == (1, 0, 0)


# Groups.


@pytest.mark.spec("S4")
@pytest.mark.parametrize(
    ("patterns", "word", "name"),
    [
        (worker_patterns("job.assign.>"), "a.x", "*"),
        (worker_patterns(">", "w1"), "a.w1", "*"),
        (worker_patterns("a"), "a", "a"),
        (worker_patterns("a"), "a.x", "a"),
        (worker_patterns("a", "w1"), "a.w1", "a"),
        (worker_patterns("a,b"), "b.x", "b"),
        (worker_patterns("job.assign.*,b"), "b.x", "b"),
        (worker_patterns("job.assign.*,b"), "c", "*"),
    ],
)
def test_a_job_belongs_to_the_group_that_its_subject_and_its_worker_name(
    patterns: tuple[Subject, ...], word: str, name: str
) -> None:
    stats = Stats(0.0)
    assert stats.assigned(patterns, subject(word), 0.0).group == name
    assert list(stats.by_group()) == [name]


@pytest.mark.spec("S4")
def test_a_group_has_its_workers_slots_and_what_they_may_be_given(world: World) -> None:
    desk = world.client()
    first = world.worker("w1", "job.assign.a.>", "job.assign.b.>", credit=2)
    world.worker("w2", "job.assign.a.>")
    world.worker("w3", "job.assign.>").says_it_leaves()
    jobs = desk.submits(3, "a.x")
    first.gets(*jobs[:2])
    desk.submits(4, "c.x")
    desk.submits(5, "b.x")
    told = {row.group: (row.workers, row.slots, row.slots_free, row.queued) for row in status(world).groups}
    assert told == {"a": (2, 2, 0, 1), "b": (1, 2, 0, 5), "*": (1, 0, 0, 10)}
    assert of_group(world, "a").running == 2
    assert of_group(world, "b").running == 0
    assert status(world).slots == 2


def test_a_group_outlives_its_workers(world: World) -> None:
    desk, worker = world.client(), world.worker("w", "job.assign.a.>", credit=1, old=True)
    (job,) = desk.submits(1, "a.x")
    worker.gets(job)
    worker.acks(job)
    desk.gets_result(job)
    worker.leaves()
    row = group(world, "a")
    assert (row.workers, row.slots, row.figures.finished_ok) == (0, 0, 1)


def test_a_worker_that_is_away_with_its_job_is_counted_by_the_job_alone(world: World) -> None:
    desk, worker = world.client(), world.worker("w", "job.assign.a.>", credit=2)
    (job,) = desk.submits(1, "a.x")
    worker.gets(job)
    worker.leaves()
    row = group(world, "a")
    assert (row.workers, row.slots, row.slots_free, row.figures.running) == (0, 1, 0, 1)


@pytest.mark.spec("L7")
def test_what_ran_when_the_last_leader_died_counts_for_its_group_once_its_worker_is_back(world: World) -> None:
    desk, worker = world.client(), world.worker("w", "job.assign.a.>", credit=1)
    (job,) = desk.submits(1, "a.x")
    worker.gets(job)
    world.restart()
    assert of_subject(world, "a.x").running == 1
    assert status(world).groups == []
    back = world.worker("w", "job.assign.a.>", holds=False)
    back.holds([job])
    assert (of_group(world, "a").running, of_group(world, "a").dispatched) == (1, 0)
    back.acks(job)
    told = of_group(world, "a")
    assert (told.running, told.finished_ok) == (0, 1)


# Lately.


def test_rates_are_those_of_the_last_minute_and_totals_stay(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=100)
    for _ in range(60):
        (job,) = desk.submits(1)
        worker.gets(job)
        worker.acks(job)
        desk.gets_result(job)
        world.wait(1.0)
    told = of_subject(world, "calc")
    assert 50.0 <= told.recent.over_s <= 60.0
    assert told.recent.submitted_per_s == pytest.approx(1.0, abs=0.05)
    assert told.recent.finished_per_s == pytest.approx(1.0, abs=0.05)
    assert status(world).submitted_per_s == told.recent.submitted_per_s
    assert status(world).finished_per_s == told.recent.finished_per_s
    for _ in range(MARKS_KEPT + 1):
        world.wait(SWEEP_S)
    told = of_subject(world, "calc")
    assert (told.recent.submitted_per_s, told.recent.finished_per_s) == (0.0, 0.0)
    assert told.recent.run_time.count == told.recent.dispatch_delay.count == 0
    assert told.finished_ok == told.run_time.count == 60


def test_recent_quantiles_forget_what_was_slow_before() -> None:
    stats, now = Stats(0.0), 0.0
    for wait_s in [100.0] * 10 + [0.01] * 10:
        stats.assigned(EVERYTHING, subject("a"), wait_s)
        now += SWEEP_S
        stats.add_mark(now)
    (cells,) = stats.by_subject().values()
    told = stats.figures(cells, now)
    assert told.dispatch_delay.p95_s >= 100.0
    assert told.recent.dispatch_delay.count == MARKS_KEPT - 1
    assert told.recent.dispatch_delay.p99_s < 0.02


# Bounded.


def storm_of_subjects(stats: Stats, count: int, *, running: bool = False) -> dict[Cell, int]:
    held: Counter[Cell] = Counter()
    for number in range(count):
        word = subject(f"s{number}")
        stats.accepted(word)
        cell = stats.assigned(EVERYTHING, word, 0.1)
        if running:
            held[cell] += 1
        else:
            stats.ended(cell, word, True, 1.0)
    return held


def test_a_flood_of_subjects_is_told_in_bounded_room_and_nothing_goes_uncounted() -> None:
    stats, now, count = Stats(0.0), 0.0, 3 * STATS_CELLS_MAX
    storm_of_subjects(stats, count)
    stats.check({})
    for _ in range(4):
        now += SWEEP_S
        stats.add_mark(now)
        stats.check({})
    by_subject = stats.by_subject()
    assert OTHERS in by_subject
    assert sum(map(len, by_subject.values())) <= STATS_CELLS_MAX
    assert stats.total()[:2] == (count, count)
    whole = stats.figures([cell for cells in by_subject.values() for cell in cells], now)
    assert (whole.dispatch_delay.count, whole.run_time.count) == (count, count)
    assert whole.recent.finished_per_s * whole.recent.over_s == pytest.approx(count)


def test_those_idle_longest_are_added_to_the_others() -> None:
    stats, now = Stats(0.0), 0.0
    storm_of_subjects(stats, STATS_CELLS_MAX // 2 - 10)
    for _ in range(3):
        now += SWEEP_S
        stats.accepted(subject("s7"))
        stats.add_mark(now)
    kept = stats.by_subject()
    assert "job.assign.s7" in kept
    assert OTHERS in kept
    assert stats.figures(kept[OTHERS], now).finished_ok == sum(stats.total()[1:2]) - sum(
        cell.ok for name, cells in kept.items() if name != OTHERS for cell in cells
    )
    stats.check({})
    for number in range(40):  # There is room again.
        stats.accepted(subject(f"new{number}"))
    assert "job.assign.new39" in stats.by_subject()


def test_who_was_idle_for_a_shorter_time_stays() -> None:
    stats, first = Stats(0.0), [subject(f"s{number}") for number in range(20)]
    storm_of_subjects(stats, 300)
    stats.add_mark(SWEEP_S)
    storm_of_subjects(stats, len(first))
    for turn in (2, 3):
        stats.add_mark(turn * SWEEP_S)
    for number in range(STATS_CELLS_MAX - 650):
        stats.accepted(subject(f"new{number}"))
    stats.add_mark(4 * SWEEP_S)
    kept = stats.by_subject()
    assert OTHERS in kept
    assert kept.keys() >= set(first)
    stats.check({})


def test_what_a_running_job_names_is_never_folded() -> None:
    stats, now = Stats(0.0), 0.0
    held = storm_of_subjects(stats, 2 * STATS_CELLS_MAX, running=True)
    for _ in range(4):
        now += SWEEP_S
        stats.add_mark(now)
        stats.check(held)
    assert sum(cell.running for cells in stats.by_group().values() for cell in cells) == 2 * STATS_CELLS_MAX


def test_the_others_are_a_row_of_the_status(world: World) -> None:
    desk = world.client(cap=10_000)
    with world.at_once():
        jobs = [desk.submit(f"s{number}") for number in range(STATS_CELLS_MAX + 50)]
    desk.gets_receipt(*jobs)
    desk.cancels(*jobs)
    for job in jobs:
        desk.gets_failure(job, "cancelled")
    answer = world.ask(AskTop(limit=3))
    assert isinstance(answer, TopAnswer)
    rows = answer.status.subjects
    assert [row.subject for row in rows][-1:] == [OTHERS]
    assert len(rows) == 3
    assert rows[-1] == SubjectRow(OTHERS, 0, 0, rows[-1].figures)
    assert rows[-1].figures.finished_failed == 50
    assert answer.status.subjects_total == STATS_CELLS_MAX + 1


# What failed last, and the live view's answer.


def test_the_latest_failures_are_named_and_cancels_are_none_of_them(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=FAILURES_KEPT_MAX + 9)
    jobs = desk.submits(FAILURES_KEPT_MAX + 5)
    worker.gets(*jobs)
    for job in jobs[:-1]:
        worker.fails(job)
        desk.gets_result(job)
        world.wait(1.0)
    desk.cancels(jobs[-1])
    desk.gets_failure(jobs[-1], "cancelled")
    worker.gets_cancel(jobs[-1])
    answer = world.ask(AskTop())
    assert isinstance(answer, TopAnswer)
    assert [row.job for row in answer.failures] == [show_job_id(job) for job in reversed(jobs[4:-1])]
    latest = answer.failures[0]
    assert (latest.program, latest.subject, latest.worker, latest.reason) == ("calc", subject("calc"), "w", "exit")
    assert latest.ago_s == 1.0


def test_top_names_at_most_as_many_workers_as_asked_for_the_busiest_first(world: World) -> None:
    desk = world.client()
    for name in ("c", "a", "d"):
        world.worker(name, f"job.assign.{name}", credit=2)
    desk.submits(2, "d")
    desk.submits(1, "c")
    for end in world.ends.values():
        if end is not world.ends[desk.conn]:
            end.gets_some()  # type: ignore[union-attr]
    answer = world.ask(AskTop(limit=2))
    assert isinstance(answer, TopAnswer)
    assert [(row.name, row.running, row.credit) for row in answer.workers] == [("d", 2, 0), ("c", 1, 1)]
    assert answer.workers_total == 3
    assert (answer.status.slots, answer.status.slots_free, len(answer.status.groups)) == (6, 3, 2)
    assert answer.status.groups_total == 3


# Whatever happens.


class Oracle:
    """Counts from what a leader keeps and says, and from nothing else."""

    def __init__(self, storm: Storm) -> None:
        self._storm = storm
        self.leader = storm.leader
        self.of_subject: Counter[tuple[str, str]] = Counter()
        self._with_nodes: set[JobId] = set()
        self._judge = storm.judge
        storm.judge = self.hear  # type: ignore[method-assign]

    def hear(self, step: Step[LeaderKeep, ev.LeaderDo], batch: list[ev.LeaderEvent]) -> None:
        if self.leader is not self._storm.leader:  # It was started anew, and counts anew.
            self.leader = self._storm.leader
            self.of_subject.clear()
            self._with_nodes.clear()
        jobs = self.leader.jobs
        opened = set(self._storm.open)
        # A node is sent once more what it says it holds: that is no further assignment.
        again = {
            job for event in batch if isinstance(event, ev.WorkerHolds) for job in (*event.running, *event.finished)
        }
        for effect in step.do:
            if isinstance(effect, ev.LoadPayloads):
                loads = [jobs[job] for job in effect.jobs if job not in again]
                self.of_subject.update((_told_as(job.subject), "assigned") for job in loads)
            elif isinstance(effect, ev.SendAssign) and effect.job not in self._storm.loaded | again:
                self.of_subject[_told_as(effect.subject), "assigned"] += 1
        for record in step.keep:
            if isinstance(record, KeepJob):
                opened.add(record.job)
                self.of_subject[_told_as(record.subject), "came"] += 1
            elif isinstance(record, KeepWhole) and record.result is None and record.job not in opened:
                self.of_subject[_told_as(record.subject), "came"] += 1  # Requeued.
            elif isinstance(record, KeepDeclined):
                # One that a node did not keep has not waited. Any worker declines in a storm.
                self.of_subject[_told_as(jobs[record.job].subject), "assigned"] -= record.job in self._with_nodes
            elif isinstance(record, KeepOutcome):
                self.of_subject[_told_as(jobs[record.job].subject), "lost"] += 1
            elif isinstance(record, KeepResult):
                self.of_subject[_told_as(jobs[record.job].subject), "ok" if record.ok else "failed"] += 1
        self._judge(step, batch)
        self.compare()

    def compare(self) -> None:
        lifecycle = self.leader.lifecycle
        self._with_nodes = set(lifecycle.delays)
        with_nodes = Counter(_told_as(lifecycle.jobs[job].subject) for job in lifecycle.delays)
        for name, cells in lifecycle.stats.by_subject().items():
            told = {
                "came": sum(cell.accepted for cell in cells),
                "assigned": sum(cell.assigned for cell in cells) + with_nodes[name],
                "ok": sum(cell.ok for cell in cells),
                "failed": sum(cell.failed for cell in cells),
                "lost": sum(cell.redelivered + cell.dead for cell in cells),
            }
            assert told == {what: self.of_subject[name, what] for what in told}
            running = sum(job.worker is not None for job in self.leader.jobs.values() if _told_as(job.subject) == name)
            assert sum(cell.running for cell in cells) == running
        for name, cells in self.leader.lifecycle.stats.by_group().items():
            for cell in cells:
                assert name in {group_of(Subject(cell.subject)), "*"}  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9))
@example(206)  # a node is sent once more what it holds
@example(295)
def test_in_any_storm_the_counts_are_what_was_kept(seed: int) -> None:
    chance = Random(seed)
    storm = Storm(payload_memory_bytes=[0, 1_000_000][seed % 2])
    Oracle(storm)
    for _ in range(80):
        storm.play(chance.choice(KINDS), chance.randrange(14), chance.randrange(14))
    storm.heal()


def _told_as(subject: str) -> str:
    return subject if owner_of(subject) is None else BROADCASTS
