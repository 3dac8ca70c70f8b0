"""Inputs, caches, blobs and transfers."""

from __future__ import annotations

from typing import Final

from wakugumi.limits.units import KIB, MIB

BLOB_NAMED_S: Final = 60.0
"""A blob that a peer has just named is not removed for so long: the job or result that needs it is on its way."""
BLOBS_ASKED_MAX: Final = 200_000
"""Blobs of jobs, results and caches of which some are still on their way: none of them is removed. Some 180 bytes each;
beyond it the oldest may have to be put again."""

# Files (SPEC C1, C5)
INLINE_FILE_BYTES_MAX: Final = 256 * KIB
"""Larger files of a job travel beside its frame: many of them in a queue would fill the leader's memory, and the same
one for many jobs would travel many times. For smaller ones a second way costs more than it saves."""
UPLOADS_AT_ONCE_MAX: Final = 4
"""Files that one client sends, or reads for their SHA-256, at a time: more would only share the same line and disk."""

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
"""Longest time that a put may ask for."""
PUT_LEADER_GRACE_S: Final = 10.0
"""A leader that is away when a put's time is over has so long to come back; then its client waits no longer."""
PUT_AGAIN_S: Final = 15.0
"""Pause before a silent worker is asked again to take a cache; the pause doubles."""
PUT_ASKS_MAX: Final = 4
"""Questions to a silent worker before it counts as failed for a put. A worker that is fetching does not count as
silent."""
PUT_GONE_S: Final = 10.0
"""A worker that left in the midst of a put has so long to come back; then it counts as failed."""
PUT_RETRY_FIRST_S: Final = 60.0
"""First pause before a worker that failed to take a cache is asked again, in the background."""
PUT_RETRY_MAX_S: Final = 3_600.0
"""Longest of these pauses."""
PUT_FAILURES_MAX: Final = 100
"""Failures that a summary lists: beyond it, their number says enough."""
STOCK_GRACE_S: Final = 10.0
"""A worker says what it holds right after its hello; one that did not by then is taken to hold nothing."""
STOCK_BLOBS_MAX: Final = 100_000
"""Blobs of one worker that a leader remembers. What is beyond it is fetched all the same; only nobody is sent there for
it."""
STOCKED_BLOBS_MAX: Final = 400_000
"""Blobs of all workers that a leader remembers, each once: 270 MiB. Less where memory is limited."""
STOCKED_BLOB_BYTES: Final = 704
"""Memory that one of these costs."""
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
"""How long a leader's word that a worker may fetch a blob from another holds."""
SOURCE_REST_S: Final = 10.0
"""A source that was dead or slow is left alone for so long."""
LIES_MAX: Final = 3
"""Reports of wrong content after which no worker fetches from the source any more."""
ACCUSERS_MIN: Final = 2
"""Workers that must have made these reports: one alone may itself be broken."""
LIE_TTL_S: Final = 3_600.0
"""So long a lie counts, and an accusation: the worker may have been mended, or wronged."""
ACCUSED_MAX: Final = 3
"""A worker that says of more others than this that they lied is not believed: it is more likely broken itself."""

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
WANTS_OF_CACHES_MAX: Final = 8
"""Files of caches of unknown size that a worker asks for at once: they may all be large, and others pass."""
FETCH_TRIES_MAX: Final = 20
"""Sources that are tried for one content before those who wait for it are told: some 70 s, with the pauses."""
FETCH_AGAIN_MAX_S: Final = 5.0
"""Longest pause between two tries to fetch one content."""
PARTIAL_TTL_S: Final = 86_400.0
"""A transfer that nobody went on with for a day is given up, and what has come of it removed."""

# Blobs (SPEC C4, C5, C7)
BLOB_BYTES_MAX: Final = 1024 * 1024 * MIB
"""The largest blob: a terabyte, to tell a file from a mistake. The disk is asked first anyway."""
BLOB_STORE_BYTES: Final = 20 * 1000 * 1000 * 1000
"""Bytes of a leader's blobs before unused ones are removed, unless told otherwise."""
BLOB_RECENT_S: Final = 600.0
"""A blob that was asked for within this time stays: a job is about to name it."""
BLOB_UNUSED_S: Final = 86_400.0
"""A blob that nothing names and nobody asked for since a day is removed."""
BLOB_ABANDONED_S: Final = 3_600.0
"""An upload that nobody has gone on with for an hour is removed."""
BLOB_SWEEP_S: Final = 30.0
"""How often a leader looks whether blobs must go."""
BLOB_STALL_S: Final = 10.0
"""No byte of a transfer for so long: the other side counts as slow, and whoever has another source uses that."""
BLOB_RECEIVED_MIN_BYTES: Final = 64 * KIB
"""Bytes of a transfer that must come within BLOB_RECEIVED_MIN_S."""
BLOB_RECEIVED_MIN_S: Final = 30.0
"""An upload of which less comes in this time is cut off: others wait for its place. A source counts as slow."""
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
