"""Which job does an HTTP request ask for?"""

from __future__ import annotations

from uuid import UUID

import pytest
from tests.kit.a_visit import AVisit

from wakugumi.adapters.http.upload import Received
from wakugumi.core.ids import ClientId, job_id_from_name
from wakugumi.errors import Refused
from wakugumi.limits.wire import ARGS_PER_JOB_MAX
from wakugumi.roles.client.files.inputs import InputContents
from wakugumi.roles.client.job_spec import JobSpec
from wakugumi.roles.client.request import Requests
from wakugumi.roles.http.job_request import JobForm, job_of, request_of
from wakugumi.wire.frame import Decoder
from wakugumi.wire.messages.job import read_request
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.messages.references import BlobRef
from wakugumi.wire.request_digest import payload_digest

INPUT = Received("input", b"1,2,3", None, "0" * 64, 5)


def payload_by_frames(name: str, client: str, program: str, *args: str, **more: object) -> bytes:
    """What a client of frames submits for the same job."""
    files = InputContents().load({INPUT.file_name: INPUT.content or b""})
    request = Requests(client).make(JobSpec(program, args=args, job_id=name, **more), files)  # type: ignore[arg-type]
    return next(iter(Decoder(1 << 20).feed(request.frame))).payload


@pytest.mark.spec("U8", "L6")
def test_variables_are_those_of_a_client_by_frames() -> None:
    form = JobForm.of(AVisit(program="calcA", env=["SEED=7", "EMPTY=", "NOTE=a=b"]))
    payload = encode(request_of(form, job_id_from_name("night-7"), INPUT))
    assert read_request(payload).env == {"SEED": "7", "EMPTY": "", "NOTE": "a=b"}
    env = {"NOTE": "a=b", "EMPTY": "", "SEED": "7"}
    by_frames = payload_by_frames("night-7", "http", "calcA", INPUT.file_name, env=env)
    assert payload_digest(payload) == payload_digest(by_frames)


@pytest.mark.spec("U8")
@pytest.mark.parametrize(
    "env", ["SEED", "=7", "1A=7", "A B=7", "WAKU_X=7", "A=\0", ["A=1", "A=2"], f"A={'x' * 70_000}"]
)
def test_what_can_be_no_variable_is_refused(env: str | list[str]) -> None:
    with pytest.raises(Refused) as caught:
        JobForm.of(AVisit(env=env))
    assert caught.value.code == "bad-request"


@pytest.mark.parametrize("rest", ["night-7", "%6Eight-7", "a.b_C-0", "x" * 128])
def test_a_path_names_a_job(rest: str) -> None:
    visit = AVisit(rest)
    name, job = job_of(visit)
    assert job == job_id_from_name(name)
    assert visit.job == name
    assert "%" not in name


def test_a_uuid_is_the_same_job_however_it_is_written() -> None:
    job = UUID("6f9619ff-8b86-d011-b42d-00cf4fc964ff")
    for rest in (str(job), str(job).upper(), job.hex):
        assert job_of(AVisit(rest)) == (rest, job.bytes_le)


TRICKS = """
. .. %2e%2e %252e a/b a%2Fb ..%2f..%2fetc a%00 a%0d%0ab a?b a\\b ä ａ %ff
"""


@pytest.mark.parametrize("rest", ["", "a b", "x" * 129, "x" * 1_000_000, *TRICKS.split()])
def test_tricks_name_no_job(rest: str) -> None:
    visit = AVisit(rest)
    with pytest.raises(Refused, match="cannot name a job") as caught:
        job_of(visit)
    assert caught.value.code == "bad-request"
    assert len(caught.value.message) < 200
    assert visit.job == ""


def test_a_query_says_what_to_run() -> None:
    form = JobForm.of(
        AVisit(
            program="pricer",
            arg=["--fast", "a=b"],
            subject="job.submit.prices.eu",
            timeout="1.5",
            client="desk",
            priority="-7",
            key="eu",
            retries="2",
        )
    )
    fields = {"timeout_s": 1.5, "priority": -7, "key": "eu", "retries": 2}
    assert form == JobForm("pricer", ("--fast", "a=b"), ClientId("desk"), "job.submit.prices.eu", fields)


def test_nothing_has_to_be_said() -> None:
    assert JobForm.of(AVisit()) == JobForm() == JobForm(client="http")  # type: ignore[arg-type]
    assert JobForm.of(AVisit(client="desk")).client == "desk"


def test_the_query_s_client_goes_before_the_head_s() -> None:
    visit = AVisit(program="p")
    visit._client = "of the head"
    assert JobForm.of(visit).client == "of the head"
    visit._query["client"] = ["of the query"]
    assert JobForm.of(visit).client == "of the query"


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({"programme": "p"}, "no parameter 'programme'"),
        ({"program": ["a", "b"]}, "given 2 times"),
        ({"program": "../sh"}, "is a path"),
        ({"program": ".hidden"}, "is hidden"),
        ({"subject": "job..x"}, "bad subject"),
        ({"timeout": "0"}, "a timeout is above 0"),
        ({"timeout": "-1"}, "a timeout is above 0"),
        ({"timeout": "nan"}, "a timeout is above 0"),
        ({"timeout": "1e3"}, "a timeout is above 0"),
        ({"timeout": "١"}, "a timeout is above 0"),
        ({"timeout": "999999999"}, "a timeout is above 0"),
        ({"priority": "101"}, "a priority is a whole number"),
        ({"priority": "high"}, "priority is a whole number"),
        ({"priority": "1" * 5_000}, "priority is a whole number"),
        ({"retries": "21"}, "retries are a whole number"),
        ({"retries": "-1"}, "retries are a whole number"),
        ({"key": "k" * 129}, "a key is"),
        ({"key": "a\nb"}, "a key is"),
        ({"client": "c" * 129}, "a client id is"),
        ({"client": "a\nb"}, "a client id is"),
        ({"key": "a\u3164b"}, "a key is"),
        ({"client": "a\ufe0f"}, "a client id is"),
        ({"arg": "a\0b"}, "a NUL"),
        ({"arg": ["a"] * (ARGS_PER_JOB_MAX + 1)}, "at most 10000"),
    ],
)
def test_what_no_job_can_be_is_refused(query: dict[str, str | list[str]], says: str) -> None:
    with pytest.raises(Refused, match=says) as caught:
        JobForm.of(AVisit(**query))  # type: ignore[arg-type]
    assert caught.value.code in {"bad-request", "bad-name", "bad-subject"}


def test_what_somebody_else_reads_is_let_through() -> None:
    assert JobForm.of(AVisit(**{"async": "1"}), also=("async",)) == JobForm()  # type: ignore[arg-type]


@pytest.mark.spec("L6")
def test_the_same_job_is_the_same_bytes_by_http_and_by_frames() -> None:
    job = job_id_from_name("night-7")
    more = {"timeout_s": 60.0, "priority": 3, "key": "eu", "retries": 1}
    form = JobForm("pricer", ("--fast", "{input}"), fields=more)
    by_frames = payload_by_frames("night-7", "http", "pricer", "--fast", "input", **more)
    assert encode(request_of(form, job, INPUT)) == by_frames
    assert encode(request_of(JobForm("pricer"), job, INPUT)) == payload_by_frames("night-7", "http", "pricer", "input")


@pytest.mark.spec("N1")
def test_a_named_program_gets_the_input_s_name_unless_arguments_say_otherwise() -> None:
    def args(form: JobForm, file_name: str = "in.csv") -> list[str]:
        return request_of(form, job_id_from_name("j"), INPUT._replace(file_name=file_name)).args

    assert args(JobForm("pricer")) == ["in.csv"]
    assert args(JobForm("pricer", ("--in={input}", "x"))) == ["--in=in.csv", "x"]
    assert args(JobForm("pricer", ("x",))) == ["x"]
    assert args(JobForm("pricer"), "-rf") == ["./-rf"]
    assert args(JobForm(args=("{input}",))) == ["{input}"]  # Whoever runs it knows what its program gets.


@pytest.mark.spec("C5")
def test_a_large_input_is_named_by_its_hash() -> None:
    large = Received("in", None, None, "a" * 64, 1 << 30)
    (file,) = request_of(JobForm("p"), job_id_from_name("j"), large).files
    assert (file.name, file.content, BlobRef(file.sha256 or "", file.size or 0)) == (
        "in",
        None,
        BlobRef("a" * 64, 1 << 30),
    )
