"""Which routes serve the blobs of a store? `/blobs/{sha256}`; `http_pages` is imported with the first request."""

from __future__ import annotations

from collections.abc import Sequence

from wakugumi.adapters.blobs.store import BlobStore
from wakugumi.adapters.blobs.tokens import EVERYONE, BlobReaders
from wakugumi.adapters.http.page import PageRoute, Pages
from wakugumi.limits.files import BLOB_BYTES_MAX, SERVING_MAX, UPLOADS_MAX


def blob_routes(
    store: BlobStore,
    *,
    writable: bool,
    key: str | None = None,
    readers: BlobReaders = EVERYONE,
    serving_max: int = SERVING_MAX,
    uploads_max: int = UPLOADS_MAX,
    blob_bytes_max: int = BLOB_BYTES_MAX,
) -> Pages:
    """`/blobs/{sha256}`: GET and HEAD, and PUT if `writable`. With a `key` each request needs a token, and no other
    proof. Content that `readers` keeps from the sender of a request is as if it were not there.

    `serving_max` and `uploads_max` limit transfers at once; further requests wait for a while, or get a 503.
    """

    def load() -> Sequence[PageRoute]:
        from wakugumi.adapters.blobs.http_pages import BlobPages

        pages = BlobPages(
            store, key, readers, serving_max=serving_max, uploads_max=uploads_max, bytes_max=blob_bytes_max
        )
        return pages.routes(writable=writable)

    return load
