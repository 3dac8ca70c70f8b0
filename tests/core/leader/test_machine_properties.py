"""Whatever happens, in whatever order: no job lost, none answered twice, no credit overdrawn, and in the end all heals.

What is allowed to happen, and how it is judged: `leader_storm`.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.leader_storm import KINDS, Storm
from tests.kit.leader_world import job_id, subject, worker_id

from wakugumi.core.ids import ClientId, ConnId, JobId
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.jobs.states import TRANSITIONS, JobState
from wakugumi.core.leader.machine import LeaderMachine
from wakugumi.core.subject import Pattern

POLICIES = ["most-credit", "round-robin", "sticky", "score", "sticky,b=score,b.*=round-robin"]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 13), st.integers(0, 13)), min_size=20, max_size=100),
    st.sampled_from(POLICIES),
    st.sampled_from([0, 20, 1_000_000]),
)
@pytest.mark.spec("L2", "L3", "L4", "L5", "L6", "L7", "L10", "F7", "F9")
def test_whatever_happens_no_job_is_lost_and_none_is_answered_twice(
    script: list[tuple[str, int, int]], policies: str, payload_memory_bytes: int
) -> None:
    storm = Storm(policies, payload_memory_bytes)
    for kind, x, y in script:
        storm.play(kind, x, y)
    storm.heal()


@pytest.mark.parametrize("policies", POLICIES)
@pytest.mark.parametrize(
    "seed",
    [
        1782,  # a stopping leader waited for a client whose word settled nothing
        1509,  # a credit that came back passed the bound, and jobs waited although there was credit
        277,  # the same, since storms draw their patterns in one order
    ],
)
def test_a_storm_that_once_broke_something_is_lived_through(seed: int, policies: str) -> None:
    for payload_memory_bytes in (0, 20, 1_000_000):
        chance = Random(seed)
        storm = Storm(policies, payload_memory_bytes)
        for _ in range(150):
            storm.play(chance.choice(KINDS), chance.randrange(14), chance.randrange(14))
        storm.heal()


def test_every_change_of_state_is_one_of_the_table_and_each_of_them_happens() -> None:
    seen: set[tuple[JobState, JobState]] = set()
    for seed in range(150):
        chance = Random(seed)
        storm = Storm(payload_memory_bytes=[0, 20, 1_000_000][seed % 3])
        for _ in range(150):
            storm.play(chance.choice(KINDS), chance.randrange(14), chance.randrange(14))
        storm.heal()
        seen |= storm.seen
    table = {(before, after) for before in TRANSITIONS for after in TRANSITIONS[before]}
    assert seen == {change for change in table if JobState.LIMBO not in change}, "no step ends in limbo"


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 5), st.integers(1, 4), st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9)), max_size=20))
@pytest.mark.spec("L1")
def test_clients_and_subjects_with_enough_jobs_are_never_two_apart(
    clients: int, subjects: int, portions: list[tuple[int, int]]
) -> None:
    leader = LeaderMachine(Random(5).random)
    for worker in range(3):
        leader.handle([_join_worker(100 + worker)], 0.0)
    jobs: dict[JobId, tuple[int, int]] = {}
    for client in range(clients):
        leader.handle([ev.ClientJoined(ConnId(client), ClientId(f"c{client}"), 10**6, True, False)], 0.0)
    for _ in range(sum(amount for _, amount in portions) + 1):
        for client in range(clients):
            for lane in range(subjects):
                jobs[job_id(len(jobs))] = client, lane
                job = job_id(len(jobs) - 1)
                leader.handle([ev.Submitted(ConnId(client), job, subject(f"s{lane}"), "p", 1.0, b"")], 0.0)
    by_lane = dict.fromkeys(range(subjects), 0)
    by_turn = {(client, lane): 0 for client in range(clients) for lane in range(subjects)}
    for worker, amount in portions:
        for effect in leader.handle([ev.Credited(ConnId(100 + worker), amount)], 0.0).do:
            assert isinstance(effect, ev.SendAssign)
            client, lane = jobs[effect.job]
            by_lane[lane] += 1
            by_turn[client, lane] += 1
            assert max(by_lane.values()) - min(by_lane.values()) <= 1
            for lane in range(subjects):
                counts = [by_turn[client, lane] for client in range(clients)]
                assert max(counts) - min(counts) <= 1
    leader.check()
    assert sum(by_lane.values()) == sum(amount for _, amount in portions)


def _join_worker(conn: int) -> ev.WorkerJoined:
    return ev.WorkerJoined(ConnId(conn), worker_id(f"w{conn}"), "", (Pattern(">"),), False, False, False, False)
