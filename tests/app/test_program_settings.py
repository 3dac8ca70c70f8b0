"""What is said about programs, in which place it is said, and how it is passed on to nodes of a try-out."""

from __future__ import annotations

import os

import pytest

from wakugumi.adapters.programs.program_rules import RULES, ProgramRules
from wakugumi.adapters.programs.run_as import User
from wakugumi.app.program_settings import ProgramSettings
from wakugumi.app.settings import load
from wakugumi.core.environment import EnvRules
from wakugumi.core.runner.programs.job_limits import OperatorLimits
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
    said = ProgramSettings(job_memory=4_000, job_processes=9, job_cpu=2.5, as_root=True, same_user=True)
    words = "--job-memory 4000 --job-processes 9 --job-cpu 2.5 --as-root --same-user"
    assert said.words() == tuple(words.split())


@pytest.mark.spec("W8")
def test_limits_of_every_job_are_sizes_and_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAKU_JOB_MEMORY", "4GB")
    monkeypatch.setenv("WAKU_JOB_PROCESSES", "64")
    monkeypatch.setenv("WAKU_JOB_CPU", "90")
    assert load(ProgramSettings).rules().limits == OperatorLimits(4_000_000_000, 64, 90.0)
    assert load(ProgramSettings, {"job_memory": "512MiB"}).rules().limits.memory_bytes == 2**29
    for field, value in (("job_memory", "0"), ("job_memory", "much"), ("job_processes", 0), ("job_cpu", 0.0)):
        with pytest.raises(ConfigError, match="--job-"):
            load(ProgramSettings, {field: value})


@pytest.mark.spec("O1")
def test_where_keys_have_rules_the_degree_of_separation_must_be_said() -> None:
    flag = {"as_root": True} if os.geteuid() == 0 else {"same_user": True}
    for said in (ProgramSettings(), ProgramSettings(**flag)):
        said.separation(RULES)
    with pytest.raises(ConfigError, match="keys have rules here") as told:
        ProgramSettings().separation(RULES, keys_have_rules=True)
    assert "--run-as USER" in told.value.hint
    assert ProgramSettings(**flag).separation(RULES, keys_have_rules=True).said
    other = ProgramRules(user=User(5, 5, (5,), "grid", "/"))
    assert ProgramSettings().separation(other, keys_have_rules=True).said == "run-as=grid"
    with pytest.raises(ConfigError, match="contradict each other"):
        ProgramSettings(**flag).separation(other)


@pytest.mark.spec("O1")
@pytest.mark.skipif(os.geteuid() == 0, reason="root may do everything")
def test_only_root_can_run_programs_as_another_user() -> None:
    with pytest.raises(ConfigError, match="only root") as caught:
        ProgramSettings(run_as="nobody").rules()
    assert "start it as root" in caught.value.hint
