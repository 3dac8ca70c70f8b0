"""Which options does a TCP socket get?"""

from __future__ import annotations

import socket

import pytest

from wakugumi.adapters.net.socket_options import tune


@pytest.mark.parametrize("may_wait", [False, True])
def test_a_socket_finds_a_vanished_peer_and_waits_only_where_it_may(may_wait: bool) -> None:
    with socket.socket() as sock:
        tune(sock, may_wait=may_wait)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == (0 if may_wait else 30_000)


def test_a_socket_without_these_options_is_left_as_it_is() -> None:
    one, other = socket.socketpair()
    with one, other:
        tune(one)
