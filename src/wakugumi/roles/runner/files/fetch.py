"""How does a worker get content that it does not have? (SPEC C3–C5, C8)

    need ─► Want ─► Source ─► a thread fetches and verifies ─► Stock, and the callbacks of the need
              ▲                    └─ failed: dead, slow, lied, busy
              └────────────────────┘

The leader chooses the source; received bytes are never fetched twice. Two needs of the same content share one transfer.
A worker that gives up a source reports it, because the leader counts the source as busy until then. After a reconnect,
open wants go to the new leader. All calls are made in the loop's thread.

Large transfers take hours: only a few are wanted and fetched at once, and smaller ones overtake them. The size of a
cache's file is known only from its Source; if it is one too many, the source is freed and wanted again later.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import threading
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from wakugumi.adapters.blobs.open_place import is_workers
from wakugumi.adapters.blobs.store import is_sha256
from wakugumi.adapters.blobs.worker_cache import CacheFolder
from wakugumi.core.backoff import with_jitter
from wakugumi.core.files.events import GIVEN_UP
from wakugumi.errors import PeerError, Refused
from wakugumi.limits.files import (
    FETCH_AGAIN_MAX_S,
    FETCH_TRIES_MAX,
    FETCHES_MAX,
    LARGE_TRANSFERS_MAX,
    WANTS_OF_CACHES_MAX,
    WANTS_OPEN_MAX,
)
from wakugumi.limits.runner import LARGE_WORK_BYTES
from wakugumi.roles.runner.files.transfer import InVain, transfer
from wakugumi.wire.messages.cache import FetchFailure, Source, Want
from wakugumi.wire.messages.references import BlobRef

log = logging.getLogger("wakugumi.fetching")

AGAIN_FIRST_S: Final = 0.1

Then: TypeAlias = Callable[[BlobRef | Refused], None]


class Size(Enum):
    """Class of a transfer by its size, in the order in which wants are sent."""

    LARGE = "large"
    UNKNOWN = "unknown"
    """Size of a cache's file before its Source is known."""
    SMALL = "small"


_ASKED_MAX: Final = {
    Size.LARGE: LARGE_TRANSFERS_MAX,
    Size.UNKNOWN: WANTS_OF_CACHES_MAX,
    Size.SMALL: WANTS_OPEN_MAX,
}


class Need(NamedTuple):
    """Content by its hash, or the file of a cache under a name."""

    ref: BlobRef | None
    cache_id: str = ""
    name: str = ""

    def __str__(self) -> str:
        return f"{self.name!r} of cache {self.cache_id!r}" if self.ref is None else f"the content {self.ref.sha256}"


class Fetch:
    """One need, and its waiting callbacks."""

    __slots__ = (
        "again",
        "asked",
        "failed",
        "moving",
        "need",
        "ref",
        "size",
        "soon",
        "source",
        "tries",
        "using",
        "waiting",
        "want_id",
    )

    def __init__(self, need: Need, soon: bool) -> None:
        self.need = need
        self.soon = soon
        self.ref = need.ref
        self.size = _size_of(need.ref)
        self.want_id = os.urandom(16)
        self.waiting: list[Then] = []
        self.asked = False
        """The want was sent, and its transfer has not ended."""
        self.source: Source | None = None
        self.using: str | None = None
        """URL of the source that the leader counts as busy with this worker; None if there is none to report."""
        self.moving = False
        """A thread fetches it."""
        self.tries = 0
        self.failed: FetchFailure | None = None
        self.again: asyncio.TimerHandle | None = None


class Fetcher:
    """All fetches of one worker."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        folder: CacheFolder,
        send: Callable[[bytes, Want], None],
        on_here: Callable[[str], None],
    ) -> None:
        """`send` sends a Want with this id. `on_here` is called for each content that has arrived or was here."""
        self._loop = loop
        self._folder = folder
        self._send = send
        self._on_here = on_here
        self._place: str | None = None
        """URL of the leader's blobs; None while there is no leader with blobs."""
        self._fetches: dict[bytes, Fetch] = {}
        self._by_need: dict[Need, Fetch] = {}
        self._moving_of: dict[str, Fetch] = {}
        """Fetch in progress of each content; other fetches that turn out to need the same content wait for it."""
        self._unasked: dict[Size, deque[Fetch]] = {size: deque() for size in Size}
        self._ready: deque[Fetch] = deque()
        self._ready_large: deque[Fetch] = deque()
        self._asked = dict.fromkeys(Size, 0)
        self._at_once = 0
        self._large_at_once = 0
        self._closed = False

    def welcomed(self, place: str) -> None:
        """A leader with blobs at this URL is connected: send it all open wants."""
        self._place = place
        for queue in self._unasked.values():
            queue.clear()
        for fetch in self._fetches.values():
            fetch.failed = None
            if fetch.source is None and fetch.again is None:
                self._queue(fetch)
        self._ask()

    def refuse(self) -> None:
        """A leader without blobs is connected: end all needs that no thread fetches."""
        for fetch in list(self._fetches.values()):
            if not fetch.moving:
                code = "no-blob" if fetch.need.ref else "no-cache"
                self._end(fetch, Refused(code, f"{fetch.need} is not here, and the leader has none"))

    def lost(self) -> None:
        """The connection is lost: wants will not be answered. Transfers continue, as their sources may be elsewhere."""
        self._place = None
        for fetch in self._fetches.values():
            fetch.using = None
            if fetch.asked and fetch.source is None:
                self._not_asked(fetch)

    def need(self, need: Need, then: Then, *, soon: bool = False) -> None:
        """`then` is called later, once, unless `give_up` is called first. Needs with `soon` go first."""
        fetch = self._by_need.get(need)
        if fetch is None:
            fetch = self._by_need[need] = Fetch(need, soon)
            self._fetches[fetch.want_id] = fetch
            self._queue(fetch)
            self._loop.call_soon(self._ask)
        fetch.waiting.append(then)

    def give_up(self, need: Need, then: Then) -> None:
        """Forget this callback. A transfer that has begun continues."""
        fetch = self._by_need.get(need)
        if fetch is not None and then in fetch.waiting:
            fetch.waiting.remove(then)
            if not fetch.waiting and not fetch.asked:
                self._forget(fetch)

    def on_source(self, want_id: bytes, source: Source) -> None:
        """The leader's answer to a want. Raises PeerError if it is invalid."""
        fetch = self._fetches.get(want_id)
        if fetch is None or fetch.moving or not fetch.asked or fetch.source is not None:
            return
        if source.code:
            self._end(fetch, Refused(source.code, f"{fetch.need}: {source.message or source.code}"))
            return
        if fetch.need.ref is None:
            if not is_sha256(source.sha256) or source.size < 0:
                raise PeerError("a Source names its content by SHA-256 and size")
            fetch.ref = BlobRef(source.sha256, source.size)
        assert fetch.ref is not None
        fetch.source = source
        fetch.using = source.url
        self._asked[fetch.size] -= 1
        fetch.size = _size_of(fetch.ref)
        self._asked[fetch.size] += 1
        if self._is_coming(fetch, fetch.ref):
            pass
        elif fetch.size is Size.LARGE and self._asked[Size.LARGE] > LARGE_TRANSFERS_MAX:
            self._give_back(fetch)
        else:
            (self._ready_large if fetch.size is Size.LARGE else self._ready).append(fetch)
            self._move()
        self._ask()

    def close(self) -> None:
        self._closed = True
        for fetch in self._fetches.values():
            if fetch.again is not None:
                fetch.again.cancel()

    # Wants.

    def _ask(self) -> None:
        while self._place is not None and sum(self._asked.values()) < WANTS_OPEN_MAX and not self._closed:
            queues = [self._unasked[size] for size in Size if self._asked[size] < _ASKED_MAX[size]]
            queue = next(filter(None, queues), None)
            if queue is None:
                return
            fetch = queue.popleft()
            if fetch.want_id not in self._fetches:
                continue
            fetch.asked = True
            self._asked[fetch.size] += 1
            fetch.using = None
            self._send_want(fetch, fetch.failed)

    def _send_want(self, fetch: Fetch, failed: FetchFailure | None) -> None:
        need = fetch.need
        if need.ref is not None:
            want = Want(need.ref.sha256, need.ref.size, failed=failed)
        else:
            want = Want(cache_id=need.cache_id, name=need.name, failed=failed)
        self._send(fetch.want_id, want)

    def _free_source(self, fetch: Fetch) -> None:
        """Report that the source is not used (any more), and that no other is wanted."""
        if fetch.using is not None and self._place is not None:
            self._send_want(fetch, FetchFailure(fetch.using, GIVEN_UP))
        fetch.using = None

    def _give_back(self, fetch: Fetch) -> None:
        """Free the source of one large transfer too many, and queue the fetch again."""
        self._not_asked(fetch)
        self._free_source(fetch)
        fetch.source = fetch.failed = None
        if fetch.waiting:
            self._queue(fetch)
        else:
            self._forget(fetch)

    def _queue(self, fetch: Fetch) -> None:
        queue = self._unasked[fetch.size]
        if fetch.soon:
            queue.appendleft(fetch)
        else:
            queue.append(fetch)

    def _not_asked(self, fetch: Fetch) -> None:
        if fetch.asked:
            fetch.asked = False
            self._asked[fetch.size] -= 1

    # Transfers.

    def _move(self) -> None:
        while self._at_once < FETCHES_MAX and not self._closed:
            large = bool(self._ready_large) and self._large_at_once < LARGE_TRANSFERS_MAX
            queue = self._ready_large if large else self._ready
            if not queue:
                return
            fetch = queue.popleft()
            ref, source = fetch.ref, fetch.source
            if fetch.want_id not in self._fetches:
                continue
            assert ref is not None
            assert source is not None
            if self._is_coming(fetch, ref):
                continue
            try:
                self._folder.make_room(ref)
            except Refused as error:
                self._end(fetch, error)
                continue
            fetch.moving = True
            fetch.tries += 1
            self._moving_of[ref.sha256] = fetch
            self._at_once += 1
            self._large_at_once += large
            url = source.url or self._place or ""
            is_allowed = url == self._place or is_workers(url)
            # A daemon, so that the end of the process does not wait for a silent source.
            arguments = (fetch, ref, url, source.token, is_allowed)
            threading.Thread(target=self._run, args=arguments, name="waku-fetch", daemon=True).start()

    def _is_coming(self, fetch: Fetch, ref: BlobRef) -> bool:
        """Whether the content is here or being fetched; if so, the fetch frees its source."""
        if self._folder.has(ref):
            self._arrived(fetch, ref)
        elif ref.sha256 in self._moving_of:
            self._join(fetch, self._moving_of[ref.sha256])
        else:
            return False
        return True

    def _join(self, fetch: Fetch, other: Fetch) -> None:
        """Let `fetch` end with `other`, which transfers the same content."""

        def then(outcome: BlobRef | Refused) -> None:
            if fetch.want_id in self._fetches:
                self._end(fetch, outcome)

        other.waiting.append(then)
        self._not_asked(fetch)
        self._free_source(fetch)

    def _run(self, fetch: Fetch, ref: BlobRef, url: str, token: str, is_allowed: bool) -> None:
        """Runs in a thread."""
        outcome: InVain | Refused | None = None
        try:
            if not is_allowed:
                raise InVain("dead", "the URL is not a worker's")
            if self._folder.has_trash:
                self._folder.empty_trash()
            transfer(self._folder.store, ref, url, token, self._on_bytes)
        except (InVain, Refused) as error:
            outcome = error
        except Exception as error:
            log.exception("internal error in a transfer")
            outcome = Refused("worker-error", f"the worker failed: {type(error).__name__}")
        with contextlib.suppress(RuntimeError):  # The loop has ended.
            self._loop.call_soon_threadsafe(self._ran, fetch, ref, url, outcome)

    def _on_bytes(self, _count: int) -> None:
        if self._closed:
            raise InVain("dead", "the worker is stopping")

    def _ran(self, fetch: Fetch, ref: BlobRef, url: str, outcome: InVain | Refused | None) -> None:
        if self._closed:
            return
        self._at_once -= 1
        self._large_at_once -= _size_of(ref) is Size.LARGE
        fetch.moving = False
        del self._moving_of[ref.sha256]
        if outcome is None:
            try:
                self._folder.arrived(ref)
                self._arrived(fetch, ref)
            except Refused as error:
                self._end(fetch, error)
        else:
            self._folder.not_coming(ref)
            if isinstance(outcome, Refused):
                self._end(fetch, outcome)
            else:
                self._try_again(fetch, url, outcome)
        self._move()

    def _arrived(self, fetch: Fetch, ref: BlobRef) -> None:
        fetch.using = None  # Stock reports the arrival to the leader.
        self._on_here(ref.sha256)
        self._end(fetch, ref)

    def _try_again(self, fetch: Fetch, url: str, error: InVain) -> None:
        log.warning("fetch failed source=%s why=%s: %s: %s", url, error.why, fetch.need, error.text)
        assert fetch.source is not None
        fetch.failed = FetchFailure(fetch.source.url, error.why)
        fetch.source = None
        self._not_asked(fetch)
        if fetch.tries >= FETCH_TRIES_MAX:
            code = "blob-broken" if error.why == "lied" else "worker-error"
            self._end(fetch, Refused(code, f"{fetch.need} could not be fetched: {error.text}"))
            return
        wait_s = 0.0 if fetch.tries == 1 else min(AGAIN_FIRST_S * 2 ** (fetch.tries - 2), FETCH_AGAIN_MAX_S)

        def again() -> None:
            fetch.again = None
            self._queue(fetch)
            self._ask()

        fetch.again = self._loop.call_later(with_jitter(wait_s, random.random()), again)

    # The end.

    def _end(self, fetch: Fetch, outcome: BlobRef | Refused) -> None:
        self._forget(fetch)
        for then in fetch.waiting:
            then(outcome)
        self._ask()

    def _forget(self, fetch: Fetch) -> None:
        self._not_asked(fetch)
        self._free_source(fetch)
        del self._fetches[fetch.want_id]
        del self._by_need[fetch.need]
        if fetch.again is not None:
            fetch.again.cancel()


def _size_of(ref: BlobRef | None) -> Size:
    if ref is None:
        return Size.UNKNOWN
    return Size.LARGE if ref.size > LARGE_WORK_BYTES else Size.SMALL
