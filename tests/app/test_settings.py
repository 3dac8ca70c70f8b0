"""Where a setting comes from, and what is said about one that cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from wakugumi.adapters.machine.usable_cpus import usable_cpus
from wakugumi.app import settings
from wakugumi.errors import ConfigError


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder without settings, in an environment without settings."""
    monkeypatch.chdir(tmp_path)
    for setting in settings.ALL:
        for name in (*setting.env, "WAKU_CONFIG"):
            monkeypatch.delenv(name, raising=False)
    settings._file.cache_clear()
    yield tmp_path
    settings._file.cache_clear()
    settings._untold.clear()


def test_a_flag_beats_the_environment_beats_the_file_beats_the_default(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings.SLOTS.value() == usable_cpus()
    (elsewhere / "waku.toml").write_text("slots = 5\n")
    settings._file.cache_clear()
    assert settings.SLOTS.value() == 5
    monkeypatch.setenv("WORKER_MAX_PAR", "6")
    assert settings.SLOTS.value() == 6
    monkeypatch.setenv("WAKU_SLOTS", "7")
    assert settings.SLOTS.value() == 7
    assert settings.SLOTS.value(8) == 8


@pytest.mark.spec("W2", "K7")
def test_the_old_names_are_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_CPU_CAP", "0.5")
    monkeypatch.setenv("CLIENT_DESIRED_PAR", "9")
    assert settings.CPU_CAP_SHARE.value() == 0.5
    assert settings.DESIRED.value() == 9


def test_the_embedded_grid_does_not_hear_the_workers_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_MAX_PAR", "99")
    assert settings.LOCAL_SLOTS.value() == usable_cpus()


def test_an_empty_variable_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAKU_SLOTS", "")
    assert settings.SLOTS.value() == usable_cpus()


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("WAKU_SLOTS", "many", "WAKU_SLOTS is 'many', which is not a whole number"),
        ("WORKER_MAX_PAR", "0", "WORKER_MAX_PAR is 0, and must be 1 to 4096"),
        ("WORKER_CPU_CAP", "nan", "WORKER_CPU_CAP is nan, and must be 0.1 to 0.95, or off"),
        ("WAKU_CPU_CAP", "2", "WAKU_CPU_CAP is 2, and must be 0.1 to 0.95, or off"),
    ],
)
def test_a_bad_value_is_told_with_its_place(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, complaint: str
) -> None:
    monkeypatch.setenv(name, text)
    setting = settings.CPU_CAP_SHARE if "CPU" in name else settings.SLOTS
    with pytest.raises(ConfigError) as told:
        setting.value()
    assert str(told.value) == complaint


def test_a_bad_flag_is_told_by_its_name() -> None:
    with pytest.raises(ConfigError, match="--slots is 5000, and must be 1 to 4096"):
        settings.SLOTS.value(5000)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('slots = "four"', "slots in waku.toml is 'four', which is not a whole number"),
        ("slots = true", "slots in waku.toml is True, which is not a whole number"),
        ("slots = 0", "slots in waku.toml is 0, and must be 1 to 4096"),
        ("slotz = 4", "waku.toml has 'slotz', which is no setting"),
        ("slots = ", "waku.toml cannot be read: "),
    ],
)
def test_a_bad_line_of_the_file_is_told_with_the_file(elsewhere: Path, line: str, complaint: str) -> None:
    (elsewhere / "waku.toml").write_text(line)
    with pytest.raises(ConfigError) as told:
        settings.SLOTS.value()
    assert str(told.value).startswith(complaint)


def test_a_whole_number_in_the_file_is_a_number(elsewhere: Path) -> None:
    (elsewhere / "waku.toml").write_text("timeout = 30\nlog-json = true\n")
    assert settings.TIMEOUT_S.value() == 30.0
    assert settings.LOG_JSON.value() is True


def test_the_file_may_lie_elsewhere_but_must_be_there(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (elsewhere / "other.toml").write_text('leader = "grid:5000"')
    monkeypatch.setenv("WAKU_CONFIG", str(elsewhere / "other.toml"))
    assert settings.LEADER.value() == "grid:5000"
    settings._file.cache_clear()
    monkeypatch.setenv("WAKU_CONFIG", str(elsewhere / "none.toml"))
    with pytest.raises(ConfigError, match=r"WAKU_CONFIG names .*none.toml, which cannot be read"):
        settings.LEADER.value()


@pytest.mark.parametrize(("text", "truth"), [("1", True), ("true", True), ("Yes", True), ("0", False), ("off", False)])
def test_truth_is_written_in_many_ways(monkeypatch: pytest.MonkeyPatch, text: str, truth: bool) -> None:
    monkeypatch.setenv("WAKU_LOG_JSON", text)
    assert settings.LOG_JSON.value() is truth


@pytest.mark.spec("W2")
def test_the_cpu_limit_may_be_off_wherever_it_is_said(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings.CPU_CAP_SHARE.share() == 0.75
    assert settings.CPU_CAP_SHARE.share("off") is None
    assert settings.CPU_CAP_SHARE.share("0.5") == 0.5
    with pytest.raises(ConfigError, match=r"--cpu-cap is 1, and must be 0\.1 to 0\.95, or off"):
        settings.CPU_CAP_SHARE.share("1")
    with pytest.raises(ConfigError, match="--cpu-cap is 'much', which is neither a number nor off"):
        settings.CPU_CAP_SHARE.share("much")
    (elsewhere / "waku.toml").write_text('cpu-cap = "off"\n')
    settings._file.cache_clear()
    assert settings.CPU_CAP_SHARE.share() is None
    monkeypatch.setenv("WORKER_CPU_CAP", "0.9")
    assert settings.CPU_CAP_SHARE.share() == 0.9
    monkeypatch.setenv("WORKER_CPU_CAP", "off")
    assert settings.CPU_CAP_SHARE.share() is None


@pytest.mark.spec("O1")
def test_the_file_of_the_current_folder_is_told_once_and_only_if_it_is_used(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "_tellers", [])
    (elsewhere / "waku.toml").write_text('slots = 5\nleader = "grid.example:5000"\n')
    told: list[str] = []
    assert settings.SLOTS.value(3) == 3
    assert settings.TIMEOUT_S.value() == settings.TIMEOUT_S.default
    assert settings.SLOTS.is_said()
    settings.tell_used_by(told.append)
    assert told == [], "nothing was taken from it"
    assert settings.SLOTS.value() == 5
    assert settings.LEADER.value() == "grid.example:5000"
    assert told == [f"settings of {elsewhere / 'waku.toml'}: slots = 5, leader = 'grid.example:5000'"]


def test_what_was_taken_before_anybody_could_tell_is_told_then(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "_tellers", [])
    (elsewhere / "waku.toml").write_text(f'name = "{"x" * 2_000}"\n')
    assert settings.NAME.value()
    told: list[str] = []
    settings.tell_used_by(told.append)
    assert len(told) == 1
    assert told[0].endswith("x…")
    assert len(told[0]) < 1_000


def test_a_file_that_the_user_named_is_not_told(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "_tellers", [])
    (elsewhere / "mine.toml").write_text("slots = 5\n")
    monkeypatch.setenv("WAKU_CONFIG", "mine.toml")
    assert settings.SLOTS.value() == 5
    told: list[str] = []
    settings.tell_used_by(told.append)
    assert told == []
