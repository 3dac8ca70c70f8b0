"""Where does a worker started from the command line keep contents and caches, and who may fetch them from it?"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wakugumi.adapters.net.address import Address
from wakugumi.app.serve import worker_cache
from wakugumi.app.serve.worker_cache import cache_folder, check_ports
from wakugumi.app.settings import load
from wakugumi.errors import ConfigError
from wakugumi.roles.runner.settings import WorkerSettings


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("WAKU_CACHE", "WAKU_CACHE_BYTES", "WAKU_SERVE", "WAKU_ADVERTISE", "WAKU_METRICS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(worker_cache, "DEFAULT", str(tmp_path / "default"))


def said(**flags: object) -> WorkerSettings:
    """What the command makes of flags that may be said. Raises ConfigError."""
    settings = load(WorkerSettings, flags)
    check_ports(settings)
    return settings


def kept(settings: WorkerSettings) -> tuple[Path | None, int, Address | None, Address | None]:
    return settings.cache, settings.cache_bytes, settings.serve, settings.advertise


def test_flags_say_where_and_how_much() -> None:
    found = said(cache="here", cache_bytes="2GiB", serve="10.0.0.7:7000", advertise="w7.example:8000", allow_open=True)
    where = (Address("10.0.0.7", 7000), Address("w7.example", 8000))
    assert kept(found) == (Path("here").absolute(), 2 << 30, *where)


def test_so_does_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAKU_CACHE", "/there")
    monkeypatch.setenv("WAKU_CACHE_BYTES", "500MB")
    monkeypatch.setenv("WAKU_SERVE", "7000")
    monkeypatch.setenv("WAKU_ADVERTISE", "w7.example:7000")
    where = (Address("0.0.0.0", 7000), Address("w7.example", 7000))
    assert kept(said(allow_open=True)) == (Path("/there"), 500_000_000, *where)


@pytest.mark.spec("C2")
def test_unless_told_it_is_the_contracts_folder() -> None:
    assert worker_cache.DEFAULT != "/opt/grid/cache", "not in tests"
    assert kept(said()) == (None, 0, None, None)
    assert cache_folder() == Path(worker_cache.DEFAULT)
    assert os.path.isdir(worker_cache.DEFAULT)


def test_where_that_cannot_be_made_it_is_below_the_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(worker_cache, "DEFAULT", str(tmp_path / "file" / "cache"))
    assert cache_folder() is None


@pytest.mark.parametrize(
    "flags",
    [
        {"cache_bytes": "much"},
        {"serve": "7000"},
        {"serve": "host"},
        {"advertise": "w7:7000"},
        {"serve": "70000", "advertise": "w:1"},
    ],
)
def test_what_cannot_be_is_refused(flags: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        said(allow_open=True, **flags)


@pytest.mark.spec("O1")
def test_wider_than_this_machine_needs_a_word() -> None:
    with pytest.raises(ConfigError, match=r"--serve 0\.0\.0\.0:7000 would let anyone") as refused:
        said(serve="7000", advertise="w7.example:7000")
    assert "--allow-open" in refused.value.hint
    with pytest.raises(ConfigError, match=r"--metrics 10\.0\.0\.7:9100 would let anyone"):
        said(metrics="10.0.0.7:9100")
    assert said(serve="127.0.0.1:7000").serve == Address("127.0.0.1", 7000)


def test_metrics_are_for_this_machine_unless_a_host_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said().metrics is None
    assert said(metrics="9100").metrics == Address("127.0.0.1", 9100)
    assert said(metrics="10.0.0.7:9100", allow_open=True).metrics == Address("10.0.0.7", 9100)
    monkeypatch.setenv("WAKU_METRICS", "9200")
    assert said().metrics == Address("127.0.0.1", 9200)
    with pytest.raises(ConfigError, match="Port out of range"):
        said(metrics="70000")
