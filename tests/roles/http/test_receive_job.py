"""How is the job of an HTTP request received? As a form or as an envelope, the job is the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
from tests.kit.a_node import left_in
from tests.kit.a_visit import AVisit
from tests.kit.form import FORM_TYPE, form

from wakugumi.adapters.http.page import HttpRefusal
from wakugumi.adapters.http.upload import Received
from wakugumi.adapters.spool import Spools
from wakugumi.core.ids import job_id_from_name, show_job_id
from wakugumi.errors import Refused
from wakugumi.limits.files import INLINE_FILE_BYTES_MAX
from wakugumi.limits.wire import ARGS_PER_JOB_MAX
from wakugumi.roles.http.job_request import JobForm
from wakugumi.roles.http.receive_job import receive_job
from wakugumi.wire.messages.envelope import JOB_TYPE, seal
from wakugumi.wire.messages.job import InputFile, JobLimits, JobRequest, write_request
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.request_digest import request_digest

pytestmark = pytest.mark.anyio

JOB = job_id_from_name("night-7")
SMALL, LARGE = b"1,2,3", bytes(range(256)) * (INLINE_FILE_BYTES_MAX // 256 + 1)
BYTES_MAX = 10 * len(LARGE)


class Visit(AVisit):
    """A request with a body, in pieces of some bytes."""

    def __init__(self, kind: str, body: bytes, *, has_length: bool = True, **query: str | list[str]) -> None:
        super().__init__("night-7", None, **query)
        self._kind, self._body = kind, body
        self.content_length = len(body) if has_length else None  # type: ignore[assignment]

    def header(self, name: str) -> str | None:
        return self._kind if name == "Content-Type" else None

    async def pieces(self) -> AsyncIterator[bytes]:
        for at in range(0, len(self._body), 70_000):
            yield self._body[at : at + 70_000]


def a_job(content: bytes = SMALL, **fields: object) -> JobRequest:
    file = InputFile("in.csv", content=content)
    return msgspec.structs.replace(JobRequest(show_job_id(JOB), "http", "calc", ["in.csv"], [file]), **fields)


def _with_size(digits: str) -> bytes:
    return seal(encode(a_job(files=[InputFile("a", size=7)])).replace(b":7}", f":{digits}}}".encode()))


def named_by_hash(content: bytes) -> bytes:
    ref = InputFile("in.csv", sha256=sha256(content).hexdigest(), size=len(content))
    return write_request(a_job(files=[ref])) + content


async def received(folder: Path, visit: Visit, bytes_max: int = BYTES_MAX) -> tuple[JobRequest, Received]:
    return await receive_job(visit, JOB, JobForm.of(visit, ("async",)), Spools(folder), bytes_max)


@pytest.mark.parametrize("content", [b"", SMALL, LARGE])
@pytest.mark.parametrize("has_length", [True, False])
async def test_a_form_and_both_kinds_of_envelopes_are_the_same_job(
    tmp_path: Path, content: bytes, has_length: bool
) -> None:
    by_form = Visit(FORM_TYPE, form(content, "in.csv"), has_length=has_length, program="calc")
    sealed = Visit(JOB_TYPE, write_request(a_job(content)), has_length=has_length)
    by_hash = Visit(JOB_TYPE, named_by_hash(content), has_length=has_length, subject="night", **{"async": "1"})
    requests = []
    for visit in (by_form, sealed, by_hash):
        request, file = await received(tmp_path, visit)
        requests.append(request)
        assert (file.file_name, file.size) == ("in.csv", len(content))
        assert content == (file.content if file.path is None else file.path.read_bytes())
        assert (file.path is None) == (len(content) <= INLINE_FILE_BYTES_MAX)
        file.drop()
    assert requests[0] == requests[1] == requests[2]
    assert request_digest(requests[0]) == request_digest(a_job(content))
    assert left_in(tmp_path) == []


async def test_an_envelope_without_an_id_or_a_client_has_those_of_the_request(tmp_path: Path) -> None:
    request, _ = await received(tmp_path, Visit(JOB_TYPE, write_request(a_job(job_id="", client_id=""))))
    assert (request.job_id, request.client_id) == (show_job_id(JOB), "http")


def strange() -> dict[str, tuple[bytes, str]]:
    """Bodies that are no job, each with the reason."""
    whole, file = write_request(a_job()), InputFile("in.csv", content=b"x")
    wrong = named_by_hash(LARGE)
    return {
        "empty": (b"", "fewer bytes"),
        "cut head": (whole[:30], "fewer bytes"),
        "cut": (whole[:-1], "its head tells of"),
        "longer": (whole + b"x", "its head tells of"),
        "no envelope": (form(SMALL), "does not begin"),
        "no json": (seal(b"night"), "malformed"),
        "long head": (b"\0WK1" + b"\xff" * 4 + whole, "its head would have"),
        "other content": (wrong[:-1] + b"?", "not that of"),
        "no hash": (seal(encode(a_job(files=[InputFile("a", sha256="x", size=1)])), b"x"), "64 lower-case"),
        "negative": (seal(encode(a_job(files=[InputFile("a", size=-1)]))), "has a Size"),
        "thousands of digits": (_with_size("9" * 4300), "has a Size up to"),
        "no size": (seal(encode(a_job(files=[InputFile("a")]))), "has a Size"),
        "content in the head": (seal(encode(a_job())), "has a Size"),
        "cached": (seal(encode(a_job(files=[InputFile("a", "models", size=1)])), b"x"), "has a Size"),
        "no file": (write_request(a_job(files=[])), "one file"),
        "two files": (write_request(a_job(files=[file, file])), "one file"),
        "another job": (write_request(a_job(job_id=show_job_id(job_id_from_name("other")))), "the path another"),
        "no job": (write_request(a_job(job_id="night-7")), "not a UUID"),
        "a path": (write_request(a_job(files=[InputFile("../x", content=b"x")])), "../x"),
        "a program's path": (write_request(a_job(exec_name="/bin/sh")), "is a path"),
        "a client": (write_request(a_job(client_id="a\nb")), "printable"),
        "a broadcast": (write_request(a_job(broadcast_s=5.0)), "no broadcast"),
        "slots": (write_request(a_job(slots=2)), "no slots"),
        "limits": (write_request(a_job(limits=JobLimits(cpu_s=1.0))), "no limits"),
    }


@pytest.mark.parametrize(
    ("fields", "query"),
    [
        ({"args": ["x"] * (ARGS_PER_JOB_MAX + 1)}, {"arg": ["x"] * (ARGS_PER_JOB_MAX + 1)}),
        ({"args": ["a\0b"]}, {"arg": "a\0b"}),
        ({"exec_name": "../calc"}, {"program": "../calc"}),
        ({"timeout_s": 1e12}, {"timeout": "1000000000000"}),
        ({"retries": 21}, {"retries": "21"}),
        ({"retries": -1}, {"retries": "-1"}),
        ({"priority": 101}, {"priority": "101"}),
        ({"key": "x" * 300}, {"key": "x" * 300}),
        ({"key": "a\nb"}, {"key": "a\nb"}),
        ({"env": {"A=B": "1"}}, None),
        ({"env": {"1X": "a"}}, {"env": "1X=a"}),
        ({"env": {"X": "a\0b"}}, {"env": "X=a\0b"}),
    ],
)
async def test_a_head_is_checked_as_a_query_is(
    tmp_path: Path, fields: dict[str, object], query: dict[str, str | list[str]] | None
) -> None:
    with pytest.raises(Refused) as by_head:
        await received(tmp_path, Visit(JOB_TYPE, write_request(a_job(**fields))))
    if query is not None:
        with pytest.raises(Refused) as by_query:
            JobForm.of(Visit(FORM_TYPE, form(SMALL), **{"program": "calc", **query}))
        if "timeout" not in query:  # Text that is no number of seconds is shown as text.
            assert (by_head.value.code, by_head.value.message) == (by_query.value.code, by_query.value.message)
    assert left_in(tmp_path) == []


async def test_a_subject_beside_an_envelope_is_checked_with_its_program(tmp_path: Path) -> None:
    for query in ({"subject": "a..b"}, {"subject": "job.submit.>"}):
        with pytest.raises(Refused) as caught:
            await received(tmp_path, Visit(JOB_TYPE, write_request(a_job()), **query))
        assert caught.value.code == "bad-subject"


@pytest.mark.parametrize("kind", strange())
@pytest.mark.parametrize("has_length", [True, False])
async def test_a_strange_envelope_is_refused_and_leaves_no_file(tmp_path: Path, kind: str, has_length: bool) -> None:
    body, said = strange()[kind]
    if not has_length:
        said = {"cut": "fewer bytes", "longer": "more bytes"}.get(kind, said)
    with pytest.raises(Refused, match=said) as caught:
        await received(tmp_path, Visit(JOB_TYPE, body, has_length=has_length))
    assert caught.value.code in {"bad-request", "bad-name"}
    assert left_in(tmp_path) == []


async def test_a_large_file_that_is_cut_or_too_long_leaves_no_file(tmp_path: Path) -> None:
    whole = write_request(a_job(LARGE))
    for body, said in ((whole[:-1], "fewer bytes"), (whole + b"x", "more bytes")):
        with pytest.raises(Refused, match=said):
            await received(tmp_path, Visit(JOB_TYPE, body, has_length=False))
    assert left_in(tmp_path) == []


async def test_a_file_above_the_limit_is_refused_before_it_is_received(tmp_path: Path) -> None:
    with pytest.raises(HttpRefusal) as caught:
        await received(tmp_path, Visit(JOB_TYPE, write_request(a_job(LARGE))), len(LARGE) - 1)
    assert (caught.value.status, caught.value.code) == (413, "too-big")


async def test_a_query_beside_an_envelope_does_not_describe_the_job(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="and so does the envelope") as caught:
        await received(tmp_path, Visit(JOB_TYPE, write_request(a_job()), program="calc"))
    assert "envelopes.md" in str(caught.value.hint)
