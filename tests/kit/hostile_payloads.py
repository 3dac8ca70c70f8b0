"""Payloads that a stranger may write: JSON that is none, that is too deep, or of another shape."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

from hypothesis import strategies as st

from wakugumi.core.ids import JobId
from wakugumi.errors import PeerError, Refused

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
