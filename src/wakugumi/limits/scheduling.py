"""Patterns, credit, keys, priorities and slots."""

from __future__ import annotations

from typing import Final

# Patterns of workers (SPEC S3, S4)
PATTERN_TOKENS_MAX: Final = 1_000_000
"""Tokens of all patterns of a leader's workers, a shared pattern counted once: 334 MiB. Less where memory is
limited."""
PATTERN_TOKEN_BYTES: Final = 350
"""Memory of one token of a pattern."""
PATTERN_TOKENS_FEW_MAX: Final = 32
"""New tokens with which a worker is always accepted: two groups and their addresses. They cost 11 KiB, about as much as
the connection, and the number of connections is bounded."""

# Credit (SPEC F7)
CREDIT_MAX: Final = 4_096
"""Credit that one worker may have in all (F7)."""
CREDIT_BACK_S: Final = 10.0
"""An old worker that answers a duplicate may offer no credit for it. Without an offer for this long, the leader
restores the credit: longer than a worker under load holds credit back."""

# Requirements of a job (SPEC L1, L2)
KEY_CHARS_MAX: Final = 128
"""Characters of a job's key."""
PRIORITY_MAX: Final = 100
"""Largest distance of a priority from 0, in both directions: more than people can tell apart."""
PRIORITY_AGE_S: Final = 10.0
"""One step of priority equals this much waiting: the highest priority goes before jobs that came up to 17 minutes
earlier, and no job waits for ever."""
STICKY_PATIENCE_S: Final = 2.0
"""How long a job waits for the home of its key while others could take it: a warm cache is worth no more."""
HOMES_MAX: Final = 10_000
"""Keys of one subject whose homes a leader remembers; the one not used longest is forgotten first."""
HOMES_SUBJECTS_MAX: Final = 100
"""Subjects whose keys a leader remembers: with all of them full, some 200 MiB."""
BLOBS_PATIENCE_S: Final = 1.0
"""How soon a job that waits for a worker that knows blobs looks whether there still is one."""
FILES_WEIGHED_MAX: Final = 16
"""Files of a job that are weighed when the worker that holds most of them is chosen."""
HOLDERS_WEIGHED_MAX: Final = 64
"""Workers with room that hold one of a job's weighed files, and are weighed."""
HOLDERS_LOOKED_MAX: Final = 1_024
"""Holders, or workers with room, that are looked at when workers are weighed: some 0.2 ms if none fits."""
SLOTS_PATIENCE_S: Final = 1.0
"""How long a job that needs several slots lets others pass before a worker is kept free for it."""
SLOTS_DOUBT_S: Final = 10.0
"""A worker that is kept free, runs no job and still does not offer the slots it reported is no longer believed; credit
that it holds back because of its CPU comes within 2 s."""
SLOTS_STUCK_S: Final = 10.0
"""A worker that is kept free without another slot coming free for this long is released, and another worker is
tried."""
LOOK_AHEAD_MAX: Final = 64
"""Jobs of one client and subject that are looked at, if the first of them fits no worker with credit."""
