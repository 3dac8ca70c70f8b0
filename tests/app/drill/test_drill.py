"""Which options does `waku drill` refuse?"""

from __future__ import annotations

import pytest

from wakugumi.app.cli import call


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--jobs", "0"], "--jobs is 0, and must be 1 to 1,000,000"),
        (["--workers", "-1"], "--workers is -1, and must be 1 to 100"),
        (["--kill", "leader,node"], "--kill names 'node', which is none of leader, worker, client"),
        (["--kill", ""], "--kill names '', which is none of leader, worker, client"),
        (["--times", "-3"], "--times is -3, and must be 0"),
        (["--away", "-0.5"], "--away is -0.5, and must be 0 to 3,600"),
        (["--seed", "x"], "invalid value"),
    ],
)
def test_a_bad_option_costs_a_sentence(words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["drill", *words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert complaint in said.err
    assert "Traceback" not in said.err
