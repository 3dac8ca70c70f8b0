"""How do a role's pages become routes? At the first byte of HTTP: `http/server` is imported then."""

from __future__ import annotations

from collections.abc import Sequence

from wakugumi.adapters.http.page import Pages
from wakugumi.adapters.http.routes import Route, Routes


def page_routes(pages: Pages) -> Routes:
    """A role's pages as routes."""

    def load() -> Sequence[Route]:
        from wakugumi.adapters.http.server import page_route

        return [page_route(at) for at in pages()]

    return load
