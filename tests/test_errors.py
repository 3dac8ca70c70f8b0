"""What follows from each code and each kind of error?"""

from __future__ import annotations

import pytest

from wakugumi import errors
from wakugumi.errors import (
    CODES,
    CODES_BY_SENDER,
    EXIT_DENIED,
    EXIT_JOB_FAILED,
    EXIT_NO_LEADER,
    EXIT_NOT_FOUND,
    EXIT_TIMED_OUT,
    EXIT_USAGE,
    ConfigError,
    JournalError,
    Lost,
    Refused,
    Sick,
    WakugumiError,
    bad_request,
    hint_for,
)


def test_each_code_has_one_sender() -> None:
    assert len(CODES) == sum(map(len, CODES_BY_SENDER.values()))


@pytest.mark.parametrize("code", CODES)
def test_a_refusal_has_all_that_follows_from_its_code(code: str) -> None:
    row, refused = CODES[code], Refused(code, "why")
    assert str(refused) == refused.message == "why"
    assert (refused.hint, refused.retry, refused.exit_code) == (row.hint, row.retry, row.exit_code)
    assert row.meaning
    assert row.hint
    assert 200 <= row.http_status < 600


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("full", EXIT_JOB_FAILED),
        ("bad-request", EXIT_USAGE),
        ("unknown-job", EXIT_NOT_FOUND),
        ("denied", EXIT_DENIED),
        ("no-leader", EXIT_NO_LEADER),
        ("timed-out", EXIT_TIMED_OUT),
    ],
)
def test_scripts_tell_refusals_apart_by_the_exit_code(code: str, exit_code: int) -> None:
    assert Refused(code, "").exit_code == exit_code


def test_a_code_of_a_newer_version_is_a_plain_failure() -> None:
    refused = Refused("from-the-future", "why")
    assert (refused.hint, refused.retry, refused.exit_code) == ("", False, EXIT_JOB_FAILED)
    assert hint_for("from-the-future") == ""


def test_a_given_hint_replaces_the_one_of_the_code() -> None:
    assert Refused("full", "why", "do this").hint == "do this"
    assert Refused("full", "why", "").hint == ""
    assert bad_request("why").hint == ""
    assert bad_request("why", "do this").hint == "do this"
    assert bad_request("why").code == "bad-request"


def test_a_machine_that_cannot_work_refuses_as_any_other() -> None:
    with pytest.raises(Refused) as refused:
        raise Sick("disk", "full")
    assert refused.value.retry


@pytest.mark.parametrize(
    ("error", "exit_code", "hint"),
    [
        (ConfigError("why", "do this"), EXIT_USAGE, "do this"),
        (ConfigError("why"), EXIT_USAGE, ""),
        (JournalError("why", "do this"), EXIT_JOB_FAILED, "do this"),
        (Lost("why", "slow"), EXIT_NO_LEADER, ""),
    ],
)
def test_a_command_ends_with_the_exit_code_and_hint_of_its_error(
    error: WakugumiError, exit_code: int, hint: str
) -> None:
    assert (error.exit_code, error.hint, str(error)) == (exit_code, hint, "why")


def test_every_error_that_users_see_can_be_caught_by_its_root() -> None:
    kinds = [kind for name in errors.__all__ if isinstance(kind := getattr(errors, name), type)]
    assert {kind for kind in kinds if issubclass(kind, Exception) and not issubclass(kind, WakugumiError)} == set()
