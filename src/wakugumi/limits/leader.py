"""A leader's queue, results, dead letters, attempts and answers."""

from __future__ import annotations

from typing import Final

from wakugumi.limits.units import KIB, MIB

# Clients (SPEC F5, K1, L5)
CLIENT_CAP_OLD: Final = 4
"""The cap of a client that gives no number (F5)."""
CLIENT_CAP_DEFAULT: Final = 64
"""Default cap of our own client: enough to keep a rack busy, little enough to be fair."""
CLIENT_CAP_MAX: Final = 100_000
"""Largest cap that a client may declare."""
CLIENTS_MAX: Final = 100_000
"""Client ids a leader remembers while they have work or results."""

# Memory where it is limited
PROCESS_BYTES: Final = 96 * MIB
"""Memory of a leader before its first job, with what HTTP and some hundred connections take."""
ADDRESS_SPACE_MIN_BYTES: Final = 512 * MIB
"""Address space of a leader before its first job: libraries, and some 70 MiB for each of its threads. With less it
would end as soon as it starts another one."""
MEMORY_ROOM_MIN_BYTES: Final = 16 * MIB
"""Memory that a leader counts on whatever the limit: with less it would refuse nearly everything."""
QUEUED_JOB_BYTES: Final = 512
"""Memory of a queued job beside its request."""

# The leader's queue (SPEC L9)
QUEUE_JOBS_MAX: Final = 1_000_000
"""Queued jobs that a leader accepts before it refuses as full: some 500 bytes each beside the payload."""
QUEUE_BYTES_MAX: Final = 1024 * MIB
"""Payload bytes a leader holds for jobs that are not finished."""
QUEUE_FILES_MAX: Final = 2_000_000
"""Files that unfinished jobs name, beyond four of each job: some 130 bytes each, whatever the journal holds."""
QUEUE_RESUME_SHARE: Final = 0.9
"""A full queue takes work again below this share of its bounds: without a gap, every job would flip it."""
BROADCAST_BYTES_MAX: Final = 256 * MIB
"""A broadcast's request times its workers: each part is queued and kept by itself."""
BROADCAST_DEADLINE_S: Final = 60.0
"""Default time that a broadcast waits for each worker: for most uses a silent worker is a broken one."""
UNDELIVERED_BYTES_PER_CLIENT_MAX: Final = 64 * MIB
"""Bytes of results that a client has not taken yet. Beyond it the client's queued jobs wait: they would only add to the
heap."""
UNDELIVERED_BYTES_MAX: Final = 1024 * MIB
"""Bytes of the results that all clients have not taken yet. Beyond it the leader is full and assigns no jobs."""
UNDELIVERED_RESULTS_MAX: Final = 1_000_000
"""Number of results that all clients have not taken yet. Beyond it the leader is full and assigns no jobs."""
KEPT_RESULTS_MAX: Final = 100_000
"""Number of delivered results that still answer a repeated submit (L6)."""
KEPT_BYTES_MAX: Final = 256 * MIB
"""Bytes of delivered results that still answer a repeated submit."""
KEPT_RESULT_TTL_S: Final = 600.0
"""Age of delivered results that still answer a repeated submit."""
UNDELIVERED_TTL_S: Final = 86_400.0
"""A result that was not fetched for a day is dropped."""
DEAD_MAX: Final = 10_000
"""Dead letters that wait for a person; beyond it the oldest are dropped."""
DEAD_BYTES_MAX: Final = 256 * MIB
"""Bytes of the requests in dead letters; beyond it the oldest are dropped."""
CLAIMS_MAX: Final = 100_000
"""Jobs that workers report to hold and this leader does not know (it was restarted without its memory)."""
RECOVERY_GRACE_S: Final = 60.0
"""Jobs that ran when the leader died are left alone for this long: workers dial at most every 36 s, and most are back
within one."""
DRAINED_MAX: Final = 10_000
"""Workers that a leader remembers as drained while they are away."""

# Attempts (SPEC L3, L4)
ATTEMPTS_MAX: Final = 5
"""Attempts of a job before it is dead (L4)."""
RETRIES_MAX: Final = 20
"""Further runs that a job may ask for after a non-zero exit: a quarter of an hour of them, with its backoff. A
program that fails more often does not fail by chance, and its story must stay short enough to be kept and read."""
OUTPUT_TAIL_CHARS_MAX: Final = 2 * KIB
"""Characters of a failed attempt's output that are kept for its story: the last lines tell why, and a job may have a
hundred attempts."""
ENVELOPE_IN_LOOP_BYTES_MAX: Final = 64 * KIB
"""A result in an envelope up to this size becomes JSON for a peer by frames in the loop: 0.1 ms with one file, 3 ms
with 700 empty ones. A larger one does in a thread."""
BACKOFF_FIRST_S: Final = 1.0
"""Pause after the first lost attempt of a job; the pause doubles each time."""
BACKOFF_MAX_S: Final = 60.0
"""Longest pause before the next attempt."""
ASLEEP_S: Final = 10.0
"""A leader wakes every 5 s. If it did not for this long it was stopped, or starved, and could receive no heartbeats."""
ACK_MARGIN_S: Final = 60.0
"""Time beyond the job's timeout in which a worker without heartbeats must answer."""
REATTACH_GRACE_S: Final = 2.0
"""Time that a lost worker has to come back to the jobs it runs (L3)."""
RESTING_PATIENCE_S: Final = 10.0
"""A job that one worker could not start waits this long for another that rests, is drained, is busy or has just left,
and then takes any."""
GONE_WORKERS_MAX: Final = 1_000
"""Workers that left in the last RESTING_PATIENCE_S and are remembered: each job that no other worker may start looks at
all of them."""

# Answers to administration questions
LIST_ROWS_DEFAULT: Final = 100
"""Rows of one answer unless the question asks for more."""
CLIENT_ROWS_MAX: Final = 20
"""Clients that `status` names, those with most queued jobs first."""
TOP_ROWS_DEFAULT: Final = 50
"""Rows of each kind that `top` asks for: as many as a tall terminal shows."""
FAILURES_KEPT_MAX: Final = 20
"""The latest jobs that failed, which `top` names: more would be a log."""
CANCELLED_AT_ONCE_MAX: Final = 10_000
"""Jobs that one question cancels: a twentieth of a second, in which no other peer is served."""
JOBS_LOOKED_AT_MAX: Final = 100_000
"""Jobs that are looked at, the newest first, for a question after jobs of one state: as long as 10 000 cancels."""
QUESTIONS_SHARE: Final = 0.1
"""Share of the leader's time that all questions take while jobs wait."""
QUESTIONS_BURST_S: Final = 0.25
"""Time that questions may take at once: five of the longest."""
QUESTIONS_PER_CONNECTION_MAX: Final = 1_024
"""Questions of one connection that wait for their turn."""
QUESTIONS_BYTES_PER_CONNECTION_MAX: Final = 16 * MIB
"""Bytes of the waiting questions of one connection."""
QUESTIONS_BYTES_MAX: Final = 64 * MIB
"""Bytes of the waiting questions of all connections."""
LIST_ROWS_MAX: Final = 1_000
"""Rows of one answer: a million jobs do not fit a frame, and are too many to read."""

# The leader's bookkeeping
LANES_IDLE_MAX: Final = 1_024
"""Subjects without queued jobs whose workers a leader remembers: finding the workers anew costs more than keeping
them."""
STATS_CELLS_MAX: Final = 1_024
"""Pairs of subject and group with statistics of their own, 8 KiB each and as much again for the last minute; further
pairs are added up under `(others)`."""
SWEEP_S: Final = 10.0
"""How often a leader looks for results whose time has come, and marks where its statistics are."""
ROUTES_REMEMBERED_MAX: Final = 10_000
"""Pairs of subject and program whose route and requirements a leader remembers; a full table is emptied."""
