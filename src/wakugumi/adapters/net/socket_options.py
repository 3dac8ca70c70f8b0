"""Which options does a TCP socket get?"""

from __future__ import annotations

import contextlib
import socket

from wakugumi.limits.wire import SILENCE_MAX_S


def tune(sock: socket.socket, *, may_wait: bool = False) -> None:
    """Writes leave at once, and a vanished peer is found also without heartbeats. `may_wait` is for connections to a
    leader: a full leader, or one short of memory, may not read for longer than SILENCE_MAX_S, and Linux would end the
    connection as if the leader had vanished. Its heartbeats show that it lives."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
            if hasattr(socket, option):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        if hasattr(socket, "TCP_USER_TIMEOUT") and not may_wait:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(SILENCE_MAX_S * 1000))
