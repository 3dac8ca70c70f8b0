"""Questions to leaders: whom they are asked, and how they end."""

from __future__ import annotations

from wakugumi.core.client import events as fo
from wakugumi.core.client.events import ClientDo, LeaderNo
from wakugumi.core.client.leaders import Leaders
from wakugumi.core.client.questions import OpenQuestions
from wakugumi.core.ids import ConnId

FIRST, SECOND = LeaderNo(1), LeaderNo(2)
ONE, TWO = ConnId(1), ConnId(2)


class Asking:
    """Two leaders, which have been dialled."""

    def __init__(self) -> None:
        self.leaders = Leaders(
            lambda: 0.5, [FIRST, SECOND], cap=2, choice="least", grace_s=10.0, embedded=False, old_leader=True
        )
        self.questions = OpenQuestions(self.leaders)
        self.leaders.dial(0.0, [])

    def serve(self, no: LeaderNo, *, own: bool = True) -> list[ClientDo]:
        self.leaders.connected(ConnId(no), 0.0, [])
        conn = self.leaders.conns[ConnId(no)]
        conn.own = own
        self.leaders.ready(conn, 0.0, [])
        do: list[ClientDo] = []
        self.questions.send(do)
        return do

    def ask(self, name: bytes, leader: LeaderNo = fo.ANY_LEADER) -> list[ClientDo]:
        do: list[ClientDo] = []
        self.questions.add(fo.Ask(name, b"frame " + name, leader), do)
        return do

    def lose(self, no: LeaderNo) -> list[ClientDo]:
        do: list[ClientDo] = []
        self.leaders.lost(ConnId(no), "gone", 0.0, [])
        self.questions.lost(no, do)
        return do

    def answer(self, name: bytes) -> list[ClientDo]:
        do: list[ClientDo] = []
        self.questions.answered(fo.QuestionAnswered(ONE, name, False, b"yes"), do)
        return do


def test_a_question_waits_for_a_leader_and_is_asked_once() -> None:
    asking = Asking()
    assert asking.ask(b"a") == []
    assert asking.serve(FIRST) == [fo.SendFrames(ONE, [b"frame a"])]
    assert asking.serve(SECOND) == []
    assert asking.answer(b"a") == [fo.AnswerQuestion(b"a", False, b"yes")]
    assert asking.answer(b"a") == [], "its second answer is nobody's"


def test_a_question_is_for_the_leader_that_it_names() -> None:
    asking = Asking()
    asking.serve(FIRST)
    assert asking.ask(b"a", SECOND) == []
    assert asking.serve(SECOND) == [fo.SendFrames(TWO, [b"frame a"])]


def test_what_a_lost_leader_was_asked_another_one_is_asked() -> None:
    asking = Asking()
    asking.serve(FIRST)
    asking.serve(SECOND)
    asking.ask(b"a")
    assert asking.lose(FIRST) == [fo.SendFrames(TWO, [b"frame a"])]


def test_a_question_to_a_removed_leader_has_no_answer() -> None:
    asking = Asking()
    asking.ask(b"a", SECOND)
    asking.leaders.drop(asking.leaders.rows[SECOND])
    assert asking.lose(SECOND) == [fo.NoAnswer(b"a", "no-leader", "the leader was removed")]


def test_old_leaders_are_asked_nothing_and_one_that_may_be_another_is_waited_for() -> None:
    asking = Asking()
    asking.serve(FIRST, own=False)
    assert asking.ask(b"a") == []
    no = "the leader is an old one and answers no questions"
    assert asking.serve(SECOND, own=False) == [fo.NoAnswer(b"a", "not-supported", no)]


def test_a_forgotten_question_is_neither_asked_nor_answered() -> None:
    asking = Asking()
    asking.ask(b"a")
    asking.questions.forget(b"a")
    asking.questions.forget(b"a")
    assert asking.serve(FIRST) == []
    assert asking.answer(b"a") == []
