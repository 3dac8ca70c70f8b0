"""Which blobs and caches a job or a result names, and which it cannot name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from wakugumi.errors import Refused
from wakugumi.limits.files import BLOB_BYTES_MAX
from wakugumi.limits.wire import FILES_PER_JOB_MAX
from wakugumi.wire.frame import SUBMIT_JOB, Frame
from wakugumi.wire.messages.job import AckHead, job_has_blobs, read_ack, read_submit
from wakugumi.wire.messages.references import BlobRef, blobs_of_job, blobs_of_result

A, B = "a" * 64, "0123456789abcdef" * 4


def named(*files: dict[str, Any] | None) -> tuple[tuple[str, ...], tuple[BlobRef, ...]]:
    _, head = read_submit(Frame(SUBMIT_JOB, b"1" * 16, payload=json.dumps({"Files": files}).encode()))
    return blobs_of_job(head.files or ())


def test_blobs_come_first_and_each_once() -> None:
    names, blobs = named(
        {"Name": "a", "CacheId": "data-v1"},
        {"Name": "b", "Sha256": A, "Size": 5},
        {"Name": "c", "Content": "eA=="},
        {"Name": "d", "Sha256": B, "Size": 0, "CacheId": None, "Content": None},
        {"Name": "e", "Sha256": A, "Size": 5},
        {"Name": "f", "CacheId": "data-v1", "Sha256": None, "Size": None},
    )
    assert names == (A, B, "cache:data-v1")
    assert blobs == (BlobRef(A, 5), BlobRef(B, 0))


@pytest.mark.parametrize("payload", [b"{}", b'{"Files":null}', b'{"Files":[]}', b'{"Files":[{}]}'])
def test_a_job_may_name_nothing(payload: bytes) -> None:
    _, head = read_submit(Frame(SUBMIT_JOB, b"1" * 16, payload=payload))
    assert blobs_of_job(head.files or ()) == ((), ())


def test_a_name_may_be_written_with_escapes() -> None:
    payload = rb'{"Files":[{"\u0053ha256":"%s","Size":1}]}' % A.encode()
    assert job_has_blobs(payload)
    _, head = read_submit(Frame(SUBMIT_JOB, b"1" * 16, payload=payload))
    assert blobs_of_job(head.files or ())[0] == (A,)


def test_a_cached_file_that_brings_its_content_needs_no_cache() -> None:
    assert named({"Name": "a", "CacheId": "../old", "Content": "eA=="}) == ((), ())


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ({"Sha256": A.upper(), "Size": 1}, "64 lower-case"),
        ({"Sha256": A[:-1], "Size": 1}, "64 lower-case"),
        ({"Sha256": A + "a", "Size": 1}, "64 lower-case"),
        ({"Sha256": "", "Size": 1}, "64 lower-case"),
        ({"Sha256": "../" + A[3:], "Size": 1}, "64 lower-case"),
        ({"Sha256": "é" * 64, "Size": 1}, "64 lower-case"),
        ({"Sha256": A, "Size": -1}, "bytes"),
        ({"Sha256": A, "Size": BLOB_BYTES_MAX + 1}, "bytes"),
        ({"Sha256": A, "Size": 10**18}, "bytes"),
        ({"Sha256": A}, "Size"),
        ({"Sha256": A, "Size": 1, "Content": "eA=="}, "not both"),
        ({"Sha256": A, "Size": 1, "Content": ""}, "not both"),
        ({"Sha256": A, "Size": 1, "CacheId": "data"}, "not both"),
        ({"Size": 1}, "without a Sha256"),
        ({"CacheId": "../etc"}, "cache id"),
        ({"CacheId": ".blobs"}, "cache id"),
        ({"CacheId": "a/b"}, "cache id"),
        ({"CacheId": "a\x00b"}, "cache id"),
        ({"CacheId": "x" * 129}, "128"),
    ],
)
def test_what_cannot_be_a_reference_is_refused_with_a_reason(file: dict[str, Any], words: str) -> None:
    with pytest.raises(Refused, match=words) as refused:
        named({"Name": "a"} | file)
    assert refused.value.code in {"bad-request", "bad-name"}
    assert len(refused.value.message) < 400


def test_one_blob_has_one_size() -> None:
    with pytest.raises(Refused, match="two sizes"):
        named({"Sha256": A, "Size": 1}, {"Sha256": A, "Size": 2})


def test_a_job_has_no_more_files_than_it_may() -> None:
    with pytest.raises(Refused, match="too many") as refused:
        named(*[{"Name": "a"}] * (FILES_PER_JOB_MAX + 1))
    assert refused.value.code == "too-big"


@pytest.mark.parametrize("file", [{"Sha256": 5}, {"Sha256": A, "Size": "1"}, {"Sha256": A, "Size": 1.5}, 7])
def test_what_is_of_another_type_is_no_job_request(file: Any) -> None:
    with pytest.raises(Refused, match="not a job request"):
        named(file)


def result_head(**fields: object) -> AckHead:
    return read_ack(json.dumps({"Status": "OK"} | fields).encode())


def test_a_result_names_its_archive_and_what_was_printed() -> None:
    head = result_head(ArchiveBlob={"Sha256": A, "Size": 9}, StderrBlob={"Sha256": B, "Size": 1}, StdoutBlob=None)
    assert blobs_of_result(head.blobs()) == (BlobRef(A, 9), BlobRef(B, 1))
    assert blobs_of_result(result_head().blobs()) == ()


@pytest.mark.parametrize("blob", [{"Sha256": "x", "Size": 9}, {"Sha256": A, "Size": -9}, {"Sha256": A, "Size": 2**60}])
def test_a_result_with_what_cannot_be_a_reference_is_none(blob: dict[str, Any]) -> None:
    with pytest.raises(Refused) as refused:
        blobs_of_result(result_head(ArchiveBlob=blob).blobs())
    assert refused.value.code == "bad-result"


@pytest.mark.parametrize("blob", [{"Sha256": A}, {"Size": 1}, [], "x"])
def test_a_result_with_half_a_reference_is_none(blob: Any) -> None:
    with pytest.raises(Refused) as refused:
        result_head(ArchiveBlob=blob)
    assert refused.value.code == "bad-result"
