"""An answer may not trickle."""

from __future__ import annotations

import http.client
import socket

import pytest

from wakugumi.adapters.http import paced_answer
from wakugumi.adapters.http.paced_answer import PacedAnswer, TooSlow
from wakugumi.limits.files import BLOB_RECEIVED_MIN_BYTES


def answered(body: bytes) -> http.client.HTTPResponse:
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    with ours:
        answer = PacedAnswer(ours)
        answer.begin()
        return answer


def test_an_answer_is_read_to_its_end() -> None:
    with answered(b"content") as answer:
        assert answer.read() == b"content"


def test_a_wait_for_next_to_nothing_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 100_000, 20))
    monkeypatch.setattr(paced_answer.time, "monotonic", lambda: float(next(clock)))
    with pytest.raises(TooSlow, match=f"less than {BLOB_RECEIVED_MIN_BYTES} bytes"):
        answered(b"x" * 10_000).read()
