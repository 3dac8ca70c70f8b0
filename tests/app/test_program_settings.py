"""What is said about programs, in which place it is said, and how it is passed on to nodes of a try-out."""

from __future__ import annotations

import os

import pytest

from wakugumi.app.program_settings import ProgramSettings
from wakugumi.app.settings import load
from wakugumi.core.environment import EnvRules
from wakugumi.errors import ConfigError


def test_nothing_said_is_the_usual() -> None:
    assert load(ProgramSettings).rules().env == EnvRules()
    assert load(ProgramSettings).words() == ()


@pytest.mark.spec("O1")
def test_flags_go_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAKU_HOLD_ENV", "A_*, B")
    monkeypatch.setenv("WAKU_PASS_ENV", "C")
    monkeypatch.setenv("WAKU_CLEAN_ENV", "yes")
    monkeypatch.setenv("WAKU_JOB_ENV", "none")
    assert load(ProgramSettings).rules().env == EnvRules(("A_*", "B"), ("C",), clean=True, settable=())
    said = load(ProgramSettings, {"hold_env": ("D",), "job_env": ("SEED", "OMP_*")})
    assert said.rules().env == EnvRules(("D",), ("C",), clean=True, settable=("SEED", "OMP_*"))


def test_what_is_no_pattern_is_told_with_its_place() -> None:
    with pytest.raises(ConfigError, match="--hold-env: ") as told:
        load(ProgramSettings, {"hold_env": ("A=B",)})
    assert told.value.hint == "write --hold-env 'MY_*'"


def test_a_node_of_a_try_out_is_told_the_same() -> None:
    said = ProgramSettings(run_as="grid", clean_env=True, pass_env=("A", "B"), hold_env=("C",), job_env=("D",))
    words = "--run-as grid --pass-env A --pass-env B --hold-env C --job-env D --clean-env"
    assert said.words() == tuple(words.split())


@pytest.mark.spec("O1")
@pytest.mark.skipif(os.geteuid() == 0, reason="root may do everything")
def test_only_root_can_run_programs_as_another_user() -> None:
    with pytest.raises(ConfigError, match="only root") as caught:
        ProgramSettings(run_as="nobody").rules()
    assert "start it as root" in caught.value.hint
