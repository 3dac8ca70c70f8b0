"""When is content packed on its way, and is nothing believed that comes packed?"""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakugumi.adapters.blobs.zstd_stream import ZstdPacker, ZstdUnpacker, shrinks
from wakugumi.errors import Refused
from wakugumi.limits.units import KIB, MIB


def packed(*pieces: bytes) -> bytes:
    packer = ZstdPacker()
    return b"".join(packer.pack(piece) for piece in pieces) + packer.end()


def test_only_content_that_gets_smaller_is_packed() -> None:
    assert shrinks(bytes(64 * KIB))
    assert not shrinks(os.urandom(64 * KIB))
    assert not shrinks(b"")


@given(st.lists(st.binary(max_size=2_000), max_size=5), st.integers(1, 300))
def test_content_comes_out_as_it_went_in_however_it_is_cut(pieces: list[bytes], cut: int) -> None:
    data, out = packed(*pieces), list[bytes]()
    unpacker = ZstdUnpacker(out.append)
    for at in range(0, len(data), cut):
        unpacker.write(data[at : at + cut])
    assert b"".join(out) == b"".join(pieces)


def test_a_bomb_comes_out_in_small_pieces_and_ends_with_a_refusal_of_the_taker() -> None:
    sizes: list[int] = []

    def take(piece: bytes) -> None:
        sizes.append(len(piece))
        if sum(sizes) > 3 * MIB:
            raise Refused("too-big", "enough")

    with pytest.raises(Refused, match="enough"):
        ZstdUnpacker(take).write(packed(bytes(64 * MIB)))
    assert max(sizes) <= MIB
    assert sum(sizes) <= 4 * MIB


@pytest.mark.parametrize("tail", [b"x", packed(b"second")])
def test_bytes_behind_the_end_are_refused(tail: bytes) -> None:
    with pytest.raises(Refused, match="follows the end"):
        ZstdUnpacker(lambda _: None).write(packed(b"first") + tail)
    unpacker = ZstdUnpacker(lambda _: None)
    unpacker.write(packed(b"first"))
    with pytest.raises(Refused, match="follows the end"):
        unpacker.write(tail)


def test_bytes_that_are_no_zstd_are_refused() -> None:
    with pytest.raises(Refused) as refused:
        ZstdUnpacker(lambda _: None).write(b"this is no zstd at all")
    assert refused.value.code == "blob-broken"
