"""`waku caches …` and `--cached`: what is told to the leader, and how its answers are shown. The leader is scripted."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from tests.kit.cache_leader import Keeps

from wakugumi.app.admin.caches import named_contents
from wakugumi.app.cli import call
from wakugumi.app.show import progress
from wakugumi.core.leader import answer_records as an
from wakugumi.core.leader import questions as qu
from wakugumi.errors import Refused
from wakugumi.limits.leader import LIST_ROWS_DEFAULT
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.cache import CachePutResult, FailedWorker
from wakugumi.wire.messages.job import write_refusal
from wakugumi.wire.messages.payload import encode

Said = Callable[..., tuple[int, str, str]]


ROW = an.CacheRow("data-1", 2, 15_000_000, "job.assign.>", True, "v1", 3, 2, 7200.0, 5.0, 7)


NOTHING: dict[str, object] = {field.name: 0 for field in msgspec.structs.fields(an.StatusAnswer) if field.required}


LISTS: dict[str, object] = {"subjects": [], "busiest": [], "groups": []}


STATUS = msgspec.convert(NOTHING | LISTS | dict.fromkeys(("durable", "disk_low", "full"), False), an.StatusAnswer)


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


@pytest.mark.spec("C1")
def test_files_and_folders_are_put_and_the_summary_shown_in_three_forms(
    leader: Keeps, said: Said, data: Path, tmp_path: Path
) -> None:
    words = ("put", "data-1", str(data), str(tmp_path / "one.txt"), f"x/two={tmp_path / 'one.txt'}")
    code, out, err = said(*words, "--target", "job.assign.gpu.>", "--within", "9", "--share", "0.9", "--pin")
    assert (code, out, err) == (0, "data-1: OK, 3 workers: 2 ok, 1 skipped\n", "")
    request = json.loads(leader.puts[0].payload)
    assert [entry["Name"] for entry in request["Entries"]] == ["a.bin", "one.txt", "sub/.b", "x/two"]
    assert (request["TargetPattern"], request["WithinS"], request["Share"], request["Pinned"]) == (
        "job.assign.gpu.>",
        9,
        0.9,
        True,
    )
    assert leader.puts[0].subject == "cache.put.job.assign.gpu.>"
    assert said(*words, "-o", "quiet")[:2] == (0, "OK\n")
    assert json.loads(said(*words, "-o", "json")[1])["skipped"] == 1


def test_a_put_with_which_too_few_are_content_is_exit_code_1_and_says_whose_fault_it_was(
    leader: Keeps, said: Said, data: Path
) -> None:
    failures = [FailedWorker(f"w{number}", "no room") for number in range(12)]
    leader.result = CachePutResult("data-1", "FAILED", "1 of 13", sent=13, ok=1, failed=12, failures=failures)
    code, out, err = said("put", "data-1", str(data))
    assert code == 1
    assert out == "data-1: FAILED, 13 workers: 1 ok, 12 failed\n"
    assert "failed: w0: no room" in err
    assert "and 2 more" in err
    assert "error: 1 of 13" in err


@pytest.mark.parametrize(
    ("reason", "hint"),
    [
        ("no-worker", "waku workers list"),
        ("conflict", "a new id, such as dataset-v2"),
        ("disk-full", "free room on the disk of --state DIR"),
    ],
)
def test_a_put_that_reached_nobody_says_what_to_do(
    leader: Keeps, said: Said, data: Path, reason: str, hint: str
) -> None:
    leader.result = CachePutResult("data-1", "FAILED", "in whatever words", code=reason)
    code, _, err = said("put", "data-1", str(data))
    assert code == 1
    assert "error: in whatever words" in err
    assert hint in err


def test_an_id_that_is_none_gets_a_hint_of_its_own(leader: Keeps, said: Said, data: Path) -> None:
    for words in (("put", "../x", str(data)), ("show", "../x")):
        code, _, err = said(*words)
        assert code == 2
        assert "a cache id is" in err
        assert "as dataset-v2" in err
        assert "relative paths" not in err


@pytest.mark.parametrize(
    "words",
    [
        ("put", "data-1"),
        ("put", "data-1", "nowhere"),
        ("put", "../x", "{data}"),
        ("put", "data-1", "{data}", "{data}/a.bin"),
        ("put", "data-1", "{data}", "--share", "2"),
        ("put", "data-1", "{data}", "--within", "0"),
        ("put", "data-1", "{data}", "--target", "a..b"),
        ("show", ".."),
        ("pin", "a/b"),
        ("drop", ""),
    ],
)
def test_a_mistake_is_told_before_the_leader_hears_of_it(
    leader: Keeps, said: Said, data: Path, words: tuple[str, ...]
) -> None:
    code, out, err = said(*(word.replace("{data}", str(data)) for word in words))
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert not leader.puts
    assert not leader.asked


def test_a_link_out_of_a_named_folder_is_not_followed(data: Path) -> None:
    (data / "link").symlink_to("/etc/passwd")
    with pytest.raises(Refused, match="leads outside"):
        named_contents([str(data)])


def test_caches_are_listed_in_three_forms(leader: Keeps, said: Said) -> None:
    leader.answer = an.CachesAnswer([ROW], 3, 15_000_000)
    code, out, err = said("list")
    assert code == 0
    title, row = out.splitlines()
    assert title.split() == ["cache", "files", "size", "target", "ready", "hits", "used", "age", "pinned"]
    assert row.split()[:4] == ["data-1", "2", "14.3", "MiB"]
    assert "2 of 3" in row
    assert "1 of 3 caches: --limit shows more" in err
    assert said("list", "-o", "quiet")[1] == "data-1\n"
    assert json.loads(said("list", "-o", "json")[1])["rows"][0]["hits"] == 7
    assert leader.asked[0] == qu.AskCaches(LIST_ROWS_DEFAULT)


def test_a_cache_is_shown_with_its_files_and_workers(leader: Keeps, said: Said) -> None:
    workers = [an.CacheWorkerRow("id-1", "rack1", "ready"), an.CacheWorkerRow("id-2", "", "failed", "no room")]
    leader.answer = an.CacheAnswer(ROW, [an.CacheEntryRow("a.bin", 12, "ab" * 32)], workers)
    code, out, err = said("show", "data-1")
    assert code == 0
    assert "2 of 3 workers" in out
    assert "a.bin" in out
    assert "no room" in out
    assert "the first 1 of 2 files" in err
    assert said("show", "data-1", "-o", "quiet")[1] == "a.bin\n"
    assert json.loads(said("show", "data-1", "-o", "json")[1])["row"]["version"] == "v1"


def test_a_cache_is_pinned_unpinned_and_dropped(leader: Keeps, said: Said) -> None:
    leader.answer = ROW
    assert said("pin", "data-1") == (0, "data-1: pinned, 2 files, 14.3 MiB\n", "")
    assert said("pin", "data-1", "--off")[1].startswith("data-1: may be evicted")
    assert said("drop", "data-1", "-o", "quiet") == (0, "data-1\n", "")
    assert leader.asked == [qu.AskPin("data-1"), qu.AskPin("data-1", False), qu.AskDropCache("data-1")]


def test_status_tells_what_is_kept_for_the_workers(leader: Keeps, capsys: pytest.CaptureFixture[str]) -> None:
    counters = an.BlobCounters(
        blobs=3, from_leader_bytes=2 << 30, from_workers_bytes=6 << 30, store_bytes=3 << 30, store_budget_bytes=20 << 30
    )
    leader.answer = lambda question: (
        STATUS if isinstance(question, qu.AskStatus) else an.CachesAnswer([ROW], 1, 15_000_000, counters)
    )
    assert call(["status"]) == 0
    out = capsys.readouterr().out
    assert "caches: 1, 14.3 MiB, 7 hits; workers fetched 2.0 GiB from the leader and 6.0 GiB from each other" in out
    assert "\ncontent at the leader, when last counted: 3.0 GiB (--blob-bytes 20.0 GiB)\n" in out
    assert call(["status", "-o", "quiet"]) == 0
    assert capsys.readouterr().out == "ok\n"
    assert call(["status", "-o", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["up_s"] == 0, "all that there was before"
    caches = shown["caches"]
    assert (caches["total"], caches["bytes"], caches["hits"]) == (1, 15_000_000, 7)
    assert caches["blobs"]["from_workers_bytes"] == 6 << 30
    assert (caches["blobs"]["store_bytes"], caches["blobs"]["store_budget_bytes"]) == (3 << 30, 20 << 30)


class KnowsNoCaches(Keeps):
    """It is of an older version."""

    def _reply(self, frame: fr.Frame) -> bytes:
        if frame.type != fr.ASK or b'"status"' in frame.payload:
            return super()._reply(frame)
        no = write_refusal("unknown-question", "what is a cache?")
        return fr.encode(fr.ASK, corr_id=frame.msg_id, subject="refused", payload=no)


def test_status_of_several_leaders_tells_of_each_what_it_keeps(
    leader: Keeps, capsys: pytest.CaptureFixture[str]
) -> None:
    other = KnowsNoCaches()
    try:
        leader.answer = lambda question: STATUS if isinstance(question, qu.AskStatus) else an.CachesAnswer([ROW], 1, 5)
        other.answer = STATUS
        assert call(["status", "-o", "json", "--leader", f"{leader.address},{other.address}"]) == 0
        one, two = json.loads(capsys.readouterr().out)
        assert (one["leader"], one["caches"]["total"]) == (leader.address, 1)
        assert (two["leader"], two["caches"]) == (other.address, None)
    finally:
        other.close()


class KnowsNothing(Keeps):
    def _reply(self, frame: fr.Frame) -> bytes:
        if frame.type != fr.ASK:
            return super()._reply(frame)
        no = write_refusal("no-cache", "there is no cache data-9")
        return fr.encode(fr.ASK, corr_id=frame.msg_id, subject="refused", payload=no)


def test_a_cache_that_is_not_there_is_exit_code_3(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    leader = KnowsNothing()
    monkeypatch.setenv("WAKU_LEADER", leader.address)
    try:
        for command in ("show", "pin", "drop"):
            code, out, err = said(command, "data-9")
            assert (code, out) == (3, "")
            assert "there is no cache data-9" in err
            assert "waku caches list" in err
    finally:
        leader.close()


@pytest.mark.spec("C3")
def test_a_cached_file_is_named_on_the_command_line(
    leader: Keeps, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["run", "p", "--cached", "data-1/sub/a.bin", "--file", str(data / "a.bin")]) == 0
    assert call(["submit", "p", "--cached", "data-1/a.bin"]) == 0
    assert call(["map", "p", str(data), "--cached", "data-1/x", "--out", str(data.parent / "out")]) == 0
    capsys.readouterr()
    files = [json.loads(frame.payload)["Files"] for frame in leader.jobs]
    assert files[0] == [{"Name": "a.bin", "Content": "YQ=="}, {"Name": "sub/a.bin", "CacheId": "data-1"}]
    assert files[1] == [{"Name": "a.bin", "CacheId": "data-1"}]
    assert files[2] == [{"Name": "a.bin", "Content": "YQ=="}, {"Name": "x", "CacheId": "data-1"}]


def test_another_common_file_is_another_result_of_a_map(
    leader: Keeps, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = data.parent / "model"
    words = ["map", "p", str(data), "--file", str(model), "--out", str(data.parent / "out")]
    for content, jobs in (("one", 1), ("one", 1), ("two", 2)):
        model.write_text(content)
        assert call(words) == 0
        assert len(leader.jobs) == jobs
    assert call([*words[:3], "--cached", "data-1/model", *words[5:]]) == 0
    assert call([*words[:3], "--cached", "data-2/model", *words[5:]]) == 0
    capsys.readouterr()
    assert len({frame.msg_id for frame in leader.jobs}) == len(leader.jobs) == 4


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

    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.01)
    monkeypatch.setattr(progress, "say", say)
    try:
        code, _, err = said("put", "data-1", str(data), "--leader", leader.address, "-o", how)
        assert (code, err) == (0, "")
        assert lines[-1] == "3 workers: 1 ok, 2 waiting"
    finally:
        leader.close()
