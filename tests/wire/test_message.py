"""What frames say: each hello form, whose id wins, and that whatever a stranger writes ends as PeerError or Refused."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import partial
from typing import TypeVar
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakugumi.core.ids import JobId
from wakugumi.core.leader.admin.questions import AskCancel, AskExplain, AskJobs, AskStatus
from wakugumi.errors import PeerError, Refused
from wakugumi.limits.leader import CLIENT_CAP_MAX, OUTPUT_TAIL_CHARS_MAX
from wakugumi.limits.wire import CLIENT_ID_CHARS_MAX, FRAME_BYTES_MAX, WORKER_NAME_CHARS_MAX
from wakugumi.wire import frame as fr
from wakugumi.wire import message as ms
from wakugumi.wire.frame import Frame

T = TypeVar("T")

JOB = UUID("00112233-4455-6677-8899-aabbccddeeff")
JOB_ID = JobId(JOB.bytes_le)
OTHER_ID = JobId(UUID(int=7).bytes_le)

DEEP = b'{"x":' + b"[" * 100_000
HOSTILE = [
    b"",
    b"\x00",
    b"{",
    b"null",
    b"[]",
    b'"text"',
    b"17",
    b"not json",
    b"\xef\xbb\xbf{}",
    b'{"x":"\xff"}',
    b'{"JobId":"\\ud800"}',
    b'{"a":1}}',
    DEEP,
    DEEP + b"]" * 100_000 + b"}",
    b'{"x":' * 50_000,
    b'{"JobId":1' + b"0" * 5_000 + b"}",
    b'{"TimeoutS":1e999,"Status":1e999,"DesiredParallelism":1e999,"Cpu":1e999}',
    b"(\xb5/\xfd\x00",
]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
FIELDS = [
    *["JobId", "ClientId", "ExecName", "Args", "Files", "TimeoutS", "Limits", "Retries", "Status", "Reason", "Stdout"],
    *[
        "DesiredParallelism",
        "Wants",
        "Name",
        "Running",
        "Finished",
        "Kept",
        "Cpu",
        "Code",
        "Message",
        "Version",
        "ask",
        "job",
    ],
]
payloads = (
    st.binary(max_size=60)
    | st.sampled_from(HOSTILE)
    | st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=6).map(lambda found: json.dumps(found).encode())
)


def complaint(read: Callable[[T], object], value: T) -> str:
    """What the reader says against this value; anything but a PeerError or a refusal is a bug."""
    try:
        read(value)
    except (PeerError, Refused) as error:
        return str(error)
    return ""


@given(payload=payloads, subject=st.text(max_size=10), msg_id=st.binary(min_size=16, max_size=16))
def test_whatever_is_written_ends_as_a_peer_error_or_a_refusal(payload: bytes, subject: str, msg_id: bytes) -> None:
    frame = Frame(1, msg_id, subject=subject, payload=payload)
    for of_frame in (ms.read_submit, ms.read_hello_client, ms.read_hello_worker):
        assert len(complaint(of_frame, frame)) < 500
    for of_payload in (
        *(ms.read_ack, ms.read_request, ms.read_welcome, ms.read_refusal, ms.read_load, ms.read_holding),
        *(ms.read_question, ms.unpack_ids, partial(ms.read_result, JOB_ID)),
    ):
        assert len(complaint(of_payload, payload)) < 500
    ms.read_cache_put(payload)
    ms.read_credit(payload)
    assert len(ms.output_tail(payload)) <= OUTPUT_TAIL_CHARS_MAX


@pytest.mark.spec("F5")
@pytest.mark.parametrize(
    ("subject", "payload", "client_id", "cap"),
    [
        ("desk", b"", "desk", 4),
        ("", b'{"ClientId":"desk","DesiredParallelism":8}', "desk", 8),
        ("desk", b'{"ClientId":"desk","DesiredParallelism":8}', "desk", 8),
        ("desk", b'{"DesiredParallelism":1}', "desk", 1),
        ("", b'{"ClientId":"desk"}', "desk", 4),
        ("desk", b'{"ClientId":null,"DesiredParallelism":null}', "desk", 4),
        ("desk", b'{"ClientId":"other"}', "desk", 4),
        ("desk", b'{"Unheard":{"of":[1,2]}}', "desk", 4),
        ("計算 機", b"", "計算 機", 4),
        ("x" * CLIENT_ID_CHARS_MAX, b"", "x" * CLIENT_ID_CHARS_MAX, 4),
        ("desk", b'{"DesiredParallelism":%d}' % CLIENT_CAP_MAX, "desk", CLIENT_CAP_MAX),
    ],
)
def test_a_client_says_hello_in_any_of_its_forms(subject: str, payload: bytes, client_id: str, cap: int) -> None:
    assert ms.read_hello_client(Frame(9, subject=subject, payload=payload)) == (client_id, cap, frozenset())


@pytest.mark.spec("F4")
def test_wants_are_told_and_unknown_ones_do_no_harm() -> None:
    payload = b'{"ClientId":"desk","Wants":["receipts","heartbeats","telepathy"]}'
    assert ms.read_hello_client(Frame(9, payload=payload))[2] >= {ms.RECEIPTS, ms.HEARTBEATS}
    payload = b'{"Name":"rack-1","Wants":["reattach"]}'
    assert ms.read_hello_worker(Frame(10, JOB_ID, payload=payload)) == ms.HelloWorker("rack-1", ["reattach"])


@pytest.mark.parametrize(
    ("subject", "payload"),
    [
        ("", b""),
        ("", b"{}"),
        ("", b'{"ClientId":""}'),
        ("x" * (CLIENT_ID_CHARS_MAX + 1), b""),
        ("a\nb", b""),
        ("a\x00", b""),
        ("a\x1b[2J", b""),
        ("a\u202eb", b""),
        ("a", b'{"DesiredParallelism":0}'),
        ("a", b'{"DesiredParallelism":-1}'),
        ("a", b'{"DesiredParallelism":%d}' % (CLIENT_CAP_MAX + 1)),
        ("a", b'{"DesiredParallelism":99999999999999999999999}'),
        ("a", b'{"DesiredParallelism":"8"}'),
        ("a", b'{"DesiredParallelism":true}'),
        ("a", b'{"Wants":"receipts"}'),
        ("a", b'{"Wants":[1]}'),
        ("a", b"8"),
        ("a", DEEP),
    ],
)
def test_a_client_whose_hello_cannot_be_is_refused(subject: str, payload: bytes) -> None:
    with pytest.raises(PeerError):
        ms.read_hello_client(Frame(9, subject=subject, payload=payload))


@pytest.mark.parametrize(
    ("msg_id", "payload"),
    [
        (bytes(16), b""),
        (JOB_ID, b'{"Name":"%s"}' % (b"x" * (WORKER_NAME_CHARS_MAX + 1))),
        (JOB_ID, b'{"Name":"a\\nb"}'),
        (JOB_ID, b'{"Name":7}'),
        (JOB_ID, b"rack"),
        (JOB_ID, DEEP),
    ],
)
def test_a_worker_whose_hello_cannot_be_is_refused(msg_id: bytes, payload: bytes) -> None:
    with pytest.raises(PeerError):
        ms.read_hello_worker(Frame(10, msg_id, payload=payload))


@pytest.mark.spec("F5")
def test_an_old_worker_has_no_name_and_wants_nothing() -> None:
    assert ms.read_hello_worker(Frame(10, JOB_ID, subject="job.assign.>")) == ms.HelloWorker()


@pytest.mark.spec("F9")
@pytest.mark.parametrize("text", [str(JOB), JOB.hex, str(JOB).upper(), JOB.hex.upper()])
def test_the_payloads_job_id_wins_over_the_frames(text: str) -> None:
    payload = json.dumps({"JobId": text, "ExecName": "calcA", "Args": ["-v"]}).encode()
    job_id, head = ms.read_submit(Frame(1, OTHER_ID, payload=payload))
    assert job_id == JOB_ID
    assert head == ms.SubmitHead(text, "calcA")


@pytest.mark.spec("F9")
@pytest.mark.parametrize("payload", [b"{}", b'{"JobId":"","ExecName":""}'])
def test_without_one_in_the_payload_the_frames_job_id_holds(payload: bytes) -> None:
    assert ms.read_submit(Frame(1, OTHER_ID, payload=payload)) == (OTHER_ID, ms.SubmitHead())


@pytest.mark.spec("F11")
@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"process this", "not a job request"),
        (b"[]", "not a job request"),
        (b'{"JobId":"my-job"}', "not a UUID"),
        (b'{"JobId":"00112233-4455-6677-8899-aabbccddeef"}', "not a UUID"),
        (b'{"JobId":"00112233-4455-6677-8899-aabbccddeefg"}', "not a job request"),
        (b'{"JobId":"00000000-0000-0000-0000-000000000000"}', "the job has no id"),
        (b'{"ExecName":7}', "`$.ExecName`"),
        (b'{"TimeoutS":"1"}', "`$.TimeoutS`"),
        (b'{"Retries":"1"}', "`$.Retries`"),
        (b'{"Retries":1.5}', "`$.Retries`"),
        (DEEP, "recursion"),
    ],
)
def test_a_submit_that_is_no_job_is_refused_with_the_reason(payload: bytes, why: str) -> None:
    with pytest.raises(Refused, match=why.replace("$", r"\$")) as caught:
        ms.read_submit(Frame(1, OTHER_ID, payload=payload))
    assert caught.value.code == "bad-request"


def test_a_submit_without_any_id_is_refused() -> None:
    with pytest.raises(Refused, match="the job has no id"):
        ms.read_submit(Frame(1, payload=b"{}"))


@pytest.mark.spec("F9")
def test_an_empty_ack_means_ok_without_output() -> None:
    assert ms.read_ack(b"") == ms.AckHead("OK")
    assert ms.read_result(JOB_ID, b"") == ms.JobResult(str(JOB), exit_code=0)


NO_RESULTS = [
    b'{"Status":"WEIRD"}',
    b'{"Status":"ok"}',
    *(b'{"Status":"OK","ExitCode":%d}' % n for n in (10**30, 2**32, -(2**31) - 1)),
]


@pytest.mark.spec("W6")
@pytest.mark.parametrize("payload", [b"{}", b"done", b'{"Status":null}', DEEP, *NO_RESULTS])
def test_an_ack_that_is_no_result_is_refused(payload: bytes) -> None:
    with pytest.raises(Refused) as caught:
        ms.read_ack(payload)
    assert caught.value.code == "bad-result"


@pytest.mark.spec("W6")
@pytest.mark.parametrize("code", [0, 1, -1, 255, -(2**31), 2**32 - 1])
def test_an_exit_code_of_32_bits_is_one(code: int) -> None:
    payload = b'{"JobId":"x","Status":"FAILED","ExitCode":%d}' % code
    assert ms.read_ack(payload).exit_code == code
    assert ms.read_result(JOB_ID, payload).exit_code == code


@pytest.mark.parametrize(
    "payload",
    [b"{}", b"done", b'{"JobId":"x","Status":"OK","Stdout":null}', DEEP]
    + [payload.replace(b"{", b'{"JobId":"x",') for payload in NO_RESULTS],
)
def test_a_result_that_cannot_be_read_is_said_to_be_none(payload: bytes) -> None:
    with pytest.raises(PeerError, match="the payload of Result is not a result"):
        ms.read_result(JOB_ID, payload)


@pytest.mark.spec("F6")
def test_records_have_the_pascal_case_names_of_the_contract_and_bytes_are_base64() -> None:
    request = ms.JobRequest(
        str(JOB), "desk", "calcA", ["-v"], [ms.InputFile("a.txt", content=b"\x00\xff"), ms.InputFile("b", cache_id="c")]
    )
    assert json.loads(ms.encode(request)) == {
        "JobId": str(JOB),
        "ClientId": "desk",
        "ExecName": "calcA",
        "Args": ["-v"],
        "Files": [{"Name": "a.txt", "Content": "AP8="}, {"Name": "b", "CacheId": "c"}],
    }
    assert ms.read_request(ms.encode(request)) == request
    result = ms.JobResult(str(JOB), "desk", "calcA", "FAILED", "out", "err", b"PK", 3)
    old_fields = ["JobId", "ClientId", "ExecName", "Status", "Stdout", "Stderr", "OutputArchive", "ExitCode"]
    written = json.loads(ms.encode(result))
    assert [written[name] for name in old_fields] == [str(JOB), "desk", "calcA", "FAILED", "out", "err", "UEs=", 3]
    assert ms.read_result(JOB_ID, ms.encode(result)) == result
    put = json.loads(ms.encode(ms.CachePutResult("data-v1", "FAILED", "no")))
    assert put == {"CacheId": "data-v1", "Status": "FAILED", "Message": "no"}


def test_a_job_says_how_often_it_may_be_tried_and_leader_and_worker_read_the_same() -> None:
    payload = ms.encode(ms.JobRequest(str(JOB), retries=3))
    assert json.loads(payload) == {"JobId": str(JOB), "Retries": 3}
    assert ms.read_request(payload).retries == ms.read_submit(Frame(1, payload=payload))[1].retries == 3
    assert ms.read_submit(Frame(1, JOB_ID, payload=b"{}"))[1].retries == ms.read_request(b'{"JobId":""}').retries == 0


@pytest.mark.parametrize(
    ("stdout", "stderr", "tail"),
    [
        ("out", "err", "err"),
        ("out", "", "out"),
        ("", "", ""),
        ("o" * 5_000 + "!", "", "o" * (OUTPUT_TAIL_CHARS_MAX - 1) + "!"),
        ("out", "計" * 5_000, "計" * OUTPUT_TAIL_CHARS_MAX),
    ],
)
def test_the_end_of_what_was_printed_is_told_the_errors_first(stdout: str, stderr: str, tail: str) -> None:
    assert ms.output_tail(ms.encode(ms.JobResult(str(JOB), status="FAILED", stdout=stdout, stderr=stderr))) == tail


@pytest.mark.parametrize("payload", [b"", b"done", b'{"Stderr":7}', DEEP])
def test_of_a_result_that_cannot_be_read_nothing_is_told(payload: bytes) -> None:
    assert ms.output_tail(payload) == ""


@pytest.mark.spec("F6")
def test_unknown_fields_are_ignored() -> None:
    payload = b'{"JobId":"%s","Later":{"x":[1]},"Files":[{"Name":"a","Mode":7}]}' % str(JOB).encode()
    assert ms.read_request(payload) == ms.JobRequest(str(JOB), files=[ms.InputFile("a")])
    assert ms.read_result(JOB_ID, b'{"JobId":"x","Status":"OK","Later":null}') == ms.JobResult("x")


@pytest.mark.parametrize("cap", [1, 4, 100_000])
def test_a_cap_is_an_int32(cap: int) -> None:
    assert ms.write_cap(cap) == cap.to_bytes(4, "little")
    assert ms.read_cap(ms.write_cap(cap)) == cap


@pytest.mark.parametrize("payload", [b"", b"\x01", b"\x01\x00\x00\x00\x00", b"\xff\xff\xff\xff"])
def test_a_cap_that_cannot_be_read_is_never_above_zero(payload: bytes) -> None:
    assert ms.read_cap(payload) <= 0


@pytest.mark.spec("F7")
@pytest.mark.parametrize("amount", [1, 4, 4096])
def test_credit_is_an_int32(amount: int) -> None:
    assert ms.write_credit(amount) == amount.to_bytes(4, "little")
    assert ms.read_credit(ms.write_credit(amount)) == amount


@pytest.mark.spec("F7")
@pytest.mark.parametrize("payload", [b"", b"\x01", b"\x01\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\x00\x00\x00\x80"])
def test_a_credit_that_cannot_be_trusted_is_never_above_zero(payload: bytes) -> None:
    assert ms.read_credit(payload) <= 0


@given(ids=st.lists(st.binary(min_size=16, max_size=16), max_size=5))
def test_ids_stand_in_a_row(ids: list[bytes]) -> None:
    jobs = [JobId(one) for one in ids]
    assert list(ms.unpack_ids(ms.pack_ids(jobs))) == jobs


@pytest.mark.parametrize("size", [1, 15, 17, 31])
def test_a_row_that_is_not_of_ids_is_a_peers_fault(size: int) -> None:
    with pytest.raises(PeerError, match=f"not {size} in all"):
        ms.unpack_ids(bytes(size))


def test_what_a_worker_holds_is_told_in_base64() -> None:
    text = base64.b64encode(JOB_ID).decode()
    payload = json.dumps({"Running": [text], "Finished": []}).encode()
    assert ms.read_holding(payload) == ms.Holding([JOB_ID], [])
    assert ms.read_holding(ms.encode(ms.Holding([], [JOB_ID]))) == ms.Holding([], [JOB_ID])
    assert ms.read_holding(b'{"Kept":["%s"]}' % text.encode()) == ms.Holding(kept=[JOB_ID])


@pytest.mark.parametrize(
    "payload", [b'{"Running":["AAAA"]}', b'{"Finished":["!"]}', b'{"Kept":[""]}', b'{"Running":"x"}', b""]
)
def test_holding_something_that_is_no_id_is_a_peers_fault(payload: bytes) -> None:
    with pytest.raises(PeerError, match="the payload of Holding"):
        ms.read_holding(payload)


@pytest.mark.parametrize(("said", "heard"), [("0.25", 0.25), ("-1e308", 0.0), ("1e308", 1.0), ("7", 1.0)])
def test_a_load_is_a_share_whatever_was_said(said: str, heard: float) -> None:
    assert ms.read_load(b'{"Cpu":%s}' % said.encode()).cpu == heard


def test_a_heartbeat_may_say_nothing() -> None:
    assert ms.read_load(b"") == ms.Load(0.0)


def test_questions_are_told_apart_by_their_tag() -> None:
    assert ms.read_question(b'{"ask":"status"}') == AskStatus()
    assert ms.read_question(b'{"ask":"explain","job":"x"}') == AskExplain("x")
    assert ms.read_question(b'{"ask":"cancel","pattern":"job.assign.>"}') == AskCancel(pattern="job.assign.>")
    assert ms.read_question(b'{"ask":"jobs","limit":5}') == AskJobs(limit=5)


@pytest.mark.parametrize("payload", [b"{}", b'{"ask":"weather"}', b'{"ask":"job"}', b'{"ask":7}', b"", DEEP])
def test_a_question_of_another_version_is_refused(payload: bytes) -> None:
    with pytest.raises(Refused) as caught:
        ms.read_question(payload)
    assert caught.value.code == "unknown-question"


def test_a_refusal_fits_a_frame_however_much_it_would_quote() -> None:
    long = b'{"ask":"%s"}' % (b"x" * 1_000_000)
    with pytest.raises(Refused) as caught:
        ms.read_question(long)
    assert len(caught.value.message) < 500
    written = ms.write_refusal("unknown-worker", "\U0001f600\x01" * FRAME_BYTES_MAX)
    assert len(fr.encode(fr.REFUSAL, payload=written)) < 10_000
    assert ms.read_refusal(written).code == "unknown-worker"


def test_the_cache_id_of_a_put_is_found_if_it_can_be() -> None:
    assert ms.read_cache_put(b'{"CacheId":"data-v1","Entries":[{"Name":"a","Content":"eA=="}]}') == "data-v1"
    assert ms.read_cache_put(b"no json") == ms.read_cache_put(DEEP) == ""
    assert len(ms.read_cache_put(b'{"CacheId":"%s"}' % (b"x" * 1_000_000))) == ms.CACHE_ID_CHARS_MAX


def test_a_welcome_tells_the_version() -> None:
    assert ms.read_welcome(ms.encode(ms.Welcome("1.2.3"))).version == "1.2.3"
    with pytest.raises(PeerError, match="the payload of Welcome"):
        ms.read_welcome(b"{}")


@pytest.mark.spec("F7")
@pytest.mark.parametrize(
    ("payload", "slots"),
    [
        (b"", 1),
        (b"not JSON", 1),
        (b'{"JobId":"x"}', 1),
        (b'{"Slots":3}', 3),
        (rb'{"\u0053lots":3}', 3),
        (b'{"Args":["Slots"]}', 1),
        (b'{"Slots":"many"}', 1),
        (b'{"Slots":-4}', 1),
        (b'{"Slots":99999}', 4096),
    ],
)
def test_a_worker_reads_how_many_slots_a_job_takes_as_its_leader_does(payload: bytes, slots: int) -> None:
    assert ms.read_slots(payload) == slots


@pytest.mark.spec("F5")
def test_a_worker_says_how_many_slots_it_has_within_bounds() -> None:
    hello = ms.HelloWorker("rack-1", [], 8, runs_unnamed=True)
    assert ms.read_hello_worker(Frame(10, JOB_ID, payload=ms.encode(hello))) == hello
    for slots in (-1, 4097):
        with pytest.raises(PeerError, match="slots"):
            ms.read_hello_worker(Frame(10, JOB_ID, payload=ms.encode(ms.HelloWorker("rack-1", [], slots))))
