"""Every bound and every default, with its unit in the name and its reason beside it.

What a peer, a client or a user can run into stands here. A bound that only one file knows of, such as how many ids its
own table remembers, stands at the top of that file.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

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
may share a line of 1 Mbit/s. Time in which the leader does not read a connection does not count."""
FRAME_S_MAX: Final = 3600.0
"""However it grows, a frame must end within this: the largest comes in 7 minutes at 10 KiB/s."""
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
BLOB_NAMED_S: Final = 60.0
"""A blob that a peer has just named is not removed for so long: the job or result that needs it is on its way."""
BLOBS_ASKED_MAX: Final = 200_000
"""Blobs of jobs, results and caches of which some are still on their way: none of them is removed. Some 180 bytes each;
beyond it the oldest may have to be put again."""
FILES_PER_CACHE_MAX: Final = 10_000
"""Names in one put: its manifest must fit a frame. What has more is better one archive."""
ARGS_PER_JOB_MAX: Final = 10_000
"""Linux takes 2 MiB of arguments; a frame of 4 MiB of one-letter arguments would only fail later and worse."""
ENV_VARIABLES_MAX: Final = 256
"""Variables that one job sets: far more than a program reads, and few enough to look at each."""
ENV_BYTES_MAX: Final = 64 * KIB
"""Their names and values together. Linux takes 128 KiB for one of them, and 2 MiB with the arguments."""

# Clients (SPEC F5, K1, L5)
CLIENT_CAP_OLD: Final = 4
"""The cap of a client that gives no number (F5)."""
CLIENT_CAP_DEFAULT: Final = 64
"""What our own client declares unless told otherwise: enough to keep a rack busy, little enough to be fair."""
CLIENT_CAP_MAX: Final = 100_000
CLIENTS_MAX: Final = 100_000
"""Client ids a leader remembers while they have work or results."""

# Files (SPEC C1, C5)
INLINE_FILE_BYTES_MAX: Final = 256 * KIB
"""Larger files of a job travel beside its frame: many of them in a queue would fill the leader's memory, and the same
one for many jobs would travel many times. For smaller ones a second way costs more than it saves."""
UPLOADS_AT_ONCE_MAX: Final = 4
"""Files that one client sends, or reads for their SHA-256, at a time: more would only share the same line and disk."""

# Patterns of workers (SPEC S3, S4)
PATTERN_TOKENS_MAX: Final = 1_000_000
PATTERN_TOKEN_BYTES: Final = 350
"""Tokens of all patterns of a leader's workers, a pattern counted once however many have it, and what one costs:
334 MiB. Less where memory is limited."""

# Credit (SPEC F7)
CREDIT_MAX: Final = 4_096
CREDIT_BACK_S: Final = 10.0
"""An old worker that answers a duplicate may offer no credit for it. If none came for so long, it gets it back: longer
than a worker under load holds credit back."""

# What a job may ask for (SPEC L1, L2)
KEY_CHARS_MAX: Final = 128
PRIORITY_MAX: Final = 100
"""As far as this from 0, in both directions: more than anyone can tell apart."""
PRIORITY_AGE_S: Final = 10.0
"""One step of priority is worth so long a wait: the highest goes before what came up to 17 minutes earlier, and nothing
waits for ever."""
STICKY_PATIENCE_S: Final = 2.0
"""How long a job waits for the home of its key while others could take it: a warm cache is worth no more."""
HOMES_MAX: Final = 10_000
"""Keys of one subject whose homes a leader remembers; the one that was not asked for longest goes first."""
HOMES_SUBJECTS_MAX: Final = 100
"""Subjects whose keys it remembers: with all of them full, some 200 MiB."""
BLOBS_PATIENCE_S: Final = 1.0
"""How soon a job that waits for a worker that knows blobs looks whether there still is one."""
FILES_WEIGHED_MAX: Final = 16
HOLDERS_WEIGHED_MAX: Final = 64
"""Of a job's files, and of those who hold each and have room: so many are weighed for the worker that holds most."""
HOLDERS_LOOKED_MAX: Final = 1_024
"""Holders, or workers with room, that are looked at for these: some 0.2 ms if it is all in vain."""
SLOTS_PATIENCE_S: Final = 1.0
"""How long a job that needs several slots lets others pass before a worker is kept free for it."""
SLOTS_DOUBT_S: Final = 10.0
"""A worker that is kept free, runs nothing and still does not offer what it said it had is no longer believed; credit
that it holds back because of its CPU comes within 2 s."""
SLOTS_STUCK_S: Final = 10.0
"""A worker that is kept free and of which no more has come free for so long is let go, and another one is tried."""
LOOK_AHEAD_MAX: Final = 64
"""Jobs of one client and subject that are looked at, if the first of them cannot be given to those that have credit."""

# Memory where it is limited
PROCESS_BYTES: Final = 96 * MIB
"""Memory of a leader before its first job, with what HTTP and some hundred connections take."""
ADDRESS_SPACE_MIN_BYTES: Final = 512 * MIB
"""Address space of a leader before its first job: libraries, and some 70 MiB for each of its threads. With less it
would end as soon as it starts another one."""
MEMORY_ROOM_MIN_BYTES: Final = 16 * MIB
"""What a leader counts on whatever the limit: with less it would refuse nearly everything."""
QUEUED_JOB_BYTES: Final = 512
"""Memory of a queued job beside its request."""

# The leader's queue (SPEC L9)
QUEUE_JOBS_MAX: Final = 1_000_000
"""Queued jobs a leader accepts before it says full: some 500 bytes each beside the payload."""
QUEUE_BYTES_MAX: Final = 1024 * MIB
"""Payload bytes a leader holds for jobs that are not finished."""
QUEUE_FILES_MAX: Final = 2_000_000
"""Files that unfinished jobs name, beyond four of each job: some 130 bytes each, whatever the journal holds."""
QUEUE_RESUME_SHARE: Final = 0.9
"""A full queue takes work again below this share of its bounds: without a gap, every job would flip it."""
BROADCAST_BYTES_MAX: Final = 256 * MIB
"""A broadcast's request times its workers: each part is queued and kept by itself."""
BROADCAST_DEADLINE_S: Final = 60.0
"""How long a broadcast waits for each worker unless told otherwise: for most uses a silent one is a broken one."""
UNDELIVERED_BYTES_PER_CLIENT_MAX: Final = 64 * MIB
"""Results a client has not taken yet. Beyond it the client's queued jobs wait: they would only add to the heap."""
UNDELIVERED_BYTES_MAX: Final = 1024 * MIB
UNDELIVERED_RESULTS_MAX: Final = 1_000_000
"""The same for all clients together, in bytes and in number: beyond it the leader is full, and assigns nothing until
some are fetched."""
KEPT_RESULTS_MAX: Final = 100_000
KEPT_BYTES_MAX: Final = 256 * MIB
KEPT_RESULT_TTL_S: Final = 600.0
"""Delivered results that still answer a repeated submit (L6). Bounded in count, bytes and age."""
UNDELIVERED_TTL_S: Final = 86_400.0
"""A result that nobody fetched for a day is dropped."""
DEAD_MAX: Final = 10_000
DEAD_BYTES_MAX: Final = 256 * MIB
"""Dead letters that wait for a person, and the requests they carry; beyond it the oldest are dropped."""
CLAIMS_MAX: Final = 100_000
"""Jobs that workers say they hold and this leader has not heard of (it was restarted without its memory)."""

# The leader's journal (SPEC L7)
PAYLOAD_MEMORY_BYTES: Final = 64 * MIB
"""Requests of queued jobs that a durable leader holds in memory; further ones are read when they are assigned."""
OUTPUT_MEMORY_BYTES: Final = 64 * MIB
"""What failed attempts printed, of all jobs that are still to be done; beyond it the next ones are not kept."""
JOURNAL_QUEUE_BYTES_MAX: Final = 16 * 1024 * MIB
"""Payload bytes that a durable leader takes: they cost disk, not memory."""
JOURNAL_MOVED_BYTES_MAX: Final = 16 * MIB
"""What one step moves to the end of the journal at most: a commit that others wait for must not take long."""
JOURNAL_SLACK_BYTES: Final = 64 * MIB
"""Garbage that a journal may hold however little lives in it: to move jobs for less is not worth the work."""
RECOVERY_GRACE_S: Final = 60.0
"""What ran when the leader died is left alone for this long: workers dial at most every 36 s, and most are back within
one."""

DRAINED_MAX: Final = 10_000
"""Workers that a leader remembers as drained while they are away."""

# Caches, and who fetches what from whom (SPEC C1–C8)
CACHES_MAX: Final = 1_000
"""Caches that a leader knows; each worker that joins is compared with all of them. Beyond it the one that was not used
longest goes."""
CACHE_BYTES_MAX: Final = 1024 * 1024 * MIB
"""All caches of a leader together. Their content lies in its place for blobs, and stays while the cache does."""
CACHE_TTL_S: Final = 30 * 86_400.0
"""A cache that nobody used for so long is dropped, unless it is pinned."""
PUTS_PER_CLIENT_MAX: Final = 100
"""Puts of one connection that are under way."""
PUTS_PER_WORKER_MAX: Final = 4
"""Caches that a worker is asked to have at once: it would only divide its disk among more."""
ASKED_BYTES_MAX: Final = 4 * MIB
"""Manifests that workers are sent in one step, and a frame more: a thousand small ones, or one that fills a frame.
Others would wait for the rest, which goes a moment later."""
PUT_DEADLINE_S: Final = 3_600.0
"""How long a put waits for the workers unless told otherwise: a terabyte takes as long at 3 Gbit/s."""
PUT_DEADLINE_MAX_S: Final = 7 * 86_400.0
PUT_LEADER_GRACE_S: Final = 10.0
"""A leader that is away when a put's time is over has so long to come back; then its client waits no longer."""
PUT_AGAIN_S: Final = 15.0
"""A worker that was asked to have a cache and says nothing is asked again after this, then after twice as long …"""
PUT_ASKS_MAX: Final = 4
"""… and after so many times it counts as failed. While it fetches, it does not count as silent."""
PUT_GONE_S: Final = 10.0
"""A worker that left in the midst of a put has so long to come back; then it counts as failed."""
PUT_RETRY_FIRST_S: Final = 60.0
PUT_RETRY_MAX_S: Final = 3_600.0
"""A worker that failed to take a cache is asked again after this, in the background."""
PUT_FAILURES_MAX: Final = 100
"""Failures that a summary lists: beyond it, their number says enough."""
STOCK_GRACE_S: Final = 10.0
"""A worker says what it holds right after its hello; one that did not by then is taken to hold nothing."""
STOCK_BLOBS_MAX: Final = 100_000
"""Blobs of one worker that a leader remembers. What is beyond it is fetched all the same; only nobody is sent there for
it."""
STOCKED_BLOBS_MAX: Final = 400_000
STOCKED_BLOB_BYTES: Final = 704
"""Blobs of all workers that it remembers, each once however many have it, and what one costs: 270 MiB. Less where
memory is limited."""
STOCKED_MAX: Final = 2_000_000
"""The same, counted once for each worker that has it: some 170 bytes more."""
WANTS_MAX: Final = 200_000
"""Blobs that all workers want at once, some 1.2 KiB each: more than ten thousand workers of ours ask for."""
WANTS_PER_WORKER_MAX: Final = 1_000
"""Blobs that a worker may want at once: it fetches only a few at a time."""
LEADER_COPIES_MAX: Final = 2
"""Copies of one blob that the leader's place gives at once: two, so that one slow worker does not hold up the first."""
LEADER_TRANSFERS_MAX: Final = 8
"""Copies of all blobs that it gives at once: more would only divide its link."""
UPLOADS_PER_WORKER_MAX: Final = 1
"""Uploads of a worker at once. With one, those who have a blob double in the time of a copy; with two, three times as
many have it, but after twice as long (bench/spread.py)."""
TRANSFER_FLOOR_BYTES_PER_S: Final = 1 * MIB
TRANSFER_GRACE_S: Final = 60.0
"""A transfer that is slower than the floor, and this, is no longer waited for: its source is free for others."""
TOKEN_S: Final = 900.0
"""How long a leader's word that a worker may fetch a blob from another holds."""
SOURCE_REST_S: Final = 10.0
"""A source that was dead or slow is left alone for so long."""
LIES_MAX: Final = 3
ACCUSERS_MIN: Final = 2
"""Wrong content, of several blobs or told by several workers: after so many, which at least two tell, nobody fetches
from that worker. One alone may itself be what is broken."""
LIE_TTL_S: Final = 3_600.0
"""So long a lie counts, and an accusation: the worker may have been mended, or wronged."""
ACCUSED_MAX: Final = 3
"""A worker that says of more others than this that they lied is not believed: it is more likely broken itself."""

# Attempts (SPEC L3, L4)
ATTEMPTS_MAX: Final = 5
RETRIES_MAX: Final = 20
"""Further runs that a job may ask for after a non-zero exit: a quarter of an hour of them, with its backoff. A
program that fails more often does not fail by chance, and its story must stay short enough to be kept and read."""
OUTPUT_TAIL_CHARS_MAX: Final = 2 * KIB
"""Of a failed attempt's output, kept for its story: the last lines say why, and a job may have a hundred of them."""
BACKOFF_FIRST_S: Final = 1.0
BACKOFF_MAX_S: Final = 60.0
JITTER_SHARE: Final = 0.2
HEARTBEAT_S: Final = 5.0
SILENCE_MAX_S: Final = 30.0
"""No sign of life for this long: the connection counts as lost."""
ASLEEP_S: Final = 10.0
"""A leader looks up every 5 s. If it did not for this long it was stopped, or starved, and could hear nobody."""
ACK_MARGIN_S: Final = 60.0
"""Workers without heartbeats have the job's timeout and this to answer."""
REATTACH_GRACE_S: Final = 2.0
RESTING_PATIENCE_S: Final = 10.0
"""A job that one worker could not start waits so long for another that rests, is drained, is busy or has just left, and
then takes any."""
GONE_WORKERS_MAX: Final = 1_000
"""Workers that left in the last RESTING_PATIENCE_S and are remembered: each job that nobody else may start looks at all
of them."""

# Jobs and their programs (SPEC W2, W3, W4, W8)
JOB_TIMEOUT_S: Final = 900.0
JOB_TIMEOUT_MAX_S: Final = 30 * 86_400.0
OPEN_FILES_PER_SLOT_MAX: Final = 6
OPEN_FILES_BESIDE_MIN: Final = 40
"""Descriptors that a running job takes of its worker at most (its output, the program's end, its folder, a pipe), and
what the worker itself needs: connections, a journal of results, threads."""
CPU_CAP: Final = 0.75
CPU_CAP_MIN: Final = 0.10
CPU_CAP_MAX: Final = 0.95
CREDIT_HELD_MAX_S: Final = 2.0
"""However busy others keep the machine, a finished job's credit goes back after this time, or after as long as the job
ran if that is less."""
PROBE_FIRST_S: Final = 1.0
PROBE_MAX_S: Final = 60.0
"""A worker whose machine is out of order tries by itself whether a program can be started again: after the first, then
after twice as long each time, up to the second."""
KILL_GRACE_S: Final = 1.0
"""Between SIGTERM and SIGKILL: time to remove a lock file, not time to argue."""
OUTPUT_BYTES_MAX: Final = 64 * MIB
"""stdout or stderr of one job. Beyond it the job is ended: a frame could not carry it, and the disk is everyone's."""
DONE_TTL_S: Final = 600.0
"""Finished jobs a worker can still answer for (W4)."""
KEPT_JOBS_MAX: Final = 1_000_000
"""Finished jobs on one machine's disk, some 200 bytes of memory each. Where there are more, the oldest go before their
days are over, but none within DONE_TTL_S."""
ARCHIVE_DEFLATE_FROM_BYTES: Final = 4 * KIB
"""Smaller files are stored: deflating them costs more time than it saves bytes."""
RESULT_BYTES_MAX: Final = 1024 * 1024 * MIB
"""Files of one job, before packing: 1 TiB, which takes an hour to move. More is a mistake, such as a sparse file whose
size is a typing error, and would keep a worker busy for a day."""
LARGE_WORK_BYTES: Final = 256 * MIB
LARGE_WORK_FILES_MAX: Final = 20_000
"""Inputs or results of one job that take a worker longer than a few seconds to copy or to pack: they have threads of
their own, so that no other job waits behind a terabyte."""
ARCHIVE_ENTRIES_MAX: Final = 10_000_000
"""Files, folders and links in one result. To unpack so many takes ten minutes, and they are a good part of a disk's
inodes; more is no result but an attack on whoever unpacks it."""
ARCHIVE_LIST_BYTES_MAX: Final = 2 * 1024 * MIB
"""Of the list of an archive's entries: so many of them with names of 150 bytes. It is read as often as somebody goes
through it."""
UNPACKED_UNSAID_BYTES: Final = 1024 * MIB
UNPACKED_UNSAID_TIMES_MAX: Final = 100
"""A result of an old worker does not say how many bytes its files have. It may unpack to 1 GiB, or to a hundred times
its size: text shrinks to a tenth, and what shrinks to a thousandth is a bomb or a file of zeros."""
LEFT_OUT_MAX: Final = 1_000
"""Entries that no honest worker sends, and that a leader takes out of an answer over HTTP. One with more is refused."""
DISK_FREE_MIN_BYTES: Final = 64 * MIB
"""Below this the worker takes no job: it could not keep its result."""

# What a worker keeps of inputs and caches (SPEC C2–C6)
CACHE_DISK_SHARE: Final = 0.25
"""Of the disk's size, if nobody says how much: the rest is for the jobs, and for whatever else lives there."""
CACHE_BLOBS_MAX: Final = 200_000
"""Contents that one worker keeps: half a kilobyte of memory each, and 13 MiB to tell a leader of all of them."""
FETCHES_MAX: Final = 4
"""Transfers at once: enough to fill a link from slow sources, few enough that each of them ends soon."""
LARGE_TRANSFERS_MAX: Final = 2
"""Of a worker's fetches, and of the results on their way to its leader: so many may be larger than LARGE_WORK_BYTES.
They take hours, and all others pass beside them."""
WANTS_OPEN_MAX: Final = 16
"""Contents that a worker asks its leader for before it has got them: small ones do not wait for the round trip."""
FETCH_TRIES_MAX: Final = 20
"""Sources that are tried for one content before those who wait for it are told: some 70 s, with the pauses."""
FETCH_AGAIN_MAX_S: Final = 5.0
PARTIAL_TTL_S: Final = 86_400.0
"""A transfer that nobody went on with for a day is given up, and what has come of it removed."""

# The client's connection (SPEC K5, K6)
RECONNECT_FIRST_S: Final = 0.5
WORKER_RECONNECT_FIRST_S: Final = 0.1
WORKER_RECONNECT_SOON_S: Final = 0.5
WORKER_PATIENCE_S: Final = 30.0
"""A worker dials twice a second for this long: a leader that was restarted gives work within a second. Then its pauses
grow like a client's."""
RECONNECT_MAX_S: Final = 30.0
ADOPT_GRACE_S: Final = 10.0
"""What a lost leader has waits this long for it to come back; then the others adopt it (K5)."""
ADOPT_GRACE_MAX_S: Final = 86_400.0
"""Longer than a day nobody waits: the leader itself keeps a result no longer."""
MUTE_MAX_S: Final = 60.0
"""Of several leaders, one that has never said a word may be an old one with a long job: it has this long to end it."""
FIND_WITHIN_S: Final = 5.0
"""How long a client of several leaders waits for each of them to say whether it knows a job that has an id of its
user's: without a fault a round trip, and longer than a busy leader takes for anything."""
FIND_COMING_S: Final = 2.0
"""How long it waits for a leader that is being connected, before it can be asked: one may be switched off for good."""
FIND_LEAD_SHARE: Final = 0.25
"""The hash of a given id chooses its leader, if that has at most this part of its share of the cap more in flight than
the leader with the least: so a client that comes back chooses the same one, and no leader is left idle."""
LEADERS_PER_CLIENT_MAX: Final = 64
"""Leaders of one client: each is a connection, and a look at every job that is handed in."""
CONNECT_DEADLINE_S: Final = 10.0
SEND_SILENCE_MAX_S: Final = 1200.0
"""For how long `waku send` waits for a node that takes and says nothing: longer than a job may run there that names no
timeout of its own."""
UNFINISHED_PER_CLIENT_MAX: Final = 10_000
"""Jobs a client has submitted and not seen the end of. Further `submit` calls wait: back pressure for the caller."""
FULL_RETRY_FIRST_S: Final = 0.1
FULL_RETRY_MAX_S: Final = 5.0
"""How long a client waits before it offers a refused job to a full leader again."""

# Shutdown
DRAIN_DEADLINE_S: Final = 30.0
"""After SIGTERM running jobs may finish for this long; a second signal ends the wait."""
CLOSE_DEADLINE_S: Final = 1.0
"""To write what is queued for peers that read; the others are cut off."""

# Answers to administration questions
LIST_ROWS_DEFAULT: Final = 100
CLIENT_ROWS_MAX: Final = 20
"""Clients that `status` names: who fills the queue is among the first."""
TOP_ROWS_DEFAULT: Final = 50
"""Rows of each kind that `top` asks for: as many as a tall terminal shows."""
FAILURES_KEPT_MAX: Final = 20
"""The latest jobs that failed, which `top` names: more would be a log."""
CANCELLED_AT_ONCE_MAX: Final = 10_000
"""Jobs that one question cancels: a twentieth of a second, in which nobody else is served."""
JOBS_LOOKED_AT_MAX: Final = 100_000
"""Jobs that are looked at, the newest first, for a question after those of one state: as long as 10 000 cancels."""
LIST_ROWS_MAX: Final = 1_000
"""Rows of one answer: a million jobs do not fit a frame, and nobody reads them."""

# The leader's bookkeeping
LANES_IDLE_MAX: Final = 1_024
"""Subjects without queued jobs whose workers a leader remembers: finding them anew costs more than keeping them."""
STATS_CELLS_MAX: Final = 1_024
"""Pairs of subject and group whose statistics are told apart, 8 KiB each and as much again for the last minute; further
ones are added up under `(others)`."""
SWEEP_S: Final = 10.0
"""How often a leader looks for results whose time has come, and marks where its statistics are."""
ROUTES_REMEMBERED_MAX: Final = 10_000
"""Pairs of subject and program whose route a leader remembers, and what jobs ask for; then it begins anew."""

# The journal's disk (SPEC L7)
JOURNAL_RESERVE_BYTES: Final = 8 * MIB
"""A file of nothing, given up when the disk is full: room to write down how ten thousand accepted jobs end."""
JOURNAL_FREE_MIN_BYTES: Final = 64 * MIB
"""Below this nothing new is accepted; with twice as much it is again. Several times what is on its way to the disk: the
write-ahead log, its copy, and what was read from clients before they were told."""
JOURNAL_BACKLOG_BYTES_MAX: Final = 32 * MIB
"""What may wait for a slow disk before the leader stops reading from its peers; below half of it, it reads again."""

# Blobs (SPEC C4, C5, C7)
BLOB_BYTES_MAX: Final = 1024 * 1024 * MIB
"""The largest blob: a terabyte, to tell a file from a mistake. The disk is asked first anyway."""
BLOB_STORE_BYTES: Final = 20 * 1000 * 1000 * 1000
"""What a leader's blobs may take before those that nobody needs any more are removed, unless told otherwise."""
BLOB_RECENT_S: Final = 600.0
"""A blob that was asked for within this time stays: whoever was told that it is there is about to name it."""
BLOB_UNUSED_S: Final = 86_400.0
"""A blob that nothing names and nobody asked for since a day is removed."""
BLOB_ABANDONED_S: Final = 3_600.0
"""An upload that nobody has gone on with for an hour is removed."""
BLOB_SWEEP_S: Final = 30.0
"""How often a leader looks whether blobs must go."""
BLOB_STALL_S: Final = 10.0
"""No byte of a transfer for so long: the other side counts as slow, and whoever has another source uses that."""
BLOB_RECEIVED_MIN_BYTES: Final = 64 * KIB
BLOB_RECEIVED_MIN_S: Final = 30.0
"""Less than so much in so long, and an upload is cut off, for it holds one of the places that others wait for. A source
of which so little comes counts as slow: it would keep a thread, and the job that waits."""
UPLOADS_MAX: Final = 64
"""Uploads that are received at once, with some 3 MiB of memory each; others wait."""
UPLOAD_WAIT_S: Final = 5.0
"""How long an upload waits for its turn before it is told to come again: shorter than a sender waits for a byte."""
UPLOAD_PATIENCE_S: Final = 300.0
"""How long a sender comes again to a place that is busy."""
UPLOAD_UNREACHED_S: Final = 300.0
"""A place to which no byte has gone for so long, while its leader is there, is one that cannot be reached from here."""
SERVING_MAX: Final = 256
"""Blobs that a leader sends at once; further ones are told to come again. A worker has a smaller number of its own."""

# The node (SPEC N1–N4)
RECEIVE_SLOTS: Final = 64
"""Inputs that a node receives at once, with some 3 MiB of memory each: apart from its run slots, so that those who send
do not hold up what runs."""
RECEIVE_BYTES_PER_S_MIN: Final = 32 * KIB
"""Who sends less loses its receive slot to the next one who needs it, if all are taken."""
RECEIVE_GRACE_S: Final = 5.0
"""Until then nobody is slow: a connection has to warm up, and small inputs are there by then."""
RUN_RETRY_AFTER_S: Final = 5
"""When a caller that was sent away may come again (N1)."""
RUNNING_RETRY_AFTER_S: Final = 1
"""When to ask again for a job that runs: its result is worth more than the question costs."""
NODE_INPUT_BYTES_MAX: Final = 100 * 1000 * 1000 * 1000
"""The largest input that a node takes unless told otherwise: to tell a file from a mistake."""
NODE_KEEP_S: Final = 7 * 86_400.0
"""Finished jobs that a node answers for (N4), unless told otherwise."""
NODE_INTERRUPTED_S: Final = 86_400.0
"""What an interrupted job left is kept for so long on a node, for those who want to know how far it came."""

# HTTP
HTTP_IDLE_S: Final = 15.0
"""A request's head must come, and the next one begin, within this time: who only holds a connection open is cut off."""
HTTP_LINE_BYTES_MAX: Final = 8 * KIB
"""One line of a request's head."""
HTTP_HEADERS_MAX: Final = 100
"""Lines of a request's head: with the bound of each, a head is below a MiB. Browsers and proxies send some thirty."""
BODY_RECEIVED_MIN_BYTES: Final = 16 * KIB
BODY_RECEIVED_MIN_S: Final = 20.0
"""Who sends less of a request's body than so much in so long, or reads as little of an answer, is cut off: it holds a
slot that others wait for."""
PART_HEAD_BYTES_MAX: Final = 8 * KIB
"""The head of one part of a form, and what may stand before the first: all that is kept of a body while it is read."""
FORM_BYTES_MAX: Final = 64 * KIB
"""What a form may hold beside its file: boundaries, heads, and what stands before and behind them."""
LINGER_S: Final = 2.0
LINGER_BYTES_MAX: Final = 64 * MIB
"""Who goes on sending what we did not want is heard out for so long, or so much, so that it can read our answer
first."""
LINE_GONE_S: Final = 5.0
"""How often a node looks whether those are still there who closed their half and wait for a job by line."""
LINE_BYTES_MAX: Final = 64 * KIB
"""The line that asks for a job (SPEC N1)."""
HTTP_CLIENT_CAP: Final = 1_000
"""Jobs in flight of one client id over HTTP, unless told otherwise: many who ask may share one, and most give none."""
HTTP_CLIENTS_MAX: Final = 10_000
"""Client ids that a leader knows at once because somebody asks, or has asked just now, by HTTP."""
HTTP_LINGER_S: Final = 10.0
"""A client id that nobody uses over HTTP any more is let go after this: the next request is likely to name it again."""
HTTP_UNREAD_S: Final = 60.0
"""A result whose reader left while it was written counts as undelivered for so long, so that it is kept whatever else
is; then as with who left before: for ten minutes, if there is room. A stopping leader does not wait for that."""
HTTP_GONE_S: Final = 1.0
"""How often a leader looks whether those who wait for an answer over HTTP are still there."""
HTTP_RECEIVED_MAX: Final = 512
"""Inputs that a leader receives at once, with a quarter of a MiB of memory each, or more on their way to its disk;
further ones are told to come again."""
CALLS_MAX: Final = 1_000
"""Requests that one role has under way to others, each a connection. Further ones wait."""
CALL_IDLE_S: Final = 10.0
"""A connection to another role that was idle for so long is not used again: that role may be about to close it, and
what is sent into a closing connection is lost without a word. Well below HTTP_IDLE_S."""
LOOP_PAUSE_FIRST_S: Final = 0.5
LOOP_PAUSE_MAX_S: Final = 5.0
"""After an unforeseen exception, a loop that must live begins anew after so long; the pause doubles up to the second.
It is shorter than any lease."""

# Nodes that a leader knows by address (SPEC G1, G4)
NODES_MAX: Final = 1_000
"""Nodes of one leader: each is asked for its capacity again and again."""
NODE_WEIGHT_MAX: Final = 100
NODE_POLL_S: Final = 2.0
"""How often a node is asked what it has free; while it fails, with a backoff."""
NODE_POLL_TIMEOUT_S: Final = 2.0
"""A node that takes longer to say so is out of order."""
NODE_QUESTION_S: Final = 5.0
"""A node that is asked for a job that it may have, without the input, and says nothing for so long, is as good as
gone."""
NODE_AGAIN_S: Final = 0.2
"""A node whose answer was cut off is asked for the same job again after this."""
NODE_RETRY_AFTER_MAX_S: Final = 60.0
"""A node that runs a job and asks for more patience than this is asked again all the same."""
NODE_LEFT_MAX: Final = 1_000
"""Jobs that a lost node may still run, and is told to end when it is back. Beyond it, it runs the oldest in vain."""
RUN_QUERY_BYTES_MAX: Final = 4 * KIB
"""Program and arguments of a job that a node may be given, as they stand in its URL: half of what one line of a request
may be."""
CAPACITY_AGE_MAX_S: Final = 0.001
"""Those who ask for the capacity within so long share one answer: a leader looks at all of its workers for it."""
METRIC_SERIES_MAX: Final = 50
"""Label sets of one metric, and one more for all others: whoever scrapes pays for each, for months."""

# The gateway (SPEC G2–G5)
SPOOL_MEMORY_BYTES: Final = 256 * KIB
"""Of a body or an answer that passes through: larger ones go to the disk, however many pass at once."""
GATEWAY_BODY_BYTES_MAX: Final = 64 * 1024 * MIB
"""The largest body that a gateway takes. The disk is asked first anyway."""
GATEWAY_SUBMITS_MAX: Final = 512
"""Submissions that a gateway serves at once, each a connection to a client and one to a group."""
GATEWAY_FORWARDS_MAX: Final = 256
"""Asynchronous jobs that a gateway has with groups at once; with the former, fewer than the calls it may make."""
GATEWAY_QUEUE_MAX: Final = 1_000_000
"""Asynchronous jobs that wait in one gateway: some 200 bytes each."""
GATEWAY_QUEUE_BYTES: Final = 64 * 1024 * MIB
"""Bodies of asynchronous jobs that have not ended, of all gateways on one state together: one of the largest, or many
small ones. `--queue-bytes` changes it. It may be exceeded by what several gateways accept within three seconds."""
GATEWAY_CRASHES_MAX: Final = 5
"""A job that made the gateway itself fail so often, in ways that nobody foresaw, is given up as FAILED."""
GATEWAY_STRANDED_S: Final = 10.0
"""An open job that nobody here has seen to for so long is queued again."""
GATEWAY_EVENTS_MAX: Final = 1_000
"""Clients at once that are told of a job's states as they change."""
GATEWAY_LEASE_S: Final = 10.0
"""A gateway that did not renew its lease for so long counts as dead, and others take over its jobs. It renews three
times as often."""
GATEWAY_KEPT_S: Final = 86_400.0
GATEWAY_KEPT_BYTES: Final = 20 * 1000 * 1000 * 1000
GATEWAY_KEPT_MAX: Final = 200_000
"""Finished jobs that a gateway still answers for: bounded in age, bytes and number, the oldest go first."""
GATEWAY_RETRY_AFTER_S: Final = 2.0
"""When to come again if no group takes a job: after the next poll."""
GATEWAY_RETRY_AFTER_MAX_S: Final = 60.0
"""The longest that a client is told to stay away, whatever its groups say: another one may be back long before."""
GATEWAY_TRY_S: Final = 3_600.0
"""What a job may wait at a group beyond its own time, in queues and for workers that died, before another group gets
it."""
GATEWAY_SILENCE_S: Final = 60.0
"""An answer that has begun, and of which nothing came for so long, is not waited for."""
GATEWAY_LOOK_S: Final = 1.0
"""How often a gateway looks whose clients have left, and which of the jobs it forwards ended elsewhere."""
GATEWAY_AGAIN_MAX_S: Final = 5.0
"""The longest pause before an asynchronous job that no group took is offered again."""
GROUP_POLL_S: Final = 2.0
"""How often a group is asked for its capacity."""
GROUP_ANSWER_S: Final = 2.0
"""How long it has to answer that, and to take a connection."""
GROUP_MISSES_MAX: Final = 3
"""A group that did not answer so many polls is gone: what waits there goes to another."""
GROUP_EMPTY_S: Final = 10.0
"""A job leaves a group that has had no workers for so long, if another has some."""
GROUPS_MAX: Final = 256
"""Groups of one gateway: each is a poll every two seconds, and a look for every job."""
