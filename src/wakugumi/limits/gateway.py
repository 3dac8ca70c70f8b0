"""The gateway, its groups and its store."""

from __future__ import annotations

from typing import Final

from wakugumi.limits.units import KIB, MIB

# The gateway (SPEC G2–G5)
SPOOL_MEMORY_BYTES: Final = 256 * KIB
"""Part of a body or an answer that is held in memory: larger ones go to the disk, however many pass at once."""
GATEWAY_BODY_BYTES_MAX: Final = 64 * 1024 * MIB
"""The largest body that a gateway takes. The free room of the disk is checked first anyway."""
GATEWAY_SUBMITS_MAX: Final = 512
"""Submissions that a gateway serves at once, each a connection to a client and one to a group."""
GATEWAY_FORWARDS_MAX: Final = 256
"""Asynchronous jobs that a gateway has with groups at once; with GATEWAY_SUBMITS_MAX fewer than CALLS_MAX."""
GATEWAY_QUEUE_MAX: Final = 1_000_000
"""Asynchronous jobs that wait in one gateway: some 200 bytes each."""
GATEWAY_QUEUE_BYTES: Final = 64 * 1024 * MIB
"""Bodies of asynchronous jobs that have not ended, of all gateways on one state together: one of the largest, or many
small ones. `--queue-bytes` changes it. It may be exceeded by what several gateways accept within three seconds."""
GATEWAY_CRASHES_MAX: Final = 5
"""A job that made the gateway itself fail this often, by unforeseen errors, is given up as FAILED."""
GATEWAY_STRANDED_S: Final = 10.0
"""An open job that is in no queue of this gateway and in no request for this long is queued again."""
GATEWAY_TIDY_S: Final = 3.0
"""How often rows and bytes are counted, for the quota of bodies and the metrics."""
GATEWAY_SWEEP_S: Final = 30.0
"""How often old jobs and files are looked for."""
GATEWAY_EVENTS_MAX: Final = 1_000
"""Clients at once that receive a job's states as they change."""
GATEWAY_LEASE_S: Final = 10.0
"""A gateway that did not renew its lease for this long counts as dead, and others take over its jobs. Leases are
renewed three times as often."""
GATEWAY_KEPT_S: Final = 86_400.0
"""Age of finished jobs that a gateway still answers for."""
GATEWAY_KEPT_BYTES: Final = 20 * 1000 * 1000 * 1000
"""Bytes of the answers of finished jobs; the oldest are removed first."""
GATEWAY_KEPT_MAX: Final = 200_000
"""Number of finished jobs that a gateway still answers for."""
GATEWAY_RETRY_AFTER_S: Final = 2.0
"""`Retry-After` if no group takes a job: after the next poll."""
GATEWAY_RETRY_AFTER_MAX_S: Final = 60.0
"""The longest `Retry-After` of a gateway, whatever its groups answer: another group may be back long before."""
GATEWAY_TRY_S: Final = 3_600.0
"""Time that a job may wait at a group beyond its own timeout, in queues and for workers that died, before another group
gets it."""
GATEWAY_SILENCE_S: Final = 60.0
"""An answer that has begun and made no progress for this long is given up."""
GATEWAY_LOOK_S: Final = 1.0
"""Time between two looks for clients that have left, and for forwarded jobs that ended elsewhere."""
GATEWAY_AGAIN_MAX_S: Final = 5.0
"""The longest pause before an asynchronous job that no group took is offered again."""
GROUP_POLL_S: Final = 2.0
"""How often a group is asked for its capacity."""
GROUP_ANSWER_S: Final = 2.0
"""Time in which a group must answer a poll, and take a connection."""
GROUP_MISSES_MAX: Final = 3
"""A group that did not answer this many polls is gone: its waiting jobs go to another."""
GROUP_EMPTY_S: Final = 10.0
"""A job leaves a group that has had no workers for this long, if another has some."""
GROUPS_MAX: Final = 256
"""Groups of one gateway: each is a poll every two seconds, and a look for every job."""
