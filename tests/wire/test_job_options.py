"""What may be asked of a job, and what is refused? The table of options, row by row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from wakugumi.errors import Refused
from wakugumi.limits.leader import RETRIES_MAX
from wakugumi.limits.runner import JOB_TIMEOUT_MAX_S
from wakugumi.wire.job_options import CHECKS, OPTIONS, EachOptions, JobOptions, checked
from wakugumi.wire.messages.job import JobLimits, JobRequest

GOOD: dict[str, Any] = {
    "subject": "calcA.fast",
    "env": {"B": "2", "A": "1"},
    "timeout_s": 1.5,
    "retries": 2,
    "limits": JobLimits(cpu_s=1.0),
    "key": "eu",
    "priority": -7,
    "slots": 3,
}


def test_every_option_but_the_subject_is_a_field_of_the_request() -> None:
    assert set(OPTIONS) - {"subject"} <= set(JobRequest.__struct_fields__)
    assert GOOD.keys() == OPTIONS.keys() == JobOptions.__annotations__.keys()
    assert OPTIONS.keys() > EachOptions.__annotations__.keys()


def test_what_is_given_are_fields_of_a_request_and_the_subject_of_its_frame() -> None:
    subject, fields = checked("calcA", GOOD)
    assert subject == "calcA.fast"
    assert fields == {name: value for name, value in GOOD.items() if name != "subject"}
    assert list(fields["env"]) == ["A", "B"], "the same variables are the same bytes"
    assert JobRequest("id", **fields).priority == -7


def test_what_is_not_given_is_no_field() -> None:
    assert checked("calcA", {}) == ("", {})
    assert checked("calcA", {"args": ["-v"], "files": {}, "job_id": "one"}) == ("", {})


@pytest.mark.parametrize(
    ("name", "wrong", "why"),
    [
        ("retries", -1, f"retries are a whole number from 0 to {RETRIES_MAX}, not -1"),
        ("retries", True, "retries are a whole number"),
        ("priority", 101, "a priority is a whole number from -100 to 100, not 101"),
        ("priority", 1.0, "a priority is a whole number"),
        ("slots", "2", "slots are a whole number from 1 to 4096, not '2'"),
        ("timeout_s", 0, f"a timeout is above 0 and at most {JOB_TIMEOUT_MAX_S:.0f} seconds, not 0"),
        ("timeout_s", float("nan"), "a timeout is above 0"),
        ("timeout_s", "1e3", "a timeout is above 0"),
        ("key", "", "a key is 1 to 128 printable characters, not ''"),
        ("key", "a\nb", "a key is 1 to 128 printable characters"),
        ("key", 7, "a key is 1 to 128 printable characters, not 7"),
        ("key", "x" * 100_000, "a key is 1 to 128 printable characters"),
        ("env", {"1A": ""}, "a variable's name"),
        ("subject", "a..b", "bad subject"),
    ],
)
def test_what_is_out_of_bounds_is_refused(name: str, wrong: object, why: str) -> None:
    with pytest.raises(Refused, match=why) as caught:
        checked("calcA", {name: wrong})
    assert caught.value.code in {"bad-request", "bad-subject"}
    assert len(caught.value.message) <= 300


@pytest.mark.parametrize(("name", "wrong"), [("limits", {"cpu_s": 1}), ("env", ["A=1"]), ("subject", b"calcA")])
def test_what_only_a_program_gets_wrong_is_an_error_of_types(name: str, wrong: object) -> None:
    with pytest.raises(TypeError):
        checked("calcA", {name: wrong})


def test_every_option_has_a_help_a_check_and_a_kind_that_a_shell_and_a_form_can_write() -> None:
    assert CHECKS.keys() == OPTIONS.keys()
    for name, option in OPTIONS.items():
        assert option.name == name
        assert option.help.endswith("."), name
        assert option.kind in {int, float, str, Mapping} or not (option.flag or option.form), name
        assert not option.flag or option.flag.startswith("--")
