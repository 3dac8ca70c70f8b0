"""`waku send`: how is one file sent to a node by line, and its result saved? (SPEC N6)

The addresses are tried in order. A busy, failing or unreachable node is reported, and the next one tried.
"""

from __future__ import annotations

import asyncio
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from uuid import uuid4

from cyclopts import Parameter

from wakugumi.adapters.access.dialled import VARIABLE, AccessSources
from wakugumi.adapters.lines.client import send_job
from wakugumi.adapters.net.address import Address, parse_keyed_address
from wakugumi.app import stoppable
from wakugumi.app.flags import with_settings
from wakugumi.app.show.output import line_out, say
from wakugumi.core.ids import job_id_from_name
from wakugumi.core.names import check_file_name
from wakugumi.errors import ConfigError, Lost, PeerError, Refused, WakugumiError
from wakugumi.limits.client import SEND_SILENCE_MAX_S
from wakugumi.limits.runner import JOB_TIMEOUT_MAX_S
from wakugumi.wire.access_line import Key
from wakugumi.wire.line import KEPT, Busy, Err, Ok

if TYPE_CHECKING:
    from wakugumi.adapters.net.tls import TlsContext

PORT = 9099
_ZIP_END: Final = b"PK\x05\x06"
_ZIP_END_BYTES: Final = 22
"""Size of the record at the end of a ZIP, before its comment."""
_COMMENT_READ_BYTES: Final = 256

Words = Annotated[str, Parameter(help="Addresses of nodes, HOST:PORT or waku://KEY@HOST:PORT, then the file.")]
JobName = Annotated[
    str | None,
    Parameter(name="--id", help="Id of the job. The same id and file are the same job. [default: a new UUID]"),
]
Out = Annotated[str | None, Parameter(help="File for the result. [default: FILE.result.zip]")]
Wait = Annotated[
    float,
    Parameter(show_default=False, help="Seconds to retry while all nodes are busy. [default: 0]"),
]
Timeout = Annotated[
    float,
    Parameter(help="Seconds without an answer after which the next node is tried; the run time of the job counts."),
]
TlsOn = Annotated[
    bool,
    Parameter(
        name="--tls", negative="", show_default=False, help="Connect with TLS, and trust the authorities of the system."
    ),
]
Ca = Annotated[
    str | None, Parameter(name="--ca", help="PEM file of trusted authorities, in place of the system's; implies --tls.")
]
Cert = Annotated[str | None, Parameter(name="--cert", help="PEM file with our certificate and its key; implies --tls.")]
CertKey = Annotated[str | None, Parameter(name="--key", help="PEM file with the key, if --cert has none.")]
Access = Annotated[
    str | None,
    Parameter(
        name="--access",
        help="File with keys, by the addresses that they are for. [default: ~/.config/wakugumi/access.toml] "
        f"[env: {VARIABLE}]",
    ),
]


@with_settings
def send(
    *words: Words,
    id: JobName = None,  # noqa: A002
    out: Out = None,
    wait: Wait = 0.0,
    timeout: Timeout = SEND_SILENCE_MAX_S,
    tls: TlsOn = False,
    ca: Ca = None,
    cert: Cert = None,
    key: CertKey = None,
    access: Access = None,
) -> int:
    """waku send HOST:PORT… FILE [--id ID] [--out FILE] [--wait S] [--tls] [OPTIONS]

    The result is FILE.result.zip. The addresses are tried in order: a busy, failing or unreachable node is reported on
    stderr, and the next one tried. Exit code 1 if all failed, 5 if the last one was unreachable.

    Examples:
      waku send 127.0.0.1:9099 input.txt
      waku send a:9099 b:9099 input.txt --id night-7 --wait 60
      waku send a:9099 input.txt --ca ca.pem --cert me.pem
    """
    if len(words) < 2:
        raise ConfigError("a node's address and a file are needed", "write waku send HOST:PORT FILE")
    addresses = [parse_keyed_address(word, PORT) for word in words[:-1]]
    file = Path(words[-1])
    if not file.is_file():
        raise ConfigError(f"{file} is no file", "the file is the last word: waku send HOST:PORT… FILE")
    if not 0 <= wait <= JOB_TIMEOUT_MAX_S:
        raise ConfigError(f"--wait is 0 to {JOB_TIMEOUT_MAX_S:g} seconds, not {wait:g}")
    if not 0 < timeout <= JOB_TIMEOUT_MAX_S:
        raise ConfigError(f"--timeout is above 0 and at most {JOB_TIMEOUT_MAX_S:g} seconds, not {timeout:g}")
    job = id or str(uuid4())
    try:
        job_id_from_name(job)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    to = Path(out) if out else file.with_name(f"{file.name}.result.zip")
    context = _context(ca, cert, key) if tls or ca or cert else None
    stoppable.run(_FileSending(addresses, AccessSources(access), job, file, to, context, timeout).go(wait))
    line_out(str(to))
    return 0


class _FileSending:
    """Sends one file to one of several nodes."""

    def __init__(
        self,
        addresses: list[tuple[Address, Key | None]],
        sources: AccessSources,
        job: str,
        file: Path,
        to: Path,
        tls: TlsContext | None,
        timeout_s: float,
    ) -> None:
        self._addresses = addresses
        self._sources = sources
        self._job = job
        self._file = file
        self._name = check_file_name(file.name)
        self._to = to
        self._tls = tls
        self._timeout_s = timeout_s

    async def go(self, wait_s: float) -> None:
        """Raises the error of the last node if all fail."""
        clock = asyncio.get_running_loop().time
        until = clock() + wait_s
        while True:
            retry_s, error = await self._round()
            if error is None:
                return
            if clock() + retry_s > until:
                raise error
            say(f"all nodes are busy: next try in {retry_s:g} s")
            await asyncio.sleep(retry_s)

    async def _round(self) -> tuple[float, WakugumiError | None]:
        """Tries each node once. Returns seconds until a retry makes sense, or infinity, and the last error or None."""
        retry_s, last = math.inf, None
        for address, key in self._addresses:
            try:
                access = await self._sources.entry(address, key, "node")
                answer = await send_job(
                    address, self._job, self._file, self._name, self._to, self._tls, self._timeout_s, access
                )
            except (Lost, PeerError) as error:
                why: WakugumiError = error
            else:
                if isinstance(answer, Ok):
                    if since := _kept_since(self._to):
                        say(f"{address} has had this answer since {since}: the job did not run again")
                    return 0.0, None
                if isinstance(answer, Busy):
                    retry_s = min(retry_s, answer.retry_s)
                why = _refused(address, answer)
            last = why
            if address is not self._addresses[-1][0]:
                say(f"{why}; trying the next one")
        return retry_s, last


def _kept_since(path: Path) -> str:
    """The time in the comment of a ZIP; empty if the job ran for this request."""
    with open(path, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _COMMENT_READ_BYTES))
        _, end, rest = file.read().rpartition(_ZIP_END)
    said = rest[_ZIP_END_BYTES - len(_ZIP_END) :].decode("ascii", "replace") if end else ""
    return said.removeprefix(f"{KEPT}: ") if said.startswith(f"{KEPT}: ") else ""


def _refused(address: Address, answer: Busy | Err) -> Refused:
    if isinstance(answer, Busy):
        return Refused("busy", f"{address} is busy, and accepts a retry in {answer.retry_s} s")
    if answer.exit_code is not None:
        return Refused("exit", f"the program failed at {address} with exit code {answer.exit_code}", "")
    code, colon, text = answer.message.partition(": ")
    return Refused(code if colon else "worker-error", f"{address} answered: {text or answer.message}")


def _context(ca: str | None, cert: str | None, key: str | None) -> TlsContext:
    from wakugumi.adapters.net.tls import client_context

    return client_context(*(Path(file) if file else None for file in (ca, cert, key)))
