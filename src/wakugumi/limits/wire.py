"""Frames, connections, names and heartbeats: bounds that every peer meets."""

from __future__ import annotations

from typing import Final

from wakugumi.limits.units import KIB, MIB

# Frames (SPEC F3)
FRAME_BYTES_MAX: Final = 4 * MIB
"""Largest value of `len` (F3): a peer may not make a process buffer more."""
FIRST_FRAME_BYTES_MAX: Final = 64 * KIB
"""Size of a first frame: an unidentified peer may not make a process buffer more."""
PAYLOAD_BYTES_MAX: Final = FRAME_BYTES_MAX - 4 * KIB
"""Size of a payload that fits a frame with any subject."""
PACK_FROM_BYTES: Final = 4 * KIB
"""Smaller payloads are not packed (F10): they leave in one packet with others anyway."""
PACK_SHARE_MAX: Final = 0.9
"""A packed payload that is not smaller than this share of it is sent as it is: unpacking costs as well."""
HELLO_DEADLINE_S: Final = 10.0
"""Time for the hello: a silent connection only holds a file descriptor."""
CONNECTIONS_MAX: Final = 10_000
"""Connections one process holds: some 50 KiB each. Fewer where it may not open so many files."""
CONNECTION_FILES_SHARE: Final = 0.75
"""Share of the files a process may open that may be connections: journal, contents and programs need the others."""
STRANGERS_MAX: Final = 1_024
"""Connections of one process without a hello, a whole request head or a whole line: some 20 KiB each. A thousand
workers can reconnect at once. Beyond it the oldest is closed."""
STRANGERS_SHARE: Final = 0.25
"""Share of all connections that may be without a hello, where that is less."""
STRANGER_SPARED_S: Final = 0.1
"""A stranger is not closed for its number before this, unless there are twice as many: its hello may be on its way."""
STRANGERS_BYTES_MAX: Final = 16 * MIB
"""Bytes that all connections without a hello may have sent: 256 of the largest hellos. Beyond it the one that began
first is closed."""
STRANGER_DEADLINE_S: Final = 15.0
"""Time that a connection may be without a hello. Ports have shorter deadlines of their own, after which they say
why."""
STRANGERS_TOLD_MAX: Final = 20
"""Log lines about connections without a hello in STRANGERS_TOLD_S, of each kind; further ones are counted in one
line."""
STRANGERS_TOLD_S: Final = 10.0
"""Time in which log lines about connections without a hello are counted."""
FRAME_GRACE_S: Final = 30.0
"""Span in which a frame that has begun must end, or grow at the pace of FRAME_BYTES_PER_S_MIN."""
FRAME_BYTES_PER_S_MIN: Final = 1 * KIB
"""Slowest pace of a frame: a hundred workers with large results may share a line of 1 Mbit/s. Time in which the leader
does not read a connection does not count."""
FRAME_S_MAX: Final = 3600.0
"""Longest time of a frame at any pace, with the time in which it waits for its turn: the largest frame takes 7 minutes
at 10 KiB/s."""
HALF_FRAMES_BYTES_MAX: Final = 256 * MIB
"""Bytes of all half frames of one process before large ones take turns: 64 of the largest. Less where memory is
limited."""
HALF_FRAMES_BYTES_MIN: Final = 8 * MIB
"""Lower bound of the bytes of half frames, whatever the memory: two of the largest frames."""
FRAME_PRESSED_BYTES_PER_S_MIN: Final = 4 * KIB
"""Slowest pace of a half frame beyond three quarters of HALF_FRAMES_BYTES_MAX: ten thousand workers that share 1 Gbit/s
are three times as fast."""
FRAME_TURN_BYTES_PER_S_MIN: Final = 32 * KIB
"""Slowest pace of a large frame whose turn it is: other frames wait until it has ended."""
WRITE_BUFFER_BYTES_MAX: Final = 1 * MIB
"""Beyond it a peer counts as not reading: its results wait in the core, where they are counted."""
WRITE_BACKLOG_BYTES_MAX: Final = 64 * MIB
"""Bytes that may be queued for a peer that does not read, counted from the turn after that was noticed: receipts,
refusals, answers. Beyond it the peer is cut off. Several times GIVEN_BYTES_MAX, so that jobs and results never reach
it."""
UNREAD_BYTES_MAX: Final = 256 * MIB
"""Bytes that may be queued for all peers of one process; less where memory is limited. Beyond it the peer that does not
read and has most unread is cut off."""
UNREAD_BYTES_MIN: Final = 8 * MIB
"""Lower bound of the queued bytes, whatever the memory."""
UNREAD_GRACE_S: Final = 5.0
"""A peer that stopped reading less than this ago counts as one that reads."""
UNREAD_BYTES_PER_S_MIN: Final = 4 * KIB
"""A peer that reads at this pace counts as one that reads."""
GIVEN_BYTES_MAX: Final = 8 * MIB
"""Bytes of requests, or results, that one peer is given before earlier ones are written; the frame that passes it may
still go. Enough to keep a line of 10 Gbit/s busy for 6 ms; more would lie in a buffer, where no job can be given to
others or cancelled."""
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
"""Bytes of a connection, with one read more, that are not on the disk yet: some two thousand small jobs, enough to keep
the disk busy. Beyond it the leader pauses reading until the disk has part of them."""

# Names
CLIENT_ID_CHARS_MAX: Final = 128
"""Characters of a client id."""
WORKER_NAME_CHARS_MAX: Final = 64
"""Characters of a worker's name."""
EXEC_NAME_CHARS_MAX: Final = 128
"""Characters of a program's name."""
JOB_NAME_CHARS_MAX: Final = 128
"""Characters of a name that stands for a job id."""
FILE_NAME_BYTES_MAX: Final = 1_024
"""Bytes of a relative path in a job."""
FILE_NAME_PART_BYTES_MAX: Final = 255
"""Bytes of one part of a path: as many as file systems take."""
CACHE_ID_CHARS_MAX: Final = 128
"""Characters of a cache id."""
FILES_PER_JOB_MAX: Final = 10_000
"""Files of one job."""
FILES_PER_CACHE_MAX: Final = 10_000
"""Files of one cache: the manifest must fit a frame. One archive is better than more files."""
ARGS_PER_JOB_MAX: Final = 10_000
"""Linux takes 2 MiB of arguments; a frame of 4 MiB of one-letter arguments would only fail later and worse."""
ENV_VARIABLES_MAX: Final = 256
"""Variables that one job sets: far more than a program reads, and few enough to look at each."""
ENV_BYTES_MAX: Final = 64 * KIB
"""Bytes of the names and values of a job's variables. Linux takes 128 KiB for one of them, and 2 MiB with the
arguments."""
JITTER_SHARE: Final = 0.2
"""Share by which pauses vary, so that many peers do not return at the same moment."""
HEARTBEAT_S: Final = 5.0
"""Time between two heartbeats."""
SILENCE_MAX_S: Final = 30.0
"""No sign of life for this long: the connection counts as lost."""

# Shutdown
DRAIN_DEADLINE_S: Final = 30.0
"""After SIGTERM running jobs may finish for this long; a second signal ends the wait."""
CLOSE_DEADLINE_S: Final = 1.0
"""Time to write queued bytes to peers that read; other peers are cut off."""
