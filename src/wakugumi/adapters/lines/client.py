"""How is a job sent to a node by line? (SPEC N1, N6) A line and a file are sent, and the answer is read meanwhile.

A busy node answers before it has read the file: then no more of it is sent.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Final

from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.loop.threads import beside
from wakugumi.adapters.net.address import Address
from wakugumi.adapters.net.connect import no_connection
from wakugumi.adapters.net.socket_options import tune
from wakugumi.errors import ConfigError, Lost, PeerError
from wakugumi.limits.client import CONNECT_DEADLINE_S, SEND_SILENCE_MAX_S
from wakugumi.limits.http import LINE_BYTES_MAX
from wakugumi.limits.units import MIB
from wakugumi.wire.line import Answer, Ok, read_answer, write_auth_line, write_job_line

if TYPE_CHECKING:
    from ssl import SSLContext

    from wakugumi.adapters.access.entry import AccessEntry

_PIECE_BYTES: Final = 1 * MIB


async def send_job(
    address: Address,
    job: str,
    file: Path,
    file_name: str,
    to: Path,
    tls: SSLContext | None = None,
    silence_max_s: float = SEND_SILENCE_MAX_S,
    access: AccessEntry | None = None,
) -> Answer:
    """The answer; the ZIP of an OK is then in `to`, whole. With `access` the node proves its role, and gets the key.
    Raises Lost if the node is not reached, makes no progress
    for `silence_max_s` or breaks off, PeerError if the peer is no node, and ConfigError if a local file cannot be read
    or written."""
    reader, writer = await _connect(address, tls, access)
    tasks = Tasks()
    silence = _Silence(silence_max_s)
    try:
        async with silence.timeout:
            with _opened(file) as source:
                size = os.fstat(source.fileno()).st_size
                if access is not None and access.key is not None:
                    writer.write(write_auth_line(access.key))
                writer.write(write_job_line(job, file_name, size))
                sending = tasks.start(
                    _send(writer, source.fileno(), size, silence.broken), name="send the input", quiet=True
                )
                answer = read_answer(await _line(reader, address))
                silence.broken()
                if isinstance(answer, Ok):
                    await _receive(reader, answer.size, to, address, silence.broken)
                sending.cancel()
                return answer
    except TimeoutError:
        raise Lost(f"{address} neither read nor answered for {silence_max_s:g} s", "slow") from None
    finally:
        await tasks.close()
        writer.transport.abort()


class _Silence:
    """Deadline for a connection without progress."""

    def __init__(self, max_s: float) -> None:
        self._max_s = max_s
        self._clock = asyncio.get_running_loop().time
        self.timeout = asyncio.timeout(max_s)

    def broken(self) -> None:
        if not self.timeout.expired():
            self.timeout.reschedule(self._clock() + self._max_s)


async def _connect(
    address: Address, tls: SSLContext | None, access: AccessEntry | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    tls, name = (tls, None) if access is None else (access.context(), access.server_hostname)
    try:
        async with asyncio.timeout(CONNECT_DEADLINE_S):
            reader, writer = await asyncio.open_connection(
                address.host, address.port, ssl=tls, server_hostname=name, limit=LINE_BYTES_MAX
            )
    except TimeoutError:
        raise Lost(f"{address} did not answer within {CONNECT_DEADLINE_S:g} s") from None
    except (OSError, ValueError) as error:  # Errors of TLS are OSErrors too.
        raise Lost(no_connection(address, error, tls=tls is not None)) from None
    if (sock := writer.get_extra_info("socket")) is not None:
        tune(sock)  # While the job runs no bytes flow: only the system can detect that the node has vanished.
    return reader, writer


def _opened(file: Path) -> BufferedReader:
    try:
        return open(file, "rb")
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None


async def _send(writer: asyncio.StreamWriter, source: int, size: int, moved: Callable[[], None]) -> None:
    """Ends when all is sent, or the node closes: its answer counts, not the way it closed."""
    at = 0
    with suppress(OSError):
        while at < size:
            piece = await beside(partial(os.pread, source, min(_PIECE_BYTES, size - at), at), "read the input")
            if not piece:  # The file became shorter: the node will refuse it.
                writer.close()
                return
            writer.write(piece)
            await writer.drain()
            moved()
            at += len(piece)


async def _line(reader: asyncio.StreamReader, address: Address) -> bytes:
    try:
        return await reader.readuntil(b"\n")
    except asyncio.LimitOverrunError:
        raise PeerError(f"{address} is no node: its answer has no line") from None
    except (OSError, asyncio.IncompleteReadError):
        raise Lost(f"{address} closed the connection without an answer") from None


async def _receive(
    reader: asyncio.StreamReader, size: int, to: Path, address: Address, moved: Callable[[], None]
) -> None:
    """Written under another name until whole."""
    part = to.with_name(f"{to.name}.part")
    try:
        with open(part, "wb") as file:  # noqa: ASYNC230 - nothing else runs in this process
            left = size
            while left:
                piece = await reader.read(min(left, _PIECE_BYTES))
                if not piece:
                    raise Lost(f"{address} ended in the midst of its answer: {left} of {size} bytes are missing")
                file.write(piece)
                moved()
                left -= len(piece)
        os.replace(part, to)
    except (ConnectionError, TimeoutError) as error:
        _forget(part)
        raise Lost(f"{address} ended in the midst of its answer: {error}") from None
    except OSError as error:
        _forget(part)
        raise ConfigError(f"{to} cannot be written: {error.strerror}", "choose another place with --out") from None
    except BaseException:
        _forget(part)
        raise


def _forget(part: Path) -> None:
    with suppress(OSError):
        part.unlink()
