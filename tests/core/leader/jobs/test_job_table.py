"""Jobs are found by client and subject as a look at all of them would find them."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.leader_world import World, job_id, subject

from wakugumi.core.ids import ClientId, show_job_id
from wakugumi.core.leader.admin import answers
from wakugumi.core.leader.admin.actions import AdminActions
from wakugumi.core.leader.answer_records import CancelAnswer, JobsAnswer
from wakugumi.core.leader.jobs.job_table import JobTable
from wakugumi.core.leader.jobs.states import JobState
from wakugumi.core.leader.questions import AskCancel, AskJobs
from wakugumi.core.leader.records import ClientRecord, JobRecord
from wakugumi.core.leader.step_builder import StepBuilder
from wakugumi.core.subject import parse_pattern

CLIENTS = [ClientRecord(ClientId(name)) for name in ("", "a", "b")][1:]
SUBJECTS = [subject(word) for word in ("x", "y", "y.z")]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5), st.booleans()), max_size=60))
def test_whatever_comes_and_goes_each_is_found_by_its_client_and_subject(script: list[tuple[int, int, bool]]) -> None:
    jobs = JobTable()
    for at, (number, of, comes) in enumerate(script):
        if comes:
            client, word = list(product(CLIENTS, SUBJECTS))[of]
            jobs.add(JobRecord(job_id(number), client, word, "p", 1.0, float(at), b"", ()))
        elif job_id(number) in jobs:
            jobs.remove(jobs[job_id(number)])
        jobs.check()
    for client_id, text in product(("", "a", "b", "nobody"), ("", "job.assign.*", "job.assign.y.>", "job.assign.q")):
        wanted = parse_pattern(text) if text else None
        expected = [job for job in jobs.values() if answers.is_wanted(job, client_id, wanted)]
        expected.sort(key=lambda job: -job.submitted_at)
        assert list(jobs.newest_first(client_id, wanted)) == expected
        assert jobs.count(client_id, wanted) == len(expected)
        assert {job.id for job in jobs.oldest_first(client_id, wanted)} == {job.id for job in expected}


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=30))
def test_put_in_order_the_oldest_is_first_for_everybody(script: list[tuple[int, int]]) -> None:
    jobs = JobTable()
    for number, (of, at) in enumerate(script):
        client, word = list(product(CLIENTS, SUBJECTS))[of]
        jobs.add(JobRecord(job_id(number), client, word, "p", 1.0, float(at), b"", ()))
    expected = sorted(jobs.values(), key=lambda job: job.submitted_at)
    jobs.put_in_order()
    jobs.check()
    assert list(jobs.values()) == expected
    for client in CLIENTS:
        of_client = [job.submitted_at for job in expected if job.client is client]
        assert [job.submitted_at for job in jobs.newest_first(client.id, None)] == of_client[::-1]


@pytest.mark.spec("L10", "O6")
def test_a_question_about_one_client_looks_at_no_job_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    desk, other = world.client(), world.client("other")
    mine = desk.submits(3, "x")
    theirs = other.submits(50, "x")
    monkeypatch.setattr(answers, "is_wanted", lambda *_: pytest.fail("it looks at one by one"))
    monkeypatch.setattr(JobTable, "values", lambda _: pytest.fail("it looks at all"))
    answer = answers.jobs(world.leader, AskJobs(client="desk", pattern="job.assign.x"), world.now)
    assert [row.job for row in answer.jobs] == [show_job_id(job) for job in mine]
    assert (answer.total, answer.at_least) == (3, False)
    actions = AdminActions(world.leader, StepBuilder())
    assert actions.cancel_all(AskCancel(client="desk"), world.now) == CancelAnswer(3, 0, [])
    assert all(world.leader.jobs[job].state is JobState.QUEUED for job in theirs)


@pytest.mark.spec("O6")
def test_for_a_state_only_so_many_of_the_newest_jobs_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "JOBS_LOOKED_AT_MAX", 5)
    world = World()
    desk = world.client()
    desk.submits(4)
    answer = world.ask(AskJobs(state="queued"))
    assert isinstance(answer, JobsAnswer)
    assert (len(answer.jobs), answer.total, answer.at_least) == (4, 4, False)
    desk.submits(4)
    for question in (AskJobs(state="queued", limit=2), AskJobs(state="queued", client="desk", limit=2)):
        answer = world.ask(question)
        assert isinstance(answer, JobsAnswer)
        assert (len(answer.jobs), answer.total, answer.at_least) == (2, 5, True)
