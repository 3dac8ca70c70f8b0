"""A worker id belongs to the key that joined with it first, also over a restart and in a tidied journal."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.kit.leader_world import World, a_world, worker_id

from wakugumi.core.ids import ConnId
from wakugumi.core.leader import events as ev
from wakugumi.core.leader import worker_keys
from wakugumi.core.leader.journal.entries import ForgetWorkerKey, KeepWorkerKey
from wakugumi.core.subject import parse_pattern
from wakugumi.limits.leader import REATTACH_GRACE_S, SWEEP_S


@pytest.fixture(params=[True, False], ids=["journal", "memory"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with a_world(keeps=request.param) as world:
        yield world


def why_not(world: World, name: str, key: str) -> str:
    """Why a worker with this id and key is closed."""
    conn = ConnId(90_000 + len(world.said))
    joined = ev.WorkerJoined(conn, worker_id(name), name, (parse_pattern(">"),), True, True, True, True, key=key)
    step = world.leader.handle([joined], world.now)
    world.leader.check()
    (closed,) = [*step.at_once, *step.do]
    assert isinstance(closed, ev.Close)
    assert closed.conn == conn
    assert not [record for record in step.keep if isinstance(record, KeepWorkerKey | ForgetWorkerKey)]
    return closed.why


def test_another_key_does_not_get_the_id(world: World) -> None:
    a = world.worker("a", key="rack-7")
    assert "belongs to another key" in why_not(world, "a", "rack-8")
    a.gets_nothing()
    a.leaves()
    world.wait(2 * REATTACH_GRACE_S)
    assert "belongs to another key" in why_not(world, "a", "rack-8")
    world.worker("a", key="rack-7")
    world.worker("b", key="rack-8")


def test_a_job_of_the_id_is_safe_from_another_key(world: World) -> None:
    desk, a = world.client(), world.worker("a", key="rack-7", credit=1)
    (job,) = desk.submits(1)
    a.gets(job)
    a.leaves()
    assert "denied" in why_not(world, "a", "rack-8")
    again = world.worker("a", key="rack-7", holds=False)
    again.holds(running=[job])
    again.acks(job)
    desk.gets_result(job)


def test_a_worker_of_the_leaders_own_keeps_its_id_while_it_is_there(world: World) -> None:
    own = world.worker("a")
    assert "denied" in why_not(world, "a", "rack-7")
    own.leaves()
    world.wait(2 * REATTACH_GRACE_S)
    world.worker("a", key="rack-7")


def test_where_no_proof_is_asked_for_any_id_may_join(world: World) -> None:
    first = world.worker("a", key="rack-7")
    world.worker("a")
    first.is_closed()


def test_a_binding_outlives_the_leader() -> None:
    with a_world() as world:
        desk, a = world.client(), world.worker("a", key="rack-7", credit=1)
        (job,) = desk.submits(1)
        a.gets(job)
        world.restart()
        assert "denied" in why_not(world, "a", "rack-8")
        again = world.worker("a", key="rack-7", holds=False)
        again.holds(running=[job])
        again.acks(job)


def test_after_a_restart_an_unbound_id_takes_the_first_key() -> None:
    with a_world() as world:
        desk, a = world.client(), world.worker("a", credit=1)
        (job,) = desk.submits(1)
        a.gets(job)
        world.restart()
        again = world.worker("a", key="rack-7", holds=False)
        again.holds(running=[job])
        assert "denied" in why_not(world, "a", "rack-8")


def test_a_binding_is_written_once(world: World) -> None:
    for _ in range(3):
        world.worker("a", key="rack-7").leaves()
        world.wait(2 * REATTACH_GRACE_S)
    assert [record for record in world.kept if isinstance(record, KeepWorkerKey)] == (
        [KeepWorkerKey("rack-7", worker_id("a"))] if world.leader.durable else []
    )


def test_the_ids_of_an_ended_key_are_free() -> None:
    with a_world() as world:
        world.worker("a", key="rack-7").leaves()
        world.worker("b", key="rack-7").leaves()
        world.worker("c", key="rack-8").leaves()
        world.wait(2 * REATTACH_GRACE_S)
        world.hear(ev.KeyEnded("rack-7"), ev.KeyEnded("never-seen"))
        assert world.kept[-1] == ForgetWorkerKey("rack-7")
        world.restart()
        world.worker("a", key="rack-9")
        assert "denied" in why_not(world, "c", "rack-9")


def test_newer_ids_of_a_key_push_out_its_own_oldest(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_keys, "WORKER_IDS_PER_KEY_MAX", 2)
    world.worker("z", key="rack-8").leaves()
    for name in "abc":
        world.worker(name, key="rack-7").leaves()
    world.wait(2 * REATTACH_GRACE_S)
    if world.leader.durable:
        world.restart()
    world.worker("a", key="rack-9")
    for name in "bcz":
        assert "denied" in why_not(world, name, "rack-9")


def test_one_id_per_key_is_pushed_out_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_keys, "WORKER_IDS_PER_KEY_MAX", 1)
    for name in "ab":
        world.worker(name, key="rack-7").leaves()
    world.wait(2 * REATTACH_GRACE_S)
    world.worker("a", key="rack-9")
    assert "denied" in why_not(world, "b", "rack-9")


def test_ids_have_a_bound(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_keys, "WORKER_IDS_MAX", 2)
    world.worker("a", key="rack-7")
    world.worker("b", key="rack-8")
    assert "full" in why_not(world, "c", "rack-9")
    world.worker("c")


def test_a_binding_moves_with_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakugumi.core.leader.journal.leaves.JOURNAL_SLACK_BYTES", 100)
    with a_world() as world:
        desk, a = world.client(), world.worker("a", key="rack-7", credit=200)
        for _ in range(60):
            (job,) = desk.submits(1)
            a.gets(job)
            a.acks(job)
            desk.gets_result(job)
            desk.confirms(job)
        world.leader.clients.forget_all_kept()
        world.wait(3 * SWEEP_S)
        assert 1 not in world.journal.by_number, "the leaf in which the id was bound is gone"
        assert sum(isinstance(record, KeepWorkerKey) for record in world.kept) > 1
        world.restart()
        assert "denied" in why_not(world, "a", "rack-8")
