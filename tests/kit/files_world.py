"""A files machine, the words it hears, and a script's way to say what must follow: these effects and no
others."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from wakugumi.core.files import events as se
from wakugumi.core.files.machine import FileDistribution
from wakugumi.core.ids import ConnId, WorkerId
from wakugumi.core.leader.events import QuestionAsked
from wakugumi.core.leader.questions import CacheQuestion
from wakugumi.core.subject import Pattern

EVERYONE = Pattern("job.assign.>")
CLIENT = ConnId(900)
KIB = 1024


def sha(letter: str) -> str:
    return (letter.encode().hex() * 32)[:64]


def file(letter: str, size: int = 100 * KIB) -> se.CacheFile:
    return se.CacheFile(f"{letter}.bin", sha(letter), size)


class World:
    """Time stands still unless it is moved. What was said is taken by `said`, and must be taken."""

    def __init__(self, **options: object) -> None:
        ids = itertools.count(1)
        self.now = 1_000.0
        self.machine = FileDistribution(lambda: next(ids).to_bytes(16, "big"), now=self.now, **options)  # type: ignore[arg-type]
        self.kept: list[se.SpreadKeep] = []
        self._said: list[se.SpreadDo] = []

    def hear(self, *events: se.SpreadEvent) -> None:
        assert not self._said, f"nobody expected {self._said}"
        self._take(self.machine.handle(events, self.now))

    def pass_time(self, seconds: float) -> None:
        assert not self._said, f"nobody expected {self._said}"
        until = self.now + seconds
        while (wake_at := self.machine.wake_at()) is not None and wake_at <= until:
            self.now = max(self.now, wake_at)
            self._take(self.machine.tick(self.now))
            after = self.machine.wake_at()
            assert after is None or after > self.now
        self.now = until

    def wait(self, seconds: float) -> None:
        """Unless something was said already."""
        if not self._said:
            self.pass_time(seconds)

    def said(self) -> Sequence[se.SpreadDo]:
        said, self._said = self._said, []
        return said

    def silence(self) -> None:
        assert self.said() == []

    def one(self) -> se.SpreadDo:
        (effect,) = self.said()
        return effect

    # Workers and clients.

    def join(
        self,
        *numbers: int,
        patterns: str = EVERYONE,
        serves: bool = True,
        old: bool = False,
        near: bool = False,
        **stock: object,
    ) -> None:
        for number in numbers:
            conn = ConnId(number)
            came = se.WorkerCame(conn, worker_id(number), f"w{number}", (Pattern(patterns),), blobs=not old, near=near)
            self.hear(came)
            if not old:
                self.stock(number, whole=True, serves=serves, **stock)

    def stock(self, number: int, *letters: str, whole: bool = False, serves: bool = False, **fields: object) -> None:
        url, key = (f"http://w{number}", f"key{number}") if serves else ("", "")
        known = {"gone": (), "caches": {}, "blobs": tuple(map(sha, letters))} | fields
        self.hear(se.Stocked(ConnId(number), whole, url, key, **known))  # type: ignore[arg-type]

    def want(self, number: int, letter: str = "a", *, why: str = "", here: bool = True, want: int = 0) -> None:
        want_id = (want or number).to_bytes(16, "big")
        self.hear(se.BlobWanted(ConnId(number), want_id, sha(letter), 100 * KIB, "", "", why, here, is_sure=here))

    def put(
        self,
        *files: se.CacheFile,
        cache_id: str = "data",
        ask: bytes = b"ask",
        target: str = EVERYONE,
        conn: int = CLIENT,
        within_s: float = 600.0,
        share: float = 1.0,
        pinned: bool = False,
        progress: bool = False,
    ) -> None:
        targets = (Pattern(target),)
        self.hear(
            se.PutAsked(ConnId(conn), ask, cache_id, files, targets, within_s, share, pinned, progress),
        )

    def answer(self, put: se.SpreadDo, status: str = se.OK, message: str = "") -> None:
        assert isinstance(put, se.SendCachePut)
        self.hear(se.PutAnswered(put.conn, put.put, put.cache_id, status, message))

    def ask(self, question: CacheQuestion) -> None:
        self.hear(QuestionAsked(CLIENT, b"q", question))

    def _take(self, step: object) -> None:
        self.kept += step.keep  # type: ignore[attr-defined]
        self._said += step.do  # type: ignore[attr-defined]
        self.machine.check()


def worker_id(number: int) -> WorkerId:
    return WorkerId(number.to_bytes(16, "big"))


def source(to: int, at: int | None, letter: str = "a", want: int = 0) -> se.SendSource:
    """The effect that sends one worker to another, or to the leader."""
    place = ("", "") if at is None else (f"http://w{at}", f"key{at}")
    return se.SendSource(ConnId(to), (want or to).to_bytes(16, "big"), sha(letter), 100 * KIB, *place)


def counts(effect: se.SpreadDo) -> tuple[str, int, int, int, int, int]:
    assert isinstance(effect, se.SendSummary)
    return effect.status, effect.sent, effect.ok, effect.skipped, effect.failed, effect.silent


def put_of(effect: se.SpreadDo) -> se.SendCachePut:
    assert isinstance(effect, se.SendCachePut)
    return effect
