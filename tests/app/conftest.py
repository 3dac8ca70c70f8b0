"""A leader that says what a test likes, to real commands over a real socket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.kit.answering_leader import AnsweringLeader


@pytest.fixture
def leader(monkeypatch: pytest.MonkeyPatch) -> Iterator[AnsweringLeader]:
    leader = AnsweringLeader()
    monkeypatch.setenv("WAKU_LEADER", leader.address)
    yield leader
    leader.close()
