"""What do all parts of a leader share? The way to its machine, its peers, and the state of reading from them.

A part takes the hub and the parts below it, never the whole leader:

    hub < files < submit, old_peers < effects < connection < http, nodes < leader
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol

from wakugumi.adapters.loop.drive import Drive
from wakugumi.adapters.machine.open_files import connections_max
from wakugumi.adapters.net.link import Link
from wakugumi.core.ids import ClientId, ConnId, JobId, WorkerId
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.admin.metrics import LeaderMeters
from wakugumi.core.leader.admin.overview import capacity
from wakugumi.core.leader.events import LeaderDo, LeaderEvent
from wakugumi.core.leader.journal.entries import LeaderKeep
from wakugumi.core.leader.machine import LeaderMachine


class Peer(Protocol):
    """A client or worker that speaks frames, as the parts of a leader see it."""

    conn: ConnId
    link: Link
    client_id: ClientId
    paused: bool
    """The machine wants nothing more from it for now."""
    receipts: bool
    """It speaks our own types, in which an empty result is a result (OK, without output)."""
    blobs: bool
    """It exchanges as blobs what does not fit a frame."""
    zstd: bool
    """Payloads may be packed."""
    rests: bool
    """A worker that says when its machine is out of order."""

    @property
    def is_client(self) -> bool: ...
    def set_reading(self) -> None: ...
    def must_wait(self) -> bool:
        """Too much of what it sent waits for the disk."""

    def complain(self, text: str) -> None: ...
    def fail(self, effect: object, error: Exception) -> None:
        """End the connection: a bug of ours kept us from doing this for the peer."""

    async def do(self, what: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do something for it that takes time; an exception fails it."""


class LocalPeer(Protocol):
    """A client or worker of the leader's machine that lives in the leader's own process, and stands for one that speaks
    HTTP."""

    def perform(self, effect: LeaderDo) -> None:
        """The machine asks for this. It must not raise."""


class Hub:
    """What the parts of one leader share."""

    def __init__(
        self,
        machine: LeaderMachine,
        drive: Drive[LeaderEvent, LeaderKeep, LeaderDo],
        *,
        is_durable: bool,
        hello_deadline_s: float,
        http_connections: Callable[[], int],
    ) -> None:
        """`http_connections` counts the connections that do not speak frames."""
        self.drive = drive
        self.is_durable = is_durable
        self.hello_deadline_s = hello_deadline_s
        self.connections_max = connections_max()
        self.peers: dict[ConnId, Peer] = {}
        self.local_peers: dict[ConnId, LocalPeer] = {}
        self.has_nodes = False
        """Some local peers are nodes: it is looked at each job whether a node can be told it."""
        self.packed = bool(machine.jobs)
        """There may be packed payloads, in the journal or from a peer that asked for that."""
        self.behind = False
        """The disk does not keep up: a peer with work that waits for the disk is not read from."""
        self.held_back: dict[ConnId, Peer] = {}
        """Peers that are not read from until the disk has what came from them."""
        self.stopping = False
        self.alone = asyncio.Event()
        """There is no peer."""
        self.alone.set()
        self._conns = 0
        self._http_connections = http_connections
        # What may be read of the machine beside its effects.
        self.shared_patterns = machine.roster.shared
        self.knows = machine.knows
        self.why_not = machine.why_not
        self.unclaimed = machine.unclaimed
        self.why_stalled: Callable[[], str] = lambda: machine.stalled
        self.capacity = partial(capacity, machine)
        self.meters = LeaderMeters(machine)
        self._roster = machine.roster

    # Peers.

    @property
    def connections(self) -> int:
        return len(self.peers) + self._http_connections()

    def new_conn(self) -> ConnId:
        self._conns += 1
        return ConnId(self._conns)

    def jobs_of(self, worker: WorkerId) -> tuple[JobId, ...]:
        """What this worker was given and has not answered, as far as is known."""
        known = self._roster.by_id.get(worker)
        return () if known is None else tuple(known.jobs)

    def add(self, peer: Peer) -> None:
        self.peers[peer.conn] = peer
        self.alone.clear()

    def remove(self, peer: Peer) -> bool:
        """False for a peer that was never let in."""
        known = self.peers.pop(peer.conn, None) is not None
        self.held_back.pop(peer.conn, None)
        if not self.peers:
            self.alone.set()
        return known

    # Reading.

    def fall_behind(self, behind: bool) -> None:
        """A peer that sends work waits until the disk has taken what came before."""
        self.behind = behind
        self.drive.post(ev.ReadingStopped(behind))
        for peer in self.peers.values() if behind else ():
            if peer.must_wait():
                self.hold_back(peer)
        self._read_again()

    def hold_back(self, peer: Peer) -> None:
        """It is far ahead of the disk: nothing more is read from it for now."""
        self.held_back[peer.conn] = peer
        self.drive.on_safe = self._read_again
        peer.set_reading()

    def _read_again(self) -> None:
        """From peers that waited for the disk, if it has enough of what came from them."""
        for peer in [peer for peer in self.held_back.values() if not peer.must_wait()]:
            del self.held_back[peer.conn]
            peer.set_reading()
        if not self.held_back:
            self.drive.on_safe = None
