"""Where a setting comes from, and what is said about one that cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kit.fresh_settings import forget_settings

from wakugumi.adapters.machine.usable_cpus import usable_cpus
from wakugumi.app import settings
from wakugumi.app.client_settings import ClientSettings
from wakugumi.app.settings import load
from wakugumi.errors import ConfigError
from wakugumi.roles.gateway.settings import GatewaySettings
from wakugumi.roles.leader.settings import LeaderSettings
from wakugumi.roles.node.settings import NodeSettings
from wakugumi.roles.runner.settings import WorkerSettings


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder without settings, in an environment without settings."""
    monkeypatch.chdir(tmp_path)
    for name in {"WAKU_CONFIG", *(name for option in settings.all_options() for name in option.env)}:
        monkeypatch.delenv(name, raising=False)
    forget_settings()
    yield tmp_path
    forget_settings()


def slots(flag: int | None = None) -> int:
    return load(WorkerSettings, {"slots": flag}, ["slots"]).slots


def cpu_cap(flag: str | None = None) -> float | None:
    return load(WorkerSettings, {"cpu_cap": flag}, ["cpu_cap"]).cpu_cap


def test_a_flag_beats_the_environment_beats_the_file_beats_the_default(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert slots() == usable_cpus()
    (elsewhere / "waku.toml").write_text("slots = 5\n")
    forget_settings()
    assert slots() == 5
    monkeypatch.setenv("WORKER_MAX_PAR", "6")
    assert slots() == 6
    monkeypatch.setenv("WAKU_SLOTS", "7")
    assert slots() == 7
    assert slots(8) == 8


def test_without_anything_said_all_have_their_defaults() -> None:
    for role in (LeaderSettings, WorkerSettings, NodeSettings, GatewaySettings, ClientSettings):
        assert load(role) == role()


@pytest.mark.spec("W2", "K7")
def test_the_old_names_are_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_CPU_CAP", "0.5")
    monkeypatch.setenv("CLIENT_DESIRED_PAR", "9")
    assert cpu_cap() == 0.5
    assert load(ClientSettings).desired == 9


def test_the_embedded_grid_and_a_node_do_not_hear_the_workers_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_MAX_PAR", "99")
    assert load(ClientSettings).slots == usable_cpus()
    assert load(NodeSettings).slots == usable_cpus()


def test_an_empty_variable_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAKU_SLOTS", "")
    assert slots() == usable_cpus()


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("WAKU_SLOTS", "many", "WAKU_SLOTS is 'many', which is not a whole number"),
        ("WORKER_MAX_PAR", "0", "WORKER_MAX_PAR is 0, and must be 1 to 4096"),
        ("WORKER_CPU_CAP", "nan", "WORKER_CPU_CAP is nan, and must be 0.1 to 0.95, or off"),
        ("WAKU_CPU_CAP", "2", "WAKU_CPU_CAP is 2, and must be 0.1 to 0.95, or off"),
        ("WAKU_OLD_LEADER", "perhaps", "WAKU_OLD_LEADER is 'perhaps', which is not true or false"),
        ("WAKU_CACHE_BYTES", "much", "WAKU_CACHE_BYTES is 'much', which is no size"),
    ],
)
def test_a_bad_value_is_told_with_its_place(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, complaint: str
) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(ConfigError) as told:
        load(WorkerSettings)
    assert str(told.value) == complaint


def test_a_bad_flag_is_told_by_its_name() -> None:
    with pytest.raises(ConfigError, match="--slots is 5000, and must be 1 to 4096"):
        slots(5000)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('slots = "four"', "slots in waku.toml is 'four', which is not a whole number"),
        ("slots = true", "slots in waku.toml is True, which is not a whole number"),
        ("slots = 0", "slots in waku.toml is 0, and must be 1 to 4096"),
        ("slotz = 4", "waku.toml has 'slotz', which is no setting"),
        ("slots = ", "waku.toml cannot be read: "),
        ('cpu-cap = "much"', "cpu-cap in waku.toml is 'much', which is not a number"),
        ("allow-open = true", "waku.toml has 'allow-open', which is no setting"),
        ('access = "keys.toml"', "waku.toml has 'access', which is no setting"),
    ],
)
def test_a_bad_line_of_the_file_is_told_with_the_file(elsewhere: Path, line: str, complaint: str) -> None:
    (elsewhere / "waku.toml").write_text(line)
    with pytest.raises(ConfigError) as told:
        load(WorkerSettings)
    assert str(told.value).startswith(complaint)


def test_what_a_command_has_only_as_a_flag_is_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAKU_ALLOW_OPEN", "1")
    monkeypatch.setenv("WAKU_LEADER", "grid:5000")
    assert load(NodeSettings) == NodeSettings()
    assert load(NodeSettings, {"allow_open": True}).allow_open


@pytest.mark.spec("O1")
def test_an_access_file_is_named_by_flag_or_variable(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(ClientSettings).access is None
    monkeypatch.setenv("WAKU_ACCESS", "a.toml")
    assert load(ClientSettings).access == elsewhere / "a.toml"
    assert load(ClientSettings, {"access": "/b.toml"}).access == Path("/b.toml")


@pytest.mark.spec("O1")
def test_a_key_in_the_file_is_not_told(elsewhere: Path) -> None:
    key = f"desk-1:{'a' * 32}-{'b' * 52}"
    (elsewhere / "waku.toml").write_text(f'leader = "waku://{key}@grid:5000"\n')
    told: list[str] = []
    settings.tell_used_by(told.append)
    assert key in load(ClientSettings).leader
    assert "grid:5000" in told[0]
    assert "bbbb" not in told[0]


def test_a_whole_number_in_the_file_is_a_number(elsewhere: Path) -> None:
    (elsewhere / "waku.toml").write_text("timeout = 30\nlog-json = true\n")
    client = load(ClientSettings)
    assert client.timeout_s == 30.0
    assert client.log_json is True


def test_hours_and_days_become_seconds(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (elsewhere / "waku.toml").write_text("keep-days = 2\n")
    monkeypatch.setenv("WAKU_KEEP_HOURS", "1.5")
    assert load(NodeSettings).done_ttl_s == 2 * 86_400
    assert load(NodeSettings, {"interrupted_ttl_s": 3.0}).interrupted_ttl_s == 3 * 3_600
    assert load(GatewaySettings).kept_s == 5_400


def test_a_repeated_flag_is_one_text_with_blanks_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAKU_HOST_NAMES", "a  b")
    assert load(LeaderSettings).names == ("a", "b")
    assert load(LeaderSettings, {"names": ("c", "d")}).names == ("c", "d")


def test_the_file_may_lie_elsewhere_but_must_be_there(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (elsewhere / "other.toml").write_text('leader = "grid:5000"')
    monkeypatch.setenv("WAKU_CONFIG", str(elsewhere / "other.toml"))
    assert load(ClientSettings).leader == "grid:5000"
    forget_settings()
    monkeypatch.setenv("WAKU_CONFIG", str(elsewhere / "none.toml"))
    with pytest.raises(ConfigError, match=r"WAKU_CONFIG names .*none.toml, which cannot be read"):
        load(ClientSettings)


@pytest.mark.parametrize(("text", "truth"), [("1", True), ("true", True), ("Yes", True), ("0", False), ("off", False)])
def test_truth_is_written_in_many_ways(monkeypatch: pytest.MonkeyPatch, text: str, truth: bool) -> None:
    monkeypatch.setenv("WAKU_LOG_JSON", text)
    assert load(ClientSettings).log_json is truth


@pytest.mark.spec("W2")
def test_the_cpu_limit_may_be_off_wherever_it_is_said(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cpu_cap() == 0.75
    assert cpu_cap("off") is None
    assert cpu_cap("0.5") == 0.5
    with pytest.raises(ConfigError, match=r"--cpu-cap is 1, and must be 0\.1 to 0\.95, or off"):
        cpu_cap("1")
    with pytest.raises(ConfigError, match="--cpu-cap is 'much', which is neither a number nor off"):
        cpu_cap("much")
    (elsewhere / "waku.toml").write_text('cpu-cap = "off"\n')
    forget_settings()
    assert cpu_cap() is None
    monkeypatch.setenv("WORKER_CPU_CAP", "0.9")
    assert cpu_cap() == 0.9
    monkeypatch.setenv("WORKER_CPU_CAP", "off")
    assert cpu_cap() is None


@pytest.mark.spec("O1")
def test_the_file_of_the_current_folder_is_told_once_and_only_if_it_is_used(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (elsewhere / "waku.toml").write_text('slots = 5\nleader = "grid.example:5000"\n')
    told: list[str] = []
    assert slots(3) == 3
    assert load(ClientSettings, fields=["timeout_s"]) == ClientSettings()
    settings.tell_used_by(told.append)
    assert told == [], "nothing was taken from it"
    assert slots() == 5
    assert load(ClientSettings).leader == "grid.example:5000"
    assert told == [f"settings of {elsewhere / 'waku.toml'}: slots = 5, leader = 'grid.example:5000'"]


def test_what_was_taken_before_anybody_could_tell_is_told_then(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (elsewhere / "waku.toml").write_text(f'name = "{"x-" * 1_000}"\n')
    assert load(WorkerSettings).name
    told: list[str] = []
    settings.tell_used_by(told.append)
    assert len(told) == 1
    assert told[0].endswith("-…")
    assert len(told[0]) < 1_000


def test_a_file_that_the_user_named_is_not_told(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (elsewhere / "mine.toml").write_text("slots = 5\n")
    monkeypatch.setenv("WAKU_CONFIG", "mine.toml")
    assert slots() == 5
    told: list[str] = []
    settings.tell_used_by(told.append)
    assert told == []


def test_what_the_command_line_said_is_known() -> None:
    assert load(LeaderSettings, {"state": "here", "memory": None, "names": ()}).by_flag == {"state"}
