"""The machine of a node on a desk: acts wait until the test answers them, and time passes when the test says so."""

from __future__ import annotations

from typing import Any, TypeVar

from wakugumi.core.flows import Abandon, Act, ActFailed, Answered, Perform
from wakugumi.core.ids import ConnId, JobId
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.nodes import events as nev
from wakugumi.core.leader.nodes.machine import NodeAt, NodeMachine
from wakugumi.core.step import LogLine, Step
from wakugumi.core.subject import parse_subject, worker_patterns

A = TypeVar("A", bound=Act[Any])
E = TypeVar("E")


class NodeDesk:
    """A machine that has started. `took` returns effects since the last look."""

    def __init__(self, *held: JobId) -> None:
        self.now = 1_000.0
        self.machine = NodeMachine(NodeAt("http://node", worker_patterns("")), chance=lambda: 0.5, now=self.now)
        self.waiting: dict[int, Act[Any]] = {}
        """Acts without an answer, by number."""
        self.abandoned = 0
        self.report: nev.NodeReport | None = None
        """The answer to each poll; None: polls wait as well."""
        self._effects: list[Any] = []
        self.hear(nev.NodeStarts(ConnId(1), held))

    def hear(self, *events: nev.NodeEvent) -> None:
        self._perform(self.machine.handle(events, self.now))

    def wait(self, seconds: float) -> None:
        """Time passes, and each timer rings at its time."""
        until = self.now + seconds
        while (at := self.machine.wake_at()) is not None and at <= until:
            self.now = max(self.now, at)
            self._perform(self.machine.tick(self.now))
            if self.report is not None and self.is_asking(nev.PollNode):
                self.answer(self.asks(nev.PollNode), self.report)
        self.now = until

    def asks(self, kind: type[A]) -> A:
        """The one act of this kind that waits."""
        (found,) = [act for act in self.waiting.values() if isinstance(act, kind)]
        return found

    def is_asking(self, kind: type[Act[Any]]) -> bool:
        return any(isinstance(act, kind) for act in self.waiting.values())

    def answer(self, act: Act[Any], answer: object) -> None:
        """An exception makes the act fail."""
        number = next(number for number, one in self.waiting.items() if one is act)
        del self.waiting[number]
        self.hear(ActFailed(number, answer) if isinstance(answer, Exception) else Answered(number, answer))

    def polled(self, running: int = 0, limit: int = 2) -> None:
        """The node answers the poll that waits."""
        self.answer(self.asks(nev.PollNode), nev.NodeReport(running, limit))

    def assign(self, number: int = 1) -> JobId:
        job = JobId(number.to_bytes(16, "big"))
        self.hear(ev.SendAssign(ConnId(1), job, parse_subject("calc"), b"request"))
        return job

    def reply(self, status: int, code: str = "", retry_after_s: float | None = None) -> None:
        """The node answers the request that waits, without a result."""
        self.answer(self.asks(nev.AskNode), nev.NodeReply(status, code, code or f"status {status}", retry_after_s))

    def took(self, kind: type[E]) -> list[E]:
        """Effects of this kind since the last call for it."""
        found = [effect for effect in self._effects if isinstance(effect, kind)]
        self._effects = [effect for effect in self._effects if not isinstance(effect, kind)]
        return found

    @property
    def log(self) -> list[str]:
        return [line.text for line in self._effects if isinstance(line, LogLine)]

    def _perform(self, step: Step[None, nev.NodeDo]) -> None:
        for effect in step.do:
            if isinstance(effect, Perform):
                self.waiting[effect.number] = effect.act
            elif isinstance(effect, Abandon):
                del self.waiting[effect.number]
                self.abandoned += 1
            else:
                self._effects.append(effect)
        self.machine.check()
