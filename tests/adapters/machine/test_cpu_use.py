"""How busy others keep the machine. What the kernel says is made up here: nobody can order stolen time."""

from __future__ import annotations

from collections import namedtuple

import psutil
import pytest

from wakugumi.adapters.machine.cpu_use import LOOK_S, OthersCpu

Times = namedtuple("Times", "user nice system idle iowait irq softirq steal guest guest_nice")
MacTimes = namedtuple("MacTimes", "user nice system idle")

BEFORE = dict.fromkeys(Times._fields, 1_000.0)


def share(monkeypatch: pytest.MonkeyPatch, own_s: float = 0.0, **later: float) -> float:
    """What is seen after the machine has spent so many seconds more on each."""
    own = [0.0, own_s]
    times = [Times(**BEFORE), Times(**{**BEFORE, **{name: BEFORE[name] + more for name, more in later.items()}})]
    monkeypatch.setattr(psutil, "cpu_times", lambda: times.pop(0))
    others = OthersCpu(lambda: own.pop(0))
    assert others.share(0.0) == 0.0, "too early to tell"
    return others.share(LOOK_S)


@pytest.mark.spec("W2")
@pytest.mark.parametrize(
    ("later", "own_s", "seen"),
    [
        ({"user": 60.0, "idle": 40.0}, 0.0, 0.6),
        ({"user": 60.0, "idle": 40.0}, 50.0, 0.1),
        ({"user": 20.0, "iowait": 80.0}, 0.0, 0.2),
        ({"user": 20.0, "guest": 20.0, "idle": 80.0}, 0.0, 0.2),
        ({"idle": 100.0}, 0.0, 0.0),
    ],
)
def test_others_use_what_is_neither_idle_nor_our_own(
    monkeypatch: pytest.MonkeyPatch, later: dict[str, float], own_s: float, seen: float
) -> None:
    assert share(monkeypatch, own_s, **later) == pytest.approx(seen, abs=0.01)


@pytest.mark.spec("W2")
def test_stolen_time_is_not_used_by_others_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert share(monkeypatch, steal=90.0, idle=10.0) == pytest.approx(0.0, abs=0.01)
    assert share(monkeypatch, steal=80.0, user=20.0, own_s=20.0) == pytest.approx(0.0, abs=0.01)
    assert share(monkeypatch, steal=50.0, user=25.0, idle=25.0) == pytest.approx(0.5, abs=0.01)


def test_a_kernel_that_tells_less_is_read_too(monkeypatch: pytest.MonkeyPatch) -> None:
    times = [MacTimes(0.0, 0.0, 0.0, 0.0), MacTimes(50.0, 0.0, 25.0, 25.0)]
    monkeypatch.setattr(psutil, "cpu_times", lambda: times.pop(0))
    others = OthersCpu(lambda: 0.0)
    others.share(0.0)
    assert others.share(LOOK_S) == pytest.approx(0.75, abs=0.01)
