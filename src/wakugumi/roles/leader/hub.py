"""What do all parts of a leader share? The drive of its machine, its peers, and which peers are read from.

A part takes the hub and the parts below it, never the whole leader:

    peer_access < hub < files < submit, old_peers < effects < connection < http, nodes < leader
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
from wakugumi.roles.leader.peer_access import PeerAccess


class Peer(Protocol):
    """A client or worker that speaks frames, as seen by the parts of a leader."""

    conn: ConnId
    link: Link
    client_id: ClientId
    paused: bool
    """The machine asked to stop reading from this peer."""
    receipts: bool
    """The client confirms results and reads an empty payload as a result (OK, without output)."""
    blobs: bool
    """The peer exchanges as blobs the content that does not fit a frame."""
    zstd: bool
    """The peer reads packed payloads."""
    rests: bool
    """The worker reports when it rests."""
    access: PeerAccess
    """Rights of the peer."""

    @property
    def is_client(self) -> bool: ...
    def set_reading(self) -> None: ...
    def must_wait(self) -> bool:
        """Too much of the peer's input is not on disk yet."""

    def complain(self, text: str) -> None: ...
    def fail(self, effect: object, error: Exception) -> None:
        """Close the connection, because a bug prevented `effect`."""

    async def do(self, what: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Await slow work for this peer; an exception is passed to `fail`."""


class LocalPeer(Protocol):
    """A client or worker of the leader's machine without a connection: it stands for an HTTP peer in this process."""

    def perform(self, effect: LeaderDo) -> None:
        """Perform an effect of the machine. Must not raise."""


class Hub:
    def __init__(
        self,
        machine: LeaderMachine,
        drive: Drive[LeaderEvent, LeaderKeep, LeaderDo],
        *,
        is_durable: bool,
        hello_deadline_s: float,
        http_connections: Callable[[], int],
    ) -> None:
        """`http_connections` counts the HTTP connections."""
        self.drive = drive
        self.is_durable = is_durable
        self.hello_deadline_s = hello_deadline_s
        self.connections_max = connections_max()
        self.peers: dict[ConnId, Peer] = {}
        self.local_peers: dict[ConnId, LocalPeer] = {}
        self.has_nodes = False
        """Some local peers are nodes: each submitted job is checked for whether a node can run it."""
        self.packed = bool(machine.jobs)
        """Payloads may be packed: in the journal, or from a peer with zstd."""
        self.behind = False
        """The disk is too slow: peers whose work is not on disk yet are not read from."""
        self.held_back: dict[ConnId, Peer] = {}
        """Peers that are not read from until their input is on disk."""
        self.stopping = False
        self.alone = asyncio.Event()
        """Set while there are no peers."""
        self.alone.set()
        self._conns = 0
        self._http_connections = http_connections
        # Readings of the machine that need no event.
        self.shared_patterns = machine.roster.shared
        self.knows = machine.knows
        self.owner = machine.owner
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
        """Jobs that were assigned to this worker and have no answer yet."""
        known = self._roster.by_id.get(worker)
        return () if known is None else tuple(known.jobs)

    def add(self, peer: Peer) -> None:
        self.peers[peer.conn] = peer
        self.alone.clear()

    def remove(self, peer: Peer) -> bool:
        """Whether the peer had been added."""
        known = self.peers.pop(peer.conn, None) is not None
        self.held_back.pop(peer.conn, None)
        if not self.peers:
            self.alone.set()
        return known

    # Reading.

    def fall_behind(self, behind: bool) -> None:
        """The disk became too slow, or fast enough again: hold peers back, or read from them again."""
        self.behind = behind
        self.drive.post(ev.ReadingStopped(behind))
        for peer in self.peers.values() if behind else ():
            if peer.must_wait():
                self.hold_back(peer)
        self._read_again()

    def hold_back(self, peer: Peer) -> None:
        """Stop reading from a peer until more of its input is on disk."""
        self.held_back[peer.conn] = peer
        self.drive.on_safe = self._read_again
        peer.set_reading()

    def _read_again(self) -> None:
        """Resume peers whose input is on disk."""
        for peer in [peer for peer in self.held_back.values() if not peer.must_wait()]:
            del self.held_back[peer.conn]
            peer.set_reading()
        if not self.held_back:
            self.drive.on_safe = None
