"""May a web page have made a browser send this request? (SPEC O1)

Two ways are closed. A page of elsewhere asks with the reader's own browser (CSRF): then `Origin` or `Sec-Fetch-Site`
say so. A page's name is pointed at this server once the page is loaded (DNS rebinding): then `Host` is the page's name.
An IP address cannot be pointed elsewhere; a name can, so only this server's own names are answered.

A program is no browser, whatever name it used: it says `Sec-Waku: 1`. No script can: browsers let no page set a header
that begins with `Sec-`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from wakugumi.errors import ConfigError

NO_BROWSER: Final = {"Sec-Waku": "1"}
"""What our own callers say of themselves."""
NAME_OPTION: Final = "--name"
"""What gives most servers a name. A worker's `--name` is another thing."""
_CHARS_SHOWN: Final = 100
_HOST: Final = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\[\]:@/?#\s]+))(?::[0-9]{0,5})?")
_NAME: Final = re.compile(r"[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?")
_OWN_PAGES: Final = frozenset({"", "same-origin", "none"})


class Foreign(Exception):
    """A web page may have sent this request: why, and what to do about it."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def server_names(names: Iterable[str]) -> frozenset[str]:
    """Names for a server. Raises ConfigError if one can be no name of a machine."""
    known = {name.strip().lower().removesuffix(".") for name in names}
    for name in known:
        if not _NAME.fullmatch(name):
            raise ConfigError(f"--name {name[:_CHARS_SHOWN]!r} is no name of a machine", "write it as in URLs, no port")
    return frozenset(known)


@lru_cache(256)  # A client says the same in each request.
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
    followed a link, so no page sees the answer; `program`: no browser sent it. `option`: what gives the server a name;
    empty if nothing does."""
    said = _HOST.fullmatch(host.lower())
    if said is None:
        raise Foreign(f"the Host {host[:_CHARS_SHOWN]!r} is no name of a machine", "ask for its IP address")
    if not (program or _is_address(said[1] or said[2]) or said[2].removesuffix(".") in {"localhost", *names}):
        name = (said[2])[:_CHARS_SHOWN]
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
