"""What may go wrong? One function per kind; each chooses its victim, does its harm, and says whether it met work.

A fault that lasts leaves its end in `world.undo`: healing the world ends whatever lasts. A world draws its own mixture
of kinds, for some bugs hide behind faults of other kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from tests.sim.process import DOOMS, Process

from wakugumi.core.leader import events as lev
from wakugumi.core.runner import events as sev

if TYPE_CHECKING:
    from tests.sim.net import Link, Pipe
    from tests.sim.world import World

Fault: TypeAlias = Callable[["World"], bool | None]
"""Does it, and says whether it met work in flight; None if there was nobody to do it to."""

P = TypeVar("P", bound=Process)

DAY_S: Final = 86_400.0


def cut_a_link(world: World) -> bool | None:
    link = _a_link(world)
    if link is None:
        return None
    met = _link_has_work(link)
    _trouble_of_link(world, link, "its connection was cut")
    world.tell("network", f"cuts connection {link.number}", None)
    link.cut(soon=world.random.random() < 0.6)
    return met


def stall_a_pipe(world: World) -> bool | None:
    link = _a_link(world)
    if link is None:
        return None
    pipe = link.up if world.random.random() < 0.5 else link.down
    seconds = _some_time(world, 3.0, 45.0)
    met = _link_has_work(link)
    _trouble_of_link(world, link, "its connection stalled")
    way = "to" if pipe is link.up else "from"
    world.tell("network", f"stalls connection {link.number}, {way} the leader, for {seconds:.1f} s", None)
    _hold(world, link, pipe, seconds)
    return met


def isolate_a_peer(world: World) -> bool | None:
    """Its packets go nowhere: what it has is cut without a word, and it cannot dial."""
    process = _one_of(world, [*world.workers, *world.clients])
    seconds = _some_time(world, 5.0, 60.0)
    world.tell("network", f"isolates {process.name} for {seconds:.1f} s", None)
    met = process.has_work()
    world.checker.trouble(process.name, "it was isolated")
    for link in list(world.net.links.values()):
        if _owner(link) is process:
            link.harm = "it was isolated"
            link.cut(soon=False)
    world.net.isolate(process.name)

    def rejoin() -> None:
        world.checker.trouble(process.name, "it was isolated")
        world.net.rejoin(process.name)

    world.lasts(seconds, rejoin)
    return met


def part_two(world: World) -> bool | None:
    """A peer and a leader that it has cannot hear each other, or only one of them the other."""
    pairs = [(worker, worker.leader) for worker in world.workers]
    pairs += [(client, leader) for client in world.clients for leader in client.all_leaders]
    busy = [pair for pair in pairs if pair[0].has_work()]
    peer, leader = world.random.choice(busy if busy and world.random.random() < 0.8 else pairs)
    way = world.random.choice(["to", "from", "to and from"])
    _part(world, peer, leader, way, _some_time(world, 12.0, 60.0))
    return peer.has_work()


def cut_off_a_leader(world: World) -> bool | None:
    """Nobody hears it, and it hears nobody."""
    leader = _one_of(world, world.leaders)
    seconds = _some_time(world, 12.0, 60.0)
    for process in (*world.workers, *world.clients):
        _part(world, process, leader, "to and from", seconds)
    return leader.has_work()


def remove_a_leader(world: World) -> bool | None:
    """From the leaders of a client, which goes on; it is added again after a while."""
    client = _one_of(world, world.clients)
    if not client.alive or len(client.present) < (1 if world.random.random() < 0.05 else 2):
        return None
    no = world.random.choice(list(client.present))
    seconds = _some_time(world, 5.0, 40.0)
    world.tell(client.name, f"is told to leave {client.leaders[no].name} for {seconds:.1f} s", None)
    met = client.has_work()
    life = client.life
    client.remove_leader(no)

    def add() -> None:
        if client.life == life and client.alive:
            client.add_leader(no)

    world.lasts(seconds, add)
    return met


def kill_the_leader(world: World) -> bool | None:
    return _kill(_one_of(world, world.leaders), power=False)


def kill_all_leaders(world: World) -> bool | None:
    """Those that are several; each comes back in its own time."""
    if len(world.leaders) == 1:
        return None
    met = [_kill(leader, power=world.random.random() < 0.3) for leader in world.leaders]
    return any(met)


def cut_the_leaders_power(world: World) -> bool | None:
    return _kill(_one_of(world, world.leaders), power=True)


def kill_the_leader_in_a_step(world: World) -> bool | None:
    return _doom(world, _one_of(world, world.leaders))


def slow_the_leader(world: World) -> bool | None:
    leader = _one_of(world, world.leaders)
    if leader.slow_s:
        return None
    leader.slow_s = _some_time(world, 1.0, 8.0)
    seconds = _some_time(world, 5.0, 60.0)
    world.tell(leader.name, f"is slow by {leader.slow_s:.1f} s, for {seconds:.1f} s", None)
    world.checker.trouble(leader.name, "the leader was slow")

    def recover() -> None:
        world.checker.trouble(leader.name, "the leader was slow")
        leader.slow_s = 0.0

    world.lasts(seconds, recover)
    return leader.has_work()


def stop_the_leader(world: World) -> bool | None:
    leader = _one_of(world, world.leaders)
    if not leader.alive or leader.machine.stopping:
        return None
    met = leader.has_work()
    life = leader.life
    leader.post(lev.StopWanted())

    def deadline() -> None:
        if leader.life == life:
            leader.die(power=False, why="it was asked to stop and had no more time")

    world.clock.after(30.0, deadline)
    return met


def kill_a_worker(world: World) -> bool | None:
    return _kill(_one_of(world, world.workers), power=False)


def cut_a_workers_power(world: World) -> bool | None:
    return _kill(_one_of(world, world.workers), power=True)


def kill_a_worker_in_a_step(world: World) -> bool | None:
    return _doom(world, _one_of(world, world.workers))


def stop_a_worker(world: World) -> bool | None:
    worker = _one_of(world, world.workers)
    if not worker.alive or worker.stopping:
        return None
    worker.stopping = True
    met = worker.has_work()
    worker.post(sev.StopAsked())
    return met


def kill_a_client(world: World) -> bool | None:
    return _kill(_one_of(world, world.clients), power=world.random.random() < 0.3)


def kill_a_client_in_a_step(world: World) -> bool | None:
    return _doom(world, _one_of(world, world.clients))


def pause_the_leader(world: World) -> bool | None:
    return _pause(world, _one_of(world, world.leaders))


def pause_a_worker(world: World) -> bool | None:
    return _pause(world, _one_of(world, world.workers))


def pause_a_client(world: World) -> bool | None:
    return _pause(world, _one_of(world, world.clients))


def slow_the_disk(world: World) -> bool | None:
    leader = _one_of(world, world.leaders)
    disk = leader.disk
    disk.slow_s = 0.2 * world.random.random()

    def recover() -> None:
        disk.slow_s = 0.0

    world.lasts(_some_time(world, 2.0, 20.0), recover)
    return leader.has_work()


def fill_the_disk(world: World) -> bool | None:
    """First it is low, and the leader is told; then, maybe, nothing more can be written."""
    leader = _one_of(world, world.leaders)
    disk = leader.disk
    if leader.disk_low:
        return None
    met = leader.has_work()
    leader.disk_low = True
    world.tell(leader.name, "has little room on its disk", None)
    if leader.alive:
        leader.post(lev.DiskLow(True))
    seconds = _some_time(world, 3.0, 20.0)
    if world.random.random() < 0.5:

        def full() -> None:
            if leader.disk_low:
                world.tell(leader.name, "has no room on its disk", None)
                disk.full = True

        world.clock.after(0.5 * seconds * world.random.random(), full)

    def room() -> None:
        leader.disk_low = False
        world.tell(leader.name, "has room on its disk", None)
        if disk.full:
            world.checker.trouble(leader.name, "its leader's disk was full")
            disk.room_came()
        if leader.alive:
            leader.post(lev.DiskLow(False))

    world.lasts(seconds, room)
    return met


def fail_a_sync(world: World) -> bool | None:
    leader = _one_of(world, world.leaders)
    leader.disk.fails = True
    return leader.has_work()


def step_the_clock(world: World) -> bool | None:
    """Of one leader's wall: an hour, or a day, ahead or back."""
    leader = _one_of(world, world.leaders)
    step_s = world.random.choice([-DAY_S, -3_600.0, -1.0, 1.0, 3_600.0, DAY_S, 30 * DAY_S])
    leader.skew_s += step_s
    world.tell(leader.name, f"has its clock set by {step_s:.0f} s", None)
    return leader.has_work()


KINDS: Final[dict[str, Fault]] = {
    "connection cut": cut_a_link,
    "connection stalled": stall_a_pipe,
    "peer isolated": isolate_a_peer,
    "two parted": part_two,
    "leader cut off": cut_off_a_leader,
    "leader removed": remove_a_leader,
    "leader killed": kill_the_leader,
    "leader killed in a step": kill_the_leader_in_a_step,
    "all leaders killed": kill_all_leaders,
    "leader power lost": cut_the_leaders_power,
    "leader stopped": stop_the_leader,
    "leader slow": slow_the_leader,
    "leader paused": pause_the_leader,
    "worker killed": kill_a_worker,
    "worker killed in a step": kill_a_worker_in_a_step,
    "worker power lost": cut_a_workers_power,
    "worker stopped": stop_a_worker,
    "worker paused": pause_a_worker,
    "client killed": kill_a_client,
    "client killed in a step": kill_a_client_in_a_step,
    "client paused": pause_a_client,
    "disk slow": slow_the_disk,
    "disk full": fill_the_disk,
    "sync failed": fail_a_sync,
    "clock stepped": step_the_clock,
}

LEADER_ONLY: Final = (
    "leader killed",
    "leader killed in a step",
    "all leaders killed",
    "leader power lost",
    "sync failed",
    "clock stepped",
)
"""With these alone, no program may run twice, unless its job is adopted."""


def _part(world: World, peer: Process, leader: Process, way: str, seconds: float) -> None:
    world.tell("network", f"loses what goes {way} {leader.name}, from or to {peer.name}, for {seconds:.1f} s", None)
    ends = (peer.name, leader.name)
    links = [link for link in world.net.links.values() if link.ends == ends]

    def harm() -> None:
        world.checker.trouble(peer.name, "it was parted from its leader")
        for link in links:
            link.harm = "it was parted from its leader"

    harm()
    join = world.net.part(ends, up="to" in way, down="from" in way)

    def heal() -> None:
        harm()
        join()

    world.lasts(seconds, heal)


def _kill(process: Process, *, power: bool) -> bool | None:
    if not process.alive:
        return None
    met = process.has_work()
    process.die(power=power, why="power lost" if power else "killed")
    return met


def _doom(world: World, process: Process) -> bool | None:
    if not process.alive or process.paused or process.doom is not None:
        return None
    process.doom = world.random.choice(DOOMS)
    return process.has_work()


def _pause(world: World, process: Process) -> bool | None:
    if not process.alive or process.paused:
        return None
    met = process.has_work()
    seconds = _some_time(world, 2.0, 50.0)
    world.tell(process.name, f"is paused for {seconds:.1f} s", None)
    world.checker.trouble(process.name, f"the {process.kind} was paused")
    process.pause()
    life = process.life

    def resume() -> None:
        if process.life == life and process.paused:
            world.tell(process.name, "goes on", None)
            world.checker.trouble(process.name, f"the {process.kind} was paused")
            process.resume()

    world.lasts(seconds, resume)
    return met


def _one_of(world: World, processes: Sequence[P]) -> P:
    """Rather one that has work: harm where nothing happens teaches little."""
    busy = [process for process in processes if process.has_work()]
    return world.random.choice(busy if busy and world.random.random() < 0.8 else processes)


def _some_time(world: World, usual_s: float, long_s: float) -> float:
    """Mostly shorter than the time in which silence is noticed, now and then longer."""
    random = world.random.random
    return random() * (usual_s if random() < 0.75 else long_s)


def _a_link(world: World) -> Link | None:
    links = list(world.net.links.values())
    busy = [link for link in links if _link_has_work(link)]
    if busy and world.random.random() < 0.8:
        return world.random.choice(busy)
    return world.random.choice(links) if links else None


def _owner(link: Link) -> Process:
    """Who dialled it."""
    wire = link.up.sender
    process = getattr(wire, "worker", None) or getattr(wire, "client", None)
    assert isinstance(process, Process)
    return process


def _link_has_work(link: Link) -> bool:
    return _owner(link).has_work() or link.busy


def _trouble_of_link(world: World, link: Link, what: str) -> None:
    link.harm = what
    world.checker.trouble(_owner(link).name, what)


def _hold(world: World, link: Link, pipe: Pipe, seconds: float) -> None:
    pipe.stall()

    def release() -> None:
        _trouble_of_link(world, link, "its connection stalled")
        pipe.flow()

    world.lasts(seconds, release)
