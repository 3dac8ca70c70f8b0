"""`waku node` that cannot start like this says why, before anything listens."""

from __future__ import annotations

from pathlib import Path

import pytest

from wakugumi.app.cli import call


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--http", "off", "--lines", "off"), "cannot be reached"),
        (("--program", "a", "--command", "b"), "both say what jobs run"),
        (("--program", "a b"), "one name"),
        (("--command", "../x"), "not a command"),
        (("--http", "0.0.0.0:0"), "needs a folder for its keys"),
        (("--http", "here"), "--http"),
        (("--tls-cert", "a.pem"), "its key"),
        (("--tls-cert", "a.pem", "--tls-key", "b.pem", "--http", "0", "--lines", "0"), "cannot be used"),
        (("--input-bytes", "much"), "no size"),
        (("--keep-days", "0"), "keep-days"),
    ],
)
@pytest.mark.spec("O1")
def test_a_node_that_cannot_start_like_this_says_why(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], words: tuple[str, ...], complaint: str
) -> None:
    assert call(["node", *words, "--programs", str(tmp_path), "--jobs", str(tmp_path / "jobs")]) == 2
    assert complaint in capfd.readouterr().err
