"""Sight: a client that may not see all jobs neither reads nor changes the jobs of others, and loses none of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.kit.leader_world import TIMEOUT_S, ClientEnd, World, a_world, job_id, subject

from wakugumi.core.access.identity import Sight
from wakugumi.core.ids import ConnId, JobId, show_job_id
from wakugumi.core.leader import answer_records as an
from wakugumi.core.leader import questions as qu
from wakugumi.core.leader.events import QuestionAsked, SendNo, SendResult, Submitted, WorkerHolds
from wakugumi.core.leader.jobs.broadcast import part_id
from wakugumi.core.requirements import Requirements
from wakugumi.limits.leader import JOBS_LOOKED_AT_MAX

OWN = Sight(("own", "own.*"))
LOOKS = Sight(("own", "own.*"), sees_all=True)
BLOB = "b" * 64
DIGEST = b"d" * 16


@pytest.fixture
def world() -> Iterator[World]:
    with a_world(attempts_max=1) as world:
        yield world


class Grid:
    """Clients `own` and `other` with one job in each state; the first with a sight."""

    def __init__(self, world: World, sight: Sight = OWN) -> None:
        self.world = world
        self.sight = sight
        self.own = world.client("own", sight=sight)
        self.other = world.client("other")
        self.worker = world.worker("w", "job.assign.calc", credit=9)
        self.mine = self._jobs(self.own)
        self.theirs = self._jobs(self.other)

    def _jobs(self, client: ClientEnd) -> dict[str, JobId]:
        ok, failed, dead, running = client.submits(4)
        self.worker.gets(ok, failed, dead, running)
        self.worker.acks(ok)
        client.gets_result(ok)
        self.worker.fails(failed)
        client.gets_result(failed)
        self.worker.fails(dead, "worker-error")
        client.gets_failure(dead, "dead")
        (queued,) = client.submits(1, f"idle.{client.id}")
        return {"ok": ok, "failed": failed, "dead": dead, "running": running, "queued": queued}

    def ask(self, question: qu.Question) -> an.Answer:
        return self.world.ask(question, self.sight)


@pytest.fixture
def grid(world: World) -> Grid:
    return Grid(world)


def shown(jobs: dict[str, JobId]) -> list[str]:
    return [show_job_id(job) for job in jobs.values()]


# Connections of clients.


def test_a_foreign_job_is_as_unknown_as_any_other(grid: Grid) -> None:
    for job in (*grid.theirs.values(), job_id(999)):
        grid.own.claims(job)
        grid.own.gets_refusal(job, "unknown-job")
        assert grid.own.asks_for(job) == {"unknown": [job]}
    grid.own.claims(grid.mine["ok"])
    grid.own.gets_receipt(grid.mine["ok"])
    grid.own.gets_result(grid.mine["ok"])
    assert grid.own.asks_for(*grid.mine.values()) == {
        "known": [grid.mine[state] for state in ("ok", "running", "queued")],
        "failed": [grid.mine[state] for state in ("failed", "dead")],
    }


def test_a_client_that_looks_reads_foreign_results_and_replaces_none(world: World) -> None:
    grid = Grid(world, LOOKS)
    grid.own.claims(grid.theirs["ok"])
    grid.own.gets_receipt(grid.theirs["ok"])
    grid.own.gets_result(grid.theirs["ok"])
    grid.own.submit(job=grid.theirs["failed"])
    grid.own.gets_refusal(grid.theirs["failed"], "denied")


@pytest.mark.parametrize("state", ["ok", "failed", "dead", "running", "queued"])
@pytest.mark.parametrize("payload", [b"request", b"another request"])
def test_the_id_of_a_foreign_job_is_denied_whatever_the_request(grid: Grid, state: str, payload: bytes) -> None:
    grid.own.submit(job=grid.theirs[state], payload=payload)
    grid.own.gets_refusal(grid.theirs[state], "denied")
    before = grid.world.ask(qu.AskJob(show_job_id(grid.theirs[state])))
    assert isinstance(before, an.JobRow)
    assert (before.client, before.state) == ("other", "failed" if state == "dead" else state)


def test_a_cancel_and_a_confirm_of_a_foreign_job_change_nothing(grid: Grid) -> None:
    grid.own.cancels(*grid.theirs.values())
    grid.own.confirms(*grid.theirs.values())
    assert grid.world.reasons(grid.theirs["ok"])[0].endswith("waiting to be fetched by other")
    grid.own.cancels(grid.mine["queued"])
    grid.own.gets_failure(grid.mine["queued"], "cancelled")


def test_a_result_that_waits_is_not_sent_if_the_id_is_another_clients_by_then(world: World) -> None:
    own, other, worker = world.client("own", sight=OWN), world.client("other"), world.worker("w", credit=2)
    (job,) = own.submits(1)
    worker.gets(job)
    own.blocks()
    worker.acks(job)
    world.ask(qu.AskCancel(jobs=[show_job_id(job)], forget=True))
    other.submit(job=job, payload=b"another request")
    other.gets_receipt(job)
    worker.gets(job)
    worker.acks(job, b"secret")
    other.gets_result(job, b"secret")
    own.unblocks()
    own.gets_refusal(job, "expired")


def test_parts_of_a_foreign_broadcast_are_not_replaced(world: World) -> None:
    own, other, worker = world.client("own", sight=OWN), world.client("other"), world.worker("w", credit=2)
    job = world.new_job()
    part = part_id(job, worker.id)
    asked = (job, subject("calc"), "calc", TIMEOUT_S, b"request")
    world.hear(Submitted(other.conn, *asked, broadcast_s=100.0))
    other.gets_receipt(job)
    other.takes(SendResult)
    worker.gets(part)
    worker.fails(part)
    world.ask(qu.AskCancel(jobs=[show_job_id(job)], forget=True))
    assert job not in world.leader.jobs
    world.hear(Submitted(own.conn, *asked, broadcast_s=100.0))
    own.gets_refusal(job, "denied")
    assert world.leader.jobs[part].client.id == "other"


def test_an_answer_of_an_earlier_life_must_prove_its_request(world: World) -> None:
    own, worker = world.client("own", sight=OWN), world.worker("w", holds=False)
    guessed, proven = job_id(1), job_id(2)
    world.hear(WorkerHolds(worker.conn, (), (guessed, proven), ()))
    worker.acks(guessed, b"secret")
    worker.acks(proven, b"mine", request=DIGEST)
    own.submit(job=guessed, request=DIGEST)
    own.gets_receipt(guessed)
    own.gets_nothing()
    own.submit(job=proven, request=DIGEST)
    own.gets_receipt(proven)
    own.gets_result(proven, b"mine")


# Questions.


def test_lists_show_own_jobs_only(grid: Grid) -> None:
    answer = grid.ask(qu.AskJobs())
    assert isinstance(answer, an.JobsAnswer)
    assert ([row.job for row in answer.jobs], answer.total) == (shown(grid.mine), 5)
    for question in (qu.AskJobs(state="running"), qu.AskJobs(pattern=">", state="running")):
        answer = grid.ask(question)
        assert isinstance(answer, an.JobsAnswer)
        assert [row.job for row in answer.jobs] == [show_job_id(grid.mine["running"])]
    assert grid.ask(qu.AskJobs(client="other")) == an.JobsAnswer([], 0)
    dead = grid.ask(qu.AskDead())
    assert isinstance(dead, an.DeadAnswer)
    assert ([row.job for row in dead.dead], dead.total) == ([show_job_id(grid.mine["dead"])], 1)
    assert grid.ask(qu.AskDead(jobs=[show_job_id(grid.theirs["dead"])])) == an.DeadAnswer([], 0)


def test_lists_show_all_to_a_client_that_looks(world: World) -> None:
    grid = Grid(world, LOOKS)
    for question in (qu.AskJobs(), qu.AskDead(), qu.AskStatus(), qu.AskTop(), qu.AskWorkers()):
        assert grid.ask(question) == world.ask(question)
    assert grid.ask(qu.AskJob(show_job_id(grid.theirs["ok"]))) == world.ask(qu.AskJob(show_job_id(grid.theirs["ok"])))


@pytest.mark.parametrize("ask", [qu.AskJob, qu.AskStory, qu.AskExplain, qu.AskLetter])
def test_a_question_about_a_foreign_job_is_one_about_no_job(
    grid: Grid, ask: type[qu.AskJob | qu.AskStory | qu.AskExplain | qu.AskLetter]
) -> None:
    texts = []
    for job in (grid.theirs["dead"], job_id(999)):
        asked = QuestionAsked(ConnId(10_000), b"q", ask(show_job_id(job)), OWN)
        step = grid.world.leader.handle([asked], grid.world.now)
        (no,) = step.at_once
        assert isinstance(no, SendNo)
        texts.append((no.code, no.text.replace(show_job_id(job), "it")))
    assert texts[0] == texts[1]
    grid.ask(ask(show_job_id(grid.mine["dead"])))


def test_a_search_by_state_among_own_jobs_has_its_bound(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert JOBS_LOOKED_AT_MAX > 3
    monkeypatch.setattr("wakugumi.core.leader.admin.answers.JOBS_LOOKED_AT_MAX", 3)
    world.client("own", sight=OWN).submits(5)
    answer = world.ask(qu.AskJobs(state="queued"), OWN)
    assert isinstance(answer, an.JobsAnswer)
    assert (len(answer.jobs), answer.total) == (3, 3)


def test_a_cancel_by_question_reaches_own_jobs_only(grid: Grid) -> None:
    for question in (qu.AskCancel(jobs=shown(grid.theirs)), qu.AskCancel(client="other")):
        answer = grid.ask(question)
        assert isinstance(answer, an.CancelAnswer)
        assert (answer.cancelled, answer.finished) == (0, 0)
    everything = grid.ask(qu.AskCancel(pattern=">", forget=True))
    assert isinstance(everything, an.CancelAnswer)
    assert everything.cancelled == 2
    grid.own.gets_failure(grid.mine["running"], "cancelled")
    grid.own.gets_failure(grid.mine["queued"], "cancelled")
    grid.worker.gets_cancel(grid.mine["running"])
    assert len(grid.world.leader.jobs) >= 5
    assert all(job in grid.world.leader.jobs for job in grid.theirs.values())


def test_a_client_that_looks_may_not_cancel_what_it_sees(world: World) -> None:
    grid = Grid(world, LOOKS)
    job = show_job_id(grid.theirs["running"])
    assert world.ask_in_vain(qu.AskCancel(jobs=[job]), LOOKS) == "denied"
    letter = show_job_id(grid.theirs["dead"])
    assert world.ask_in_vain(qu.AskRequeue(jobs=[letter]), LOOKS) == "denied"
    answer = grid.ask(qu.AskCancel(client="other"))
    assert isinstance(answer, an.CancelAnswer)
    assert answer.cancelled == 0


@pytest.mark.parametrize("ask", [qu.AskRequeue, qu.AskDrop])
def test_only_own_dead_letters_are_settled(grid: Grid, ask: type[qu.AskRequeue | qu.AskDrop]) -> None:
    named = grid.ask(ask(jobs=[show_job_id(grid.theirs["dead"])]))
    assert named == an.DeadDoneAnswer(0, [show_job_id(grid.theirs["dead"])], 0)
    answer = grid.ask(ask(pattern=">"))
    assert isinstance(answer, an.DeadDoneAnswer)
    assert answer.done == 1
    assert list(grid.world.leader.clients.dead.letters) == [grid.theirs["dead"]]
    if ask is qu.AskRequeue:
        grid.worker.gets(grid.mine["dead"])


def test_status_and_top_show_the_load_and_no_work_of_others(grid: Grid) -> None:
    status = grid.ask(qu.AskStatus())
    assert isinstance(status, an.StatusAnswer)
    assert (status.workers, status.queued, status.running) == (1, 2, 2)
    assert (status.subjects, status.groups) == ([], [])
    assert [row.client for row in status.busiest] == ["own"]
    top = grid.ask(qu.AskTop())
    assert isinstance(top, an.TopAnswer)
    assert top.status == status
    assert {row.job for row in top.failures} <= set(shown(grid.mine))
    assert top.failures
    (worker,) = top.workers
    assert (worker.name, worker.patterns, worker.running) == ("w", [], 2)
    workers = grid.ask(qu.AskWorkers())
    assert isinstance(workers, an.WorkersAnswer)
    assert workers.workers == [worker]


# Blobs.


def test_a_blob_is_read_by_clients_whose_jobs_or_results_name_it(world: World) -> None:
    own, other, worker = world.client("own", sight=OWN), world.client("other"), world.worker("w", credit=3, blobs=True)
    leader = world.leader
    assert leader.may_read(BLOB, None)
    assert not leader.may_read(BLOB, OWN)
    (theirs,) = other.submits(1, requirements=Requirements(files=(BLOB,)))
    assert not leader.may_read(BLOB, OWN)
    assert leader.may_read(BLOB, LOOKS)
    (mine,) = own.submits(1, requirements=Requirements(files=(BLOB,)))
    assert leader.may_read(BLOB, OWN)
    worker.gets(theirs, mine)
    worker.acks(mine, blobs=("c" * 64,))
    own.gets_result(mine)
    assert not leader.may_read(BLOB, OWN), "only the job of the other client names it"
    assert leader.may_read("c" * 64, OWN)
    worker.acks(theirs, blobs=("e" * 64,))
    other.gets_result(theirs)
    assert not leader.may_read("e" * 64, OWN)
    world.restart()
    assert world.leader.may_read("c" * 64, OWN)
    assert not world.leader.may_read("e" * 64, OWN)


def test_a_blob_of_an_answer_without_a_client_is_read_by_no_client(world: World) -> None:
    worker = world.worker("w", holds=False)
    world.hear(WorkerHolds(worker.conn, (), (job_id(1),), ()))
    worker.acks(job_id(1), blobs=(BLOB,))
    assert world.leader.holds(BLOB)
    assert not world.leader.may_read(BLOB, Sight(("*", "!boss")))
