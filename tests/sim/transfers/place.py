"""A place for blobs that is slow, full, out of reach, talks nonsense, breaks content, or loses what it had.

Content is verified before it counts. A put of content that is there moves no byte; one of content that another sender
writes is refused as busy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from wakugumi.core.transfers.transfers import PutEnd
from wakugumi.errors import Lost, Refused

if TYPE_CHECKING:
    from tests.sim.transfers.world import TransferWorld

SPEED = 1000.0
"""Bytes a second."""
PUT_MAX_S = 20.0
"""Longest time of a put that is not slowed down."""
STALL_S = 10.0
"""A connection without a byte for this long counts as lost."""


class File:
    """A file at its sender."""

    def __init__(self, sha256: str, size: int) -> None:
        self.sha256 = sha256
        self.size = size
        self.state = "whole"
        """`whole`, `changed` or `gone`"""

    def __repr__(self) -> str:
        return f"{self.state} {self.sha256}"


class Place:
    """What a leader offers for blobs."""

    def __init__(self, world: TransferWorld, number: int) -> None:
        self.world = world
        self.url = f"http://place{number}"
        self.blobs: set[str] = set()
        self.lost: dict[str, float] = {}
        """When a blob was lost."""
        self.writing: dict[str, Put] = {}
        self.is_unreachable = self.is_full = False
        self.cuts = self.breaks = self.raves = 0.0
        """Chances of a put to be cut, to be broken, and to be answered with nonsense."""
        self.slowness = 1.0

    def lose(self, sha256: str) -> None:
        """Its content was found broken."""
        self.blobs.discard(sha256)
        self.lost[sha256] = self.world.clock.now

    def heal(self) -> None:
        self.is_unreachable = self.is_full = False
        self.cuts = self.breaks = self.raves = 0.0
        self.slowness = 1.0


class Put:
    """One put under way. `answer` is called once, unless it is stopped."""

    def __init__(self, sender: str, place: Place, file: File, answer: Callable[[PutEnd | Exception], None]) -> None:
        self._world = place.world
        self._sender = sender
        self.place = place
        self.file = file
        self._answer = answer
        self.is_stopped = False
        self._moved_at = float("-inf")
        self._after(0.1, self._begin)

    def stop(self) -> None:
        """The sender's thread sees it a moment later; it may have been done."""
        self.is_stopped = True
        if self.place.writing.get(self.file.sha256) is self:
            self._after(0.3, self._release)

    def _after(self, seconds: float, call: Callable[[], None]) -> None:
        self._world.clock.after(seconds * self._world.random.random(), call)

    def _release(self) -> None:
        if self.place.writing.get(self.file.sha256) is self:
            del self.place.writing[self.file.sha256]

    def _end(self, error: Lost | Refused | None = None) -> None:
        self._release()
        if not self.is_stopped:
            self._answer(PutEnd(error, self._world.clock.now - self._moved_at))

    def _begin(self) -> None:
        place, file, faults = self.place, self.file, self._world.faults
        if self.is_stopped:
            return
        if file.state != "whole":
            self._end(Refused("bad-request", f"the input was {file.state}"))
        elif place.is_unreachable:
            self._after(STALL_S, lambda: self._end(Lost("no route")))
        elif faults.random() < place.raves:
            self._world.judge.caused("place raves")
            self._answer(faults.choice([ValueError("what is this"), RecursionError("too deep")]))
        elif file.sha256 in place.blobs:
            self._end()
        elif place.is_full:
            self._world.judge.caused("full")
            self._end(Refused("disk", "no room"))
        elif file.sha256 in place.writing:
            self._end(Refused("blob-busy", "someone else writes it"))
        else:
            place.writing[file.sha256] = self
            self._world.judge.bytes_move(self._sender, place, file.sha256)
            whole_s = min(file.size / SPEED, PUT_MAX_S) * place.slowness
            if faults.random() < place.cuts:
                self._world.clock.after(whole_s * faults.random(), self._cut)
            else:
                self._world.clock.after(whole_s, self._finish)

    def _cut(self) -> None:
        self._moved_at = self._world.clock.now
        self._after(STALL_S, lambda: self._end(Lost("the line broke")))

    def _finish(self) -> None:
        place, file = self.place, self.file
        self._moved_at = self._world.clock.now
        if self.is_stopped and self._world.faults.random() < 0.5:
            self._release()
        elif file.state != "whole":
            self._end(Refused("bad-request", f"the input was {file.state}"))
        elif self._world.faults.random() < place.breaks:
            if not self.is_stopped:
                self._world.judge.broke(self._sender, place, file)
            self._end(Refused("blob-broken", "wrong content"))
        else:
            place.blobs.add(file.sha256)
            self._world.judge.new_streak(self._sender)
            self._end()
