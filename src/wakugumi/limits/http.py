"""Requests over HTTP and lines, on any role."""

from __future__ import annotations

from typing import Final

from wakugumi.limits.units import KIB, MIB

# HTTP
HTTP_IDLE_S: Final = 15.0
"""Time until a request's head is whole, and until the next request begins; then the connection is closed."""
HTTP_LINE_BYTES_MAX: Final = 8 * KIB
"""One line of a request's head."""
HTTP_HEADERS_MAX: Final = 100
"""Lines of a request's head: with the bound of each, a head is below a MiB. Browsers and proxies send some thirty."""
BODY_RECEIVED_MIN_BYTES: Final = 16 * KIB
"""Bytes of a request's body that must come, or of an answer that must be read, in BODY_RECEIVED_MIN_S."""
BODY_RECEIVED_MIN_S: Final = 20.0
"""A slower sender or reader is cut off: it holds a slot that others wait for."""
PART_HEAD_BYTES_MAX: Final = 8 * KIB
"""The head of one part of a form, and what may stand before the first: all that is kept of a body while it is read."""
FORM_BYTES_MAX: Final = 64 * KIB
"""Bytes of a form beside its file: boundaries, heads, and the text before and behind them."""
LINGER_S: Final = 2.0
"""Time in which the rest of a refused request is still read, so that its sender can read the answer."""
LINGER_BYTES_MAX: Final = 64 * MIB
"""Bytes of a refused request that are still read."""
LINE_GONE_S: Final = 5.0
"""How often a node looks whether the callers that wait for a job by line are still there."""
LINE_BYTES_MAX: Final = 64 * KIB
"""The line that asks for a job (SPEC N1)."""
HTTP_CLIENT_CAP: Final = 1_000
"""Jobs in flight of one client id over HTTP, unless told otherwise: many callers share one id, and most give none."""
HTTP_CLIENTS_MAX: Final = 10_000
"""Client ids that a leader knows at once because of requests over HTTP."""
HTTP_LINGER_S: Final = 10.0
"""A client id that nobody uses over HTTP any more is let go after this: the next request is likely to name it again."""
HTTP_UNREAD_S: Final = 60.0
"""A result whose reader left while it was written counts as undelivered for so long, so that it is kept. Later it is
kept for ten minutes if there is room. A stopping leader does not wait for that."""
HTTP_GONE_S: Final = 1.0
"""How often a leader looks whether the callers that wait for an answer over HTTP are still there."""
HTTP_RECEIVED_MAX: Final = 512
"""Inputs that a leader receives at once, with a quarter of a MiB of memory each, or more on their way to its disk;
further ones are told to come again."""
CALLS_MAX: Final = 1_000
"""Requests that one role has under way to others, each a connection. Further ones wait."""
CALL_IDLE_S: Final = 10.0
"""A connection to another role that was idle for so long is not used again: that role may be about to close it, and
what is sent into a closing connection is lost without a word. Well below HTTP_IDLE_S."""
METRIC_SERIES_MAX: Final = 50
"""Label sets of one metric, and one more for all others: each costs the Prometheus server memory for months."""
