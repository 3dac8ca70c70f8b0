"""Where do the jobs of a command run, and under which name of their program?"""

from __future__ import annotations

from pathlib import Path

import pytest

from wakugumi.app.client_settings import ClientSettings
from wakugumi.app.work.target import choose
from wakugumi.errors import ConfigError

HERE, THERE = ClientSettings(slots=3), ClientSettings(leader="a:1,b:2", cap=50, slots=3)


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "price:it.py"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_without_a_leader_a_file_of_this_machine_runs(program: str) -> None:
    place = choose(program, HERE)
    assert (place.leader, place.program, place.path, place.parallel) == ("", "price_it_py", program, 3)
    assert choose(program, HERE, slots=1).parallel == 1


def test_with_a_leader_a_name_is_enough() -> None:
    place = choose("no-such-program-here", THERE, slots=1)
    assert (place.leader, place.program, place.path, place.parallel) == ("a:1,b:2", "no-such-program-here", "", 50)


def test_a_program_that_cannot_run_there_is_refused(program: str) -> None:
    with pytest.raises(ConfigError) as refused:
        choose(program, THERE)
    assert "installed on the workers" in refused.value.hint
    with pytest.raises(ConfigError):
        choose("no-such-program-here", HERE)
