"""A client's connections to its leaders."""

from __future__ import annotations

from typing import Final

# The client's connection (SPEC K5, K6)
RECONNECT_FIRST_S: Final = 0.5
"""First pause before a client dials a lost leader again; the pause doubles each time."""
WORKER_RECONNECT_FIRST_S: Final = 0.1
"""First pause before a worker dials a lost leader again."""
WORKER_RECONNECT_SOON_S: Final = 0.5
"""Further pauses of a worker, until WORKER_PATIENCE_S is over."""
WORKER_PATIENCE_S: Final = 30.0
"""A worker dials twice a second for this long: a leader that was restarted gives work within a second. Then its pauses
grow like a client's."""
RECONNECT_MAX_S: Final = 30.0
"""Longest pause before a leader is dialled again."""
ADOPT_GRACE_S: Final = 10.0
"""Jobs of a lost leader wait this long for it to come back; then other leaders adopt them (K5)."""
ADOPT_GRACE_MAX_S: Final = 86_400.0
"""Longest wait: the leader itself keeps a result no longer than a day."""
MUTE_MAX_S: Final = 60.0
"""Of several leaders, one that has never answered may be an old one with a long job: it has this long to end the
job."""
FIND_WITHIN_S: Final = 5.0
"""How long a client of several leaders waits for each of them to tell whether it knows a job with an id of the user's:
without a fault a round trip, and longer than a busy leader takes for any answer."""
FIND_COMING_S: Final = 2.0
"""How long a client waits for a leader that is being connected before asking it: one may be switched off for good."""
FIND_LEAD_SHARE: Final = 0.25
"""The hash of a given id chooses its leader, if that leader has at most this part of its share of the cap more in
flight than the leader with the least: a client that comes back chooses the same one, and no leader is left idle."""
LEADERS_PER_CLIENT_MAX: Final = 64
"""Leaders of one client: each is a connection, and a look at every job that is handed in."""
CONNECT_DEADLINE_S: Final = 10.0
"""Time for one attempt to connect, and the default of `connect(connect_timeout_s=)`: the whole first wait of a Python
client for any of its leaders."""
ADDRESS_DELAY_S: Final = 0.25
"""Time until the next address of a name is tried beside the one before (RFC 8305)."""
COMMAND_CONNECT_S: Final = 2.0
"""The whole first wait of a `waku` command for any of its leaders: long enough for a leader that is just starting,
short enough for a person with a typing error."""
SEND_SILENCE_MAX_S: Final = 1200.0
"""How long `waku send` waits for a silent node: longer than a job without a timeout of its own may run there."""
UNFINISHED_PER_CLIENT_MAX: Final = 10_000
"""Jobs a client has submitted and not seen the end of. Further `submit` calls wait: back pressure for the caller."""
FULL_RETRY_FIRST_S: Final = 0.1
"""First pause before a client offers a refused job to a full leader again; the pause doubles."""
FULL_RETRY_MAX_S: Final = 5.0
"""Longest pause before a refused job is offered again."""
