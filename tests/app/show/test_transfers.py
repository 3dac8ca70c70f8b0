"""How is a transfer shown while it goes on?"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.kit.cache_leader import Keeps

from wakugumi import Cached
from wakugumi.app.cli import call
from wakugumi.app.show import transfers
from wakugumi.app.show.transfers import Bars, TransferLines, in_brief
from wakugumi.app.work.one_job import named_files
from wakugumi.errors import ConfigError
from wakugumi.roles.client.files.uploads import FileTransfer
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.cache import CachePutResult
from wakugumi.wire.messages.payload import encode

Said = Callable[..., tuple[int, str, str]]


@pytest.fixture
def leader(monkeypatch: pytest.MonkeyPatch) -> Iterator[Keeps]:
    leader = Keeps()
    monkeypatch.setenv("WAKU_LEADER", leader.address)
    yield leader
    leader.close()


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """Runs a command here."""

    def run(*words: str) -> tuple[int, str, str]:
        code = call(["caches", *words])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data" / "sub").mkdir(parents=True)
    (tmp_path / "data" / "a.bin").write_text("a")
    (tmp_path / "data" / "sub" / ".b").write_text("b")
    (tmp_path / "one.txt").write_text("1")
    return tmp_path / "data"


def test_names_of_cached_files_are_checked(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    assert named_files([], ["c/a", "c/b/d"]) == {"a": Cached("c"), "b/d": Cached("c")}
    for cached in (["c"], ["c/"], ["/a"], [".x/a"], ["c/a", "d/a"]):
        with pytest.raises(ConfigError):
            named_files([], cached)
    with pytest.raises(ConfigError, match="two files"):
        named_files([str(tmp_path / "a")], ["c/a"])


def test_transfers_in_brief() -> None:
    assert in_brief([]) == ""
    assert in_brief([FileTransfer("a", 25, 100, "sending")]) == "1 file on the way, 25%"
    rows = [FileTransfer("a", 0, 0, "reading"), FileTransfer("b", 1, 2, "sending")]
    assert in_brief(rows) == "2 files on the way, 50%"


def test_a_bar_is_drawn_only_for_what_takes_longer_than_a_moment() -> None:
    bars = Bars()
    try:
        rows = [FileTransfer(f"{number}", number, 100, "sending") for number in range(10)]
        bars.show(rows, 0.0)
        bars.show(rows, 0.9)
        assert bars._progress is None, "nothing is even loaded for it"
        bars.show(rows, 1.1)
        assert bars._progress is not None
        assert len(bars._progress.tasks) == 8, "more would fill the terminal"
        bars.show([FileTransfer("3", 50, 100, "sending"), FileTransfer("new", 0, 1, "reading")], 2.0)
        (task,) = bars._progress.tasks
        assert (task.description, task.completed, task.total) == ("sending 3", 50, 100)
        bars.show([], 3.0)
        assert not bars._progress.tasks
    finally:
        bars.close()


def test_without_a_terminal_a_line_comes_twice_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    more = ["3 workers: 1 ok, 2 waiting"]
    lines = TransferLines(0.0, lambda: more[-1])
    for second in range(125):
        rows = [FileTransfer("big.bin", second << 20, 1 << 30, "sending")] if second < 70 else []
        if second < 40:
            rows.append(FileTransfer("b", 0, 1 << 30, "reading"))
        if second >= 100:
            more.append("")
        lines.show(rows, float(second))
    assert capsys.readouterr().err.splitlines() == [
        "2 files on the way, 1% of 2.0 GiB; 3 workers: 1 ok, 2 waiting",
        "sending big.bin: 60.0 MiB of 1.0 GiB; 3 workers: 1 ok, 2 waiting",
        "3 workers: 1 ok, 2 waiting",
    ]


class TakesItsTime(Keeps):
    """It has all of it done only when somebody was told that it takes a while."""

    def __init__(self) -> None:
        super().__init__()
        self.told = threading.Event()

    def _reply(self, frame: fr.Frame) -> bytes:
        if frame.type == fr.CACHE_PUT and not self.puts:
            self.puts.append(frame)
            progress = CachePutResult("data-1", "PROGRESS", "", sent=3, ok=1, waiting=2)
            threading.Thread(target=self._end, args=[frame]).start()
            return fr.encode(fr.CACHE_ACK, corr_id=frame.msg_id, payload=encode(progress))
        return super()._reply(frame)

    def _end(self, frame: fr.Frame) -> None:
        assert self.told.wait(60)
        self.peer.sendall(fr.encode(fr.CACHE_ACK, corr_id=frame.msg_id, payload=encode(self.result)))


@pytest.mark.parametrize("how", ["table", "json", "quiet"])
def test_a_put_that_takes_long_is_told_of_where_nobody_looks(
    said: Said, data: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    leader = TakesItsTime()
    lines: list[str] = []

    def say(text: str) -> None:
        lines.append(text)
        if "waiting" in text:
            leader.told.set()

    monkeypatch.setattr(transfers, "LINE_EVERY_S", 0.01)
    monkeypatch.setattr(transfers, "say", say)
    try:
        code, _, err = said("put", "data-1", str(data), "--leader", leader.address, "-o", how)
        assert (code, err) == (0, "")
        assert lines[-1] == "3 workers: 1 ok, 2 waiting"
    finally:
        leader.close()
