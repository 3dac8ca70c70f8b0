"""The leader as a process: the leader's machine behind sockets.

Each connection has a `PeerConnection`, which turns frames into events; `effects` performs the effects of the machine.
Only the drive between them calls the machine. Payloads pass through as the received bytes. This file makes all parts,
each with the parts below it (`hub` has their order).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
import time
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wakugumi.adapters.http.page import PageRoute
from wakugumi.adapters.journal.cache_manifests import Manifests
from wakugumi.adapters.journal.journal import Journal
from wakugumi.adapters.loop.drive import Drive
from wakugumi.adapters.net.connect import adopt
from wakugumi.adapters.net.gate import gate
from wakugumi.adapters.net.guard import Guard
from wakugumi.adapters.net.handshake import Entrance, enter
from wakugumi.adapters.net.link import Link
from wakugumi.adapters.port.port import HttpPort, NewConnection
from wakugumi.core.ids import WorkerId
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.events import LeaderDo, LeaderEvent
from wakugumi.core.leader.journal.entries import LeaderKeep
from wakugumi.core.leader.machine import LeaderMachine
from wakugumi.limits.journal import JOURNAL_QUEUE_BYTES_MAX
from wakugumi.limits.wire import CLOSE_DEADLINE_S, DRAIN_DEADLINE_S
from wakugumi.roles.access.guard import AccessGuard, EmbeddedGuard
from wakugumi.roles.access.keys import GridKeys
from wakugumi.roles.leader.connection import PeerConnection
from wakugumi.roles.leader.effects import Effects
from wakugumi.roles.leader.files.blob_readers import LeaderBlobReaders
from wakugumi.roles.leader.files.blobs import LeaderBlobs
from wakugumi.roles.leader.files.caches import LeaderCaches
from wakugumi.roles.leader.hub import Hub
from wakugumi.roles.leader.old_peers import OldPeers
from wakugumi.roles.leader.peer_questions import PeerQuestions
from wakugumi.roles.leader.questions import Questions
from wakugumi.roles.leader.settings import LEADER, WHOLE, LeaderSettings
from wakugumi.roles.leader.submit import Submissions
from wakugumi.wire.node_request import why_not_simple

if TYPE_CHECKING:
    from wakugumi.roles.leader.http.pages import GroupPages

log = logging.getLogger("wakugumi.leader")


class Leader:
    """One leader. Create it inside a running loop, then `listen`."""

    def __init__(
        self,
        journal: Journal | None = None,
        *,
        settings: LeaderSettings = LEADER,
        blobs: LeaderBlobs | None = None,
        guard: AccessGuard | None = None,
    ) -> None:
        """Recover the state in `journal`, if given. `guard`: by default of this user alone. Raises ConfigError."""
        loop = asyncio.get_running_loop()
        self.blobs = blobs
        self.caches: LeaderCaches | None = None
        """None without a place for blobs."""
        budget = settings.budget
        queue_bytes_max = budget.queue_bytes if journal is None else JOURNAL_QUEUE_BYTES_MAX
        machine = LeaderMachine(
            random.random,
            now=loop.time(),
            policies=settings.policies,
            queue_jobs_max=_value_or(settings.queue_jobs_max, budget.queue_jobs),
            queue_bytes_max=_value_or(settings.queue_bytes_max, queue_bytes_max),
            payload_memory_bytes=_value_or(settings.payload_memory_bytes, budget.payload_bytes),
            keeps=journal is not None,
            holders=self._holders_of,
            why_not_simple=why_not_simple,
        )
        machine.bound_by(budget)
        if budget is not WHOLE:
            gate().bound_by(budget)
        if journal is not None:
            _recover(machine, journal, loop.time())
        self._journal = journal
        self._settings = settings
        self.guard = guard or AccessGuard()
        self._entrance: Entrance | None = None
        self.http_port: HttpPort | None = None
        self.pages: GroupPages | None = None
        """None until the first HTTP request."""
        self._stopped = asyncio.Event()
        self._needs_of_jobs = machine.holds
        self.drive: Drive[LeaderEvent, LeaderKeep, LeaderDo] = Drive(
            machine, self._perform, name="leader", keeper=journal
        )
        self.hub = hub = Hub(
            machine,
            self.drive,
            is_durable=journal is not None,
            hello_deadline_s=settings.hello_deadline_s,
            http_connections=self._http_connections,
        )
        keys = self.guard.keys if isinstance(self.guard.keys, GridKeys) else None
        if keys is not None:
            keys.on_ended = lambda key: self.drive.post(ev.KeyEnded(key))
        self.peers = hub.peers
        self._local_peers = hub.local_peers
        self.questions = Questions(lambda: machine.lanes.queued > 0)
        self.old_peers = OldPeers(hub, blobs)
        self.effects = Effects(hub, blobs, self.old_peers, keys).table
        if blobs is not None:
            manifests = None if journal is None else Manifests(Path(journal.path).parent / "caches")
            self.caches = LeaderCaches(
                hub, self.effects, blobs, manifests, is_needed=machine.holds, blobs_max=budget.stocked_blobs
            )
            self.caches.drive.failed.add_done_callback(self._caches_failed)
            blobs.readers = LeaderBlobReaders(machine.may_read, self.caches.pins, loop.time)
            blobs.begin(self._is_blob_needed)
        self.peer_questions = PeerQuestions(hub, self.caches, self.questions, self.guard)
        self.submissions = Submissions(hub, blobs, self.caches)
        if journal is not None:
            journal.begin(loop, self.drive.fail, self._disk_low, hub.fall_behind, self._commits_stalled)

    async def listen(self, host: str, port: int, names: Iterable[str] = ()) -> int:
        """Accept connections and return the port. `names`: further names of this host. Raises ConfigError."""
        of_blobs = () if self.blobs is None else self.blobs.routes
        self.http_port = http_port = HttpPort([*of_blobs, self._pages], self.guard, names=names)

        def new_connection() -> NewConnection:
            return http_port.at(Link(self._new_peer(self.guard)))

        http_port.secure(self.guard.tls, new_connection)
        self._entrance = await enter(host, port, new_connection, None, http_port)
        return self._entrance.port

    async def adopt(self, sock: socket.socket) -> None:
        """Serve a socket that is already connected to a peer."""
        await adopt(sock, self._new_peer(EmbeddedGuard()), trusted=False)

    async def drain(self, deadline_s: float = DRAIN_DEADLINE_S) -> bool:
        """Assign no more jobs and wait for running ones. False after the deadline."""
        self.hub.stopping = True
        if self._entrance is not None:
            self._entrance.stop()
        self.drive.post(ev.StopWanted())
        try:
            async with asyncio.timeout(deadline_s):
                await self._stopped.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Stop at once. Workers keep their jobs for the next leader."""
        self.hub.stopping = True
        if self._entrance is not None:
            self._entrance.stop()
        if self.pages is not None:
            self.pages.close()
        for peer in list(self.peers.values()):
            peer.link.close()
        # Queued frames need time to be written; a peer that does not read gets no more than this.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_DEADLINE_S):
                await self.hub.alone.wait()
        for peer in list(self.peers.values()):
            peer.link.abort()
        if self.caches is not None:
            await self.caches.close()
        await self.old_peers.close()
        if self._entrance is not None:
            await self._entrance.close()
        if self.blobs is not None:
            await self.blobs.close()
        await self.peer_questions.close()
        self.questions.close()
        await self.guard.close()
        self.drive.close()
        if self._journal is not None:
            await self._journal.close()

    def _http_connections(self) -> int:
        return 0 if self.http_port is None else self.http_port.connections

    def _pages(self) -> Sequence[PageRoute]:
        from wakugumi.roles.leader.http.pages import GroupPages

        self.pages = GroupPages(self.hub, self.submissions, self.questions, self.blobs, self._settings, self.guard)
        return self.pages.routes()

    def _new_peer(self, guard: Guard) -> PeerConnection:
        return PeerConnection(self.hub, self.submissions, self.old_peers, self.caches, self.peer_questions, guard)

    def _holders_of(self, file: str) -> Collection[WorkerId]:
        return () if self.caches is None else self.caches.holders(file)

    def _is_blob_needed(self, blob: str) -> bool:
        assert self.blobs is not None
        assert self.caches is not None
        return self._needs_of_jobs(blob) or blob in self.blobs.expected or self.caches.pins(blob)

    def _perform(self, effects: Sequence[LeaderDo]) -> None:
        peers, table = self.peers, self.effects
        mixed: Sequence[Any] = effects  # The table is faster than an `isinstance` for each type.
        for effect in mixed:
            perform = table.get(type(effect))
            if perform is None:
                self._perform_own(effect)
                continue
            peer = peers.get(effect.conn)
            if peer is None:
                if (local_peer := self._local_peers.get(effect.conn)) is not None:
                    local_peer.perform(effect)
            else:
                try:
                    perform(peer, effect)
                except Exception as error:
                    peer.fail(effect, error)

    def _perform_own(self, effect: ev.LeaderStopped | ev.LoadPayloads | ev.BlobsFreed) -> None:
        """Perform an effect without a connection."""
        if isinstance(effect, ev.LeaderStopped):
            self._stopped.set()
            return
        if isinstance(effect, ev.BlobsFreed):
            if self.blobs is not None:
                self.blobs.free(effect.blobs)
            return
        assert self._journal is not None
        post, leaf, jobs = self.drive.post, effect.leaf, effect.jobs
        self._journal.load(leaf, jobs, lambda payloads: post(ev.PayloadsLoaded(leaf, jobs, payloads)))

    def _caches_failed(self, failed: asyncio.Future[None]) -> None:
        """A failed cache machine ends the whole leader."""
        if not failed.cancelled():
            error = failed.exception()
            assert isinstance(error, Exception)
            self.drive.fail(error)

    # Called by the journal.

    def _disk_low(self, low: bool) -> None:
        if low:
            log.warning("journal disk nearly full: new jobs are refused")
        else:
            log.info("journal disk has space again")
        self.drive.post(ev.DiskLow(low))

    def _commits_stalled(self, why: str) -> None:
        self.drive.post(ev.CommitsStalled(why))


def _value_or(value: int | None, default: int) -> int:
    return default if value is None else value


def _recover(machine: LeaderMachine, journal: Journal, now: float) -> None:
    """Restore the machine from the journal, each leaf with its age by the wall clock."""
    wall_now = time.time()
    began_at = time.perf_counter()
    machine.recover(((leaf.number, wall_now - leaf.written_at, leaf.records) for leaf in journal.leaves()), now)
    if machine.jobs:
        log.info(
            "journal recovered path=%s jobs=%d queued=%d results=%d dead=%d workers=%d seconds=%.2f",
            journal.path,
            len(machine.jobs),
            machine.lanes.queued,
            len(machine.clients.results.undelivered),
            len(machine.clients.dead.letters),
            len(machine.roster.by_id),
            time.perf_counter() - began_at,
        )
