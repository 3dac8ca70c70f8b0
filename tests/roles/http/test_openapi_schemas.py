"""Do the schemas accept what the server accepts, and nothing that it refuses?"""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from wakugumi.core.ids import job_id_from_name
from wakugumi.errors import CODES
from wakugumi.limits.wire import JOB_NAME_CHARS_MAX
from wakugumi.roles.http import openapi_schemas as schemas
from wakugumi.wire.job_options import OPTIONS

PARAMETERS = {each["name"]: each["schema"] for each in schemas.JOB_PARAMETERS}


def fits(schema: dict[str, Any], value: object) -> bool:
    try:
        Draft202012Validator(schema).validate(value)
    except ValidationError:
        return False
    return True


def test_every_option_of_a_form_is_a_parameter_with_its_help() -> None:
    told = {each["name"]: each["description"] for each in schemas.JOB_PARAMETERS}
    for option in OPTIONS.values():
        if option.form:
            assert told[option.form] == option.help_with_default
    assert len(told) == len(schemas.JOB_PARAMETERS), "each name once"


@given(
    st.from_regex(re.compile(schemas.JOB["schema"]["pattern"], re.ASCII), fullmatch=True).map(
        lambda name: name[:JOB_NAME_CHARS_MAX]
    )
)
def test_every_job_name_of_the_schema_is_accepted(name: str) -> None:
    if fits(schemas.JOB["schema"], name):
        job_id_from_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "x" * (JOB_NAME_CHARS_MAX + 1)])
def test_a_name_that_is_no_path_of_a_job_does_not_fit(name: str) -> None:
    assert not fits(schemas.JOB["schema"], name)


@pytest.mark.parametrize(
    ("pair", "is_one"), [("A=1", True), ("A=", True), ("A", False), ("1A=1", False), ("waku_x=1", False)]
)
def test_a_variable_has_a_name_that_is_not_ours(pair: str, is_one: bool) -> None:
    (schema,) = [PARAMETERS[option.form] for option in OPTIONS.values() if option.name == "env"]
    assert fits(schema, [pair]) is is_one


def test_bounds_of_numbers_are_those_of_the_options() -> None:
    numbers = [option for option in OPTIONS.values() if option.form and option.kind in {int, float}]
    assert numbers
    for option in numbers:
        schema = PARAMETERS[option.form]
        assert fits(schema, option.most)
        assert not fits(schema, option.most + 1)
        assert fits(schema, option.least) is (option.kind is int)
        assert not fits(schema, option.least - 1)


def test_a_problem_has_a_code_of_the_table() -> None:
    problem = {"type": "about:blank", "status": 503, "code": "full", "detail": "why", "hint": ""}
    assert fits(schemas.PROBLEM, problem)
    assert not fits(schemas.PROBLEM, problem | {"code": "made-up"})
    assert not fits(schemas.PROBLEM, problem | {"status": 200})
    for name in problem:
        assert not fits(schemas.PROBLEM, {key: value for key, value in problem.items() if key != name})
    assert schemas.PROBLEM["properties"]["code"]["enum"] == sorted(CODES)
