"""Frames, connections, names and heartbeats: bounds that every peer meets."""

from __future__ import annotations

from typing import Final

from wakugumi.limits.units import KIB, MIB

# Frames (SPEC F3)
FRAME_BYTES_MAX: Final = 4 * MIB
"""What `len` may say: so that a listener never has to trust a stranger with more memory than this."""
FIRST_FRAME_BYTES_MAX: Final = 64 * KIB
"""A hello is small; who has not said who they are gets no more memory than this."""
PAYLOAD_BYTES_MAX: Final = FRAME_BYTES_MAX - 4 * KIB
"""A payload that surely fits a frame, whatever its subject."""
PACK_FROM_BYTES: Final = 4 * KIB
"""Smaller payloads are not packed (F10): they leave in one packet with others anyway."""
PACK_SHARE_MAX: Final = 0.9
"""A packed payload that is not smaller than this share of it is sent as it is: unpacking costs as well."""
HELLO_DEADLINE_S: Final = 10.0
"""A connection that says nothing is a held file descriptor and nothing else."""
CONNECTIONS_MAX: Final = 10_000
"""Connections one process holds: some 50 KiB each. Fewer where it may not open so many files."""
CONNECTION_FILES_SHARE: Final = 0.75
"""Of the files a process may open, so many may be connections: journal, contents and programs need the others."""
STRANGERS_MAX: Final = 1_024
STRANGERS_SHARE: Final = 0.25
"""Connections of one process that have not said hello, sent a whole request head or a whole line, and their share of
all connections where that is less: some 20 KiB each. As many as come in one turn of the loop, so that a thousand
workers can reconnect at once. Beyond it the oldest is closed."""
STRANGER_SPARED_S: Final = 0.1
"""A stranger is not closed for its number before this, unless there are twice as many: its hello may be on its way."""
STRANGERS_BYTES_MAX: Final = 16 * MIB
"""What all of them may have sent: 256 of the largest hellos. Beyond it the one that began first is closed."""
STRANGER_DEADLINE_S: Final = 15.0
"""How long any of them may be one. Ports have shorter deadlines of their own, after which they say why."""
STRANGERS_TOLD_MAX: Final = 20
STRANGERS_TOLD_S: Final = 10.0
"""Log lines about strangers in so long, of each kind; further ones are counted and told in one line."""
FRAME_GRACE_S: Final = 30.0
FRAME_BYTES_PER_S_MIN: Final = 1 * KIB
"""A frame that has begun must end, or grow at this pace, in each of these spans: a hundred workers with large results
may share a line of 1 Mbit/s. Time in which the leader does not read a connection does not count for its pace."""
FRAME_S_MAX: Final = 3600.0
"""However it grows, a frame must end within this, the time included in which it waits for its turn: the largest comes
in 7 minutes at 10 KiB/s."""
HALF_FRAMES_BYTES_MAX: Final = 256 * MIB
HALF_FRAMES_BYTES_MIN: Final = 8 * MIB
"""What all half frames of one process may hold before large ones take turns: 64 of the largest. Less where memory is
limited, but two of the largest always fit."""
FRAME_PRESSED_BYTES_PER_S_MIN: Final = 4 * KIB
"""Beyond three quarters of that, a half frame that is read and grows more slowly than this is closed: ten thousand
workers that share 1 Gbit/s are three times as fast."""
FRAME_TURN_BYTES_PER_S_MIN: Final = 32 * KIB
"""The same for a frame that has a turn, for others wait until it has ended."""
WRITE_BUFFER_BYTES_MAX: Final = 1 * MIB
"""Beyond it a peer counts as not reading: its results wait in the core, where they are counted."""
WRITE_BACKLOG_BYTES_MAX: Final = 64 * MIB
"""What may be queued for a peer that does not read, counted from the turn after that was noticed: receipts, refusals,
answers. Beyond it the peer is cut off. Several times GIVEN_BYTES_MAX, so that jobs and results never reach it."""
UNREAD_BYTES_MAX: Final = 256 * MIB
UNREAD_BYTES_MIN: Final = 8 * MIB
"""The same for all peers of one process together, less where memory is limited. Beyond it the one with most unread is
cut off, of those that do not read."""
UNREAD_GRACE_S: Final = 5.0
UNREAD_BYTES_PER_S_MIN: Final = 4 * KIB
"""A peer that reads at this pace, or stopped less than this ago, counts as one that reads."""
GIVEN_BYTES_MAX: Final = 8 * MIB
"""Requests, or results, that one peer is given before those of before are written; the frame that passes it may still
go. Enough to keep a line of 10 Gbit/s busy for 6 ms; more would only lie in a buffer, where nobody can give it to
others or cancel it."""
ALIVE_TOLD_S: Final = 3.0
"""How often a frame that takes long to arrive counts as a sign of life of its sender: several times within
SILENCE_MAX_S."""
FLUSH_BYTES: Final = 16 * KIB
"""Frames that leave in one write: enough to make the call cheap, few enough that the peer begins before we are done."""
READ_BYTES_LARGE: Final = 256 * KIB
"""A frame of this size is handled at once: a turn's worth of the largest would be a gigabyte to commit together."""
READ_EVENTS_MAX: Final = 256
"""Events that a state machine is handed at once, and frames of one connection that are handled per turn of the loop:
some 3 ms, then the other connections have their turn."""
READ_BYTES_TURN_MAX: Final = 128 * KIB
"""Bytes that are read from one connection per turn of the loop, and one read more. libuv alone would read 8 MB of a
connection that sends without a pause, and other connections would wait half a second for their turn."""
AHEAD_BYTES_MAX: Final = 512 * KIB
"""What a connection may have brought, with one read more, that is not on the disk yet: some two thousand small jobs,
enough to keep the disk busy. Beyond it the leader does not read from it until the disk has part of that."""

# Names
CLIENT_ID_CHARS_MAX: Final = 128
WORKER_NAME_CHARS_MAX: Final = 64
EXEC_NAME_CHARS_MAX: Final = 128
JOB_NAME_CHARS_MAX: Final = 128
"""SPEC section 1: 1–128 characters may stand for a job id."""
FILE_NAME_BYTES_MAX: Final = 1_024
"""A whole relative path in a job; each part at most 255, which is what file systems take."""
FILE_NAME_PART_BYTES_MAX: Final = 255
CACHE_ID_CHARS_MAX: Final = 128
FILES_PER_JOB_MAX: Final = 10_000
FILES_PER_CACHE_MAX: Final = 10_000
"""Names in one put: its manifest must fit a frame. What has more is better one archive."""
ARGS_PER_JOB_MAX: Final = 10_000
"""Linux takes 2 MiB of arguments; a frame of 4 MiB of one-letter arguments would only fail later and worse."""
ENV_VARIABLES_MAX: Final = 256
"""Variables that one job sets: far more than a program reads, and few enough to look at each."""
ENV_BYTES_MAX: Final = 64 * KIB
"""Their names and values together. Linux takes 128 KiB for one of them, and 2 MiB with the arguments."""
JITTER_SHARE: Final = 0.2
HEARTBEAT_S: Final = 5.0
SILENCE_MAX_S: Final = 30.0
"""No sign of life for this long: the connection counts as lost."""

# Shutdown
DRAIN_DEADLINE_S: Final = 30.0
"""After SIGTERM running jobs may finish for this long; a second signal ends the wait."""
CLOSE_DEADLINE_S: Final = 1.0
"""To write what is queued for peers that read; the others are cut off."""
