"""Is the authority behind an address the one that a key's digest names? (SPEC O1) Asked before the key is shown.

The certificate is fetched over TLS without belief, and no secret is sent. Only the verified bytes are returned, so that
a second certificate behind the first is not believed.
"""

from __future__ import annotations

import asyncio
import hmac
import ssl
from typing import Final

from wakugumi.adapters.access.ask_page import ask_page
from wakugumi.adapters.access.certificates import authority_pem, ca_digest
from wakugumi.adapters.net.address import Address
from wakugumi.adapters.net.connect import why_not
from wakugumi.adapters.net.tls import unbelieving_context
from wakugumi.errors import ConfigError, Lost

CA_PATH: Final = "/access/ca"
"""Page with the authority's certificate, on every port."""
_HINT: Final = "check the address, and ask the operator for a new line; the key was not sent"


async def fetch_ca(address: Address, digest: str, deadline_s: float) -> str:
    """The certificate (PEM) of the grid's authority. Raises Lost if the address does not answer in time,
    ConfigError if another authority answers, or none."""
    try:
        async with asyncio.timeout(deadline_s):
            status, body = await ask_page(address, f"GET {CA_PATH}", unbelieving_context(), address.host)
    except TimeoutError:
        raise Lost(f"{address} did not send its certificate within {deadline_s:g} s") from None
    except ssl.SSLError as error:
        raise Lost(f"{address} does not speak TLS as a leader does: {error.reason or error}") from None
    except (OSError, ValueError) as error:
        raise Lost(f"cannot connect to {address}: {why_not(error)}") from None
    if status != 200:
        raise ConfigError(f"{address} has no certificate of a grid: it answered {status}", "is it a leader's address?")
    try:
        pem = authority_pem(body)
        is_right = hmac.compare_digest(ca_digest(pem), digest)
    except ConfigError:
        is_right, pem = False, b""
    if not is_right:
        raise ConfigError(
            f"another machine answers at {address}: its authority is not the one of the line", _HINT
        ) from None
    return pem.decode()
