"""Which `waku.toml` is used is said, and nothing else is disturbed by it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.spec("O1")


def test_a_command_says_whose_settings_it_takes(grid, waku, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WAKU_LEADER")
    (home / "waku.toml").write_text(f'leader = "{grid.address}"\n')
    said = f"settings of {home / 'waku.toml'}: leader = '{grid.address}'\n"
    done = waku("status")
    assert (done.returncode, done.stderr) == (0, said)
    done = waku("workers", "list", "-o", "json")
    assert (len(json.loads(done.stdout)["workers"]), done.stderr) == (1, said)
    done = waku("run", "calcA", "--", "x")
    assert (done.returncode, done.stdout, done.stderr) == (0, "calcA x\n", said)
    done = waku("status", "-o", "quiet", "--leader", grid.address)
    assert (done.stdout, done.stderr) == ("ok\n", ""), "nothing was taken from it"
    assert waku("run", "/bin/echo", "--", "hi", cwd=home.parent).stderr == "", "there is none"


def test_a_role_says_it_in_its_log_and_in_the_logs_form(start, home: Path) -> None:
    (home / "waku.toml").write_text("memory = true\nlog-json = true\n")
    leader = start("leader", "0")
    leader.line()
    lines = [json.loads(line) for line in leader.until(lambda text: "leader ready" in text).splitlines()]
    said = [line["msg"] for line in lines if line["msg"].startswith("settings of ")]
    assert said == [f"settings of {home / 'waku.toml'}: memory = True, log-json = True"]
