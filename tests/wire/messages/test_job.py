"""Jobs and results: whose id wins, what is refused, and what leader, worker and client read alike."""

from __future__ import annotations

import json
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.hostile_payloads import DEEP, JOB, JOB_ID, OTHER_ID, complaint, payloads

from wakugumi.core.ids import JobId
from wakugumi.errors import PeerError, Refused
from wakugumi.limits.leader import OUTPUT_TAIL_CHARS_MAX
from wakugumi.limits.wire import FRAME_BYTES_MAX
from wakugumi.wire import frame as fr
from wakugumi.wire.frame import Frame
from wakugumi.wire.messages.control import read_question
from wakugumi.wire.messages.job import (
    AckHead,
    InputFile,
    JobRequest,
    JobResult,
    SubmitHead,
    job_has_blobs,
    output_tail,
    pack_ids,
    read_ack,
    read_credit,
    read_missing,
    read_refusal,
    read_request,
    read_result,
    read_slots,
    read_submit,
    result_has_blobs,
    unpack_ids,
    write_credit,
    write_refusal,
)
from wakugumi.wire.messages.payload import encode


@given(payload=payloads, subject=st.text(max_size=10), msg_id=st.binary(min_size=16, max_size=16))
def test_whatever_is_written_ends_as_a_peer_error_or_a_refusal(payload: bytes, subject: str, msg_id: bytes) -> None:
    assert len(complaint(read_submit, Frame(1, msg_id, subject=subject, payload=payload))) < 500
    of_result = partial(read_result, JOB_ID)
    for read in (read_ack, read_request, read_refusal, read_missing, unpack_ids, of_result):
        assert len(complaint(read, payload)) < 500
    read_credit(payload)
    read_slots(payload)
    job_has_blobs(payload)
    result_has_blobs(payload)
    assert len(output_tail(payload)) <= OUTPUT_TAIL_CHARS_MAX


@pytest.mark.spec("F9")
@pytest.mark.parametrize("text", [str(JOB), JOB.hex, str(JOB).upper(), JOB.hex.upper()])
def test_the_payloads_job_id_wins_over_the_frames(text: str) -> None:
    payload = json.dumps({"JobId": text, "ExecName": "calcA", "Args": ["-v"]}).encode()
    job_id, head = read_submit(Frame(1, OTHER_ID, payload=payload))
    assert job_id == JOB_ID
    assert head == SubmitHead(text, "calcA")


@pytest.mark.spec("F9")
@pytest.mark.parametrize("payload", [b"{}", b'{"JobId":"","ExecName":""}'])
def test_without_one_in_the_payload_the_frames_job_id_holds(payload: bytes) -> None:
    assert read_submit(Frame(1, OTHER_ID, payload=payload)) == (OTHER_ID, SubmitHead())


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
        read_submit(Frame(1, OTHER_ID, payload=payload))
    assert caught.value.code == "bad-request"


def test_a_submit_without_any_id_is_refused() -> None:
    with pytest.raises(Refused, match="the job has no id"):
        read_submit(Frame(1, payload=b"{}"))


@pytest.mark.spec("F9")
def test_an_empty_ack_means_ok_without_output() -> None:
    assert read_ack(b"") == AckHead("OK")
    assert read_result(JOB_ID, b"") == JobResult(str(JOB), exit_code=0)


NO_RESULTS = [
    b'{"Status":"WEIRD"}',
    b'{"Status":"ok"}',
    *(b'{"Status":"OK","ExitCode":%d}' % n for n in (10**30, 2**32, -(2**31) - 1)),
]


@pytest.mark.spec("W6")
@pytest.mark.parametrize("payload", [b"{}", b"done", b'{"Status":null}', DEEP, *NO_RESULTS])
def test_an_ack_that_is_no_result_is_refused(payload: bytes) -> None:
    with pytest.raises(Refused) as caught:
        read_ack(payload)
    assert caught.value.code == "bad-result"


@pytest.mark.spec("W6")
@pytest.mark.parametrize("code", [0, 1, -1, 255, -(2**31), 2**32 - 1])
def test_an_exit_code_of_32_bits_is_one(code: int) -> None:
    payload = b'{"JobId":"x","Status":"FAILED","ExitCode":%d}' % code
    assert read_ack(payload).exit_code == code
    assert read_result(JOB_ID, payload).exit_code == code


@pytest.mark.parametrize(
    "payload",
    [b"{}", b"done", b'{"JobId":"x","Status":"OK","Stdout":null}', DEEP]
    + [payload.replace(b"{", b'{"JobId":"x",') for payload in NO_RESULTS],
)
def test_a_result_that_cannot_be_read_is_said_to_be_none(payload: bytes) -> None:
    with pytest.raises(PeerError, match="the payload of Result is not a result"):
        read_result(JOB_ID, payload)


@pytest.mark.spec("F6")
def test_records_have_the_pascal_case_names_of_the_contract_and_bytes_are_base64() -> None:
    request = JobRequest(
        str(JOB), "desk", "calcA", ["-v"], [InputFile("a.txt", content=b"\x00\xff"), InputFile("b", cache_id="c")]
    )
    assert json.loads(encode(request)) == {
        "JobId": str(JOB),
        "ClientId": "desk",
        "ExecName": "calcA",
        "Args": ["-v"],
        "Files": [{"Name": "a.txt", "Content": "AP8="}, {"Name": "b", "CacheId": "c"}],
    }
    assert read_request(encode(request)) == request
    result = JobResult(str(JOB), "desk", "calcA", "FAILED", "out", "err", b"PK", 3)
    old_fields = ["JobId", "ClientId", "ExecName", "Status", "Stdout", "Stderr", "OutputArchive", "ExitCode"]
    written = json.loads(encode(result))
    assert [written[name] for name in old_fields] == [str(JOB), "desk", "calcA", "FAILED", "out", "err", "UEs=", 3]
    assert read_result(JOB_ID, encode(result)) == result


def test_a_job_says_how_often_it_may_be_tried_and_leader_and_worker_read_the_same() -> None:
    payload = encode(JobRequest(str(JOB), retries=3))
    assert json.loads(payload) == {"JobId": str(JOB), "Retries": 3}
    assert read_request(payload).retries == read_submit(Frame(1, payload=payload))[1].retries == 3
    assert read_submit(Frame(1, JOB_ID, payload=b"{}"))[1].retries == read_request(b'{"JobId":""}').retries == 0


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
    assert output_tail(encode(JobResult(str(JOB), status="FAILED", stdout=stdout, stderr=stderr))) == tail


@pytest.mark.parametrize("payload", [b"", b"done", b'{"Stderr":7}', DEEP])
def test_of_a_result_that_cannot_be_read_nothing_is_told(payload: bytes) -> None:
    assert output_tail(payload) == ""


@pytest.mark.spec("F6")
def test_unknown_fields_are_ignored() -> None:
    payload = b'{"JobId":"%s","Later":{"x":[1]},"Files":[{"Name":"a","Mode":7}]}' % str(JOB).encode()
    assert read_request(payload) == JobRequest(str(JOB), files=[InputFile("a")])
    assert read_result(JOB_ID, b'{"JobId":"x","Status":"OK","Later":null}') == JobResult("x")


@pytest.mark.spec("F7")
@pytest.mark.parametrize("amount", [1, 4, 4096])
def test_credit_is_an_int32(amount: int) -> None:
    assert write_credit(amount) == amount.to_bytes(4, "little")
    assert read_credit(write_credit(amount)) == amount


@pytest.mark.spec("F7")
@pytest.mark.parametrize("payload", [b"", b"\x01", b"\x01\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\x00\x00\x00\x80"])
def test_a_credit_that_cannot_be_trusted_is_never_above_zero(payload: bytes) -> None:
    assert read_credit(payload) <= 0


@given(ids=st.lists(st.binary(min_size=16, max_size=16), max_size=5))
def test_ids_stand_in_a_row(ids: list[bytes]) -> None:
    jobs = [JobId(one) for one in ids]
    assert list(unpack_ids(pack_ids(jobs))) == jobs


@pytest.mark.parametrize("size", [1, 15, 17, 31])
def test_a_row_that_is_not_of_ids_is_a_peers_fault(size: int) -> None:
    with pytest.raises(PeerError, match=f"not {size} in all"):
        unpack_ids(bytes(size))


def test_a_refusal_fits_a_frame_however_much_it_would_quote() -> None:
    long = b'{"ask":"%s"}' % (b"x" * 1_000_000)
    with pytest.raises(Refused) as caught:
        read_question(long)
    assert len(caught.value.message) < 500
    written = write_refusal("unknown-worker", "\U0001f600\x01" * FRAME_BYTES_MAX)
    assert len(fr.encode(fr.REFUSAL, payload=written)) < 10_000
    assert read_refusal(written).code == "unknown-worker"


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
    assert read_slots(payload) == slots
