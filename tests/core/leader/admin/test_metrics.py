"""What a leader tells those who watch: all that was counted, once, in a bounded number of series."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.kit.leader_world import World, a_world, subject

from wakugumi.core.buckets import BOUNDS_S, OTHERS
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.admin.metrics import LeaderMeters
from wakugumi.core.leader.machine import LeaderMachine
from wakugumi.core.leader.stats import Stats
from wakugumi.core.metrics import COARSE_S, Family, about_us, coarse
from wakugumi.core.requirements import Requirements
from wakugumi.core.subject import worker_patterns
from wakugumi.limits.leader import SWEEP_S

pytestmark = pytest.mark.spec("L8", "O2")


def values(families: list[Family], name: str) -> dict[tuple[str, ...], float]:
    (family,) = [family for family in families if family.name == name]
    return {labels: value for labels, value in family.samples if value}


def told(world: World, meters: LeaderMeters | None = None) -> list[Family]:
    return (meters or LeaderMeters(world.leader)).families(world.now)


def test_every_job_is_told_by_group_and_subject() -> None:
    with a_world() as world:
        worker, client = world.worker("one", "job.assign.calc.>", "job.assign.calc", credit=2), world.client()
        first, second, _ = client.submits(3)
        families = told(world)
        assert values(families, "wakugumi_leader_jobs_submitted_total") == {("job.assign.calc",): 3}
        assert values(families, "wakugumi_leader_jobs_queued") == {("job.assign.calc",): 1}
        assert values(families, "wakugumi_leader_jobs_running") == {("calc", "job.assign.calc"): 2}
        for _ in range(2):
            worker.takes(ev.SendAssign)
        worker.acks(first)
        worker.fails(second)
        for _ in range(2):
            client.takes(ev.SendResult)
        families = told(world)
        finished = values(families, "wakugumi_leader_jobs_finished_total")
        assert finished == {("calc", "job.assign.calc", "ok"): 1, ("calc", "job.assign.calc", "failed"): 1}
        assert values(families, "wakugumi_leader_workers") == {(): 1}


@pytest.mark.parametrize("name", ["(nobody)", "((nobody))"])
def test_a_group_may_be_called_as_the_word_for_none(name: str) -> None:
    with a_world() as world:
        worker, client = world.worker("one", f"job.assign.{name}", credit=1), world.client()
        first, second = client.submits(2, name)
        worker.gets(first)
        client.cancels(second)
        client.gets_failure(second, "cancelled")
        families = told(world)
        assert values(families, "wakugumi_leader_jobs_submitted_total") == {(f"job.assign.{name}",): 2}
        assert values(families, "wakugumi_leader_jobs_running") == {(f"({name})", f"job.assign.{name}"): 1}
        finished = values(families, "wakugumi_leader_jobs_finished_total")
        assert finished == {("(nobody)", f"job.assign.{name}", "failed"): 1}


def test_a_job_that_a_node_gives_back_has_waited_once_and_is_told_as_declined() -> None:
    with a_world() as world:
        client, name = world.client(), "wakugumi_leader_dispatch_delay_seconds"
        node = world.worker("node", credit=1, is_node=True)
        (job,) = client.submits(1, requirements=Requirements(simple=True))
        for _ in range(3):
            node.gets(job)
            node.declines(job)
            node.rests()
            assert values(told(world), "wakugumi_leader_workers_resting") == {(): 1}
            node.credit(1)
        node.gets(job)
        families = told(world)
        assert values(families, "wakugumi_leader_jobs_declined_total") == {(): 3}
        assert values(families, "wakugumi_leader_rests_total") == {(): 3}
        assert _samples(families, name) == 0
        node.acks(job)
        client.gets_result(job)
        assert _samples(told(world), name) == 1


def _samples(families: list[Family], name: str) -> int:
    (family,) = [family for family in families if family.name == name]
    return sum(sum(buckets.counts) for buckets in family.histograms)


def test_a_fine_histogram_becomes_a_coarse_one_that_holds_as_many() -> None:
    fine = [number % 7 for number in range(len(BOUNDS_S) + 1)]
    told = coarse(fine)
    assert len(told) == len(COARSE_S) + 1
    assert sum(told) == sum(fine)
    for index, bound in enumerate(COARSE_S):
        below = sum(count for count, top in zip(fine, BOUNDS_S) if top <= bound)
        assert sum(told[: index + 1]) == below


def test_the_sum_of_a_histogram_is_nearly_that_of_its_times() -> None:
    rng, stats = Random(1), Stats(0.0)
    times = [rng.lognormvariate(0, 3) for _ in range(1000)]
    for seconds in times:
        cell = stats.assigned(worker_patterns("job.assign.>"), subject("a"), seconds)
    assert about_us(cell.waited) / 1e6 == pytest.approx(sum(times), rel=0.1)


class Watcher:
    """Counts as Prometheus does: what a series grew by, and all of it if it is new or has shrunk."""

    def __init__(self, stats: Stats, series_max: int) -> None:
        leader = SimpleNamespace(lifecycle=SimpleNamespace(stats=stats))
        self._meters = LeaderMeters(cast(LeaderMachine, leader), series_max)
        self._last: dict[Any, float] = {}
        self.counted: dict[str, float] = {}
        self.series = 0

    def look(self) -> None:
        now: dict[Any, float] = {}
        for family in self._meters.of_cells():
            if family.name.endswith("_total"):
                assert len({sample.labels for sample in family.samples}) == len(family.samples)
                now |= {(family.name, sample.labels): sample.value for sample in family.samples}
            for labels, counts, total in family.histograms:
                now |= {(family.name, labels): sum(counts), (f"{family.name}_sum", labels): total}
                assert min(counts) >= 0
        for (name, labels), value in now.items():
            last = self._last.get((name, labels), 0)
            if labels[0] == OTHERS:
                assert value >= last, "what is told of the others never shrinks"
            self.counted[name] = self.counted.get(name, 0) + (value - last if value >= last else value)
        self._last = now
        self.series = max(self.series, len({labels for name, labels in now if name.endswith("redelivered_total")}))


@pytest.mark.parametrize("seed", range(5))
def test_whoever_watches_counts_each_job_once_whatever_comes_and_goes(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wakugumi.core.leader.stats.STATS_CELLS_MAX", 16)
    monkeypatch.setattr("wakugumi.core.leader.stats.FOLD_FROM", 14)
    monkeypatch.setattr("wakugumi.core.leader.admin.metrics.IDLE_TURNS", 2)
    rng, stats = Random(seed), Stats(0.0)
    watcher = Watcher(stats, 4)
    patterns = worker_patterns("job.assign.>")
    for turn in range(200):
        words = [f"s{rng.randrange(turn // 5, turn // 5 + 4)}" for _ in range(rng.randrange(4))]
        for word in words:
            stats.accepted(subject(word))
            cell = stats.assigned(patterns, subject(word), rng.random())
            if rng.random() < 0.2:
                stats.lost(cell)
            else:
                stats.ended(cell, subject(word), rng.random() < 0.5, rng.random())
        stats.add_mark(turn * SWEEP_S)
        watcher.look()
    came, ok, failed, redelivered, _dead = stats.total()
    assert watcher.counted["wakugumi_leader_jobs_submitted_total"] == came
    assert watcher.counted["wakugumi_leader_jobs_finished_total"] == ok + failed
    assert watcher.counted["wakugumi_leader_jobs_redelivered_total"] == redelivered
    assert watcher.counted["wakugumi_leader_dispatch_delay_seconds"] == came
    assert watcher.counted["wakugumi_leader_run_seconds"] == ok + failed
    assert watcher.series == 5, "four of their own, and the others"
