"""A leader's journal and its disk."""

from __future__ import annotations

from typing import Final

from wakugumi.limits.units import MIB

# The leader's journal (SPEC L7)
PAYLOAD_MEMORY_BYTES: Final = 64 * MIB
"""Requests of queued jobs that a durable leader holds in memory; further ones are read when they are assigned."""
OUTPUT_MEMORY_BYTES: Final = 64 * MIB
"""Output of failed attempts of all unfinished jobs; further output is not kept."""
JOURNAL_QUEUE_BYTES_MAX: Final = 16 * 1024 * MIB
"""Payload bytes that a durable leader takes: they cost disk, not memory."""
JOURNAL_MOVED_BYTES_MAX: Final = 16 * MIB
"""Bytes that one step moves to the end of the journal: a commit that others wait for must not take long."""
JOURNAL_SLACK_BYTES: Final = 64 * MIB
"""Garbage that a journal may hold however little lives in it: to move jobs for less is not worth the work."""

# The journal's disk (SPEC L7)
JOURNAL_RESERVE_BYTES: Final = 8 * MIB
"""A file of nothing, given up when the disk is full: room to write down how ten thousand accepted jobs end."""
JOURNAL_FREE_MIN_BYTES: Final = 64 * MIB
"""Below this nothing new is accepted; with twice as much it is again. Several times what is on its way to the disk: the
write-ahead log, its copy, and frames that were read from clients before the refusal."""
JOURNAL_BACKLOG_BYTES_MAX: Final = 32 * MIB
"""Bytes that may wait for a slow disk before the leader stops reading from its peers; below half of it reading goes
on."""
