"""How far is a put, and how did it end? Scripts of event and effect."""

from __future__ import annotations

import pytest
from tests.kit.files_world import CLIENT, World, counts, file, put_of, worker_id

from wakugumi.core.files import events as se


@pytest.mark.spec("C1", "S2")
def test_a_put_asks_those_who_match_and_sums_up_what_they_say(world: World) -> None:
    world.join(1, patterns="job.assign.a.>")
    world.join(2, patterns="job.*.a.x")
    world.join(3, patterns="job.assign.b.>")
    world.put(file("a"), file("b"), target="job.assign.a.x")
    one, two = map(put_of, world.said())
    assert (one.conn, two.conn, one.files, one.inline) == (1, 2, (file("a"), file("b")), False)
    assert world.kept == [
        se.KeepCache("data", one.version, (file("a"), file("b")), ("job.assign.a.x",), False, 0.0)  # type: ignore[arg-type]
    ]
    world.answer(one)
    world.silence()
    world.answer(two, se.SKIPPED)
    summary = world.one()
    assert counts(summary) == (se.OK, 2, 1, 1, 0, 0)
    assert isinstance(summary, se.SendSummary)
    assert (summary.conn, summary.ask, summary.message) == (
        CLIENT,
        b"ask",
        "sent=2 ok=1 skipped=1 failed=0 silent=0",
    )
    assert world.machine.has_cache(worker_id(1), "data")
    assert not world.machine.has_cache(worker_id(3), "data")


@pytest.mark.spec("C1")
def test_the_same_put_again_is_answered_at_once_and_nothing_is_sent_or_kept(world: World) -> None:
    world.join(1)
    world.put(file("a"))
    world.answer(world.one())
    world.said()
    world.kept.clear()
    world.put(file("a"), ask=b"again")
    assert counts(world.one()) == (se.SKIPPED, 1, 0, 1, 0, 0)
    assert world.kept == []


@pytest.mark.spec("C1")
def test_no_matching_worker_is_a_failure_but_the_cache_is_kept_for_those_to_come(world: World) -> None:
    world.put(file("a"))
    summary = world.one()
    assert counts(summary) == (se.FAILED, 0, 0, 0, 0, 0)
    assert isinstance(summary, se.SendSummary)
    assert "workers that join later get it" in summary.message
    world.join(1)
    assert put_of(world.one()).cache_id == "data"


@pytest.mark.spec("C1")
def test_when_its_time_is_over_a_put_counts_the_silent(world: World) -> None:
    world.join(1, 2)
    world.put(file("a"), within_s=5.0)
    one, _ = world.said()
    world.answer(one)
    world.pass_time(5.0)
    assert counts(world.one()) == (se.FAILED, 2, 1, 0, 0, 1)


@pytest.mark.spec("C1")
def test_a_put_may_be_content_with_a_share_and_the_rest_is_warmed_in_silence(world: World) -> None:
    world.join(1, 2, 3)
    world.put(file("a"), share=0.5)
    one, two, three = world.said()
    world.answer(one)
    world.silence()
    world.answer(two)
    summary = world.one()
    assert isinstance(summary, se.SendSummary)
    assert (summary.status, summary.ok, summary.waiting) == (se.OK, 2, 1)
    world.answer(three)
    world.silence()
    assert world.machine.has_cache(worker_id(3), "data")


def test_progress_is_told_while_it_changes(world: World) -> None:
    world.join(1, 2)
    world.put(file("a"), progress=True)
    one, two = world.said()
    world.pass_time(1.0)
    told = world.one()
    assert isinstance(told, se.SendSummary)
    assert (told.status, told.waiting) == (se.PROGRESS, 2)
    world.pass_time(5.0)
    world.silence()
    world.answer(one)
    world.pass_time(1.0)
    told = world.one()
    assert isinstance(told, se.SendSummary)
    assert (told.status, told.ok, told.waiting) == (se.PROGRESS, 1, 1)
    world.answer(two)
    assert counts(world.one()) == (se.OK, 2, 2, 0, 0, 0)
    world.pass_time(10.0)
    world.silence()


def test_a_client_that_left_is_told_nothing_and_the_workers_have_it_nevertheless(world: World) -> None:
    world.join(1)
    world.put(file("a"))
    put = world.one()
    world.hear(se.ClientWent(CLIENT))
    world.answer(put)
    world.silence()
    assert world.machine.has_cache(worker_id(1), "data")
