"""Where does a worker started from the command line keep contents and caches, and who may fetch them from it?"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wakugumi.adapters.net.link import Address
from wakugumi.app.serve import worker_cache
from wakugumi.app.serve.worker_cache import Keeping, keeping, metrics_at
from wakugumi.errors import ConfigError


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("WAKU_CACHE", "WAKU_CACHE_BYTES", "WAKU_SERVE", "WAKU_ADVERTISE", "WAKU_METRICS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(worker_cache, "DEFAULT", str(tmp_path / "default"))


def test_flags_say_where_and_how_much() -> None:
    said = keeping("here", "2GiB", "10.0.0.7:7000", "w7.example:8000", allow_open=True)
    assert said == Keeping(Path("here").absolute(), 2 << 30, Address("10.0.0.7", 7000), Address("w7.example", 8000))


def test_so_does_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAKU_CACHE", "/there")
    monkeypatch.setenv("WAKU_CACHE_BYTES", "500MB")
    monkeypatch.setenv("WAKU_SERVE", "7000")
    monkeypatch.setenv("WAKU_ADVERTISE", "w7.example:7000")
    found = Keeping(Path("/there"), 500_000_000, Address("0.0.0.0", 7000), Address("w7.example", 7000))
    assert keeping(None, None, allow_open=True) == found


@pytest.mark.spec("C2")
def test_unless_told_it_is_the_contracts_folder() -> None:
    assert worker_cache.DEFAULT != "/opt/grid/cache", "not in tests"
    assert keeping(None, None) == Keeping(Path(worker_cache.DEFAULT), 0, None, None)
    assert os.path.isdir(worker_cache.DEFAULT)


def test_where_that_cannot_be_made_it_is_below_the_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(worker_cache, "DEFAULT", str(tmp_path / "file" / "cache"))
    assert keeping(None, None).folder is None


@pytest.mark.parametrize(
    ("cache_bytes", "serve", "advertise"),
    [("much", None, None), (None, "7000", None), (None, "host", None), (None, None, "w7:7000"), (None, "70000", "w:1")],
)
def test_what_cannot_be_is_refused(cache_bytes: str | None, serve: str | None, advertise: str | None) -> None:
    with pytest.raises(ConfigError):
        keeping("here", cache_bytes, serve, advertise, allow_open=True)


@pytest.mark.spec("O1")
def test_wider_than_this_machine_needs_a_word() -> None:
    with pytest.raises(ConfigError, match=r"--serve 0\.0\.0\.0:7000 would let anyone") as refused:
        keeping("here", None, "7000", "w7.example:7000")
    assert "--allow-open" in refused.value.hint
    with pytest.raises(ConfigError, match=r"--metrics 10\.0\.0\.7:9100 would let anyone"):
        metrics_at("10.0.0.7:9100")
    assert keeping("here", None, "127.0.0.1:7000").serve == Address("127.0.0.1", 7000)


def test_metrics_are_for_this_machine_unless_a_host_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert metrics_at(None) is None
    assert metrics_at("9100") == Address("127.0.0.1", 9100)
    assert metrics_at("10.0.0.7:9100", allow_open=True) == Address("10.0.0.7", 9100)
    monkeypatch.setenv("WAKU_METRICS", "9200")
    assert metrics_at(None) == Address("127.0.0.1", 9200)
    with pytest.raises(ConfigError, match="Port out of range"):
        metrics_at("70000")
