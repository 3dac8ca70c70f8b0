"""Hellos in each form, old and new; those that cannot be are a PeerError."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.hostile_payloads import DEEP, JOB_ID, complaint, payloads

from wakugumi.errors import PeerError
from wakugumi.limits.leader import CLIENT_CAP_MAX
from wakugumi.limits.wire import CLIENT_ID_CHARS_MAX, WORKER_NAME_CHARS_MAX
from wakugumi.wire.frame import Frame
from wakugumi.wire.messages.hello import (
    HEARTBEATS,
    RECEIPTS,
    HelloClient,
    HelloWorker,
    Welcome,
    read_cap,
    read_hello_client,
    read_hello_worker,
    read_welcome,
    write_cap,
)
from wakugumi.wire.messages.payload import encode


@given(payload=payloads, subject=st.text(max_size=10), msg_id=st.binary(min_size=16, max_size=16))
def test_whatever_is_written_ends_as_a_peer_error_or_a_refusal(payload: bytes, subject: str, msg_id: bytes) -> None:
    frame = Frame(1, msg_id, subject=subject, payload=payload)
    for read in (read_hello_client, read_hello_worker):
        assert len(complaint(read, frame)) < 500
    assert len(complaint(read_welcome, payload)) < 500
    read_cap(payload)


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
    assert read_hello_client(Frame(9, subject=subject, payload=payload)) == (client_id, cap, frozenset(), "")


@pytest.mark.spec("F4")
def test_wants_are_told_and_unknown_ones_do_no_harm() -> None:
    payload = b'{"ClientId":"desk","Wants":["receipts","heartbeats","telepathy"]}'
    assert read_hello_client(Frame(9, payload=payload))[2] >= {RECEIPTS, HEARTBEATS}
    payload = b'{"Name":"rack-1","Wants":["reattach"]}'
    assert read_hello_worker(Frame(10, JOB_ID, payload=payload)) == HelloWorker("rack-1", ["reattach"])


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
        read_hello_client(Frame(9, subject=subject, payload=payload))


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
        read_hello_worker(Frame(10, msg_id, payload=payload))


@pytest.mark.spec("F5")
def test_an_old_worker_has_no_name_and_wants_nothing() -> None:
    assert read_hello_worker(Frame(10, JOB_ID, subject="job.assign.>")) == HelloWorker()


@pytest.mark.parametrize("cap", [1, 4, 100_000])
def test_a_cap_is_an_int32(cap: int) -> None:
    assert write_cap(cap) == cap.to_bytes(4, "little")
    assert read_cap(write_cap(cap)) == cap


@pytest.mark.parametrize("payload", [b"", b"\x01", b"\x01\x00\x00\x00\x00", b"\xff\xff\xff\xff"])
def test_a_cap_that_cannot_be_read_is_never_above_zero(payload: bytes) -> None:
    assert read_cap(payload) <= 0


def test_a_welcome_tells_the_version() -> None:
    assert read_welcome(encode(Welcome("1.2.3"))).version == "1.2.3"
    with pytest.raises(PeerError, match="the payload of Welcome"):
        read_welcome(b"{}")


@pytest.mark.spec("F5")
def test_a_worker_says_how_many_slots_it_has_within_bounds() -> None:
    hello = HelloWorker("rack-1", [], 8, runs_unnamed=True)
    assert read_hello_worker(Frame(10, JOB_ID, payload=encode(hello))) == hello
    for slots in (-1, 4097):
        with pytest.raises(PeerError, match="slots"):
            read_hello_worker(Frame(10, JOB_ID, payload=encode(HelloWorker("rack-1", [], slots))))


@pytest.mark.spec("O1")
def test_a_hello_carries_a_key_only_if_there_is_one_and_hides_it() -> None:
    key = f"desk-1:{'k' * 32}-{'x' * 52}"
    client, worker = HelloClient("desk", 4, key=key), HelloWorker("rack-1", key=key)
    assert encode(client) == b'{"ClientId":"desk","DesiredParallelism":4,"Key":"%s"}' % key.encode()
    assert encode(worker) == b'{"Name":"rack-1","Key":"%s"}' % key.encode()
    assert b"Key" not in encode(HelloClient("desk", 4)) + encode(HelloWorker("rack-1"))
    assert read_hello_client(Frame(9, payload=encode(client)))[3] == key
    assert read_hello_worker(Frame(10, JOB_ID, payload=encode(worker))).key == key
    assert "xxx" not in f"{client} {client!r} {worker} {worker!r}"
    for read, frame in (
        (read_hello_client, Frame(9, subject="a", payload=b'{"Key":["%s"]}' % key.encode())),
        (read_hello_worker, Frame(10, JOB_ID, payload=b'{"Name":7,"Key":"%s"}' % key.encode())),
        (read_hello_worker, Frame(10, JOB_ID, payload=b'{"Key":"%s' % key.encode())),
    ):
        assert "xxx" not in complaint(read, frame)


@pytest.mark.spec("O1")
def test_a_welcome_says_only_that_keys_have_rules() -> None:
    assert encode(Welcome("1")) == b'{"Version":"1"}'
    assert encode(Welcome("1", keys_have_rules=True)) == b'{"Version":"1","KeysHaveRules":true}'
    assert read_welcome(b'{"Version":"1","KeysHaveRules":true}').keys_have_rules
