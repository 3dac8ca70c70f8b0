"""Is content hashed right, piece by piece, and does its thread end with it?"""

from __future__ import annotations

import hashlib
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wakugumi.adapters.digest import Digest
from wakugumi.limits.units import MIB

LARGE = bytes(8 * MIB)


def hashing() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "waku-hash"]


@pytest.mark.parametrize("before", [b"", LARGE], ids=["small", "large"])
@given(st.lists(st.binary(max_size=5000) | st.binary(max_size=5000).map(bytearray)))
@settings(max_examples=30)
def test_the_hash_is_that_of_all_pieces_in_order(before: bytes, pieces: list[bytes | bytearray]) -> None:
    digest, whole = Digest(), before + b"".join(pieces)
    digest.update(before)
    for piece in pieces:
        digest.update(piece)
        if isinstance(piece, bytearray):
            piece[:] = bytes(len(piece))  # Its owner uses it again.
    assert digest.hexdigest() == hashlib.sha256(whole).hexdigest()
    digest.update(b"more")
    assert digest.hexdigest() == hashlib.sha256(whole + b"more").hexdigest()


def test_the_thread_of_a_large_content_ends_with_it() -> None:
    before = set(hashing())
    digest = Digest()
    digest.update(LARGE)
    assert set(hashing()) <= before
    digest.update(b"x")
    (mine,) = set(hashing()) - before
    del digest
    mine.join(60)
    assert not mine.is_alive()


def test_without_a_free_thread_content_is_hashed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    digest = Digest()
    for piece in (LARGE, b"x", b"x"):
        digest.update(piece)
    assert digest.hexdigest() == hashlib.sha256(LARGE + b"xx").hexdigest()
