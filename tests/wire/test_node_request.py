"""Which jobs can be told to a node, and how."""

from __future__ import annotations

import pytest

from wakugumi.core.requirements import Requirements
from wakugumi.wire.messages.job import InputFile, JobLimits, JobRequest, read_request
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.node_request import marked, marked_by_http, run_query, why_not_simple
from wakugumi.wire.percent import percent_decoded

FILE = InputFile("in.csv", content=b"1,2")
BLOB = InputFile("in.csv", sha256="0" * 64, size=9)


def _job(**said: object) -> bytes:
    fields: dict[str, object] = {"exec_name": "calc", "args": ["in.csv"], "files": [FILE]} | said
    return encode(JobRequest("id", **fields))  # type: ignore[arg-type]


@pytest.mark.spec("G1", "N2")
def test_one_file_and_a_programs_arguments_are_all_that_a_node_is_told() -> None:
    assert marked(None, _job()) == Requirements(simple=True)
    assert marked(Requirements("key", 3, files=("0" * 64,)), _job(files=[BLOB])) == Requirements(
        "key", 3, 1, ("0" * 64,), simple=True
    )
    assert marked(None, _job(retries=3, timeout_s=9.0, key="k", priority=1)) == Requirements(simple=True)


@pytest.mark.parametrize(
    "said",
    [
        {"files": []},
        {"files": [FILE, FILE]},
        {"files": [InputFile("in.csv", cache_id="prices")]},
        {"args": []},
        {"args": ["{input}"]},
        {"args": ["x" * 5_000]},
        {"args": ["ü" * 700]},
        {"limits": JobLimits(memory_bytes=10**6)},
        {"slots": 2},
        {"broadcast_s": 5.0},
    ],
)
def test_what_a_node_could_not_be_told_is_not_simple(said: dict[str, object]) -> None:
    wants = Requirements("key")
    assert marked(None, _job(**said)) is None
    assert marked(wants, _job(**said)) is wants
    assert marked_by_http(None, read_request(_job(**said))) == Requirements(by_http=True)
    assert why_not_simple(_job(**said))


@pytest.mark.spec("U8")
def test_variables_are_told_and_only_to_those_that_know_of_them() -> None:
    job = _job(env={"SEED": "7", "NOTE": "a=b & c"})
    assert marked(None, job) == Requirements(simple=True, env=True)
    assert marked(Requirements("key"), _job(env={"A": ""}, slots=2)) == Requirements("key", env=True)
    assert run_query(read_request(job)).endswith("&env=SEED%3D7&env=NOTE%3Da%3Db%20%26%20c")
    assert "variables take" in why_not_simple(_job(env={"A": "x" * 10_000}))


def test_a_job_without_a_program_is_for_those_that_have_one_for_it() -> None:
    unnamed = Requirements(simple=True, unnamed=True)
    assert marked(None, _job(exec_name="", args=[])) == unnamed
    assert marked_by_http(None, read_request(_job(exec_name="", args=["{input}"]))) == Requirements(
        simple=True, unnamed=True, by_http=True
    )
    many = _job(exec_name="", args=["x"] * 3_000)
    assert "bytes in a URL" in why_not_simple(many)
    assert marked_by_http(None, read_request(many)) == Requirements(unnamed=True, by_http=True)
    assert marked(None, many) is None, "by frames it is an error, which whoever gets it tells"


@pytest.mark.parametrize("payload", [b"", b"[]", b'{"Args":3}', b"[" * 100_000])
def test_what_cannot_be_read_is_left_as_it_is(payload: bytes) -> None:
    assert marked(None, payload) is None


def test_a_query_says_what_is_to_be_run_and_nothing_in_it_ends_it_early() -> None:
    assert run_query(JobRequest("id")) == ""
    asked = JobRequest("id", "", "calc", ["a b", "x&y=z#", "é"], [FILE], timeout_s=1.5, retries=2, key="k")
    assert run_query(asked) == "?program=calc&arg=a%20b&arg=x%26y%3Dz%23&arg=%C3%A9&timeout=1.500000"


def test_the_arguments_are_measured_as_they_stand_in_the_url() -> None:
    fits = _job(args=["x" * (4096 - len("program=calc&arg="))])
    assert marked(None, fits) == Requirements(simple=True)
    assert why_not_simple(fits) == ""
    assert "4097 bytes in a URL" in why_not_simple(_job(args=["x" * (4097 - len("program=calc&arg="))]))


@pytest.mark.parametrize("name", ["{input}.csv", "-{input}", "{input}", "a{input}{input}"])
def test_a_file_may_be_called_as_the_word_that_stands_for_it(name: str) -> None:
    path = f"./{name}" if name.startswith("-") else name
    job = JobRequest("id", "", "calc", [f"--in={path}", path + path, "x"], [InputFile(name, content=b"1")])
    assert marked(None, encode(job)) == Requirements(simple=True)
    told = [percent_decoded(word.removeprefix("arg=")) for word in run_query(job).split("&")[1:]]
    assert [arg.replace("{input}", path) for arg in told] == job.args, "what a node makes of it"
