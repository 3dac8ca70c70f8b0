"""Which routes serve the blobs of a store?"""

from __future__ import annotations

from pathlib import Path

import pytest

from wakugumi.adapters.blobs.routes import blob_routes
from wakugumi.adapters.blobs.store import BlobStore


@pytest.mark.parametrize("writable", [False, True])
def test_only_a_writable_store_takes_uploads(tmp_path: Path, writable: bool) -> None:
    routes = blob_routes(BlobStore(tmp_path), writable=writable)()
    assert {route.path for route in routes} == {"/blobs/"}
    methods = {route.method for route in routes}
    assert "GET" in methods
    assert ("PUT" in methods) is writable
