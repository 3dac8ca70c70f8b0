"""The examples of docs/reference/protocol.md are the golden bytes: each is encoded, compared, decoded and read again.

Three hands write them: the document, our code, and `old_peers`, which was written from the contract alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import msgspec
import pytest
from tests.kit import old_peers

from wakugumi.core.ids import JobId
from wakugumi.core.leader import answer_records as an
from wakugumi.core.leader import questions as qu
from wakugumi.wire import frame as fr
from wakugumi.wire.frame import Decoder, Frame
from wakugumi.wire.messages.cache import CachePutHead, CachePutRequest, CachePutResult, Source, Stock, Want
from wakugumi.wire.messages.control import Rest, read_holding, read_load, read_question
from wakugumi.wire.messages.hello import (
    WANTS_CLIENT,
    WANTS_WORKER,
    HelloClient,
    HelloWorker,
    Welcome,
    read_cap,
    write_cap,
)
from wakugumi.wire.messages.job import (
    Missing,
    Refusal,
    pack_ids,
    read_credit,
    read_refusal,
    read_request,
    read_result,
    unpack_ids,
    write_credit,
)
from wakugumi.wire.messages.payload import encode

TEXT = (Path(__file__).parents[2] / "docs" / "reference" / "protocol.md").read_text(encoding="utf-8")
FIELDS = {"type", "msgId", "corrId", "subject", "payload"}


class Example(NamedTuple):
    """One `frame` block: its fields, a blank line, and a dump of `offset  bytes  |text|`."""

    name: str
    frame: Frame
    data: bytes


def parse(block: str) -> Example:
    head, dump = block.strip("\n").split("\n\n")
    fields = dict(line.split(maxsplit=1) for line in head.split("\n"))
    assert fields.keys() <= FIELDS
    number, name = fields["type"].split()
    frame = Frame(
        int(number),
        UUID(fields["msgId"]).bytes_le if "msgId" in fields else fr.NO_ID,
        UUID(fields["corrId"]).bytes_le if "corrId" in fields else fr.NO_ID,
        fields.get("subject", ""),
        payload_of(fields.get("payload", "")),
    )
    rows = [re.fullmatch(r"([0-9a-f]{4})  ((?:[0-9a-f]{2} ?)+) *  \|(.+)\|", line) for line in dump.split("\n")]
    data = b""
    for row in rows:
        assert row is not None, dump
        piece = bytes.fromhex(row[2])
        assert int(row[1], 16) == len(data)
        assert row[3] == "".join(chr(byte) if 32 <= byte < 127 else "." for byte in piece)
        data += piece
    return Example(name, frame, data)


def payload_of(text: str) -> bytes:
    kind, _, rest = text.partition(" ")
    if kind == "int32":
        return int(rest).to_bytes(4, "little", signed=True)
    if kind == "ids":
        return b"".join(UUID(one).bytes_le for one in rest.split())
    return text.encode()


EXAMPLES = [parse(block) for block in re.findall(r"^```frame\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)]


def again(record: type[msgspec.Struct]) -> Callable[[Frame], bytes]:
    """Read as this record and written anew."""
    return lambda frame: encode(msgspec.json.decode(frame.payload, type=record))


def an_ask(frame: Frame) -> bytes:
    if frame.subject == "refused":
        return encode(read_refusal(frame.payload))
    if any(frame.msg_id):
        return encode(read_question(frame.payload))
    return again(an.ExplainAnswer)(frame)


def a_row(frame: Frame) -> bytes:
    return pack_ids(unpack_ids(frame.payload))


def a_result(frame: Frame) -> bytes:
    return encode(read_result(JobId(frame.corr_id), frame.payload))


REWRITE: dict[int, Callable[[Frame], bytes]] = {
    fr.SUBMIT_JOB: lambda frame: encode(read_request(frame.payload)),
    fr.ASSIGN_JOB: lambda frame: encode(read_request(frame.payload)),
    fr.ACK_JOB: a_result,
    fr.CREDIT: lambda frame: write_credit(read_credit(frame.payload)),
    fr.CAP: lambda frame: write_cap(read_cap(frame.payload)),
    fr.RESULT: a_result,
    fr.CACHE_PUT: again(CachePutRequest),
    fr.CACHE_ACK: again(CachePutResult),
    fr.HELLO_CLIENT: again(HelloClient),
    fr.HELLO_WORKER: again(HelloWorker),
    fr.WELCOME: again(Welcome),
    fr.MISSING: again(Missing),
    fr.RECEIPT: a_row,
    fr.REFUSAL: again(Refusal),
    fr.CONFIRM: a_row,
    fr.HEARTBEAT: lambda frame: encode(read_load(frame.payload)),
    fr.HOLDING: lambda frame: encode(read_holding(frame.payload)),
    fr.CANCEL: a_row,
    fr.ASK: an_ask,
    fr.CLAIM: a_row,
    fr.FIND: a_row,
    fr.FOUND: a_row,
    fr.FETCH: a_row,
    fr.MISSING: again(Missing),
    fr.STOCK: again(Stock),
    fr.WANT: again(Want),
    fr.SOURCE: again(Source),
    fr.CACHE_DROP: again(CachePutHead),
    fr.RESTING: again(Rest),
}
"""How our code would write the payload it reads there; Leaving is empty."""

each_example = pytest.mark.parametrize(
    "example", EXAMPLES, ids=[f"{at}-{example.name}" for at, example in enumerate(EXAMPLES)]
)


@pytest.mark.spec("F4")
def test_every_type_has_an_example_and_a_heading_with_its_number() -> None:
    assert {example.frame.type for example in EXAMPLES} == fr.NAMES.keys()
    headings = re.findall(r"^### (\w+) \((\d+)\), ", TEXT, re.MULTILINE)
    assert sorted((int(number), name) for name, number in headings) == sorted(fr.NAMES.items())


@pytest.mark.spec("F1", "F2")
@each_example
def test_our_code_writes_the_example(example: Example) -> None:
    frame = example.frame
    assert fr.NAMES[frame.type] == example.name
    assert fr.encode(frame.type, frame.msg_id, frame.corr_id, frame.subject, frame.payload) == example.data


@pytest.mark.spec("F1", "F2")
@each_example
def test_our_code_reads_the_example(example: Example) -> None:
    assert list(Decoder().feed(example.data)) == [example.frame]


@pytest.mark.spec("F1", "F2")
@each_example
def test_an_old_peer_writes_and_reads_the_example_alike(example: Example) -> None:
    message = old_peers.unpack(example.data[4:])
    assert old_peers.pack(message) == example.data
    assert message.type == example.frame.type
    assert (message.msg_id.bytes_le, message.corr_id.bytes_le) == (example.frame.msg_id, example.frame.corr_id)
    assert (message.subject, message.payload) == (example.frame.subject, example.frame.payload)


@pytest.mark.spec("F6")
@each_example
def test_our_code_would_write_the_examples_payload_itself(example: Example) -> None:
    if example.frame.payload and example.frame.type in REWRITE:
        assert REWRITE[example.frame.type](example.frame) == example.frame.payload
    else:
        assert not example.frame.payload


@each_example
def test_json_in_the_examples_is_json(example: Example) -> None:
    if example.frame.payload.startswith(b"{"):
        assert isinstance(json.loads(example.frame.payload), dict)


def test_every_question_is_in_the_document() -> None:
    rows = set(re.findall(r"^\| `([\w-]+)` \|", TEXT, re.MULTILINE))
    assert {kind.__struct_config__.tag for kind in qu.Question.__args__} <= rows


def test_every_want_is_in_the_document() -> None:
    for want in {*WANTS_CLIENT, *WANTS_WORKER}:
        assert f"`{want}`" in TEXT


@pytest.mark.parametrize(
    "broken",
    [
        "type     20 Heartbeat\n\n0000  27 00  |..|",
        "type     20 Heartbeat\n\n0000  27 00  |'.|\n0010  00  |.|",
        "type     20 Heartbeat\n\n0000  27 zz  |'.|",
        "kind     20 Heartbeat\n\n0000  27  |'|",
    ],
)
def test_an_example_with_a_slip_is_not_read(broken: str) -> None:
    with pytest.raises(AssertionError):
        parse(broken)
