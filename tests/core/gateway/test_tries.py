"""Does a job leave a group in which it waits in vain, and only then?"""

from __future__ import annotations

import pytest
from tests.kit.gateway_desk import GatewayDesk
from tests.kit.gateway_jobs import JOB, answer_group, first_dispatch, get_answer, submit

from wakugumi.core.flows import Answered
from wakugumi.core.gateway import events as ev
from wakugumi.core.gateway.groups import Capacity
from wakugumi.core.gateway.rows import Content
from wakugumi.errors import Lost, PeerError


def two_groups(**bounds: object) -> GatewayDesk:
    desk = GatewayDesk(groups=("a", "b"), **bounds)
    desk.answers[ev.PollGroup] = lambda act: Capacity(0, 8, 0, 8 if act.group == "a" else 1)
    desk.hear(ev.GatewayStarts())
    submit(desk, 1)
    return desk


def where(desk: GatewayDesk) -> list[str]:
    return [act.group for act in desk.unanswered.values() if isinstance(act, ev.Dispatch)]


def test_a_job_is_late_after_its_own_time_and_the_patience_of_the_gateway() -> None:
    desk = two_groups(try_s=100.0)
    desk.wait(159.0)
    assert where(desk) == ["a"]
    desk.wait(2.0)
    assert where(desk) == ["b"]
    assert desk.asked_for(ev.CancelAt) == [ev.CancelAt("a", "monday")]


def test_bytes_that_move_are_progress() -> None:
    desk = two_groups(try_s=100.0)
    moved_at = desk.now
    desk.answers[ev.SinceMoved] = lambda _: desk.now - moved_at
    desk.wait(100.0)
    moved_at = desk.now
    desk.wait(150.0)
    assert where(desk) == ["a"]
    desk.wait(20.0)
    assert where(desk) == ["b"]


def test_a_patience_that_rounding_left_short_is_looked_at_after_a_pause() -> None:
    desk = two_groups(try_s=100.0)
    looks = [159.99999999999986, 1e9]
    desk.answers[ev.SinceMoved] = lambda _: looks.pop(0)
    desk.wait(160.01)
    assert looks == [1e9], "the second look comes in a later moment"
    desk.wait(1.0)
    assert where(desk) == ["b"]


def test_an_answer_that_has_begun_must_go_on() -> None:
    desk = two_groups(silence_s=5.0)
    (act,) = [act for act in desk.unanswered.values() if isinstance(act, ev.Dispatch)]
    desk.hear(ev.HeadCame(act.number))
    desk.wait(4.0)
    assert where(desk) == ["a"]
    desk.wait(2.0)
    assert where(desk) == ["b"]


@pytest.mark.parametrize("error", [Lost("refused", "refused"), PeerError("nonsense"), RecursionError("unforeseen")])
def test_a_group_that_answers_no_poll_loses_its_jobs_and_is_polled_on(error: Exception) -> None:
    desk = two_groups()
    poll, is_gone = desk.answers[ev.PollGroup], True

    def failing(act: ev.PollGroup) -> object:
        if act.group == "a" and is_gone:
            raise error
        return poll(act)

    desk.answers[ev.PollGroup] = failing
    desk.wait(10.0)
    assert where(desk) == ["b"]
    assert len([line for line in desk.log if line.startswith("group gone group=a: ")]) == 1
    is_gone = False
    desk.wait(10.0)
    assert [line for line in desk.log if line.startswith("group back")] == ["group back group=a"]
    answer_group(desk)
    assert isinstance(get_answer(desk, 1), ev.OpenedAnswer)


def test_a_poll_without_an_answer_is_given_up_and_the_next_one_comes() -> None:
    desk = GatewayDesk(answer_s=2.0, poll_s=2.0)
    desk.never.add(ev.PollGroup)
    desk.hear(ev.GatewayStarts())
    desk.wait(60.0)
    assert len(desk.asked_for(ev.PollGroup)) >= 29
    assert len([act for act in desk.unanswered.values() if isinstance(act, ev.PollGroup)]) <= 1


def test_a_deserted_group_loses_jobs_that_wait_and_keeps_an_answer_that_comes() -> None:
    desk = two_groups()
    (act,) = [act for act in desk.unanswered.values() if isinstance(act, ev.Dispatch)]
    submit(desk, 2, name="tuesday")
    desk.hear(ev.HeadCame(act.number))
    assert where(desk) == ["a", "a"]
    desk.answers[ev.PollGroup] = lambda act: Capacity(0, 0, 1, 0) if act.group == "a" else Capacity(0, 8, 0, 8)
    desk.wait(30.0)
    assert where(desk) == ["a", "b"]
    assert desk.asked_for(ev.CancelAt) == [ev.CancelAt("a", "tuesday")]


def test_a_whole_answer_is_stored_whatever_becomes_of_its_group() -> None:
    desk = two_groups(silence_s=5.0)
    desk.never |= {ev.FinishAnswer, ev.KeepAnswer}
    number = first_dispatch(desk)
    act = desk.unanswered.pop(number)
    assert isinstance(act, ev.Dispatch)
    desk.hear(ev.HeadCame(act.number), Answered(number, ev.GroupReply(200, {}, 9)))
    (finish,) = [number for number, act in desk.unanswered.items() if isinstance(act, ev.FinishAnswer)]
    desk.hear(Answered(finish, 9))

    def gone(_: ev.PollGroup) -> object:
        raise Lost("nobody listens", "refused")

    desk.answers[ev.PollGroup] = gone
    desk.wait(60.0)
    (keep,) = [number for number, act in desk.unanswered.items() if isinstance(act, ev.KeepAnswer)]
    desk.hear(Answered(keep, Content(9, None, "file")))
    row = desk.rows.get(JOB)
    assert row is not None
    assert row.answer == Content(9, None, "file")
    assert desk.effects_of(ev.ReleaseAnswer) == [ev.ReleaseAnswer(act.number, True)]
    assert desk.machine.flights.by_job == {}
