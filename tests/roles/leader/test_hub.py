"""Which peers has a leader, and from which of them does it read?"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from wakugumi.core.ids import ConnId, WorkerId
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.machine import LeaderMachine
from wakugumi.roles.leader.hub import Hub, Peer

pytestmark = pytest.mark.anyio


class FakePeer:
    """Notes whether it is read from, each time that it has to find out."""

    def __init__(self, conn: ConnId) -> None:
        self.conn = conn
        self.waits = False
        self.looks = 0

    def must_wait(self) -> bool:
        return self.waits

    def set_reading(self) -> None:
        self.looks += 1


class World:
    def __init__(self) -> None:
        self.posted: list[object] = []
        self.drive = SimpleNamespace(post=self.posted.append, on_safe=None)
        machine = LeaderMachine(lambda: 0.5)
        self.hub = Hub(
            machine, cast(Any, self.drive), is_durable=True, hello_deadline_s=1.0, http_connections=lambda: 3
        )

    def peer(self) -> FakePeer:
        peer = FakePeer(self.hub.new_conn())
        self.hub.add(cast(Peer, peer))
        return peer


@pytest.fixture
async def world() -> World:
    return World()


async def test_peers_are_counted_and_the_last_one_leaves_the_hub_alone(world: World) -> None:
    hub, alone = world.hub, [world.hub.alone.is_set()]
    one, two = world.peer(), world.peer()
    assert one.conn != two.conn
    assert hub.connections == 2 + 3
    alone.append(hub.alone.is_set())
    removed = [hub.remove(cast(Peer, one)), hub.remove(cast(Peer, one))]
    alone.append(hub.alone.is_set())
    hub.remove(cast(Peer, two))
    alone.append(hub.alone.is_set())
    assert (removed, alone) == ([True, False], [True, False, False, True])
    assert hub.connections == 3


async def test_a_slow_disk_holds_back_only_peers_whose_input_is_not_on_it(world: World) -> None:
    hub, ahead, other = world.hub, world.peer(), world.peer()
    ahead.waits = True
    hub.fall_behind(True)
    assert world.posted == [ev.ReadingStopped(True)]
    assert list(hub.held_back) == [ahead.conn]
    assert (ahead.looks, other.looks) == (1, 0)
    ahead.waits = False
    assert world.drive.on_safe is not None
    world.drive.on_safe()
    assert not hub.held_back
    assert ahead.looks == 2
    assert world.drive.on_safe is None, "nobody waits for the disk any more"


async def test_a_peer_is_held_back_until_its_own_input_is_on_disk(world: World) -> None:
    hub, one, two = world.hub, world.peer(), world.peer()
    for peer in (one, two):
        peer.waits = True
        hub.hold_back(cast(Peer, peer))
    one.waits = False
    hub.fall_behind(False)
    assert list(hub.held_back) == [two.conn]
    assert world.drive.on_safe is not None
    hub.remove(cast(Peer, two))
    assert not hub.held_back


async def test_a_worker_that_is_not_known_has_no_jobs(world: World) -> None:
    assert world.hub.jobs_of(WorkerId(b"w" * 16)) == ()
    assert world.hub.why_stalled() == ""
    assert world.hub.capacity() == {"running": 0, "limit": 0, "queued": 0, "free": 0}
