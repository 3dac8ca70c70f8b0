"""Workers that run nothing: each answers every job at once. They show what the leader alone can do.

python bench/noop.py PORT [WORKERS] [CREDIT]

Where WAKU_ACCESS names an access file, they dial with TLS and show its key.
"""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from typing import Any, cast

from wakugumi.adapters.loop.event_loop import run
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.control import Holding
from wakugumi.wire.messages.hello import WANTS_WORKER, HelloWorker
from wakugumi.wire.messages.job import write_credit
from wakugumi.wire.messages.payload import encode


class NoopWorker(asyncio.Protocol):
    """Speaks frames as a real worker does; its acks and credits leave as one write per read."""

    def __init__(self, credit: int, key: str = "") -> None:
        self._key = key
        self._decoder = fr.Decoder()
        self._decoder.trust()
        self._credit = credit
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        hello = encode(HelloWorker(wants=list(WANTS_WORKER), key=self._key))
        self._transport.write(fr.encode(fr.HELLO_WORKER, uuid.uuid4().bytes_le, payload=hello))
        self._transport.write(fr.encode(fr.HOLDING, payload=encode(Holding())))
        self._transport.write(fr.encode(fr.CREDIT, payload=write_credit(self._credit)))

    def data_received(self, data: bytes) -> None:
        write = fr.encode
        out = [
            write(fr.ACK_JOB, fr.NO_ID, frame.msg_id)
            for frame in self._decoder.feed(data)
            if frame.type == fr.ASSIGN_JOB
        ]
        if out:
            out.append(write(fr.CREDIT, payload=write_credit(len(out))))
            self._transport.write(b"".join(out))

    def beat(self) -> None:
        self._transport.write(fr.encode(fr.HEARTBEAT))


async def main(port: int, workers: int, credit: int) -> None:
    loop = asyncio.get_running_loop()
    key, tls = "", {}
    if os.environ.get("WAKU_ACCESS"):
        key, tls = _access(port)
    crew = [
        (await loop.create_connection(lambda: NoopWorker(credit, key), "127.0.0.1", port, **tls))[1]
        for _ in range(workers)
    ]
    print("ready", flush=True)
    while True:
        await asyncio.sleep(5)
        for worker in crew:
            worker.beat()


def _access(port: int) -> tuple[str, dict[str, Any]]:
    """The key, and how to dial. Imported late: other checkouts, which are compared, may have none of it."""
    from wakugumi.adapters.access.dialled import AccessSources
    from wakugumi.adapters.net.address import Address

    entry = AccessSources().in_file(Address("127.0.0.1", port))
    assert entry is not None
    assert entry.key is not None
    return entry.key.text, {"ssl": entry.context(), "server_hostname": entry.server_hostname}


if __name__ == "__main__":
    arguments = [int(text) for text in sys.argv[1:]]
    run(main(arguments[0], *(arguments[1:] + [1, 1000][len(arguments) - 1 :])))
