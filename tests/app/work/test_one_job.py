"""What a job's end means to a shell."""

from __future__ import annotations

from pathlib import Path

import pytest

from wakugumi import Cached
from wakugumi.app.work.one_job import exit_code, named_files
from wakugumi.errors import ConfigError
from wakugumi.roles.client.result import Result
from wakugumi.wire.messages.job import JobResult


def result(status: str, reason: str | None = None, code: int | None = None) -> Result:
    return Result(JobResult("id", status=status, reason=reason, exit_code=code), "id")


@pytest.mark.parametrize(
    ("ended", "code", "said"),
    [
        (result("OK", None, 0), 0, ""),
        (result("FAILED", "exit", 42), 42, ""),
        (result("FAILED", None, 137), 137, ""),
        (result("FAILED", "timeout", 143), 6, "the job failed: timeout"),
        (result("FAILED", "dead"), 1, "the job failed: dead"),
        (result("FAILED", "unknown-program"), 1, "hint: install the program"),
        (result("FAILED", "denied"), 4, "the job failed: denied"),
        (result("FAILED", "of-a-newer-version"), 1, "the job failed: of-a-newer-version"),
        (result("FAILED"), 1, "the job failed: no reason given"),
    ],
)
def test_the_exit_code_tells_how_it_ended(
    ended: Result, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(ended) == code
    told = capsys.readouterr().err
    assert said in told
    assert bool(said) == bool(told)


def test_names_of_cached_files_are_checked(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    assert named_files([], ["c/a", "c/b/d"]) == {"a": Cached("c"), "b/d": Cached("c")}
    for cached in (["c"], ["c/"], ["/a"], [".x/a"], ["c/a", "d/a"]):
        with pytest.raises(ConfigError):
            named_files([], cached)
    with pytest.raises(ConfigError, match="two files"):
        named_files([str(tmp_path / "a")], ["c/a"])
