"""How is content fetched from one source and verified, and which side is to blame for a failure? (SPEC C4)

Runs in a thread.
"""

from __future__ import annotations

from typing import Final

from wakugumi.adapters.blobs.open_place import open_place
from wakugumi.adapters.blobs.place import OnBytes
from wakugumi.adapters.blobs.store import BlobStore, Incoming
from wakugumi.core.transfers.fetch_events import InVain
from wakugumi.errors import ConfigError, Lost, Refused
from wakugumi.wire.messages.references import BlobRef

_OURS: Final = frozenset({"disk", "worker-error"})
"""Codes of this worker's own disk errors: no other source would help."""


def transfer(store: BlobStore, ref: BlobRef, url: str, token: str, on_bytes: OnBytes, leader: str = "") -> None:
    """Fetch content from one place and verify it; `leader` is the leader's own place. Raises InVain, or Refused if this
    worker's disk failed.

    If earlier bytes came from another source, wrong content is not this source's fault: all of it is fetched again.
    """
    while True:
        incoming = _begin(store, ref)
        mixed = incoming.at > 0
        try:
            open_place(url, token, leader).fetch(ref, incoming, on_bytes)
        except Lost as error:
            raise InVain(error.why or "dead", str(error)) from None
        except ConfigError as error:
            raise InVain("dead", str(error)) from None
        except Refused as error:
            if error.code == "disk":
                incoming.close()
                _begin(store, ref).abandon()
            if error.code in _OURS:
                raise
            why = _why_refused(error)
            if why != "lied":
                raise InVain(why, error.message) from None
            incoming.close()
            _begin(store, ref).abandon()
            if not mixed:
                raise InVain(why, error.message) from None
        else:
            return
        finally:
            incoming.close()


def _begin(store: BlobStore, ref: BlobRef) -> Incoming:
    try:
        return store.begin(ref)
    except Refused as error:
        if error.code == "blob-busy":  # An earlier transfer of this content has not ended yet.
            raise InVain("busy", error.message) from None
        raise


def _why_refused(error: Refused) -> str:
    if error.code == "blob-broken":  # Wrong, surplus or unpackable bytes, which a lost connection never leaves.
        return "lied"
    return "busy" if error.retry else "dead"
