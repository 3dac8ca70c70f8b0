"""How does a job reach a leader that takes no blobs: as the same job, with all content in its frame?"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakugumi.core.transfers.uploads import could_fit
from wakugumi.errors import Refused
from wakugumi.limits.files import INLINE_FILE_BYTES_MAX
from wakugumi.limits.wire import FRAME_BYTES_MAX, PAYLOAD_BYTES_MAX
from wakugumi.roles.client.files.inline import inlined
from wakugumi.roles.client.files.inputs import Cached, Content, InputBlob, InputContents
from wakugumi.roles.client.job_spec import JobSpec
from wakugumi.roles.client.request import Request, Requests
from wakugumi.wire.frame import Decoder, Frame
from wakugumi.wire.messages.job import InputFile, JobRequest, read_request
from wakugumi.wire.messages.references import BlobRef

LARGE = b"L" * (INLINE_FILE_BYTES_MAX + 1)


def request_of(files: dict[str, Content]) -> Request:
    return Requests("me").make(JobSpec("calc", args=["a"], subject="calc.x"), InputContents().load(files))


def read(frame: bytes) -> tuple[Frame, JobRequest]:
    (decoded,) = Decoder(FRAME_BYTES_MAX).feed(frame)
    return decoded, read_request(decoded.payload)


def test_the_job_is_the_same_with_its_content_in_the_frame(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(LARGE)
    request = request_of({"a": b"small", "b": LARGE, "c": tmp_path / "large", "d": Cached("models")})
    frame = inlined(request.frame, request.attached)
    assert frame is not None
    (before, asked), (after, full) = read(request.frame), read(frame)
    assert (after.type, after.msg_id, after.corr_id, after.subject) == (
        before.type,
        before.msg_id,
        before.corr_id,
        before.subject,
    )
    assert full.files == [
        InputFile("a", None, b"small"),
        InputFile("b", None, LARGE),
        InputFile("c", None, LARGE),
        InputFile("d", "models", None),
    ]
    assert (full.job_id, full.exec_name, full.args) == (asked.job_id, asked.exec_name, asked.args)


def test_more_than_a_frame_holds_is_not_sent_this_way() -> None:
    files: dict[str, Content] = {f"{number}": bytes([number]) * PAYLOAD_BYTES_MAX for number in range(2)}
    request = request_of(files)
    assert not could_fit(request.attached)
    assert inlined(request.frame, request.attached) is None


def test_one_content_under_many_names_counts_for_each_of_them() -> None:
    request = request_of({f"{number}": LARGE for number in range(PAYLOAD_BYTES_MAX // len(LARGE))})
    assert could_fit(request.attached), "by its size alone"
    assert inlined(request.frame, request.attached) is None


@given(st.integers(0, 2 * PAYLOAD_BYTES_MAX))
def test_by_its_size_alone_content_fits_as_base64(size: int) -> None:
    blob = InputBlob("a", BlobRef("0" * 64, size), b"")
    assert could_fit({"0" * 64: blob}) is (size * 4 // 3 <= PAYLOAD_BYTES_MAX)


@pytest.mark.parametrize("change", ["gone", "other"])
def test_a_file_that_is_not_what_it_was_is_refused(tmp_path: Path, change: str) -> None:
    file = tmp_path / "large"
    file.write_bytes(LARGE)
    request = request_of({"a": file})
    file.unlink()
    if change == "other":
        file.write_bytes(LARGE[::-1] + b"!")
    with pytest.raises(Refused) as refused:
        inlined(request.frame, request.attached)
    assert refused.value.code == "bad-request"
    assert str(file) in refused.value.message
