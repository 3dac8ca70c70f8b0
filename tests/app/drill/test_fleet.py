"""The processes of a drill: those that are first are waited for, and one that cannot start ends the drill."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from wakugumi.app.drill.client import Orders
from wakugumi.app.drill.fleet import CLIENT, LEADER, WORKER, Fleet, Member, grid_fleet
from wakugumi.app.drill.marks import Marks
from wakugumi.errors import ConfigError


def test_a_grid_has_its_leaders_first_and_its_client_last(tmp_path: Path) -> None:
    fleet = grid_fleet(tmp_path, Marks(tmp_path / "marks"), 2, 3, 1, Orders("", "", 1, 1.0, 1, 64), memory=True)
    assert [member.kind for member in fleet.members] == [LEADER, LEADER, WORKER, WORKER, WORKER, CLIENT]
    assert not fleet.is_up


def look_on(fleet: Fleet) -> None:
    while True:
        fleet.look()
        time.sleep(0.01)


def test_one_that_cannot_be_started_is_told_with_its_last_words(tmp_path: Path) -> None:
    marks = Marks(tmp_path / "marks")
    first = Member("gateway", ("no_such_module",), tmp_path, marks)
    later = Member("node-1-1", ("no_such_module",), tmp_path, marks)
    fleet = Fleet([first, later], [first])
    try:
        with pytest.raises(ConfigError, match=r"the gateway cannot be started: .*no_such_module"):
            look_on(fleet)
    finally:
        fleet.end()
        marks.close()
    assert (first.lives, later.lives) == (1, 0)
