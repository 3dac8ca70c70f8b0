"""An HTTP server that does to each connection what a test says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.kit.http_peer import DEADLINE_S


@contextmanager
def scripted(*answers: Callable[[socket.socket], object]) -> Iterator[str]:
    """Each connection in its turn: its request is read, then this is done to it."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for answer in answers:
                peer, _ = server.accept()
                with peer:
                    peer.settimeout(DEADLINE_S)
                    while b"\r\n\r\n" not in peer.recv(65536):
                        pass
                    answer(peer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join(DEADLINE_S)


def says(head: str, body: bytes = b"") -> Callable[[socket.socket], object]:
    return lambda peer: peer.sendall(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)
