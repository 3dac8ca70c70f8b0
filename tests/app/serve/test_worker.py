"""`waku worker` that cannot start like this says why, before it dials."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from wakugumi.adapters.access.access_file import AccessFile
from wakugumi.adapters.access.certificates import ca_digest, make_ca
from wakugumi.adapters.access.entry import AccessEntry
from wakugumi.adapters.access.state_folder import new_key
from wakugumi.adapters.net.address import Address
from wakugumi.app.cli import call
from wakugumi.app.program_settings import ProgramSettings
from wakugumi.app.serve import worker, worker_cache
from wakugumi.core.access.known_as import Degree
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
        worker.ready("worker", settings, ProgramSettings(), Degree.THIS_USER)
    assert "--slots " in told.value.hint


@pytest.mark.spec("C2")
def test_only_where_a_leader_is_a_cache_folder_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_cache, "DEFAULT", str(tmp_path / "cache"))
    alone = WorkerSettings(programs=tmp_path, slots=1)
    assert worker.ready("node", alone, ProgramSettings(), Degree.THIS_USER).cache is None
    with_leader = replace(alone, leader=Address("127.0.0.1", 1))
    assert worker.ready("worker", with_leader, ProgramSettings(), Degree.THIS_USER).cache == tmp_path / "cache"
    told = replace(with_leader, cache=tmp_path / "own")
    assert worker.ready("worker", told, ProgramSettings(), Degree.THIS_USER).cache == tmp_path / "own"


@pytest.mark.spec("O1")
def test_the_first_line_names_the_proof_that_a_worker_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    here, far, joined = Address("127.0.0.1", 5000), Address("192.0.2.7", 5000), Address("192.0.2.8", 5000)
    ca = make_ca().certificate
    path = tmp_path / "home" / "access.toml"
    AccessFile(path).add(AccessEntry((joined,), ca.decode(), new_key("rack-7", ca_digest(ca))))
    degrees = [worker.dialled_degree(leader, path) for leader in (here, far, joined)]
    assert degrees == [Degree.THIS_USER, Degree.OPEN, Degree.KEYS]
    monkeypatch.setattr(worker_cache, "DEFAULT", str(tmp_path / "cache"))
    with caplog.at_level("INFO"):
        worker.ready("worker", WorkerSettings(programs=tmp_path, slots=1), ProgramSettings(), Degree.KEYS)
    assert "access='keys over TLS'" in caplog.messages[0]


@pytest.mark.spec("O1")
def test_where_keys_have_rules_programs_must_be_apart_or_the_operator_says_otherwise(tmp_path: Path) -> None:
    settings = WorkerSettings(programs=tmp_path, slots=1)
    with pytest.raises(worker.ConfigError, match="keys have rules here"):
        worker.ready("node", settings, ProgramSettings(), Degree.KEYS, keys_have_rules=True)
    later = worker.ready("worker", settings, ProgramSettings(), Degree.KEYS).where_rules
    assert "keys have rules here" in later.refused
    own = ProgramSettings(as_root=os.geteuid() == 0, same_user=os.geteuid() != 0)
    assert not worker.ready("node", settings, own, Degree.KEYS, keys_have_rules=True).where_rules.refused
