"""What do programs get of this process's environment, and as whom do they run?"""

from __future__ import annotations

import logging
import os

import pytest

from wakugumi.adapters.programs.marks import MARK_VARIABLE
from wakugumi.adapters.programs.process_tree import JOB_VARIABLE
from wakugumi.adapters.programs.program_rules import RULES, ProgramRules, environment_for
from wakugumi.adapters.programs.run_as import User
from wakugumi.core.environment import EnvRules


@pytest.mark.spec("O1")
def test_programs_get_what_is_ours_but_secrets_and_what_another_job_was_called(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("PLAIN", "1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    monkeypatch.setenv(JOB_VARIABLE, "another")
    monkeypatch.setenv(MARK_VARIABLE, "another")
    passed = environment_for(RULES)
    assert passed[b"PLAIN"] == b"1"
    assert not {b"AWS_SECRET_ACCESS_KEY", JOB_VARIABLE.encode(), MARK_VARIABLE.encode()} & passed.keys()
    assert "AWS_SECRET_ACCESS_KEY" in caplog.text
    assert "hidden" not in caplog.text


def test_programs_have_the_rights_of_root_only_where_nobody_else_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    user = User(1_000, 1_000, (), "calc", "/")
    assert RULES.runs_as_root
    assert not ProgramRules(user=user).runs_as_root
    assert not ProgramRules(EnvRules(whole=True)).runs_as_root
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    assert not RULES.runs_as_root
