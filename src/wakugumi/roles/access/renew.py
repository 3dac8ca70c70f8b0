"""How does the certificate of a joined machine stay valid? (SPEC O1) Its running worker or gateway renews it in time.

The next certificate is requested as by `waku join`, with the key of the entry. Only a file that `waku join` wrote is
replaced: certificate and private key are in one file, which is old or new, never half. Ports with the certificate use
the new one for new connections (`RenewedContext` in `adapters/net/tls.py`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from wakugumi.adapters.access.dialled import AccessSources
from wakugumi.adapters.loop.threads import beside
from wakugumi.adapters.net.address import Address
from wakugumi.core.access.renewal import is_due
from wakugumi.errors import ConfigError, Lost, Refused
from wakugumi.limits.access import CERTIFICATE_LOOK_S

if TYPE_CHECKING:
    from wakugumi.adapters.access.certificates import CertifiedKey
    from wakugumi.adapters.access.entry import AccessEntry

log = logging.getLogger("wakugumi.certificates")

_THREAD: Final = "wakugumi access"


async def renew_often(sources: AccessSources, addresses: Sequence[Address]) -> None:
    """Renew the certificates of these dialled addresses whenever they are due. A failure is logged and retried."""
    while True:
        for address in addresses:
            try:
                if await renew_if_due(sources, address, time.time()):
                    log.info("certificate renewed server=%s", address)
            except (ConfigError, Lost, Refused) as error:
                log.warning("certificate not renewed server=%s again_s=%g: %s", address, CERTIFICATE_LOOK_S, error)
        await asyncio.sleep(CERTIFICATE_LOOK_S)


async def renew_if_due(sources: AccessSources, address: Address, now: float) -> bool:
    """True if the certificate of the address was replaced. `now` is the wall clock. Raises ConfigError, Lost or
    Refused."""
    entry = await beside(lambda: _due(sources, address, now), _THREAD)
    if entry is None:
        return False
    from wakugumi.roles.access.join import certify

    made = await certify(entry, address)
    return await beside(lambda: _replaced(sources, address, entry, made), _THREAD)


def _due(sources: AccessSources, address: Address, now: float) -> AccessEntry | None:
    """The entry of the address, if its certificate must be renewed. Raises ConfigError."""
    entry = sources.in_file(address)
    if entry is None or entry.key is None or entry.certificate is None or entry.certificate_key is not None:
        return None
    from wakugumi.adapters.access.certificates import life_of
    from wakugumi.adapters.access.private_files import read_private

    pem = read_private(entry.certificate)
    return entry if pem is None or is_due(*life_of(pem), now) else None


def _replaced(sources: AccessSources, address: Address, entry: AccessEntry, made: CertifiedKey) -> bool:
    """False for an entry that was changed or removed in the meantime. Raises ConfigError."""
    from wakugumi.adapters.access.private_files import locked
    from wakugumi.roles.access.join import write_certificate

    assert entry.certificate is not None
    with locked(entry.certificate.parent):
        if sources.in_file(address) != entry:
            return False
        write_certificate(entry.certificate, made)
    return True
