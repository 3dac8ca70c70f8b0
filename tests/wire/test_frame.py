"""Frames: the exact bytes of F1 and F2, the bounds of F3, and that no split of a stream matters."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakugumi.errors import PeerError
from wakugumi.limits.wire import FIRST_FRAME_BYTES_MAX, FRAME_BYTES_MAX
from wakugumi.wire import frame as fr
from wakugumi.wire.frame import Decoder, Frame, encode

AFTER_LENGTH = 39
"""What `len` counts besides subject and payload."""

ids = st.binary(min_size=16, max_size=16)
frames = st.builds(
    Frame,
    type=st.integers(0, 255),
    msg_id=ids,
    corr_id=ids,
    subject=st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    payload=st.binary(max_size=60),
)


def bytes_of(frame: Frame) -> bytes:
    return encode(frame.type, frame.msg_id, frame.corr_id, frame.subject, frame.payload)


def pieces(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    """The same bytes, cut at these places (each modulo the length)."""
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(places)]


def read(decoder: Decoder, parts: Iterable[bytes]) -> tuple[list[Frame], str]:
    """All frames that come out, and why it ended: empty if it did not."""
    found: list[Frame] = []
    try:
        for part in parts:
            for frame in decoder.feed(part):
                found.append(frame)  # noqa: PERF402 - what came before an error must stay
    except PeerError as error:
        return found, str(error)
    return found, ""


def raw(length: int, subject_size: int, subject: bytes, payload_size: int, payload: bytes) -> bytes:
    """A frame whose numbers need not be true."""
    head = struct.pack("<IB16s16sH", length, 1, bytes(16), bytes(16), subject_size)
    return head + subject + struct.pack("<I", payload_size) + payload


@pytest.mark.spec("F1", "F2")
def test_a_frame_is_these_bytes() -> None:
    job = UUID("00112233-4455-6677-8899-aabbccddeeff")
    corr = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
    expected = bytes.fromhex(
        "2f000000"  # len: 47 bytes after itself
        "05"  # type
        "33221100 5544 7766 8899aabbccddeeff"  # msgId, the first three groups turned round
        "04030201 0605 0807 090a0b0c0d0e0f10"  # corrId
        "0500 612e c3a9 62"  # subjectLen 5, "a.éb"
        "03000000 00ff7b"  # payloadLen 3
    )
    assert encode(fr.RESULT, job.bytes_le, corr.bytes_le, "a.éb", b"\x00\xff{") == expected
    assert list(Decoder().feed(expected)) == [Frame(fr.RESULT, job.bytes_le, corr.bytes_le, "a.éb", b"\x00\xff{")]


@pytest.mark.spec("F1")
def test_an_empty_frame_has_43_bytes() -> None:
    data = encode(fr.HEARTBEAT)
    assert data == struct.pack("<IB", AFTER_LENGTH, 20) + bytes(38)
    assert list(Decoder().feed(data)) == [Frame(fr.HEARTBEAT)]


@pytest.mark.spec("F4")
def test_the_types_have_the_numbers_of_the_contract() -> None:
    old = (
        "SubmitJob 1, AssignJob 2, AckJob 3, Credit 4, Result 5, CachePut 6, CacheAck 7, HelloClient 9, HelloWorker 10"
    )
    assert [f"{name} {kind}" for kind, name in fr.NAMES.items() if kind < 16] == old.split(", ")
    assert sorted(kind for kind in fr.NAMES if kind > 10) == list(range(16, 36))


@given(frame=frames)
def test_what_is_encoded_is_decoded(frame: Frame) -> None:
    assert list(Decoder().feed(bytes_of(frame))) == [frame]


@given(sent=st.lists(frames, max_size=6), cuts=st.lists(st.integers(0, 1000)))
def test_any_split_of_the_stream_gives_the_same_frames(sent: list[Frame], cuts: list[int]) -> None:
    data = b"".join(map(bytes_of, sent))
    decoder = Decoder()
    assert read(decoder, pieces(data, cuts)) == (sent, "")
    assert decoder.held_bytes == 0


@given(sent=st.lists(frames, min_size=1, max_size=3))
def test_byte_by_byte_gives_the_same_frames(sent: list[Frame]) -> None:
    data = b"".join(map(bytes_of, sent))
    assert read(Decoder(), (data[at : at + 1] for at in range(len(data)))) == (sent, "")


@given(data=st.binary(max_size=300), cuts=st.lists(st.integers(0, 300)))
def test_random_bytes_raise_nothing_but_a_peer_error(data: bytes, cuts: list[int]) -> None:
    whole, why = read(Decoder(), [data])
    assert read(Decoder(), pieces(data, cuts)) == (whole, why)


@given(
    sent=st.lists(frames, min_size=1, max_size=3),
    at=st.integers(0, 1000),
    value=st.integers(0, 255),
    cuts=st.lists(st.integers(0, 1000)),
)
def test_one_changed_byte_raises_nothing_but_a_peer_error(
    sent: list[Frame], at: int, value: int, cuts: list[int]
) -> None:
    data = bytearray(b"".join(map(bytes_of, sent)))
    data[at % len(data)] = value
    whole = read(Decoder(), [bytes(data)])
    assert read(Decoder(), pieces(bytes(data), cuts)) == whole


BROKEN = {
    "too large": raw(FRAME_BYTES_MAX + 1, 0, b"", 0, b""),
    "too small": raw(AFTER_LENGTH - 1, 0, b"", 0, b""),
    "subject beyond the end": raw(AFTER_LENGTH + 2, 3, b"ab", 0, b""),
    "payload beyond the end": raw(AFTER_LENGTH + 2, 0, b"", 3, b"ab"),
    "payload before the end": raw(AFTER_LENGTH + 2, 0, b"", 1, b"ab"),
    "not UTF-8": raw(AFTER_LENGTH + 2, 2, b"\xc3\x28", 0, b""),
}


@pytest.mark.spec("F3")
@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
@given(sent=st.lists(frames, max_size=4), cuts=st.lists(st.integers(0, 1000)), rest=st.binary(max_size=50))
def test_frames_before_a_broken_one_are_delivered_whatever_the_split(
    broken: bytes, sent: list[Frame], cuts: list[int], rest: bytes
) -> None:
    data = b"".join(map(bytes_of, sent)) + broken + rest
    found, why = read(Decoder(FRAME_BYTES_MAX), pieces(data, cuts))
    assert found == sent
    assert why


@pytest.mark.spec("F3")
@pytest.mark.parametrize(
    ("data", "why"),
    [
        (BROKEN["too large"], "a frame of 4194305 bytes is too large: at most 4194304"),
        (BROKEN["too small"], "inconsistent frame: len says 38 bytes, the least is 39"),
        (BROKEN["subject beyond the end"], "inconsistent frame: a subject of 3 bytes does not fit"),
        (BROKEN["payload beyond the end"], "inconsistent frame: len says 41 bytes, its parts add up to something else"),
        (BROKEN["payload before the end"], "inconsistent frame: len says 41 bytes, its parts add up to something else"),
        (BROKEN["not UTF-8"], "the subject is not UTF-8"),
        (bytes(4), "inconsistent frame: len says 0 bytes"),
        (b"\xff\xff\xff\xff", "too large"),
        (b"GET / HTTP/1.1\r\n", "begins with b'GET ', which looks like another protocol"),
        (b"POST /submit/1 HTTP/1.1\r\n", "begins with b'POST', which looks like another protocol"),
        (b"JOB 1 a.txt 3\nabc", "begins with b'JOB ', which looks like another protocol"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, why: str) -> None:
    with pytest.raises(PeerError, match=re.escape(why)):
        list(Decoder(FRAME_BYTES_MAX).feed(data))


def test_a_first_frame_that_is_a_tls_greeting_is_called_so() -> None:
    with pytest.raises(PeerError, match="it begins like TLS, which this port does not speak"):
        list(Decoder().feed(bytes.fromhex("16030100c8010000c40303")))


@pytest.mark.spec("F3")
def test_the_largest_frame_passes_and_one_byte_more_does_not() -> None:
    payload = bytes(FRAME_BYTES_MAX - AFTER_LENGTH)
    data = encode(fr.SUBMIT_JOB, payload=payload)
    assert struct.unpack_from("<I", data) == (FRAME_BYTES_MAX,)
    decoder = Decoder()
    decoder.trust()
    found, why = read(decoder, [data[at : at + 65_536] for at in range(0, len(data), 65_536)])
    assert (len(found), why) == (1, "")
    assert found[0].payload == payload
    with pytest.raises(ValueError, match="does not fit a frame"):
        encode(fr.SUBMIT_JOB, payload=payload + b"\0")


@pytest.mark.parametrize("subject", ["", "a", "job.assign.計算", "x" * 0xFFFF])
def test_payload_max_is_exactly_what_fits(subject: str) -> None:
    most = fr.payload_max(subject)
    assert len(encode(1, subject=subject, payload=bytes(most))) == 4 + FRAME_BYTES_MAX
    with pytest.raises(ValueError, match="fit a frame"):
        encode(1, subject=subject, payload=bytes(most + 1))


def test_a_subject_has_at_most_65535_bytes() -> None:
    with pytest.raises(ValueError, match="a subject of 65536"):
        encode(1, subject="x" * 0x10000)


@pytest.mark.spec("F3")
def test_the_first_frame_is_held_to_64_kib_and_later_ones_are_not() -> None:
    small = encode(fr.HELLO_CLIENT, subject="a", payload=bytes(FIRST_FRAME_BYTES_MAX - AFTER_LENGTH - 1))
    large = encode(fr.SUBMIT_JOB, payload=bytes(FIRST_FRAME_BYTES_MAX - AFTER_LENGTH + 1))
    assert read(Decoder(), [large]) == ([], "a frame of 65537 bytes is too large: at most 65536")
    decoder = Decoder()
    types = []
    for frame in decoder.feed(small + large):  # The larger one lies behind a hello in the same read.
        types.append(frame.type)
        decoder.trust()
    assert types == [fr.HELLO_CLIENT, fr.SUBMIT_JOB]


@pytest.mark.spec("F3")
def test_a_length_that_cannot_be_is_refused_before_the_frame_has_come() -> None:
    assert read(Decoder(), [b"\x01\x00", b"\x01\x00"]) == ([], "a frame of 65537 bytes is too large: at most 65536")


@given(frame=frames, keep=st.integers(0, 10_000))
def test_a_truncated_frame_yields_nothing_and_is_counted(frame: Frame, keep: int) -> None:
    data = bytes_of(frame)
    part = data[: keep % len(data)]
    decoder = Decoder()
    assert list(decoder.feed(part)) == []
    assert decoder.held_bytes == len(part)
    assert list(decoder.feed(data[len(part) :])) == [frame]
    assert decoder.held_bytes == 0


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_broken_decoder_stays_broken_and_holds_nothing(broken: bytes) -> None:
    decoder = Decoder(FRAME_BYTES_MAX)
    _, why = read(decoder, [broken + encode(fr.CREDIT)])
    assert decoder.held_bytes == 0
    assert read(decoder, [encode(fr.CREDIT)]) == ([], why)
    assert decoder.held_bytes == 0
