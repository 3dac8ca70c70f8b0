"""Is a result sent again once the leader has its parts, and never over another connection than the one that asked?"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from wakugumi.core.flows import Abandon, ActFailed, Answered, Perform
from wakugumi.core.ids import JobId
from wakugumi.core.transfers import deliveries as ev
from wakugumi.core.transfers.transfers import PutBlob, PutEnd
from wakugumi.errors import Lost, Refused
from wakugumi.limits.files import LARGE_TRANSFERS_MAX, UPLOAD_BROKEN_MAX
from wakugumi.limits.runner import LARGE_WORK_BYTES

URL = "http://place"
A, B = "a" * 64, "b" * 64


class Part(NamedTuple):
    """A file of a test."""

    path: str
    size: int = 10


def job(number: int) -> JobId:
    return JobId(bytes([number]) * 16)


class Desk:
    """A machine at the hands of a test: results are loaded at once, puts wait for `put`."""

    def __init__(self) -> None:
        self.now = 0.0
        self.machine = ev.DeliveriesMachine(0.0, lambda: 0.5)
        self.disk: dict[JobId, dict[str, Part]] = {}
        self.loads: list[Exception] = []
        """Failures of the next loads."""
        self.puts: dict[int, PutBlob] = {}
        self.said: list[Any] = []

    def hear(self, *events: ev.DeliveriesEvent) -> list[Any]:
        return self._note(self.machine.handle(events, self.now).do)

    def wait(self, seconds: float) -> list[Any]:
        until, did = self.now + seconds, []
        while (wake_at := self.machine.wake_at()) is not None and wake_at <= until:
            self.now = wake_at
            did += self._note(self.machine.tick(wake_at).do)
        self.now = until
        return did

    def asks(self, number: int, **parts: Part) -> list[Any]:
        self.disk[job(number)] = named = {name.lower() * 64: part for name, part in parts.items()}
        return self.hear(ev.PartsAsked(job(number), list(named)))

    def put(self, sha256: str = A, error: Lost | Refused | None = None) -> list[Any]:
        number = next(number for number, act in self.puts.items() if act.sha256 == sha256)
        del self.puts[number]
        return self.hear(Answered(number, PutEnd(error)))

    def _note(self, effects: Any) -> list[Any]:
        self.machine.check()
        said: list[Any] = []
        for effect in effects:
            match effect:
                case Perform(number, ev.LoadParts(wanted)):
                    if self.loads:
                        said += self.hear(ActFailed(number, self.loads.pop(0)))
                        continue
                    parts = self.disk.get(wanted)
                    loaded = None if parts is None else ev.LoadedResult(b"payload", b"request", parts)
                    said += self.hear(Answered(number, loaded))
                case Perform(number, act):
                    assert isinstance(act, PutBlob)
                    self.puts[number] = act
                case Abandon(number):
                    del self.puts[number]
                case ev.DeliveryWaits():
                    pass
                case _:
                    said.append(effect)
        self.said += said
        return said


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.hear(ev.PlaceKnown(URL))
    return desk


def sent(number: int) -> ev.ResendResult:
    return ev.ResendResult(job(number), b"payload", b"request")


def codes(effects: list[Any]) -> list[str]:
    return [effect.no.code for effect in effects]


def test_a_result_is_sent_again_when_its_parts_have_arrived(desk: Desk) -> None:
    assert desk.asks(1, A=Part("a"), B=Part("b")) == []
    assert desk.put(A) == []
    assert desk.put(B) == [sent(1)]
    assert not desk.machine.under_way
    assert desk.machine.flows_open == 0


def test_a_leader_that_asks_again_meanwhile_gets_the_result_once(desk: Desk) -> None:
    desk.asks(1, A=Part("a"))
    desk.asks(1, A=Part("a"))
    assert len(desk.puts) == 1
    assert desk.put() == [sent(1)]


def test_a_leader_that_asks_for_more_meanwhile_gets_the_result_with_all_of_it(desk: Desk) -> None:
    """Before, the second question was not heard, and the result sent without its blobs."""
    desk.asks(1, A=Part("a"), B=Part("b"))
    desk.put(A)
    desk.hear(ev.PartsAsked(job(1), [A]))
    assert desk.put(B) == []
    assert desk.put(A) == [sent(1)]


def test_results_with_the_same_part_share_its_transfer(desk: Desk) -> None:
    desk.asks(1, A=Part("1/a"))
    desk.asks(2, A=Part("2/a"))
    assert len(desk.puts) == 1
    assert desk.put() == [sent(1), sent(2)]


def test_a_failure_with_another_results_file_is_none_of_this_one(desk: Desk) -> None:
    desk.asks(1, A=Part("1/a"))
    desk.asks(2, A=Part("2/a"))
    assert codes(desk.put(A, Refused("bad-name", "the file is gone"))) == ["bad-name"]
    assert [act.blob for act in desk.puts.values()] == [Part("2/a")]
    assert desk.put() == [sent(2)]


def test_a_failed_try_is_repeated_while_the_leader_is_connected(desk: Desk) -> None:
    desk.asks(1, A=Part("a"))
    for error in (Lost("gone"), Refused("disk", "full"), Refused("blob-busy", "other"), Refused("blob-broken", "bit")):
        assert desk.put(A, error) == []
        desk.wait(60.0)
    assert desk.put() == [sent(1)]


def test_without_its_leader_a_failed_try_is_the_end_and_the_next_leader_asks(desk: Desk) -> None:
    desk.asks(1, A=Part("a"))
    desk.hear(ev.PlaceLost())
    assert desk.put(A, Lost("gone")) == []
    assert not desk.machine.under_way
    assert desk.asks(1, A=Part("a")) == []
    desk.hear(ev.PlaceKnown(URL))
    desk.asks(1, A=Part("a"))
    assert desk.put() == [sent(1)]


def test_a_transfer_outlives_the_connection(desk: Desk) -> None:
    desk.asks(1, A=Part("a"))
    desk.hear(ev.PlaceLost(), ev.PlaceKnown(URL))
    desk.asks(1, A=Part("a"))
    assert len(desk.puts) == 1
    assert desk.put() == [sent(1)]


def test_no_leader_hears_of_parts_that_went_to_another(desk: Desk) -> None:
    desk.asks(1, A=Part("a"))
    desk.hear(ev.PlaceLost(), ev.PlaceKnown("http://elsewhere"))
    assert desk.put() == []
    desk.asks(2, B=Part("b"))
    desk.hear(ev.PlaceKnown(URL))
    desk.asks(2, B=Part("b"))
    assert [act.url for act in desk.puts.values()] == [URL], "the transfer to the other place stops"


@pytest.mark.parametrize(("code", "tries"), [("denied", 1), ("blob-broken", UPLOAD_BROKEN_MAX)])
def test_a_result_that_can_never_be_delivered_is_a_failure(desk: Desk, code: str, tries: int) -> None:
    desk.asks(1, A=Part("a"))
    for _ in range(tries):
        assert desk.said == []
        desk.put(A, Refused(code, "no"))
        desk.wait(60.0)
    assert codes(desk.said) == [code]


def test_files_that_are_gone_are_a_failure(desk: Desk) -> None:
    assert codes(desk.hear(ev.PartsAsked(job(1), [A]))) == ["worker-error"]
    desk.disk[job(2)] = {A: Part("a")}
    assert codes(desk.hear(ev.PartsAsked(job(2), [A, B]))) == ["worker-error"]
    assert not desk.puts


def test_a_result_waits_while_no_thread_can_be_started(desk: Desk) -> None:
    desk.loads = [Lost("no thread can be started")] * 3
    desk.asks(1, A=Part("a"))
    assert not desk.puts
    desk.wait(10.0)
    assert desk.put() == [sent(1)]


def test_an_unforeseen_failure_is_told_with_its_cause(desk: Desk) -> None:
    desk.loads = [MemoryError()]
    (failed,) = desk.asks(1, A=Part("a"))
    assert isinstance(failed.unforeseen, MemoryError)


def test_a_settled_result_is_not_sent(desk: Desk) -> None:
    desk.asks(1, A=Part("a"))
    desk.hear(ev.ResultsSettled([job(1), job(2)]))
    assert not desk.puts
    desk.asks(1, A=Part("a"))
    desk.put(A, Lost("gone"))
    desk.hear(ev.ResultsSettled([job(1)]))
    assert desk.wait(60.0) == []
    assert not desk.puts
    desk.hear(ev.PartsAsked(job(1), [A]), ev.ResultsSettled([job(1)]))
    assert not desk.puts
    assert desk.machine.flows_open == 0


def test_large_parts_hold_up_only_their_like(desk: Desk) -> None:
    for number in range(1, LARGE_TRANSFERS_MAX + 3):
        desk.disk[job(number)] = {f"{number:064x}": Part("a", LARGE_WORK_BYTES + 1)}
        desk.hear(ev.PartsAsked(job(number), list(desk.disk[job(number)])))
    assert len(desk.puts) == LARGE_TRANSFERS_MAX
    desk.asks(99, A=Part("a"))
    assert desk.put() == [sent(99)]


def test_few_parts_travel_at_once(desk: Desk) -> None:
    for number in range(1, ev.AT_ONCE + 3):
        desk.disk[job(number)] = {f"{number:064x}": Part("a")}
        desk.hear(ev.PartsAsked(job(number), list(desk.disk[job(number)])))
    assert len(desk.puts) == ev.AT_ONCE


def test_a_closed_machine_leaves_no_flow(desk: Desk) -> None:
    desk.asks(1, A=Part("a"))
    desk.machine.close()
    assert desk.machine.flows_open == 0
