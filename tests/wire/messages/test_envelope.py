"""Envelopes: what is read is what was written, and no cut, longer or lying one is read."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.hostile_payloads import JOB, JOB_ID, complaint, payloads

from wakugumi.adapters.net.compression import is_packed
from wakugumi.errors import PeerError, Refused
from wakugumi.limits.wire import PAYLOAD_BYTES_MAX
from wakugumi.wire import frame as fr
from wakugumi.wire.frame import Frame
from wakugumi.wire.messages.envelope import MAGIC, START_BYTES, contents_at, is_envelope, json_of, opened, seal, split
from wakugumi.wire.messages.job import (
    InputFile,
    JobRequest,
    JobResult,
    bytes_as_json,
    head_of,
    job_has_blobs,
    output_tail,
    read_ack,
    read_request,
    read_result,
    read_slots,
    read_submit,
    request_as_json,
    result_has_blobs,
    write_request,
    write_result,
)
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.messages.references import BlobRef, FileHead
from wakugumi.wire.node_request import marked, why_not_simple
from wakugumi.wire.request_digest import payload_digest, submitted_digest
from wakugumi.wire.untrusted_json import Unreadable

SHA256 = "ab" * 32
NAMES = st.text('abc./é\\"', max_size=8)
FILES = st.builds(InputFile, NAMES, st.none() | NAMES, st.binary(max_size=40)) | st.builds(
    InputFile, NAMES, sha256=st.just(SHA256), size=st.integers(0, 9)
)
REQUESTS = st.builds(
    JobRequest,
    st.just(str(JOB)),
    args=st.lists(NAMES, max_size=3),
    files=st.lists(FILES, max_size=3),
    slots=st.integers(1, 3),
    env=st.dictionaries(NAMES, NAMES, max_size=2),
)
RESULTS = st.builds(
    JobResult,
    st.just(str(JOB)),
    status=st.sampled_from(["OK", "FAILED"]),
    stdout=NAMES,
    stderr=NAMES,
    output_archive=st.none() | st.binary(max_size=40),
    archive_blob=st.just(msgspec.UNSET) | st.just(BlobRef(SHA256, 5)),
)
JOB_WITH_FILE = JobRequest(str(JOB), exec_name="calc", args=["in"], files=[InputFile("in", content=b"\0\1\2")])


def submitted(payload: bytes) -> Frame:
    return Frame(fr.SUBMIT_JOB, JOB_ID, fr.NO_ID, "", payload)


@given(REQUESTS)
def test_a_request_is_read_alike_in_both_forms(request: JobRequest) -> None:
    payload, as_json = write_request(request), encode(request)
    assert is_envelope(payload)
    assert not is_envelope(as_json)
    assert not is_packed(payload)
    assert read_request(payload) == request
    assert request_as_json(payload) == request_as_json(as_json) == as_json
    assert payload_digest(payload) == payload_digest(as_json)
    assert submitted_digest(payload) == submitted_digest(as_json)
    assert read_slots(payload) == read_slots(as_json) == request.slots
    assert job_has_blobs(payload) == job_has_blobs(as_json)
    assert marked(None, payload) == marked(None, as_json)
    assert why_not_simple(payload) == why_not_simple(as_json)
    head, plain = read_submit(submitted(payload))[1], read_submit(submitted(as_json))[1]
    assert [file.sha256 for file in head.files or ()] == [file.sha256 for file in plain.files or ()]
    assert msgspec.structs.replace(head, files=None) == msgspec.structs.replace(plain, files=None)
    known = head_of(request)
    assert [file.sha256 for file in known.files or ()] == [file.sha256 for file in request.files if file.sha256]
    assert msgspec.structs.replace(known, files=None) == msgspec.structs.replace(
        plain, files=None, env=plain.env or None
    )


@given(RESULTS)
def test_a_result_is_read_alike_in_both_forms(result: JobResult) -> None:
    payload, as_json = write_result(result), encode(result)
    assert is_envelope(payload)
    assert read_result(JOB_ID, payload) == result
    assert encode(read_result(JOB_ID, payload)) == as_json
    assert read_ack(payload) == read_ack(as_json)
    assert output_tail(payload) == output_tail(as_json)
    assert result_has_blobs(payload) == result_has_blobs(as_json)
    assert len(as_json) <= bytes_as_json(payload)
    assert len(as_json) == bytes_as_json(as_json)


@given(st.binary(max_size=5_000))
def test_the_size_as_json_is_bounded_from_above(content: bytes) -> None:
    request = msgspec.structs.replace(JOB_WITH_FILE, files=[InputFile("in", content=content)])
    assert len(encode(request)) <= bytes_as_json(write_request(request)) < len(encode(request)) + 256


def test_contents_stand_as_they_are_behind_the_head() -> None:
    payload = write_request(JOB_WITH_FILE)
    head, at = opened(payload)
    assert payload == MAGIC + len(head).to_bytes(4, "little") + head + b"\0\1\2"
    assert contents_at(payload[:START_BYTES]) == at
    assert json_of(payload) == head
    assert b'"Size":3' in head
    assert b"Content" not in head
    assert read_submit(submitted(payload))[1].files == (FileHead(),)


def test_a_request_cut_at_any_byte_or_longer_is_not_read() -> None:
    whole = write_request(JOB_WITH_FILE)
    for wrong in [*(whole[:size] for size in range(len(whole))), whole + b"x"]:
        with pytest.raises(Refused):
            read_request(wrong)
        assert payload_digest(wrong) == b""


def test_a_result_cut_at_any_byte_or_longer_is_not_read() -> None:
    whole = write_result(JobResult("x", output_archive=b"PK"))
    for wrong in [*(whole[:size] for size in range(1, len(whole))), whole + b"x", write_result(JobResult("x")) + b"x"]:
        with pytest.raises(PeerError):
            read_result(JOB_ID, wrong)


@pytest.mark.parametrize("size", [PAYLOAD_BYTES_MAX + 1, 2**32 - 1])
def test_a_head_that_would_be_too_long_is_refused_before_it_is_received(size: int) -> None:
    with pytest.raises(Unreadable, match=f"{size} bytes"):
        contents_at(MAGIC + size.to_bytes(4, "little"))


def test_a_head_that_is_too_long_is_not_written() -> None:
    with pytest.raises(Refused, match=f"{PAYLOAD_BYTES_MAX + 1} bytes"):
        seal(bytes(PAYLOAD_BYTES_MAX + 1))


@pytest.mark.parametrize("start", [b"", MAGIC, MAGIC + b"\0\0\0", b"\0WK2" + bytes(4), b"{}" * 4])
def test_another_start_is_no_envelope(start: bytes) -> None:
    with pytest.raises(Unreadable, match="does not begin"):
        contents_at(start)


@pytest.mark.parametrize("sizes", [[-3], [10**30], [10**4299, 10**4299], [2], [4], [4, -1], []])
def test_sizes_that_lie_are_refused(sizes: list[int]) -> None:
    with pytest.raises(Unreadable, match="3 bytes"):
        split(b"abc", 0, sizes)
    files = ",".join(f'{{"Name":"f","Size":{size}}}' for size in sizes)
    with pytest.raises(Refused, match="not a job request"):
        read_request(seal(f'{{"JobId":"x","Files":[{files}]}}'.encode(), b"abc"))


@given(payloads | payloads.map(seal) | payloads.map(lambda head: seal(head, b"content")))
def test_a_hostile_envelope_fails_as_hostile_json_does(payload: bytes) -> None:
    for read in (read_request, read_slots, read_ack, output_tail, job_has_blobs, result_has_blobs, submitted_digest):
        assert len(complaint(read, payload)) < 500
    assert len(complaint(partial(read_result, JOB_ID), payload)) < 500
    assert len(complaint(read_submit, submitted(payload))) < 500
    marked(None, payload)
    why_not_simple(payload)
