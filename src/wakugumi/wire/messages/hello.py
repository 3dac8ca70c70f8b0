"""How does a connection begin? (SPEC F5) Hellos, Welcome, Cap, and the names of what each side supports."""

from __future__ import annotations

from typing import Final

import msgspec

from wakugumi.core.ids import ClientId
from wakugumi.core.visible_text import is_plain_name
from wakugumi.errors import PeerError
from wakugumi.limits.leader import CLIENT_CAP_MAX, CLIENT_CAP_OLD
from wakugumi.limits.scheduling import CREDIT_MAX
from wakugumi.limits.wire import CLIENT_ID_CHARS_MAX, WORKER_NAME_CHARS_MAX
from wakugumi.wire.frame import Frame
from wakugumi.wire.messages.payload import read_payload

RECEIPTS: Final = "receipts"
HEARTBEATS: Final = "heartbeats"
REATTACH: Final = "reattach"
CANCELS: Final = "cancels"
CAPS: Final = "caps"
BLOBS: Final = "blobs"
"""The peer exchanges blobs for content that does not fit a frame, and takes lists of missing ones."""
FINDS: Final = "finds"
"""A leader answers which jobs it knows, without a client waiting for them."""
ZSTD: Final = "zstd"
"""Payloads of jobs and results may be compressed, in both directions."""
RESTS: Final = "rests"
"""A worker may report that its machine is out of order, and gives back jobs that it could not start."""
ENV: Final = "env"
"""A worker gives programs the variables of a job; a leader assigns such jobs to no other."""
DIGESTS: Final = "digests"
"""The peer sends the `request_digest` of each job: a client in the corrId of a SubmitJob, a worker in the msgId of an
AckJob."""
WANTS_CLIENT: Final = (RECEIPTS, HEARTBEATS, BLOBS, DIGESTS)
WANTS_WORKER: Final = (RECEIPTS, HEARTBEATS, REATTACH, CANCELS, BLOBS, RESTS, DIGESTS, ENV)


class HelloClient(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    client_id: str | None = None
    desired_parallelism: int | None = None
    wants: list[str] = []
    key: str = ""
    """The caller's key (`wire/access_line.py`); empty if the kernel or a certificate says who the caller is."""

    def __repr__(self) -> str:
        return f"HelloClient({self.client_id!r}, {self.desired_parallelism}, {self.wants})"


class HelloWorker(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    name: str = ""
    wants: list[str] = []
    slots: int = 0
    """All slots of the worker, which may get jobs that take several of them. 0 if not given."""
    runs_unnamed: bool = False
    """The worker has a program for jobs that name none."""
    as_root: bool = False
    """Programs have the rights of root there."""
    key: str = ""
    """The worker's key (`wire/access_line.py`); empty if the kernel or a certificate says which user runs it."""

    def __repr__(self) -> str:
        return f"HelloWorker({self.name!r}, {self.wants}, {self.slots})"


class Welcome(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """A leader's answer to a hello with wants: both sides now know what the other supports."""

    version: str
    wants: list[str] = []
    """Support of the leader beyond that of every leader with a Welcome: `caps`, `finds` and `env` for a client, `blobs`
    for both."""
    blobs: str = ""
    """URL of the leader's blobs; empty: the leader itself, over HTTP at the address of this connection."""
    keys_have_rules: bool = False
    """To a worker: a program that uses the worker's key gets round the rules of others (`--run-as`)."""


def read_hello_client(frame: Frame) -> tuple[ClientId, int, frozenset[str], str]:
    """Client id, cap, wants (F5) and the text of the key, unchecked. Raises PeerError."""
    hello = read_payload(HelloClient, frame.payload, "HelloClient") if frame.payload else HelloClient()
    client_id = frame.subject or hello.client_id or ""
    if not client_id or len(client_id) > CLIENT_ID_CHARS_MAX or not is_plain_name(client_id):
        raise PeerError(f"a client id is 1 to {CLIENT_ID_CHARS_MAX} printable characters, not {client_id[:80]!r}")
    cap = CLIENT_CAP_OLD if hello.desired_parallelism is None else hello.desired_parallelism
    if not 1 <= cap <= CLIENT_CAP_MAX:
        raise PeerError(f"DesiredParallelism is 1 to {CLIENT_CAP_MAX}, not {cap}")
    return ClientId(client_id), cap, frozenset(hello.wants), hello.key


def read_hello_worker(frame: Frame) -> HelloWorker:
    """An old worker has neither name nor wants nor slots. Raises PeerError."""
    if not any(frame.msg_id):
        raise PeerError("a worker's hello carries its id, not zeros")
    hello = read_payload(HelloWorker, frame.payload, "HelloWorker") if frame.payload else HelloWorker()
    if len(hello.name) > WORKER_NAME_CHARS_MAX or not is_plain_name(hello.name):
        raise PeerError(f"a worker's name is at most {WORKER_NAME_CHARS_MAX} printable characters")
    if not 0 <= hello.slots <= CREDIT_MAX:
        raise PeerError(f"a worker has at most {CREDIT_MAX} slots, not {hello.slots}")
    return hello


def read_cap(payload: bytes) -> int:
    """The int32 of a Cap frame; 0, which the core refuses, for anything malformed."""
    return int.from_bytes(payload, "little", signed=True) if len(payload) == 4 else 0


def write_cap(cap: int) -> bytes:
    assert 0 < cap <= CLIENT_CAP_MAX
    return cap.to_bytes(4, "little", signed=True)


def read_welcome(payload: bytes) -> Welcome:
    return read_payload(Welcome, payload, "Welcome")
