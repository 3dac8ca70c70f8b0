"""How is a page about access asked over TLS? One request, one small answer, and nothing of it is believed here."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping

import httptools

from wakugumi.adapters.net.address import Address
from wakugumi.errors import Lost
from wakugumi.limits.access import CA_ANSWER_BYTES_MAX
from wakugumi.wire.web_origin import NO_BROWSER


async def ask_page(
    address: Address,
    request: str,
    tls: ssl.SSLContext,
    server_hostname: str,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
) -> tuple[int, bytes]:
    """Status and body of the answer to a request such as `GET /access/ca`. Without a deadline of its own. Raises
    OSError, ValueError or Lost."""
    loop = asyncio.get_running_loop()
    transport, answer = await loop.create_connection(
        _Answer, address.host, address.port, ssl=tls, server_hostname=server_hostname
    )
    try:
        fields = {"Host": str(address), "Connection": "close", **NO_BROWSER, **(headers or {})}
        if body:
            fields["Content-Length"] = str(len(body))
        lines = [f"{request} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
        transport.write("\r\n".join(lines).encode() + body)
        return await answer.done
    finally:
        transport.abort()


class _Answer(asyncio.Protocol):
    """The answer to one request, up to a bound."""

    def __init__(self) -> None:
        self.done: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._body = bytearray()
        self._count = 0

    def data_received(self, data: bytes) -> None:
        self._count += len(data)
        if self._count > CA_ANSWER_BYTES_MAX:
            self._fail(f"it has more than {CA_ANSWER_BYTES_MAX} bytes")
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._fail("it is no HTTP")

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        if not self.done.done():
            self.done.set_result((self._parser.get_status_code(), bytes(self._body)))

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(f"it ended early{'' if error is None else f' ({error})'}")

    def _fail(self, why: str) -> None:
        if not self.done.done():
            self.done.set_exception(Lost(f"the answer about access cannot be read: {why}"))
