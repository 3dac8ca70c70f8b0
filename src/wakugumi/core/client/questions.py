"""Which of a client's questions is with which leader, so that each of them is answered or given up?

A question to a lost leader goes to another one: every question may be asked twice.
"""

from __future__ import annotations

import msgspec

from wakugumi.core.client import events as ev
from wakugumi.core.client.events import ANY_LEADER, ClientDo, LeaderNo
from wakugumi.core.client.leaders import Leaders


class OpenQuestion(msgspec.Struct, eq=False):
    frame: bytes
    wanted: LeaderNo
    asked: LeaderNo = ANY_LEADER


class OpenQuestions:
    """By the ids that their answers carry."""

    def __init__(self, leaders: Leaders) -> None:
        self._rows = leaders.rows
        self._open: dict[bytes, OpenQuestion] = {}

    def add(self, event: ev.Ask, do: list[ClientDo]) -> None:
        self._open[event.ask] = OpenQuestion(event.frame, event.leader)
        self.send(do)

    def forget(self, ask: bytes) -> None:
        self._open.pop(ask, None)

    def answered(self, event: ev.QuestionAnswered, do: list[ClientDo]) -> None:
        if self._open.pop(event.ask, None) is not None:
            do.append(ev.AnswerQuestion(event.ask, event.refused, event.payload))

    def lost(self, leader: LeaderNo, do: list[ClientDo]) -> None:
        """Send the open questions of this leader to others."""
        for question in self._open.values():
            if question.asked == leader:
                question.asked = ANY_LEADER
        self.send(do)

    def send(self, do: list[ClientDo]) -> None:
        """Send questions that no leader has yet."""
        for ask, question in list(self._open.items()):
            if question.asked:
                continue
            candidates = [self._rows[question.wanted]] if question.wanted in self._rows else list(self._rows.values())
            if question.wanted and question.wanted not in self._rows:
                del self._open[ask]
                do.append(ev.NoAnswer(ask, "no-leader", "the leader was removed"))
            elif (line := next((leader.line for leader in candidates if leader.line is not None), None)) is not None:
                question.asked = line.leader.no
                do.append(ev.SendFrames(line.id, [question.frame]))
            elif candidates and all(leader.serves for leader in candidates):
                del self._open[ask]
                do.append(ev.NoAnswer(ask, "not-supported", "the leader is an old one and answers no questions"))
