"""May a web page have made a browser send this request? (SPEC O1)

Two attacks are blocked. A page of another site uses the reader's browser (CSRF): `Origin` or `Sec-Fetch-Site` show
that. A page's name is redirected to this server after the page is loaded (DNS rebinding): `Host` is the page's name
then. An IP address cannot be redirected, a name can, so the server answers only to its own names.

A program may use any name if it sends `Sec-Waku: 1`. No script can: browsers do not let a page set a header that begins
with `Sec-`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from wakugumi.errors import ConfigError

NO_BROWSER: Final = {"Sec-Waku": "1"}
"""Header that our own programs send."""
NAME_OPTION: Final = "--name"
"""Option that gives most servers a name. A worker's `--name` is another thing."""
_CHARS_SHOWN: Final = 100
_HOST: Final = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\[\]:@/?#\s]+))(?::[0-9]{0,5})?")
_NAME: Final = re.compile(r"[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?")
_OWN_PAGES: Final = frozenset({"", "same-origin", "none"})


class Foreign(Exception):
    """A web page may have sent this request: why, and a hint."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def server_names(names: Iterable[str]) -> frozenset[str]:
    """Names of a server. Raises ConfigError for an invalid name of a machine."""
    known = {name.strip().lower().removesuffix(".") for name in names}
    for name in known:
        if not _NAME.fullmatch(name):
            raise ConfigError(f"--name {name[:_CHARS_SHOWN]!r} is no name of a machine", "write it as in URLs, no port")
    return frozenset(known)


@lru_cache(256)  # A client sends the same headers in each request.
def check_page(
    host: str,
    origin: str | None,
    site: str,
    *,
    looks: bool,
    program: bool,
    names: frozenset[str],
    option: str = NAME_OPTION,
) -> None:
    """Raises Foreign. `host`, `origin` and `site` are the headers Host, Origin and Sec-Fetch-Site; `looks`: a reader
    followed a link, so no page sees the answer; `program`: no browser sent it. `option` gives the server a name; empty
    if there is no such option."""
    found = _HOST.fullmatch(host.lower())
    if found is None:
        raise Foreign(f"the Host {host[:_CHARS_SHOWN]!r} is no name of a machine", "ask for its IP address")
    if not (program or _is_address(found[1] or found[2]) or found[2].removesuffix(".") in {"localhost", *names}):
        name = (found[2])[:_CHARS_SHOWN]
        raise Foreign(
            f"the Host {host[:_CHARS_SHOWN]!r} is none of this server's names",
            f"start the server with {option} {name}, or ask for its IP address" if option else "ask for its IP address",
        )
    if origin is not None and origin.lower().partition("://")[2] != host.lower():
        raise Foreign(
            f"a page of {origin[:_CHARS_SHOWN]!r} may not ask here", "ask by a program, or from a page of here"
        )
    if site.lower() not in _OWN_PAGES and not looks:
        raise Foreign(
            f"a page of another site ({site[:20]!r}) may not ask here", "ask by a program, or open the address"
        )


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
