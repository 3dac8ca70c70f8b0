"""How does a worker fetch content? `core/transfers/fetching` decides; here are threads, the cache folder and frames.

All calls are made in the loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from wakugumi.adapters.blobs.open_place import is_workers
from wakugumi.adapters.blobs.store import is_sha256
from wakugumi.adapters.blobs.worker_cache import CachedBlob, CacheFolder
from wakugumi.adapters.loop.acts import ActPerformer, first_step
from wakugumi.adapters.loop.drive import Drive
from wakugumi.adapters.loop.threads import beside
from wakugumi.core.flows import Abandon, Act, Perform
from wakugumi.core.transfers.fetch_events import (
    BlobsOffered,
    ContentNeeded,
    FetchBlob,
    FetchDo,
    FetchEvent,
    InVain,
    IsBlobHere,
    Need,
    NeedDropped,
    NeedEnded,
    NoBlobsOffered,
    OfferLost,
    SendWant,
    SourceFailed,
    SourceNamed,
)
from wakugumi.core.transfers.fetching import FetchMachine
from wakugumi.errors import PeerError, Refused
from wakugumi.roles.runner.files.transfer import transfer
from wakugumi.wire.messages.cache import FetchFailure, Source, Want
from wakugumi.wire.messages.references import BlobRef

log = logging.getLogger("wakugumi.fetching")

Then: TypeAlias = Callable[[BlobRef | Refused], None]

_WANT_BYTES: Final = 8


def need_of(ref: BlobRef) -> Need:
    return Need(ref.sha256, ref.size)


class Fetcher:
    """All fetches of one worker. Create it inside a running loop."""

    def __init__(
        self, folder: CacheFolder, send: Callable[[bytes, Want], None], on_here: Callable[[str], None]
    ) -> None:
        """`send` sends a Want with this id. `on_here` is called for each content that has arrived or was here."""
        self._folder = folder
        self._send = send
        self._on_here = on_here
        self._place = ""
        """URL of the leader's blobs; empty while there is no leader with blobs."""
        self._ids = os.urandom(16 - _WANT_BYTES)
        """The beginning of the ids of all wants."""
        self._held: list[tuple[str, CachedBlob]] = []
        """Contents that have arrived, until their waiters are told: the next arrival must not evict them."""
        self._is_closed = False
        self.machine = FetchMachine(asyncio.get_running_loop().time(), random.random)
        self._drive: Drive[FetchEvent, None, FetchDo] = Drive(self.machine, self._perform, name="fetching")
        self._acts = ActPerformer(self._act, self._drive.post)

    @property
    def failed(self) -> asyncio.Future[None]:
        """Carries an internal error of the machine."""
        return self._drive.failed

    def welcomed(self, place: str) -> None:
        """A leader with blobs at this URL is connected: send it all open wants."""
        self._place = place
        self._drive.post(BlobsOffered())

    def refuse(self) -> None:
        """A leader without blobs is connected: end all needs that no thread fetches."""
        self._drive.post(NoBlobsOffered())

    def lost(self) -> None:
        self._place = ""
        self._drive.post(OfferLost())

    def need(self, need: Need, then: Then, *, soon: bool = False) -> None:
        """`then` is called later, once, unless `give_up` is called first. Needs with `soon` go first."""
        self._drive.post(ContentNeeded(need, then, soon))

    def give_up(self, need: Need, then: Then) -> None:
        """Forget this callback. A transfer that has begun continues."""
        self._drive.post(NeedDropped(need, then))

    def on_source(self, want_id: bytes, source: Source) -> None:
        """The leader's answer to a want. Raises PeerError if it is invalid."""
        want = int.from_bytes(want_id[-_WANT_BYTES:], "big") if want_id.startswith(self._ids) else 0
        fetch = self.machine.by_want.get(want)
        if fetch is None:
            return
        if not source.code and not fetch.need.sha256 and (not is_sha256(source.sha256) or source.size < 0):
            raise PeerError("a Source names its content by SHA-256 and size")
        content = source.sha256, source.size, source.url, source.token
        self._drive.post(SourceNamed(want, *content, source.code, source.message))

    async def close(self) -> None:
        self._is_closed = True
        self._drive.close()
        await self._acts.close()
        self.machine.close()

    def _perform(self, effects: Sequence[FetchDo]) -> None:
        for sha256, held in self._held:
            self._folder.let_go(sha256, held)
        self._held.clear()
        for effect in effects:  # First of all: making room for others must not evict what has arrived.
            if isinstance(effect, NeedEnded):
                _tell(effect)
        for effect in effects:
            match effect:
                case Perform() | Abandon():
                    self._acts.do(effect)
                case SendWant():
                    self._send_want(effect)
                case SourceFailed():
                    url = effect.url or self._place
                    log.warning("fetch failed source=%s why=%s: %s: %s", url, effect.why, effect.need, effect.text)

    def _send_want(self, effect: SendWant) -> None:
        need = effect.need
        failed = None if effect.failed_url is None else FetchFailure(effect.failed_url, effect.why)
        if need.sha256:
            want = Want(need.sha256, need.size, failed=failed)
        else:
            want = Want(cache_id=need.cache_id, name=need.name, failed=failed)
        self._send(self._ids + effect.want.to_bytes(_WANT_BYTES, "big"), want)

    def _act(self, act: Act[Any]) -> bool | Awaitable[None] | None:
        assert isinstance(act, IsBlobHere | FetchBlob)
        ref = BlobRef(act.sha256, act.size)
        if self._folder.has(ref):
            self._here(ref)
            return True
        return False if isinstance(act, IsBlobHere) else first_step(self._fetch(ref, act))

    def _here(self, ref: BlobRef) -> None:
        if (held := self._folder.use(ref.sha256)) is not None:
            self._held.append((ref.sha256, held))
        self._on_here(ref.sha256)

    async def _fetch(self, ref: BlobRef, act: FetchBlob) -> None:
        """Raises InVain or Refused."""
        url = act.url or self._place
        if url != self._place and not is_workers(url):
            raise InVain("dead", "the URL is not a worker's")
        self._folder.make_room(ref)
        try:
            await beside(partial(self._run, ref, url, act.token, self._place), "waku-fetch")
            self._folder.arrived(ref)
        finally:
            self._folder.not_coming(ref)
        self._here(ref)

    def _run(self, ref: BlobRef, url: str, token: str, leader: str) -> None:
        """Runs in a thread, a daemon: the end of the process does not wait for a silent source."""
        try:
            if self._folder.has_trash:
                self._folder.empty_trash()
            transfer(self._folder.store, ref, url, token, self._on_bytes, leader)
        except (InVain, Refused):
            raise
        except Exception as error:
            log.exception("internal error in a transfer")
            raise Refused("worker-error", f"the worker failed: {type(error).__name__}") from None

    def _on_bytes(self, _count: int) -> None:
        if self._is_closed:
            raise InVain("dead", "the worker is stopping")


def _tell(end: NeedEnded) -> None:
    then: Then = end.waiter  # type: ignore[assignment]  # See `need`.
    then(BlobRef(end.sha256, end.size) if end.error is None else end.error)
