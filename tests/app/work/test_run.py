"""`waku run`: does one job run with its flags, and is a bad flag told before it?"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kit.answering_leader import AnsweringLeader

from wakugumi.app.cli import call
from wakugumi.errors import EXIT_USAGE


def test_the_output_of_the_program_is_that_of_the_command(
    leader: AnsweringLeader, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_text("input")
    words = ["run", "calcA", "--file", str(tmp_path / "in.txt"), "--timeout", "60", "--out", str(tmp_path / "out")]
    assert call([*words, "--leader", leader.address, "--", "in.txt"]) == 0
    assert capsys.readouterr().out == "done\n"


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--max-bytes", "much"], "--max-bytes"),
        (["--file", "/no/such/file"], "/no/such/file"),
        (["--timeout", "-1"], "--timeout"),
        (["--leader", "nowhere:99999"], "99999"),
    ],
)
def test_a_bad_flag_is_told_and_no_job_is_sent(
    leader: AnsweringLeader, capsys: pytest.CaptureFixture[str], flags: list[str], told: str
) -> None:
    leader.refusal = "full", "a job was sent"
    assert call(["run", "calcA", *flags]) == EXIT_USAGE
    err = capsys.readouterr().err
    assert told in err
    assert "a job was sent" not in err
