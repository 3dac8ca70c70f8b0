"""`waku worker` that cannot start like this says why, before it dials."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from wakugumi.adapters.net.address import Address
from wakugumi.app.cli import call
from wakugumi.app.program_settings import ProgramSettings
from wakugumi.app.serve import worker, worker_cache
from wakugumi.roles.runner.settings import WorkerSettings


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("0",), "a port is 1 to 65535, not 0"),
        (("5000", "--programs", "/no/such/folder"), "the folder with the programs, /no/such/folder, does not exist"),
        (("5000", "--slots", "5000"), "--slots is 5000, and must be 1 to 4096"),
        (("5000", "--serve", "7000"), "would let anyone"),
        (("5000", "--advertise", "w:1"), "--serve"),
        (("5000", "--hold-env", "A=B"), "--hold-env: "),
    ],
)
@pytest.mark.spec("O1")
def test_a_worker_that_cannot_start_like_this_says_why(
    words: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["worker", "127.0.0.1", *words]) == 2
    assert complaint in capsys.readouterr().err


def test_more_slots_than_files_may_be_open_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "open_files_max", lambda: 100)
    settings = WorkerSettings(programs=tmp_path, slots=1000)
    with pytest.raises(worker.ConfigError, match="1000 slots may need") as told:
        worker.ready("worker", settings, ProgramSettings())
    assert "--slots " in told.value.hint


@pytest.mark.spec("C2")
def test_only_where_a_leader_is_a_cache_folder_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_cache, "DEFAULT", str(tmp_path / "cache"))
    alone = WorkerSettings(programs=tmp_path, slots=1)
    assert worker.ready("node", alone, ProgramSettings()).cache is None
    with_leader = replace(alone, leader=Address("127.0.0.1", 1))
    assert worker.ready("worker", with_leader, ProgramSettings()).cache == tmp_path / "cache"
    told = replace(with_leader, cache=tmp_path / "own")
    assert worker.ready("worker", told, ProgramSettings()).cache == tmp_path / "own"
