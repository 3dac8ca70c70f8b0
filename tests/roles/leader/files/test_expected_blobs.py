"""What was just named and what is on its way count as needed: for a time, or until it came; all within bounds."""

from __future__ import annotations

import pytest

from wakugumi.core.ids import ConnId
from wakugumi.limits.files import BLOB_NAMED_S
from wakugumi.roles.leader.files.expected_blobs import ExpectedBlobs
from wakugumi.wire.messages.references import BlobRef

A, B, C = (BlobRef(letter * 64, 1) for letter in "abc")
ONE, TWO = ConnId(1), ConnId(2)


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def found(expected: ExpectedBlobs) -> str:
    return "".join(ref.sha256[0] for ref in (A, B, C) if ref.sha256 in expected)


def test_what_was_named_counts_for_a_while() -> None:
    clock = Clock()
    expected = ExpectedBlobs(clock)
    expected.name([A])
    assert found(expected) == "a"
    clock.now += BLOB_NAMED_S
    assert found(expected) == ""


def test_what_was_asked_for_counts_until_the_frame_came_or_its_sender_left() -> None:
    expected = ExpectedBlobs()
    expected.ask(ONE, b"1", [A, B])
    expected.ask(ONE, b"2", [B])
    expected.ask(TWO, b"1", [C])
    assert found(expected) == "abc"
    expected.settle(ONE, b"1")
    expected.settle(ONE, b"1")
    assert found(expected) == "bc"
    expected.disconnect(TWO)
    expected.disconnect(TWO)
    assert found(expected) == "b"
    expected.ask(ONE, b"2", [A])
    assert found(expected) == "a", "what it names now counts"
    expected.disconnect(ONE)
    assert found(expected) == ""
    assert expected.asked == 0
    expected.check()


def test_what_was_asked_for_first_is_forgotten_when_it_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakugumi.roles.leader.files.expected_blobs.BLOBS_ASKED_MAX", 2)
    expected = ExpectedBlobs()
    expected.ask(ONE, b"1", [A])
    expected.ask(TWO, b"2", [B])
    expected.ask(ONE, b"1", [A])
    expected.ask(ONE, b"3", [C])
    assert found(expected) == "ac"
    expected.ask(ONE, b"4", [A, B, C])
    assert found(expected) == "abc", "one frame may name as much as it may name"


def test_what_was_named_first_is_forgotten_when_it_is_too_much() -> None:
    expected = ExpectedBlobs()
    for start in range(0, 300_000, 10_000):
        expected.name([BlobRef(f"{number:064}", 1) for number in range(start, start + 10_000)])
    assert expected.named <= 100_000
    assert f"{299_999:064}" in expected
    assert f"{0:064}" not in expected
