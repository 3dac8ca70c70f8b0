"""When an embedded grid is begun before the command line is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from tests.kit.fresh_settings import forget_settings

from wakugumi.adapters.machine.usable_cpus import usable_cpus
from wakugumi.app.work import early
from wakugumi.app.work.programs import find
from wakugumi.roles.local.local import Local


@pytest.fixture(autouse=True)
def begun(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Local]]:
    monkeypatch.delenv("WAKU_LEADER", raising=False)
    monkeypatch.delenv("WAKU_SLOTS", raising=False)
    forget_settings()
    yield early._begun
    early.drop()


@pytest.mark.parametrize(
    ("words", "slots"),
    [
        (["run", "/bin/true"], 1),
        (["run", "sh", "--timeout", "3"], 1),
        (["map", "/bin/true", "in"], usable_cpus()),
        (["map", "/bin/true", "in", "--slots", "7"], 7),
        (["map", "/bin/true", "--slots=8", "in"], 8),
    ],
)
def test_it_is_begun_for_what_will_want_it(words: Sequence[str], slots: int, begun: list[Local]) -> None:
    early.start(words)
    (grid,) = begun
    assert early.take(find(words[1]), slots, "") is grid
    assert begun == []
    grid.drop()


def test_a_wrong_guess_is_not_taken_and_let_go(begun: list[Local]) -> None:
    early.start(["map", "/bin/true", "--slots", "3"])
    (grid,) = begun
    assert early.take("/bin/true", 4, "") is not grid
    assert early.take("/bin/false", 3, "") is not grid
    assert begun == [grid]
    early.drop()
    assert begun == []


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["run"],
        ["run", "--help"],
        ["run", "/bin/true", "--help"],
        ["run", "/bin/true", "--leader", "grid:5000"],
        ["run", "/bin/true", "--client-id=me"],
        ["run", "--timeout", "3", "/bin/true"],
        ["run", "/no/such/program"],
        ["map", "/bin/true", "--slots", "many"],
        ["map", "/bin/true", "--slots", "0"],
        ["status"],
        ["leader", "5000"],
    ],
)
def test_it_is_not_begun_for_what_will_not(words: Sequence[str], begun: list[Local]) -> None:
    early.start(words)
    assert begun == []


def test_it_is_not_begun_where_a_leader_is_named(monkeypatch: pytest.MonkeyPatch, begun: list[Local]) -> None:
    monkeypatch.setenv("WAKU_LEADER", "grid:5000")
    early.start(["run", "/bin/true"])
    assert begun == []
