"""A node, and the nodes that a leader knows by address."""

from __future__ import annotations

from typing import Final

from wakugumi.limits.units import KIB

# The node (SPEC N1–N4)
RECEIVE_SLOTS: Final = 64
"""Inputs that a node receives at once, with some 3 MiB of memory each: apart from its run slots, so that uploads do not
hold up programs."""
RECEIVE_BYTES_PER_S_MIN: Final = 32 * KIB
"""If all receive slots are taken, a slower sender loses its slot to the next one."""
RECEIVE_GRACE_S: Final = 5.0
"""Time in which no sender counts as slow: a connection has to warm up, and small inputs are there by then."""
RUN_RETRY_AFTER_S: Final = 5
"""`Retry-After` of a busy node (N1)."""
RUNNING_RETRY_AFTER_S: Final = 1
"""`Retry-After` for a job that runs: its result is worth more than the request costs."""
NODE_INPUT_BYTES_MAX: Final = 100 * 1000 * 1000 * 1000
"""Default size of the largest input that a node takes: to tell a file from a mistake."""
NODE_KEEP_S: Final = 7 * 86_400.0
"""Default time for which a node keeps finished jobs (N4)."""
NODE_INTERRUPTED_S: Final = 86_400.0
"""Age at which a node removes the files of an interrupted job."""

# Nodes that a leader knows by address (SPEC G1, G4)
NODES_MAX: Final = 1_000
"""Nodes of one leader: each is polled for its capacity again and again."""
NODE_WEIGHT_MAX: Final = 100
"""Largest weight of a node."""
NODE_POLL_S: Final = 2.0
"""Time between two polls of a node's free slots; while it fails, with a backoff."""
NODE_POLL_TIMEOUT_S: Final = 2.0
"""Time in which a node must answer a poll; a slower one is out of order."""
NODE_QUESTION_S: Final = 5.0
"""A node that does not answer for this long whether it has a job, without the input, counts as gone."""
NODE_AGAIN_S: Final = 0.2
"""Pause before a node whose answer was cut off is asked for the same job again."""
NODE_RETRY_AFTER_MAX_S: Final = 60.0
"""Longest `Retry-After` of a node with a running job that is obeyed."""
NODE_SENDS_MAX: Final = 2
"""Requests with the input in one attempt. A node that does not know the job even then has lost it twice: the job may be
what ends the node, so the attempt counts as lost."""
NODE_REJOIN_S: Final = 1.0
"""Time between two joins of a node whose connection the leader closes at once."""
NODE_LEFT_MAX: Final = 1_000
"""Jobs that a lost node may still run, and is sent a cancel for when it is back. Beyond it, the oldest run in vain."""
RUN_QUERY_BYTES_MAX: Final = 4 * KIB
"""Program and arguments of a job for a node, as they stand in its URL: half the length of a request's line."""
CAPACITY_AGE_MAX_S: Final = 0.001
"""Age of a shared answer about capacity: a leader looks at all of its workers for each."""
