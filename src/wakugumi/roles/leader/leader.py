"""The leader as a process: the leader's machine behind sockets.

Each connection has a Peer (`connection`), which turns frames into events; `Leader` performs what dispatch asks for
(`effects`). Between them stands the drive: nothing else calls the state machine. Payloads pass through as the bytes
they came in.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from wakugumi.adapters.http.page import PageRoute
from wakugumi.adapters.http.page_routes import page_routes
from wakugumi.adapters.journal.cache_manifests import Manifests
from wakugumi.adapters.journal.journal import Journal
from wakugumi.adapters.loop.drive import Drive
from wakugumi.adapters.machine.open_files import connections_max
from wakugumi.adapters.net.gate import gate
from wakugumi.adapters.net.link import adopt, bound_port, listen
from wakugumi.adapters.port.port import HttpPort
from wakugumi.core.ids import ConnId, JobId, WorkerId
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.admin.metrics import LeaderMeters
from wakugumi.core.leader.admin.overview import capacity
from wakugumi.core.leader.events import LeaderDo, LeaderEvent
from wakugumi.core.leader.journal.entries import LeaderKeep
from wakugumi.core.leader.machine import LeaderMachine
from wakugumi.core.leader.scheduling.locality import nobody
from wakugumi.core.requirements import Requirements, check_wants
from wakugumi.core.subject import Subject, SubjectError, route
from wakugumi.core.visible_text import is_plain_name
from wakugumi.errors import Refused
from wakugumi.limits.journal import JOURNAL_QUEUE_BYTES_MAX
from wakugumi.limits.leader import ROUTES_REMEMBERED_MAX
from wakugumi.limits.wire import CLOSE_DEADLINE_S, DRAIN_DEADLINE_S, EXEC_NAME_CHARS_MAX
from wakugumi.roles.leader.connection import PeerConnection
from wakugumi.roles.leader.effects import SAYINGS
from wakugumi.roles.leader.files.blobs import LeaderBlobs
from wakugumi.roles.leader.files.caches import LeaderCaches
from wakugumi.roles.leader.old_peers import OldPeers
from wakugumi.roles.leader.questions import Questions
from wakugumi.roles.leader.settings import LEADER, WHOLE, LeaderSettings
from wakugumi.roles.leader.submit import Submissions
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.job import SubmitHead
from wakugumi.wire.node_request import why_not_simple

if TYPE_CHECKING:
    from wakugumi.roles.leader.http.pages import GroupPages

log = logging.getLogger("wakugumi.leader")


class Insider(Protocol):
    """A client or worker of the leader's machine that lives in the leader's own process, and stands for one that speaks
    HTTP."""

    def perform(self, effect: LeaderDo) -> None:
        """Dispatch asks for this. It must not raise."""


class Leader:
    """One leader. Make it inside a running loop, then `listen`."""

    def __init__(
        self,
        journal: Journal | None = None,
        *,
        settings: LeaderSettings = LEADER,
        blobs: LeaderBlobs | None = None,
    ) -> None:
        """With a journal it goes on where the last leader ended that had it. Raises ConfigError if that cannot be."""
        loop = asyncio.get_running_loop()
        budget = settings.budget
        queue_bytes_max = budget.queue_bytes if journal is None else JOURNAL_QUEUE_BYTES_MAX
        machine = LeaderMachine(
            random.random,
            now=loop.time(),
            policies=settings.policies,
            queue_jobs_max=_first(settings.queue_jobs_max, budget.queue_jobs),
            queue_bytes_max=_first(settings.queue_bytes_max, queue_bytes_max),
            payload_memory_bytes=_first(settings.payload_memory_bytes, budget.payload_bytes),
            keeps=journal is not None,
            holders=self._holders_of,
            why_not_simple=why_not_simple,
        )
        machine.bound_by(budget)
        if budget is not WHOLE:
            gate().bound_by(budget)
        self._journal = journal
        self._roster = machine.roster
        self.shared_patterns = machine.roster.shared
        self.knows = machine.knows
        self.why_not = machine.why_not
        self.why_stalled: Callable[[], str] = lambda: machine.stalled
        self.unclaimed = machine.unclaimed
        self.ingress = Submissions(self)
        self.egress = OldPeers(self)
        self.packed = False
        """There may be packed payloads, in the journal or from a peer that asked for that."""
        self.holders: Callable[[str], Collection[WorkerId]] = nobody
        """Who holds a blob or a cache."""
        self.needed_by: list[Callable[[str], bool]] = [machine.holds]
        """Who needs a blob: what none of these does may be removed."""
        self.blobs = blobs
        if blobs is not None:
            blobs.begin()
            self.needed_by.append(blobs.expected.__contains__)
            blobs.is_held = lambda blob: any(needs(blob) for needs in self.needed_by)
        if journal is not None:
            _recover(machine, journal, loop.time())
            self.packed = bool(machine.jobs)
        self.drive: Drive[LeaderEvent, LeaderKeep, LeaderDo] = Drive(
            machine, self._perform, name="leader", keeper=journal
        )
        self.questions = Questions(lambda: machine.lanes.queued > 0)
        self.behind = False
        """The disk does not keep up: those are not read from of whom something waits for it."""
        self.held_back: dict[ConnId, PeerConnection] = {}
        """Connections that are not read from until the disk has what came from them."""
        self.is_durable = journal is not None
        if journal is not None:
            journal.begin(loop, self.drive.fail, self._disk_low, self._fall_behind, self._commits_stalled)
        self.peers: dict[ConnId, PeerConnection] = {}
        self.insiders: dict[ConnId, Insider] = {}
        """Clients and workers of the leader's machine that have no connection of frames: those that speak HTTP."""
        self.has_nodes = False
        """Some of them are nodes: jobs are looked at for whether a node can be told them."""
        self.hello_deadline_s = settings.hello_deadline_s
        self.connections_max = connections_max()
        self._conns = 0
        self._server: asyncio.Server | None = None
        self.door: HttpPort | None = None
        self._settings = settings
        self.group: GroupPages | None = None
        """Made when the first one asks by HTTP."""
        self.stopping = False
        self.capacity = partial(capacity, machine)
        self.meters = LeaderMeters(machine)
        self._stopped = asyncio.Event()
        self._alone = asyncio.Event()
        self._alone.set()
        self._routes: dict[tuple[str, str], tuple[Subject, str, int]] = {}
        self._wants: dict[Requirements, Requirements] = {}
        self._act = SAYINGS
        self.caches: LeaderCaches | None = None
        """Only a leader with a place for blobs keeps caches."""
        if blobs is not None:
            manifests = None if journal is None else Manifests(Path(journal.path).parent / "caches")
            self.caches = LeaderCaches(self.peers, self._act, blobs, manifests)
            self.caches.drive.failed.add_done_callback(self._caches_failed)
            self.caches.machine.shelf.is_needed = machine.holds
            self.caches.machine.sources.blobs_max = budget.stocked_blobs
            self.holders = self.caches.holders
            self.needed_by.append(self.caches.pins)

    async def listen(self, host: str, port: int, names: Iterable[str] = ()) -> int:
        """Take connections; returns the port, which matters if 0 was asked for. `names`: what it is called beside
        this machine's name. Raises ConfigError."""
        of_blobs = () if self.blobs is None else self.blobs.routes
        self.door = HttpPort([*of_blobs, page_routes(self._pages)], names=names)
        self._server = await listen(host, port, self.new_peer, self.door.at)
        return bound_port(self._server)

    async def adopt(self, sock: socket.socket) -> None:
        """Take a socket that is already connected to a peer."""
        await adopt(sock, self.new_peer(), trusted=False)

    async def drain(self, deadline_s: float = DRAIN_DEADLINE_S) -> bool:
        """Assign nothing more and let what runs finish. False if that took longer than it may."""
        self.stopping = True
        if self._server is not None:
            self._server.close()
        self.drive.post(ev.StopWanted())
        try:
            async with asyncio.timeout(deadline_s):
                await self._stopped.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Leave now. Workers keep what they run for the next leader."""
        self.stopping = True
        if self._server is not None:
            self._server.close()
        if self.group is not None:
            await self.group.close()
        for peer in list(self.peers.values()):
            peer.link.close()
        # The loop still has to flush what was queued; a peer that does not read gets no more time than this.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_DEADLINE_S):
                await self._alone.wait()
        for peer in list(self.peers.values()):
            peer.link.abort()
        if self.caches is not None:
            await self.caches.close()
        await self.egress.close()
        if self.door is not None:
            await self.door.close()
        if self.blobs is not None:
            await self.blobs.close()
        self.questions.close()
        self.drive.close()
        if self._journal is not None:
            await self._journal.close()

    @property
    def connections(self) -> int:
        return len(self.peers) + (0 if self.door is None else self.door.connections)

    def _pages(self) -> Sequence[PageRoute]:
        from wakugumi.roles.leader.http.pages import GroupPages

        self.group = GroupPages(self, self._settings)
        return self.group.pages()

    def new_peer(self) -> PeerConnection:
        return PeerConnection(self, self.new_conn())

    def new_conn(self) -> ConnId:
        self._conns += 1
        return ConnId(self._conns)

    def jobs_of(self, worker: WorkerId) -> tuple[JobId, ...]:
        """What this worker was given and has not answered, as far as is known."""
        known = self._roster.by_id.get(worker)
        return () if known is None else tuple(known.jobs)

    def came(self, peer: PeerConnection) -> None:
        self.peers[peer.conn] = peer
        self._alone.clear()

    def went(self, peer: PeerConnection) -> bool:
        """False for a peer that was never let in."""
        known = self.peers.pop(peer.conn, None) is not None
        self.held_back.pop(peer.conn, None)
        self.questions.went(peer.conn)
        if not self.peers:
            self._alone.set()
        return known

    def route(self, subject: str, program: str) -> tuple[Subject, str, int]:
        """Where a submit goes (SPEC F8), the one copy of the program's name, and how large a payload fits beside that
        subject. Raises Refused."""
        known = self._routes.get((subject, program))
        if known is not None:
            return known
        if len(program) > EXEC_NAME_CHARS_MAX:
            raise Refused("bad-name", f"an exec name has at most {EXEC_NAME_CHARS_MAX} characters")
        if not is_plain_name(program):
            raise Refused("bad-name", "an exec name has printable characters only")
        try:
            to = route(subject, program)
        except SubjectError as error:
            raise Refused("bad-subject", str(error)) from None
        routed = to, program, fr.payload_max(to)
        if len(self._routes) >= ROUTES_REMEMBERED_MAX:
            self._routes.clear()
        self._routes[subject, program] = routed
        return routed

    def wants(self, head: SubmitHead) -> Requirements:
        """What a job asks for besides being run; the one copy of it, for many ask for the same. Raises Refused."""
        asked = Requirements(head.key, head.priority, head.slots)
        known = self._wants.get(asked)
        if known is not None:
            return known
        check_wants(head.key, head.priority, head.slots)
        if len(self._wants) >= ROUTES_REMEMBERED_MAX:
            self._wants.clear()
        self._wants[asked] = asked
        return asked

    def _holders_of(self, file: str) -> Collection[WorkerId]:
        return self.holders(file)

    def _perform(self, effects: Sequence[LeaderDo]) -> None:
        peers, act = self.peers, self._act
        mixed: Sequence[Any] = effects  # A table tells them apart, without `isinstance` for each.
        for effect in mixed:
            say = act.get(type(effect))
            if say is None:
                self._perform_own(effect)
                continue
            peer = peers.get(effect.conn)
            if peer is None:
                if (insider := self.insiders.get(effect.conn)) is not None:
                    insider.perform(effect)
            else:
                try:
                    say(peer, effect)
                except Exception as error:
                    peer.fail(effect, error)

    def _perform_own(self, effect: ev.LeaderStopped | ev.LoadPayloads | ev.BlobsFreed) -> None:
        """What concerns no connection."""
        if isinstance(effect, ev.LeaderStopped):
            self._stopped.set()
            return
        if isinstance(effect, ev.BlobsFreed):
            if self.blobs is not None:
                self.blobs.freed(effect.blobs)
            return
        assert self._journal is not None
        post, leaf, jobs = self.drive.post, effect.leaf, effect.jobs
        self._journal.load(leaf, jobs, lambda payloads: post(ev.PayloadsLoaded(leaf, jobs, payloads)))

    def _caches_failed(self, failed: asyncio.Future[None]) -> None:
        """A leader is one process: with one of its machines it ends."""
        if not failed.cancelled():
            error = failed.exception()
            assert isinstance(error, Exception)
            self.drive.fail(error)

    # What the journal says.

    def _disk_low(self, low: bool) -> None:
        if low:
            log.warning("the journal's disk is nearly full: new jobs are refused until there is room")
        else:
            log.info("the journal's disk has room again")
        self.drive.post(ev.DiskLow(low))

    def _commits_stalled(self, why: str) -> None:
        self.drive.post(ev.CommitsStalled(why))

    def _fall_behind(self, behind: bool) -> None:
        """Whoever sends us work waits until the disk has taken what came before."""
        self.behind = behind
        self.drive.post(ev.ReadingStopped(behind))
        for peer in self.peers.values() if behind else ():
            if peer.must_wait():
                self.hold_back(peer)
        self._read_again()

    def hold_back(self, peer: PeerConnection) -> None:
        """It is far ahead of the disk: nothing more is read from it for now."""
        self.held_back[peer.conn] = peer
        self.drive.on_safe = self._read_again
        peer.set_reading()

    def _read_again(self) -> None:
        """From those who waited for the disk, if it has enough of what came from them."""
        for peer in [peer for peer in self.held_back.values() if not peer.must_wait()]:
            del self.held_back[peer.conn]
            peer.set_reading()
        if not self.held_back:
            self.drive.on_safe = None


def _first(said: int | None, default: int) -> int:
    return default if said is None else said


def _recover(machine: LeaderMachine, journal: Journal, now: float) -> None:
    """Bring back all that the journal has. The wall clock says how old it is, for those who look at it."""
    wall_now = time.time()
    began_at = time.perf_counter()
    machine.recover(((leaf.number, wall_now - leaf.written_at, leaf.records) for leaf in journal.leaves()), now)
    if machine.jobs:
        log.info(
            "recovered from %s: jobs=%d queued=%d results=%d dead=%d workers=%d in %.2f s",
            journal.path,
            len(machine.jobs),
            machine.lanes.queued,
            len(machine.clients.results.undelivered),
            len(machine.clients.dead.letters),
            len(machine.roster.by_id),
            time.perf_counter() - began_at,
        )


# What dispatch asks for, done to the connection it is about.
