"""How much may a leader hold in memory where memory is limited? Shares of its room, none above its usual bound.

Without such bounds a leader under `ulimit -v` or in a small container would take jobs until the system ends it, at any
moment. With them it refuses jobs as full.
"""

from __future__ import annotations

from typing import NamedTuple

from wakugumi.limits.files import STOCKED_BLOB_BYTES, STOCKED_BLOBS_MAX
from wakugumi.limits.journal import PAYLOAD_MEMORY_BYTES
from wakugumi.limits.leader import (
    DEAD_BYTES_MAX,
    KEPT_BYTES_MAX,
    QUEUE_BYTES_MAX,
    QUEUE_JOBS_MAX,
    QUEUED_JOB_BYTES,
    UNDELIVERED_BYTES_MAX,
)
from wakugumi.limits.scheduling import PATTERN_TOKEN_BYTES, PATTERN_TOKENS_MAX
from wakugumi.limits.wire import (
    HALF_FRAMES_BYTES_MAX,
    HALF_FRAMES_BYTES_MIN,
    STRANGERS_BYTES_MAX,
    UNREAD_BYTES_MAX,
    UNREAD_BYTES_MIN,
)


class Budget(NamedTuple):
    """Bounds of the data that a leader holds."""

    queue_jobs: int = QUEUE_JOBS_MAX
    queue_bytes: int = QUEUE_BYTES_MAX
    """Requests of a leader without a journal."""
    payload_bytes: int = PAYLOAD_MEMORY_BYTES
    """Requests of a leader with a journal, which has the others on its disk."""
    undelivered_bytes: int = UNDELIVERED_BYTES_MAX
    kept_bytes: int = KEPT_BYTES_MAX
    dead_bytes: int = DEAD_BYTES_MAX
    half_frame_bytes: int = HALF_FRAMES_BYTES_MAX
    """Frames that have begun and not ended; at most twice as much."""
    stranger_bytes: int = STRANGERS_BYTES_MAX
    """Bytes of connections without a hello."""
    unread_bytes: int = UNREAD_BYTES_MAX
    """Answers to peers that send requests and do not read."""
    pattern_tokens: int = PATTERN_TOKENS_MAX
    stocked_blobs: int = STOCKED_BLOBS_MAX
    """Blobs that workers report to hold."""


def budget_of(room_bytes: int) -> Budget:
    """Budget for this room. The shares of stored data add up to seven eighths of the room or less; the rest is for
    messages under way."""
    return Budget(
        queue_jobs=min(QUEUE_JOBS_MAX, room_bytes // 4 // QUEUED_JOB_BYTES),
        queue_bytes=min(QUEUE_BYTES_MAX, room_bytes // 4),
        payload_bytes=min(PAYLOAD_MEMORY_BYTES, room_bytes // 4),
        undelivered_bytes=min(UNDELIVERED_BYTES_MAX, room_bytes // 4),
        kept_bytes=min(KEPT_BYTES_MAX, room_bytes // 16),
        dead_bytes=min(DEAD_BYTES_MAX, room_bytes // 16),
        half_frame_bytes=min(HALF_FRAMES_BYTES_MAX, max(HALF_FRAMES_BYTES_MIN, room_bytes // 16)),
        stranger_bytes=min(STRANGERS_BYTES_MAX, room_bytes // 32),
        unread_bytes=min(UNREAD_BYTES_MAX, max(UNREAD_BYTES_MIN, room_bytes // 16)),
        pattern_tokens=min(PATTERN_TOKENS_MAX, room_bytes // 16 // PATTERN_TOKEN_BYTES),
        stocked_blobs=min(STOCKED_BLOBS_MAX, room_bytes // 16 // STOCKED_BLOB_BYTES),
    )
