"""How far it is: the figures, on a clock of our own."""

from __future__ import annotations

import pytest

from wakugumi.app.show.progress import (
    LINE_EVERY_S,
    BarRow,
    Bars,
    Lines,
    Tally,
    byte_columns,
    in_brief,
    progress,
    transfer_text,
)
from wakugumi.roles.client.files.uploads import FileTransfer


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_rate_is_that_of_late_and_tells_when_it_will_be_done() -> None:
    clock = Clock()
    tally = Tally(1000, skipped=100, clock=clock)
    for _ in range(100):
        clock.now += 0.1
        tally.add(ok=True)
    assert tally.rate() == pytest.approx(10.0, rel=0.1)
    assert tally.left == 800
    for _ in range(300):
        clock.now += 0.05
        tally.add(ok=True)
    assert tally.rate() == pytest.approx(20.0, rel=0.1)
    tally.running = 3
    assert tally.text() == "500 of 1,000 done, 3 running, 20.0/s, 25.0 s left"


def test_a_rate_falls_while_nothing_happens() -> None:
    clock = Clock()
    tally = Tally(10, clock=clock)
    clock.now += 1
    tally.add(ok=True)
    before = tally.rate()
    clock.now += 100
    assert 0 < tally.rate() < before / 10


def test_nothing_done_promises_nothing() -> None:
    tally = Tally(10)
    tally.running = 2
    assert tally.text() == "0 of 10 done, 2 running"


def test_the_summary_counts_everything_once() -> None:
    clock = Clock()
    tally = Tally(240, skipped=200, clock=clock)
    for at in range(40):
        clock.now += 0.25
        tally.add(ok=at > 1)
    assert tally.summary("out", stopped=False) == (
        "238 of 240 inputs done (200 before), 2 failed, in 10.0 s; results are in out"
    )
    nothing = Tally(240, skipped=240, clock=clock)
    assert nothing.summary("out", stopped=False) == "240 of 240 inputs done (240 before); results are in out"


def test_without_a_terminal_a_line_comes_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr("wakugumi.app.show.progress.monotonic", clock)
    tally = Tally(100, clock=clock)
    drawn = progress(tally)
    for _ in range(100):
        clock.now += 0.2
        tally.add(ok=True)
        drawn.show()
    drawn.close()
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "25 of 100 done, 5.0/s, 15.0 s left",
        "50 of 100 done, 5.0/s, 10.0 s left",
        "75 of 100 done, 5.0/s, 5.0 s left",
        "100 of 100 done, 5.0/s",
    ]


def test_transfers_in_brief() -> None:
    assert in_brief([]) == ""
    assert in_brief([FileTransfer("a", 25, 100, "sending")]) == "1 file on the way, 25%"
    rows = [FileTransfer("a", 0, 0, "reading"), FileTransfer("b", 1, 2, "sending")]
    assert in_brief(rows) == "2 files on the way, 50%"


def test_a_bar_is_drawn_only_for_what_takes_longer_than_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("wakugumi.app.show.progress.monotonic", clock)
    rows = [BarRow(f"sending {number}", number, 100) for number in range(10)]
    bars = Bars(lambda: rows, byte_columns, after_s=1.0)
    try:
        bars.show()
        clock.now += 0.9
        bars.show()
        assert bars.drawn is None, "nothing is even loaded for it"
        clock.now += 0.2
        bars.show()
        assert bars.drawn is not None
        assert len(bars.drawn.tasks) == 8, "more would fill the terminal"
        rows = [BarRow("sending 3", 50, 100), BarRow("reading new", 0, 1)]
        clock.now += 0.9
        bars.show()
        (task,) = bars.drawn.tasks
        assert (task.description, task.completed, task.total) == ("sending 3", 50, 100)
        rows = []
        bars.show()
        assert not bars.drawn.tasks
    finally:
        bars.close()


def test_of_transfers_a_line_comes_twice_a_minute(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    clock.now = 0.0
    monkeypatch.setattr("wakugumi.app.show.progress.monotonic", clock)
    rows: list[FileTransfer] = []
    more = "3 workers: 1 ok, 2 waiting"
    lines = Lines(lambda: transfer_text(rows, more), LINE_EVERY_S)
    for second in range(125):
        rows = [FileTransfer("big.bin", second << 20, 1 << 30, "sending")] if second < 70 else []
        if second < 40:
            rows.append(FileTransfer("b", 0, 1 << 30, "reading"))
        if second >= 100:
            more = ""
        clock.now = float(second)
        lines.show()
    assert capsys.readouterr().err.splitlines() == [
        "2 files on the way, 1% of 2.0 GiB; 3 workers: 1 ok, 2 waiting",
        "sending big.bin: 60.0 MiB of 1.0 GiB; 3 workers: 1 ok, 2 waiting",
        "3 workers: 1 ok, 2 waiting",
    ]
