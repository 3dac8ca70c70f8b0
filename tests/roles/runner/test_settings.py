"""Which values of a worker's settings are accepted, and what do they mean without a host?"""

from __future__ import annotations

from pathlib import Path

import pytest

from wakugumi.adapters.net.address import Address
from wakugumi.core.setting import options_of
from wakugumi.errors import ConfigError
from wakugumi.limits.scheduling import CREDIT_MAX
from wakugumi.roles.runner.settings import RunnerSettings, WorkerSettings

OPTIONS = options_of(WorkerSettings)


def read(field: str, text: str) -> object:
    return OPTIONS[field].of_text(text, f"WAKU_{field.upper()}")


@pytest.mark.parametrize(
    ("field", "text", "address"),
    [
        ("serve", "6000", Address("0.0.0.0", 6000)),
        ("serve", "10.0.0.1:6000", Address("10.0.0.1", 6000)),
        ("metrics", "6000", Address("127.0.0.1", 6000)),
        ("metrics", "10.0.0.1:6000", Address("10.0.0.1", 6000)),
        ("advertise", "mill:6000", Address("mill", 6000)),
    ],
)
def test_a_port_alone_is_open_to_workers_and_metrics_are_for_this_machine(
    field: str, text: str, address: Address
) -> None:
    assert read(field, text) == address


@pytest.mark.parametrize("field", ["serve", "metrics", "advertise"])
@pytest.mark.parametrize("text", ["99999", "mill:x", "²"])
def test_a_text_that_is_no_port_is_refused(field: str, text: str) -> None:
    with pytest.raises(ConfigError):
        read(field, text)


@pytest.mark.parametrize(("text", "value"), [("off", None), ("OFF", None), ("0.1", 0.1), ("0.95", 0.95)])
def test_a_share_of_the_cpu_can_be_off(text: str, value: float | None) -> None:
    assert read("cpu_cap", text) == value


@pytest.mark.parametrize(
    ("field", "text"), [("cpu_cap", "0"), ("cpu_cap", "1"), ("slots", "0"), ("slots", str(CREDIT_MAX + 1))]
)
def test_a_number_out_of_bounds_is_refused(field: str, text: str) -> None:
    with pytest.raises(ConfigError, match="must be"):
        read(field, text)


def test_a_cache_folder_is_absolute_and_other_folders_stay_as_they_were_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert read("cache", "cache") == tmp_path / "cache"
    assert (read("jobs", "jobs"), read("programs", "bin")) == (Path("jobs"), Path("bin"))


def test_a_worker_takes_the_variables_of_older_versions_too() -> None:
    assert OPTIONS["slots"].env == ("WAKU_SLOTS", "WORKER_MAX_PAR")
    assert OPTIONS["cpu_cap"].env == ("WAKU_CPU_CAP", "WORKER_CPU_CAP")
    assert options_of(RunnerSettings)["slots"].env == ("WAKU_SLOTS",)


def test_wider_ports_and_copies_are_asked_for_on_the_command_line_alone() -> None:
    assert {name for name, option in OPTIONS.items() if not option.env} == {"allow_open", "copy_program"}
