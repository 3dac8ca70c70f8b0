"""What goes along with a job: in its frame, beside it, or out of a cache."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from wakugumi import Cached
from wakugumi.errors import Refused
from wakugumi.limits.files import INLINE_FILE_BYTES_MAX
from wakugumi.limits.units import MIB
from wakugumi.limits.wire import ARGS_PER_JOB_MAX, FILES_PER_JOB_MAX, PAYLOAD_BYTES_MAX
from wakugumi.roles.client.files import inputs as module
from wakugumi.roles.client.files.inputs import Content, InputContents, LocalFile
from wakugumi.roles.client.job_spec import Arg, JobSpec, Task
from wakugumi.roles.client.request import Plan, Request, Requests
from wakugumi.wire.frame import Decoder

LARGE = b"L" * (INLINE_FILE_BYTES_MAX + 1)


def sent(request: Request) -> tuple[object, ...]:
    """A request's frame without its id, which is a new one each time."""
    decoder = Decoder()
    decoder.trust()
    (frame,) = decoder.feed(request.frame)
    payload = json.loads(frame.payload)
    assert payload.pop("JobId")
    return frame.type, frame.corr_id, frame.subject, payload


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that were just written count as settled."""
    monkeypatch.setattr(module, "SETTLED_S", -1e6)


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every file that is read for its SHA-256."""
    seen: list[str] = []
    real = module.ref_of_file

    def ref_of_file(path: str, *rest: object) -> object:
        seen.append(path)
        return real(path, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "ref_of_file", ref_of_file)
    return seen


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def made(files: Mapping[str, Content], *args: str) -> Request:
    return Requests("me").make(JobSpec("p", args=args, job_id="one"), InputContents().load(files))


def files_of(request: Request) -> list[dict[str, object]]:
    return json.loads(request.frame[43:])["Files"]  # type: ignore[no-any-return]


@pytest.mark.spec("L6")
def test_the_same_files_are_the_same_bytes_however_they_are_given(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(LARGE)
    (tmp_path / "link").symlink_to("large")
    frames = {
        made({"a": "x", "b": LARGE, "c": Cached("data-1")}).frame,
        made({"c": Cached("data-1"), "b": LARGE.decode(), "a": b"x"}).frame,
        made({"b": tmp_path / "large", "a": b"x", "c": Cached("data-1")}).frame,
        made({"b": tmp_path / "link", "a": "x", "c": Cached("data-1")}).frame,
    }
    assert len(frames) == 1


def test_a_file_up_to_the_limit_is_in_the_frame_and_a_larger_one_beside_it(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(LARGE[1:])
    (tmp_path / "large").write_bytes(LARGE)
    small, large = made({"f": tmp_path / "small"}), made({"f": tmp_path / "large"})
    assert "Content" in files_of(small)[0]
    assert not small.attached
    assert files_of(large) == [{"Name": "f", "Sha256": sha(LARGE), "Size": len(LARGE)}]
    (brought,) = large.attached.values()
    assert isinstance(brought.source, LocalFile)
    assert brought.source.path == str(tmp_path / "large")
    assert len(large.frame) < 500


def test_if_small_files_do_not_fit_a_frame_the_largest_go_beside_it() -> None:
    sizes = [INLINE_FILE_BYTES_MAX - 1_000 * number for number in range(16)]
    files: dict[str, Content] = {f"f{number:02}": bytes([number]) * size for number, size in enumerate(sizes)}
    request = made(files)
    beside = [entry["Name"] for entry in files_of(request) if "Sha256" in entry]
    assert beside == [f"f{number:02}" for number in range(len(beside))]
    assert 0 < len(beside) < 16
    assert len(request.frame) <= PAYLOAD_BYTES_MAX + 43
    room = PAYLOAD_BYTES_MAX + 43 - len(request.frame)
    assert room < sizes[0] * 4 / 3, "and no more of them than must"
    more = made(files, "x" * (room + 1))
    assert len([entry for entry in files_of(more) if "Sha256" in entry]) == len(beside) + 1


def test_what_map_adds_up_is_what_submit_would_send() -> None:
    common: dict[str, Content] = {f"c{number:02}": bytes([number]) * 200_000 for number in range(20)}
    own: dict[str, Content] = {f"o{number:02}": bytes([number]) * 250_000 for number in range(4)}
    contents = InputContents()
    plan = Plan(Requests("me"), JobSpec("p"), contents.load(common))
    mapped = plan.request(Task(files=own, job_id="one"))
    assert mapped.frame == made({**common, **own}).frame
    assert mapped.attached.keys() == made({**common, **own}).attached.keys()
    assert (
        plan.request(Task(files={**own, "c00": b"other"}, job_id="one")).frame
        == made({**common, **own, "c00": b"other"}).frame
    )


def test_an_item_that_is_its_arguments_is_sent_as_a_task_would_be() -> None:
    spec = JobSpec("p", args=["first"], timeout_s=5.0, retries=2)
    plan = Plan(Requests("me"), spec, InputContents().load({"f": b"x"}))
    lists: list[list[Arg]] = [[], ["a", "b"], ["x", 7, 1.5, Path("p")]]
    for args in lists:
        quick, task = plan.args_request(args), plan.request(Task(args=args))
        assert sent(quick) == sent(task)
        assert quick.attached == task.attached
    assert sent(plan.text_request("a")) == sent(plan.args_request(["a"]))
    wrong: list[list[Arg]] = [["\0"], [float("nan")], ["x"] * (ARGS_PER_JOB_MAX + 1)]
    for args in wrong:
        with pytest.raises(Refused) as quickly:
            plan.args_request(args)
        with pytest.raises(Refused) as by_task:
            plan.request(Task(args=args))
        if len(args) == 1:
            assert str(quickly.value) == str(by_task.value)


def test_ten_thousand_files_fit_one_frame_and_little_memory(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / str(number)).write_bytes(bytes([number]) * INLINE_FILE_BYTES_MAX)
    files: dict[str, Content] = {f"{number}": tmp_path / str(number % 40) for number in range(1_000)}
    loaded = InputContents().load(files)
    inline = sum(len(entry.content) for entry in loaded.entries if entry.content is not None)
    assert inline <= PAYLOAD_BYTES_MAX
    assert len(loaded.entries) == 1_000
    with pytest.raises(Refused, match="at most"):
        InputContents().load(dict.fromkeys(map(str, range(FILES_PER_JOB_MAX + 1)), b""))


@pytest.mark.usefixtures("settled")
def test_an_unchanged_file_is_read_once_for_any_number_of_jobs(tmp_path: Path, hashed: list[str]) -> None:
    path = tmp_path / "large"
    path.write_bytes(LARGE)
    contents = InputContents()
    for _ in range(100):
        contents.load({"f": path})
    assert hashed == [str(path)]
    path.write_bytes(LARGE[::-1] + b"!")
    assert contents.load({"f": path}).entries[0].sha256 == sha(LARGE[::-1] + b"!")
    assert len(hashed) == 2


@pytest.mark.usefixtures("settled")
def test_several_who_need_the_same_file_read_it_once(
    tmp_path: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "large"
    path.write_bytes(LARGE)
    contents = InputContents()
    go_on = threading.Event()
    real = module.ref_of_file

    def slow(*rest: object) -> object:
        assert go_on.wait(20)
        return real(*rest)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "ref_of_file", slow)
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(contents.load({"f": path}).entries)) for _ in range(8)]
    for thread in threads:
        thread.start()
    go_on.set()
    for thread in threads:
        thread.join()
    assert len(hashed) == 1
    assert len(found) == 8
    assert all(entries == found[0] for entries in found)


def test_a_file_that_was_just_written_is_not_taken_for_known(tmp_path: Path, hashed: list[str]) -> None:
    path = tmp_path / "large"
    path.write_bytes(LARGE)
    contents = InputContents()
    contents.load({"f": path})
    contents.load({"f": path})
    assert len(hashed) == 2, "its time would not tell a second change at the same moment"


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "large"
    path.write_bytes(LARGE)
    real = module.ref_of_file

    def ref_of_file(*rest: object) -> object:
        ref = real(*rest)  # type: ignore[arg-type]
        with path.open("ab") as file:
            file.write(b"more")
        return ref

    monkeypatch.setattr(module, "ref_of_file", ref_of_file)
    with pytest.raises(Refused, match="was changed while it was read"):
        InputContents().load({"f": path})


def test_a_sparse_file_counts_with_all_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(64 * MIB)
    (entry,) = InputContents().load({"f": path}).entries
    assert (entry.size, entry.sha256) == (64 * MIB, sha(bytes(64 * MIB)))


def test_what_is_no_file_is_refused_however_large(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("pipe", "nowhere", "loop", ".", "a\0b"):
        with pytest.raises(Refused) as caught:
            InputContents().load({"f": tmp_path / name})
        assert caught.value.code == "bad-request"
    with pytest.raises(TypeError, match="bytes, text, a Path or Cached"):
        InputContents().load({"f": 7})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    "names", [("../x",), ("/x",), ("a", "A"), ("a", "a/b"), (".done",), ("CON",), ("a\\b",), ("é", "e\u0301")]
)
def test_names_with_tricks_are_refused_also_of_large_and_cached_files(names: tuple[str, ...]) -> None:
    contents: tuple[Content, ...] = (LARGE, Cached("c"))
    for content in contents:
        with pytest.raises(Refused) as caught:
            InputContents().load(dict.fromkeys(names, content))
        assert caught.value.code == "bad-name"


def test_names_may_be_of_any_language() -> None:
    names = ["данные.bin", "枠組み/データ", "ملف", "naïve file.txt"]
    request = made(dict.fromkeys(names, LARGE))
    assert [entry["Name"] for entry in files_of(request)] == sorted(names)
    assert len(request.attached) == 1


@pytest.mark.spec("C3")
def test_a_cached_file_is_named_by_its_cache() -> None:
    assert files_of(made({"a.bin": Cached("dataset-v1")})) == [{"Name": "a.bin", "CacheId": "dataset-v1"}]


@pytest.mark.parametrize("cache_id", ["", ".", "..", ".blobs", "a/b", "a b", "ä", "x" * 129, "a\n", "a\0"])
def test_what_can_be_no_cache_id_is_refused(cache_id: str) -> None:
    with pytest.raises(Refused) as caught:
        Cached(cache_id)
    assert caught.value.code == "bad-name"


@pytest.mark.parametrize("cache_id", ["a", "A.b_c-9", "x" * 128, "-", "a..b"])
def test_what_can_be_a_cache_id(cache_id: str) -> None:
    assert Cached(cache_id).cache_id == cache_id


def test_reading_ends_soon_after_the_client_was_closed(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(bytes(4 * MIB))
    contents = InputContents()
    contents.close()
    with pytest.raises(Refused) as caught:
        contents.load({"f": path})
    assert caught.value.code == "closed"
    assert contents.readings == {}
