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
"""The head of one part of a form, and the text before the first part: all that is kept of a body while it is read."""
FORM_BYTES_MAX: Final = 64 * KIB
"""Bytes of a form beside its file: boundaries, heads, and the text before and behind them."""
LINGER_S: Final = 2.0
"""Time in which the rest of a refused request is still read, so that its sender can read the answer."""
LINGER_BYTES_MAX: Final = 64 * MIB
"""Bytes of a refused request that are still read."""
LINE_GONE_S: Final = 5.0
"""Time between two checks whether callers that wait for a job by line are still connected."""
LINE_BYTES_MAX: Final = 64 * KIB
"""The request line for a job (SPEC N1)."""
HTTP_CLIENT_CAP: Final = 1_000
"""Default number of jobs in flight of one client id over HTTP: many callers share one id, and most give none."""
HTTP_CLIENTS_MAX: Final = 10_000
"""Client ids that a leader knows at once because of requests over HTTP."""
HTTP_LINGER_S: Final = 10.0
"""A client id that is not used over HTTP any more is released after this: the next request is likely to name it
again."""
HTTP_UNREAD_S: Final = 60.0
"""A result whose reader left while it was written counts as undelivered for this long, so that it is kept. Later it is
kept for ten minutes if there is room. A stopping leader does not wait for that."""
HTTP_GONE_S: Final = 1.0
"""Time between two checks whether callers that wait for an answer over HTTP are still connected."""
HTTP_RECEIVED_MAX: Final = 512
"""Inputs that a leader receives at once, with a quarter of a MiB of memory each, or more on their way to its disk;
further ones are refused as busy."""
CALLS_MAX: Final = 1_000
"""Requests that one role has under way to others, each a connection. Further ones wait."""
CALL_IDLE_S: Final = 10.0
"""A connection to another role that was idle for this long is not used again: that role may be about to close it, and a
request into a closing connection is lost without notice. Well below HTTP_IDLE_S."""
METRIC_SERIES_MAX: Final = 50
"""Label sets of one metric, and one more for all others: each costs the Prometheus server memory for months."""
