"""A job's state changes in one place, and only as the table allows."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from wakugumi.core.ids import ClientId, JobId
from wakugumi.core.leader.jobs.states import TRANSITIONS, JobState
from wakugumi.core.leader.records import ClientRecord, JobRecord
from wakugumi.core.subject import parse_subject

LEADER = Path(__file__).parents[4] / "src" / "wakugumi" / "core" / "leader"


def a_job(state: JobState) -> JobRecord:
    client = ClientRecord(ClientId("c"))
    return JobRecord(JobId(bytes(16)), client, parse_subject("job.assign.x"), "x", 1.0, 0.0, b"", (), state)


def test_every_state_has_its_row_and_done_is_the_end() -> None:
    assert set(TRANSITIONS) == set(JobState)
    assert not TRANSITIONS[JobState.DONE], "one record has one result"
    assert {before for before in JobState if JobState.LIMBO in TRANSITIONS[before]} == {JobState.RUNNING}


@pytest.mark.parametrize("before", JobState)
@pytest.mark.parametrize("after", JobState)
def test_a_job_enters_only_what_its_state_allows(before: JobState, after: JobState) -> None:
    job = a_job(before)
    if after in TRANSITIONS[before]:
        job.enter(after)
        assert job.state is after
    else:
        with pytest.raises(AssertionError):
            job.enter(after)
        assert job.state is before


def assignments(source: str) -> list[str]:
    """The functions in which something's `state` is set, one name for each time."""
    found: list[str] = []

    def visit(node: ast.AST, function: str) -> None:
        if isinstance(node, ast.FunctionDef):
            function = node.name
        if isinstance(node, ast.Attribute) and node.attr == "state" and isinstance(node.ctx, ast.Store | ast.Del):
            found.append(function)
        if isinstance(node, ast.Call) and any(
            isinstance(argument, ast.Constant) and argument.value == "state" for argument in node.args
        ):
            found.append(function)
        for child in ast.iter_child_nodes(node):
            visit(child, function)

    visit(ast.parse(source), "")
    return found


def test_nothing_else_sets_a_state() -> None:
    files = sorted(LEADER.rglob("*.py"))
    found = {
        path.relative_to(LEADER).as_posix(): names
        for path in files
        if (names := assignments(path.read_text(encoding="utf-8")))
    }
    assert found == {"records.py": ["enter"]}


@pytest.mark.parametrize(
    "source",
    [
        "job.state = 1",
        "before, job.state = job.state, 1",
        "setattr(job, 'state', 1)",
        "def f():\n    self.job.state += 1",
    ],
)
def test_a_planted_assignment_is_found(source: str) -> None:
    assert assignments(source)
