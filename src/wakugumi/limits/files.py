"""Inputs, caches, blobs and transfers."""

from __future__ import annotations

from typing import Final

from wakugumi.limits.units import KIB, MIB

BLOB_NAMED_S: Final = 60.0
"""A blob that a peer has just named is not removed for this long: the job or result that needs it is on its way."""
BLOB_BROUGHT_S: Final = 86_400.0
"""A client may name content that it has brought for this long, as long as an unnamed blob is kept."""
BLOBS_BROUGHT_MAX: Final = 200_000
"""Blobs that clients with a sight of their own brought lately; older ones must come again. Some 200 bytes each."""
BLOBS_ASKED_MAX: Final = 200_000
"""Blobs of jobs, results and caches of which some are still on their way: none of them is removed. Some 180 bytes each;
beyond it the oldest may have to be put again."""

# Files (SPEC C1, C5)
INLINE_FILE_BYTES_MAX: Final = 256 * KIB
"""Larger files of a job travel beside its frame: many of them in a queue would fill the leader's memory, and a file of
many jobs would travel many times. For smaller ones a second way costs more than it saves."""
UPLOADS_AT_ONCE_MAX: Final = 4
"""Files that one client sends, or reads for their SHA-256, at a time: more would only share the same line and disk."""

# Caches and transfers between workers (SPEC C1–C8)
CACHES_MAX: Final = 1_000
"""Caches that a leader knows; each worker that joins is compared with all of them. Beyond it the one not used longest
is dropped."""
CACHE_BYTES_MAX: Final = 1024 * 1024 * MIB
"""All caches of a leader together. Their content lies in its place for blobs, and stays while the cache does."""
CACHE_TTL_S: Final = 30 * 86_400.0
"""A cache that was not used for this long is dropped, unless it is pinned."""
PUTS_PER_CLIENT_MAX: Final = 100
"""Puts of one connection that are under way."""
PUTS_PER_WORKER_MAX: Final = 4
"""Caches that a worker is asked to have at once: more would only divide its disk."""
ASKED_BYTES_MAX: Final = 4 * MIB
"""Manifests that workers are sent in one step, and a frame more: a thousand small ones, or one that fills a frame.
Other messages would wait for the rest, which is sent a moment later."""
PUT_DEADLINE_S: Final = 3_600.0
"""Default time that a put waits for the workers: a terabyte takes as long at 3 Gbit/s."""
PUT_DEADLINE_MAX_S: Final = 7 * 86_400.0
"""Longest time that a put may ask for."""
PUT_LEADER_GRACE_S: Final = 10.0
"""A leader that is away when a put's time is over has this long to come back; then its client waits no longer."""
PUT_AGAIN_S: Final = 15.0
"""Pause before a silent worker is asked again to take a cache; the pause doubles."""
PUT_ASKS_MAX: Final = 4
"""Questions to a silent worker before it counts as failed for a put. A worker that is fetching does not count as
silent."""
PUT_GONE_S: Final = 10.0
"""A worker that left during a put has this long to come back; then it counts as failed."""
PUT_RETRY_FIRST_S: Final = 60.0
"""First pause before a worker that failed to take a cache is asked again, in the background."""
PUT_RETRY_MAX_S: Final = 3_600.0
"""Longest pause before a worker that failed to take a cache is asked again."""
PUT_FAILURES_MAX: Final = 100
"""Failures that a summary lists: beyond it, their number says enough."""
STOCK_GRACE_S: Final = 10.0
"""A worker reports its stock right after its hello; one that has not by then is taken to hold none."""
STOCK_BLOBS_MAX: Final = 100_000
"""Blobs of one worker that a leader remembers. Further ones are fetched all the same, but the worker is no source of
them."""
STOCKED_BLOBS_MAX: Final = 400_000
"""Blobs of all workers that a leader remembers, each once: 270 MiB. Less where memory is limited."""
STOCKED_BLOB_BYTES: Final = 704
"""Memory of one remembered blob."""
STOCKED_MAX: Final = 2_000_000
"""Pairs of a blob and a worker that has it, which a leader remembers: some 170 bytes each."""
WANTS_MAX: Final = 200_000
"""Blobs that all workers want at once, some 1.2 KiB each: more than ten thousand workers of ours ask for."""
WANTS_PER_WORKER_MAX: Final = 1_000
"""Blobs that a worker may want at once: it fetches only a few at a time."""
LEADER_COPIES_MAX: Final = 2
"""Copies of one blob that the leader's place gives at once: two, so that one slow worker does not hold up the first."""
LEADER_TRANSFERS_MAX: Final = 8
"""Copies of all blobs that a leader gives at once: more would only divide its link."""
UPLOADS_PER_WORKER_MAX: Final = 1
"""Uploads of a worker at once. With one, the holders of a blob double in the time of a copy; with two, three times as
many hold it, after twice as long (bench/spread.py)."""
TRANSFER_FLOOR_BYTES_PER_S: Final = 1 * MIB
"""Pace below which a transfer between workers is given up after TRANSFER_GRACE_S."""
TRANSFER_GRACE_S: Final = 60.0
"""Time that a transfer has beyond its size at the slowest pace; then its source is free for others."""
TOKEN_S: Final = 900.0
"""How long a leader's token to fetch a blob from another worker is valid."""
SOURCE_REST_S: Final = 10.0
"""A source that was dead or slow is not used for this long."""
LIES_MAX: Final = 3
"""Reports of wrong content after which no worker fetches from the source any more."""
ACCUSERS_MIN: Final = 2
"""Workers that must have made these reports: one alone may itself be broken."""
LIE_TTL_S: Final = 3_600.0
"""How long a report of wrong content counts: the worker may have been repaired, or wrongly accused."""
ACCUSED_MAX: Final = 3
"""A worker that accuses more sources than this of wrong content is not believed: it is more likely broken itself."""

# A worker's cache of inputs and caches (SPEC C2–C6)
CACHE_DISK_SHARE: Final = 0.25
"""Default share of the disk's size: the rest is for jobs and other users of the disk."""
CACHE_BLOBS_MAX: Final = 200_000
"""Contents that one worker keeps: half a kilobyte of memory each, and 13 MiB to report all of them to a leader."""
FETCHES_MAX: Final = 4
"""Transfers at once: enough to fill a link from slow sources, few enough that each of them ends soon."""
LARGE_TRANSFERS_MAX: Final = 2
"""Transfers larger than LARGE_WORK_BYTES among a worker's fetches, and among its results on their way to the leader.
They take hours, and all others pass beside them."""
WANTS_OPEN_MAX: Final = 16
"""Contents that a worker asks its leader for before it has got them: small ones do not wait for the round trip."""
WANTS_OF_CACHES_MAX: Final = 8
"""Files of caches of unknown size that a worker asks for at once: they may all be large, and others pass."""
FETCH_TRIES_MAX: Final = 20
"""Sources that are tried for one content before its jobs fail: some 70 s, with the pauses."""
FETCH_AGAIN_FIRST_S: Final = 0.1
"""Pause after the second try to fetch one content; the first is followed by another at once."""
FETCH_AGAIN_MAX_S: Final = 5.0
"""Longest pause between two tries to fetch one content."""
PARTIAL_TTL_S: Final = 86_400.0
"""A transfer that was not continued for a day is given up, and its part removed."""

# Blobs (SPEC C4, C5, C7)
BLOB_BYTES_MAX: Final = 1024 * 1024 * MIB
"""The largest blob: a terabyte, to tell a file from a mistake. The free room of the disk is checked first anyway."""
BLOB_STORE_BYTES: Final = 20 * 1000 * 1000 * 1000
"""Default size of a leader's blobs before unused ones are removed."""
BLOB_RECENT_S: Final = 600.0
"""A blob that was requested within this time stays: a job is about to name it."""
BLOB_UNUSED_S: Final = 86_400.0
"""A blob that was neither named nor requested for a day is removed."""
BLOB_ABANDONED_S: Final = 3_600.0
"""An upload that was not continued for an hour is removed."""
BLOB_SWEEP_S: Final = 30.0
"""How often a leader looks whether blobs must go."""
BLOB_STALL_S: Final = 10.0
"""No byte of a transfer for this long: the other side counts as slow, and another source is used if there is one."""
BLOB_RECEIVED_MIN_BYTES: Final = 64 * KIB
"""Bytes of a transfer that must arrive within BLOB_RECEIVED_MIN_S."""
BLOB_RECEIVED_MIN_S: Final = 30.0
"""An upload with fewer bytes in this time is cut off: others wait for its place. A source counts as slow."""
UPLOADS_MAX: Final = 64
"""Uploads that are received at once, with some 3 MiB of memory each; others wait."""
UPLOAD_WAIT_S: Final = 5.0
"""How long an upload waits for its turn before it is refused as busy: shorter than a sender waits for a byte."""
UPLOAD_PATIENCE_S: Final = 300.0
"""How long a sender retries at a busy place."""
UPLOAD_UNREACHED_S: Final = 300.0
"""A place to which no byte was sent for this long, while its leader is connected, counts as unreachable from here."""
UPLOAD_BROKEN_MAX: Final = 3
"""Times that one blob may arrive with a wrong hash, from a client or a worker; then its upload is given up. Once may be
the fault of the line; this often the content is broken at its source."""
UPLOAD_ROUNDS_MAX: Final = 10
"""Times that a leader may ask a client for the files of one job over one connection: a leader that loses them this
often would ask for ever, and the job is refused."""
SERVING_MAX: Final = 256
"""Blobs that a leader sends at once; further requests are refused as busy. A worker has a smaller number of its own."""
