"""Which requests are the same job, however they travel?"""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from wakugumi.adapters.http.upload import Received
from wakugumi.core.ids import job_id_from_name
from wakugumi.errors import Refused
from wakugumi.roles.client.files.inputs import InputContents
from wakugumi.roles.client.job_spec import JobSpec
from wakugumi.roles.client.request import Requests
from wakugumi.roles.http.job_request import JobForm, request_of
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.job import InputFile, JobLimits, JobRequest, read_request
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.request_digest import DIGEST_BYTES, digest_in, payload_digest, request_digest, submitted_digest

pytestmark = pytest.mark.spec("L6")

CONTENT = b"monday"
REQUEST = JobRequest(
    "a", "me", "calcA", ["-v", "in.txt"], [InputFile("in.txt", content=CONTENT), InputFile("z", "data")]
)
OTHERS = [
    JobRequest("a", "me", "calcB", REQUEST.args, REQUEST.files),
    JobRequest("a", "me", "calcA", ["-v"], REQUEST.files),
    JobRequest("a", "me", "calcA", ["-vin.txt"], REQUEST.files),
    JobRequest("a", "me", "calcA", REQUEST.args, REQUEST.files[:1]),
    JobRequest("a", "me", "calcA", REQUEST.args, [InputFile("in.txt", content=b"tuesday"), REQUEST.files[1]]),
    JobRequest("a", "me", "calcA", REQUEST.args, [InputFile("other", content=CONTENT), REQUEST.files[1]]),
    JobRequest("a", "me", "calcA", REQUEST.args, [REQUEST.files[0], InputFile("z", "data-v2")]),
    JobRequest("a", "me", "calcA", REQUEST.args, REQUEST.files, broadcast_s=5.0),
]


def test_what_decides_the_answer_decides_the_digest() -> None:
    digests = {request_digest(request) for request in (REQUEST, *OTHERS)}
    assert len(digests) == len(OTHERS) + 1
    assert {len(digest) for digest in digests} == {DIGEST_BYTES}


def test_how_it_is_run_does_not() -> None:
    limits = JobLimits(memory_bytes=1)
    same = JobRequest("b", "you", "calcA", REQUEST.args, REQUEST.files, 5.0, limits, 3, "key", 7, 2)
    assert request_digest(same) == request_digest(REQUEST)


def test_a_file_is_its_name_and_content_however_it_comes() -> None:
    blob = InputFile("in.txt", sha256=sha256(CONTENT).hexdigest(), size=len(CONTENT))
    moved = JobRequest("a", "me", "calcA", REQUEST.args, [REQUEST.files[1], blob])
    assert request_digest(moved) == request_digest(REQUEST)
    large = bytes(100_000)
    inline = JobRequest("a", files=[InputFile("f", content=large)])
    beside = JobRequest("a", files=[InputFile("f", sha256=sha256(large).hexdigest(), size=len(large))])
    assert request_digest(inline) == request_digest(beside)


def test_the_digest_is_the_same_tomorrow() -> None:
    """It stands in journals and on the disks of workers."""
    assert request_digest(REQUEST).hex() == "0f10e4b1b217ac724dd359726b29b85f"
    assert request_digest(JobRequest("a")).hex() == "cc1707e83c2040d6dd28b80040ad9718"


@given(
    st.text(max_size=5), st.lists(st.text(max_size=5), max_size=3), st.dictionaries(st.text(max_size=5), st.binary())
)
def test_two_requests_have_one_digest_only_if_they_are_the_same(
    program: str, args: list[str], files: dict[str, bytes]
) -> None:
    request = JobRequest("a", "", program, args, [InputFile(name, content=files[name]) for name in files])
    same = JobRequest("b", "c", program, args, [InputFile(name, content=files[name]) for name in reversed(files)])
    assert request_digest(request) == request_digest(same)
    assert request_digest(JobRequest("a", "", program + "x", args, request.files)) != request_digest(request)
    assert request_digest(JobRequest("a", "", program, [*args, ""], request.files)) != request_digest(request)


@pytest.mark.spec("U8")
def test_variables_are_part_of_it_in_any_order() -> None:
    def digest(env: dict[str, str]) -> bytes:
        return request_digest(replace(REQUEST, env=env))

    assert digest({}) == request_digest(REQUEST), "without any it is what it was"
    assert digest({"A": "1", "B": "2"}) == digest({"B": "2", "A": "1"})
    different = [digest(env) for env in ({}, {"A": ""}, {"A": "1"}, {"a": "1"}, {"A": "1", "B": ""}, {"A": "1B="})]
    assert len(set(different)) == len(different)
    assert payload_digest(encode(replace(REQUEST, env={"A": "1"}))) == digest({"A": "1"})
    assert digest({"SEED": "7"}).hex() == "54eab198a6aad8dd8b176b69f37cdba7", "it stands in journals"


def test_it_is_read_from_the_encoded_request_too() -> None:
    assert payload_digest(encode(REQUEST)) == request_digest(REQUEST)
    assert payload_digest(b"[]") == b""


def test_a_request_that_cannot_be_read_has_the_digest_of_its_bytes_at_a_leader() -> None:
    assert submitted_digest(encode(REQUEST)) == request_digest(REQUEST)
    assert len({submitted_digest(b"[]"), submitted_digest(b"[ ]"), b""}) == 3


def test_a_client_tells_it_in_the_frame_of_its_submit() -> None:
    files = InputContents().load({"in.txt": CONTENT})
    made = Requests("me").make(JobSpec("calcA", args=["-v"]), files)
    decoder = fr.Decoder()
    decoder.trust()
    (frame,) = decoder.feed(made.frame)
    assert frame.corr_id == payload_digest(frame.payload) != fr.NO_ID


def test_a_form_by_http_is_the_same_request_as_a_frame() -> None:
    received = Received("in.txt", CONTENT, None, "", len(CONTENT))
    by_http = encode(request_of(JobForm("calcA", ("-v", "{input}")), job_id_from_name("a"), received))
    by_frame = JobRequest("x", "me", "calcA", ["-v", "in.txt"], [InputFile("in.txt", content=CONTENT)])
    assert request_digest(read_request(by_http)) == request_digest(by_frame)


@pytest.mark.parametrize("text", ["", "monday", "00", "0" * 31, "0" * 33, "zz" * 16, "00" * 17])
def test_a_header_that_is_no_digest_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="hexadecimal"):
        digest_in(text)


def test_a_header_is_a_digest_or_is_not_there() -> None:
    assert digest_in(None) == b""
    assert digest_in("00" * 16) == bytes(16)
