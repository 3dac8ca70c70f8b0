"""Payloads in fewer bytes: what is packed, what is not, and what a stranger may not do with it."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys

import pytest
from backports import zstd

from wakugumi.adapters.net.compression import ask_for_packing, is_packed, pack, pack_frames, unpack, unpack_frame
from wakugumi.errors import Refused
from wakugumi.limits.wire import PACK_FROM_BYTES, PAYLOAD_BYTES_MAX
from wakugumi.wire import frame as fr
from wakugumi.wire.frame import Decoder, Frame

RANDOM = os.urandom(1_000_000)
TEXT = b'{"Args":[' + b'"the same again",' * 1_000 + b'"end"]}'


@pytest.mark.spec("F10")
def test_what_gets_smaller_is_packed_and_comes_back_as_it_was() -> None:
    packed = pack(TEXT)
    assert is_packed(packed)
    assert len(packed) < len(TEXT) / 10
    assert unpack(packed) == TEXT
    assert pack(TEXT) == packed, "the same bytes each time: a repeated submit is the same request"


@pytest.mark.spec("F10")
@pytest.mark.parametrize(
    "payload", [b"", b"{}", TEXT[: PACK_FROM_BYTES - 1], os.urandom(10_000), os.urandom(1_000_000)]
)
def test_what_is_small_or_does_not_get_smaller_stays_as_it_is(payload: bytes) -> None:
    assert pack(payload) is payload
    assert unpack(payload) is payload


def test_what_is_packed_is_not_packed_again() -> None:
    packed = pack(base64.b64encode(os.urandom(100_000)))
    assert is_packed(packed)
    assert pack(packed) is packed


@pytest.mark.spec("F10")
@pytest.mark.parametrize("streamed", [False, True])
def test_a_bomb_is_refused_before_it_takes_memory(streamed: bool) -> None:
    size = 200 * 1024 * 1024
    bomb = zstd.compress(bytes(size)) if not streamed else _without_size(size)
    assert len(bomb) < 100_000
    code = (
        "import resource, sys; from wakugumi.adapters.net.compression import unpack\n"
        "from wakugumi.errors import Refused\n"
        "resource.setrlimit(resource.RLIMIT_AS, (250 << 20, 250 << 20))\n"
        "try: unpack(sys.stdin.buffer.read())\n"
        "except Refused as no: print(no.code)"
    )
    done = subprocess.run([sys.executable, "-c", code], input=bomb, capture_output=True, check=False)
    assert done.stdout.strip() == b"too-big", done.stderr


def _without_size(size: int) -> bytes:
    compressor = zstd.ZstdCompressor()
    parts = [compressor.compress(bytes(1 << 20)) for _ in range(size >> 20)]
    whole = b"".join(parts) + compressor.flush()
    assert zstd.get_frame_info(whole).decompressed_size is None
    return whole


@pytest.mark.parametrize(
    "payload",
    [
        pack(TEXT)[:-1],
        pack(TEXT)[:4],
        pack(TEXT) + b"x",
        pack(TEXT) + pack(TEXT),
        pack(TEXT)[:40] + bytes(20) + pack(TEXT)[60:],
        zstd.compress(TEXT, options={zstd.CompressionParameter.window_log: 27})[:8] + b"x" * 20,
        b"\x28\xb5\x2f\xfd" + os.urandom(100),
    ],
)
def test_what_is_not_one_whole_frame_of_zstd_is_refused(payload: bytes) -> None:
    with pytest.raises(Refused):
        unpack(payload)


def test_more_than_fits_a_frame_is_refused_to_the_byte() -> None:
    exact = b" " * PAYLOAD_BYTES_MAX
    assert unpack(zstd.compress(exact)) == exact
    with pytest.raises(Refused, match="more than fits"):
        unpack(zstd.compress(exact + b" "))


def test_only_jobs_and_results_among_the_frames_are_packed() -> None:
    frames = [
        fr.encode(fr.SUBMIT_JOB, b"1" * 16, subject="job.submit.calc", payload=TEXT),
        fr.encode(fr.CLAIM, payload=bytes(16_000)),
        fr.encode(fr.HEARTBEAT),
        fr.encode(fr.ACK_JOB, corr_id=b"2" * 16, payload=TEXT),
    ]
    decoder = Decoder()
    decoder.trust()
    found = list(decoder.feed(pack_frames(b"".join(frames))))
    assert [is_packed(frame.payload) for frame in found] == [True, False, False, True]
    assert b"".join(map(_encoded, map(unpack_frame, found))) == b"".join(frames)


def _encoded(frame: Frame) -> bytes:
    return fr.encode(frame.type, frame.msg_id, frame.corr_id, frame.subject, frame.payload)


def test_a_frame_that_cannot_be_unpacked_is_left_as_it_is() -> None:
    frame = Frame(fr.RESULT, payload=pack(TEXT)[:-1])
    assert unpack_frame(frame) is frame


def test_a_hello_asks_for_packing_beside_what_it_asked_for() -> None:
    hello = fr.encode(fr.HELLO_WORKER, b"1" * 16, subject=">", payload=b'{"Name":"w","Wants":["receipts"]}')
    frame = next(iter(Decoder().feed(ask_for_packing(hello))))
    assert (frame.type, frame.msg_id, frame.subject) == (fr.HELLO_WORKER, b"1" * 16, ">")
    assert json.loads(frame.payload) == {"Name": "w", "Wants": ["receipts", "zstd"]}


def test_nobody_pays_for_packing_who_packs_nothing() -> None:
    code = "import sys, wakugumi.roles.runner.worker, wakugumi.roles.leader.leader\n"
    code += "print([m for m in sys.modules if 'zstd' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
