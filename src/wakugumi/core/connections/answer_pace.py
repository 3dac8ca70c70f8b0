"""Which answers of a node stall? An answer must move BODY_RECEIVED_MIN_BYTES in BODY_RECEIVED_MIN_S: a node that does
not send holds a job that another one could run."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

from wakugumi.limits.http import BODY_RECEIVED_MIN_BYTES, BODY_RECEIVED_MIN_S

K = TypeVar("K", bound=Hashable)


class AnswerPace(Generic[K]):
    """Answers on their way. All are looked at together, so that a short answer costs nothing."""

    def __init__(self) -> None:
        self.look_s = BODY_RECEIVED_MIN_S
        """Time between two looks."""
        self._seen: dict[K, int] = {}
        """Bytes of each answer at the last look."""

    def too_slow(self, received: Mapping[K, int]) -> list[K]:
        """`received` bytes of each answer are here, and the rest is awaited. An answer that is seen first, or was not
        awaited at the last look, is not late."""
        seen, self._seen = self._seen, dict(received)
        return [key for key, size in received.items() if key in seen and size - seen[key] < BODY_RECEIVED_MIN_BYTES]

    def ended(self, key: K) -> None:
        self._seen.pop(key, None)
