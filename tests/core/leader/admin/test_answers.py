"""What a leader answers when it is asked: what happened to my job, what is there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.kit.leader_world import World, a_world, job_id

from wakugumi.core.ids import JobId, show_job_id
from wakugumi.core.leader.answer_records import (
    JobRow,
    JobsAnswer,
    StoryAnswer,
    StoryLine,
)
from wakugumi.core.leader.questions import AskExplain, AskJob, AskJobs, AskStory
from wakugumi.limits.leader import LIST_ROWS_DEFAULT, LIST_ROWS_MAX, REATTACH_GRACE_S


@pytest.fixture
def world() -> Iterator[World]:
    with a_world() as world:
        yield world


@pytest.mark.parametrize("ask", [AskJob, AskStory, AskExplain])
def test_what_is_no_job_has_no_answer(world: World, ask: type[AskJob] | type[AskStory] | type[AskExplain]) -> None:
    assert world.ask_in_vain(ask(show_job_id(job_id(77)))) == "unknown-job"
    assert world.ask_in_vain(ask("no id")) == "bad-request"


# What happened?


def test_a_story_tells_every_attempt(world: World) -> None:
    desk, worker = world.client(), world.worker("one", credit=1)
    (job,) = desk.submits(1)
    worker.gets(job)
    world.wait(2)
    worker.fails(job, "worker-error")
    assert world.story(job)[-1] == "will be queued again in 1.0 s"
    world.wait(1)
    assert world.story(job)[-1] == "queued again, at the head of its queue"
    other = world.worker("two", credit=1)
    other.gets(job)
    world.wait(3)
    other.leaves()
    world.wait(REATTACH_GRACE_S)
    worker.credit(1)
    worker.gets(job)
    assert world.story(job)[-1] == "attempt 3 began on worker one, still running"
    world.wait(5)
    worker.acks(job)
    desk.gets_result(job)
    answer = world.ask(AskStory(show_job_id(job)))
    assert answer == StoryAnswer(
        show_job_id(job),
        [
            StoryLine(13.0, "submitted by desk to job.assign.calc"),
            StoryLine(13.0, "attempt 1 began on worker one"),
            StoryLine(11.0, "attempt 1 ended: worker-error"),
            StoryLine(10.0, "attempt 2 began on worker two"),
            StoryLine(5.0, "attempt 2 ended: worker-lost"),
            StoryLine(5.0, "attempt 3 began on worker one"),
            StoryLine(0.0, "attempt 3 ended: ok"),
            StoryLine(0.0, "finished OK, not yet delivered"),
        ],
    )


def test_a_story_says_why_a_job_failed(world: World) -> None:
    desk = world.client()
    (job,) = desk.submits(1)
    desk.cancels(job)
    desk.gets_failure(job, "cancelled")
    desk.confirms(job)
    assert world.story(job)[-1] == "finished FAILED (cancelled), delivered"


# Which jobs are there?


def listed(world: World, question: AskJobs) -> tuple[list[str], int]:
    """The ids in short, and how many there are in all."""
    answer = world.ask(question)
    assert isinstance(answer, JobsAnswer)
    return [row.job for row in answer.jobs], answer.total


def ids(*jobs: JobId) -> list[str]:
    return [show_job_id(job) for job in jobs]


@pytest.fixture
def busy(world: World) -> dict[str, JobId]:
    """One job in each state."""
    desk, other, worker = world.client(), world.client("other"), world.worker("w", "job.assign.calc.*", credit=4)
    ok, failed, backoff, running = (desk.submits(1, f"calc.{number}")[0] for number in range(4))
    worker.gets(ok, failed, backoff, running)
    worker.acks(ok)
    desk.gets_result(ok)
    worker.fails(failed)
    desk.gets_result(failed)
    worker.fails(backoff, "worker-error")
    (queued,) = other.submits(1, "draw")
    return {"ok": ok, "failed": failed, "backoff": backoff, "running": running, "queued": queued}


def test_all_jobs_are_listed_the_newest_last(world: World, busy: dict[str, JobId]) -> None:
    assert listed(world, AskJobs()) == (ids(*busy.values()), 5)
    assert listed(world, AskJobs(limit=2)) == (ids(busy["running"], busy["queued"]), 5)


@pytest.mark.parametrize("state", ["ok", "failed", "backoff", "running", "queued"])
def test_jobs_are_listed_by_state(world: World, busy: dict[str, JobId], state: str) -> None:
    assert listed(world, AskJobs(state=state)) == (ids(busy[state]), 1)
    row = world.ask(AskJob(show_job_id(busy[state])))
    assert isinstance(row, JobRow)
    assert row.state == state


def test_jobs_are_listed_by_client_and_by_pattern(world: World, busy: dict[str, JobId]) -> None:
    assert listed(world, AskJobs(client="other")) == (ids(busy["queued"]), 1)
    assert listed(world, AskJobs(client="nobody")) == ([], 0)
    assert listed(world, AskJobs(pattern="job.assign.calc.>", limit=1)) == (ids(busy["running"]), 4)
    assert listed(world, AskJobs(pattern="job.assign.*")) == (ids(busy["queued"]), 1)
    assert listed(world, AskJobs(pattern=">", client="desk", state="ok")) == (ids(busy["ok"]), 1)


def test_a_filter_that_cannot_be_is_refused(world: World) -> None:
    assert world.ask_in_vain(AskJobs(state="lost")) == "bad-request"
    assert world.ask_in_vain(AskJobs(pattern="a..b")) == "bad-subject"


def test_a_list_has_its_limits(world: World) -> None:
    desk = world.client()
    with world.at_once():
        jobs = [desk.submit() for _ in range(LIST_ROWS_MAX + 5)]
    desk.gets_receipt(*jobs)
    for question, rows in [
        (AskJobs(), LIST_ROWS_DEFAULT),
        (AskJobs(limit=10**9), LIST_ROWS_MAX),
        (AskJobs(limit=10**9, client="desk"), LIST_ROWS_MAX),
        (AskJobs(limit=-5), 1),
    ]:
        found, total = listed(world, question)
        assert (found, total) == (ids(*jobs[-rows:]), len(jobs))


def test_a_row_tells_what_there_is_to_know(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=1)
    (job,) = desk.submits(1)
    worker.gets(job)
    world.wait(3)
    row = JobRow(show_job_id(job), "running", "desk", "calc", "job.assign.calc", 1, 3.0, "w", "")
    assert world.ask(AskJob(show_job_id(job))) == row
    desk.cancels(job)
    desk.gets_failure(job, "cancelled")
    worker.gets_cancel(job)
    row = JobRow(show_job_id(job), "failed", "desk", "calc", "job.assign.calc", 1, 3.0, "w", "cancelled")
    assert world.ask(AskJob(show_job_id(job))) == row
