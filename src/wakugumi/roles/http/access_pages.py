"""How does another machine join over HTTP, and a browser? A machine fetches the authority, and a certificate for its
key; a browser opens a link, and gets a cookie."""

from __future__ import annotations

from typing import Final

from wakugumi.adapters.http.page import HttpRefusal, HttpRequest, Page, PageRoute, Reply
from wakugumi.errors import Refused
from wakugumi.limits.access import BROWSER_COOKIE_S, CSR_BYTES_MAX
from wakugumi.roles.access.guard import AccessGuard
from wakugumi.roles.access.keys import GridKeys
from wakugumi.roles.http.page_table import page_routes

_PEM: Final = "application/x-pem-file"
_FIRST_PAGE: Final = "/openapi.json"
_UNSEEN: Final = {"Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
"""The word of a link stays in no cache, and no later page hears of it."""


def access_pages(role: str, guard: AccessGuard) -> list[PageRoute]:
    handlers = {
        "get_access_ca": _authority(guard),
        "post_access_certificate": _certificate(guard),
        "get_in": _browser(guard),
    }
    return page_routes(role, handlers)


def _authority(guard: AccessGuard) -> Page:
    async def page(_visit: HttpRequest) -> Reply:
        return Reply(200, _keys(guard)[1], _PEM)

    return page


def _certificate(guard: AccessGuard) -> Page:
    async def page(visit: HttpRequest) -> Reply:
        keys, authority = _keys(guard)
        request = b""
        async for piece in visit.pieces():
            request += piece
            if len(request) > CSR_BYTES_MAX:
                raise Refused("too-big", f"a request for a certificate has at most {CSR_BYTES_MAX} bytes")
        return Reply(200, await keys.certify(visit.identity, request) + authority, _PEM)

    return page


def _browser(guard: AccessGuard) -> Page:
    async def page(visit: HttpRequest) -> Reply:
        try:
            # A preview of a link (HEAD) does not use it up.
            word = visit.rest if visit.method == "GET" else ""
            cookie = guard.open_link(word, is_tls=visit.is_tls)
        except Refused as no:
            raise HttpRefusal(403, no.code, no.message, dict(_UNSEEN), no.hint) from None
        marks = f"HttpOnly; SameSite=Strict; Path=/; Max-Age={BROWSER_COOKIE_S:.0f}{'; Secure' if visit.is_tls else ''}"
        headers = {"Set-Cookie": f"waku={cookie}; {marks}", "Location": _FIRST_PAGE, **_UNSEEN}
        return Reply(303, b"", "text/plain", headers)

    return page


def _keys(guard: AccessGuard) -> tuple[GridKeys, bytes]:
    """The keys and the authority's certificate. Raises Refused if there are none."""
    keys = guard.keys
    if not isinstance(keys, GridKeys) or keys.ca_pem is None:
        raise Refused("no-authority", "this server has no authority of its own")
    return keys, keys.ca_pem
