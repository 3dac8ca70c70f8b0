"""What a peer says about a refusal, and what counts if it says nothing that can be read."""

from __future__ import annotations

import pytest

from wakugumi.wire.problem import PeerProblem, read_problem


def test_the_known_fields_are_read_and_others_are_left_alone() -> None:
    body = b'{"type":"about:blank","status":503,"code":"busy","detail":"full","hint":"come again"}'
    assert read_problem(body) == PeerProblem("busy", "full", "come again")


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"code":1}', b"[" * 100_000, b"\xff"])
def test_a_body_that_is_no_problem_is_an_empty_one(body: bytes) -> None:
    assert read_problem(body) == PeerProblem()
