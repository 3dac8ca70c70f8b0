"""What a user gets back: the files above all, which came from a stranger."""

from __future__ import annotations

import os
import stat
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from wakugumi.adapters.blobs.place import FolderPlace
from wakugumi.adapters.blobs.store import ref_of_bytes
from wakugumi.errors import JobFailed, Lost, PeerError, Refused
from wakugumi.roles.client.files import downloads
from wakugumi.roles.client.result import Result, refused_result
from wakugumi.wire.messages.job import JobResult
from wakugumi.wire.messages.references import BlobRef

FILE = stat.S_IFREG | 0o644
LINK = stat.S_IFLNK | 0o777


def archive(*entries: tuple[str, bytes, int]) -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        for name, content, mode in entries:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            packed.writestr(info, content)
    return buffer.getvalue()


def result(packed: bytes | None = None, **fields: object) -> Result:
    return Result(JobResult("id", output_archive=packed, **fields), "job-1")  # type: ignore[arg-type]


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_files_are_read_from_the_archive_by_name() -> None:
    files = result(archive(("a.txt", b"one", FILE), ("sub/", b"", 0), ("sub/b", b"two", FILE))).files
    assert dict(files) == {"a.txt": b"one", "sub/b": b"two"}
    assert len(files) == 2
    with pytest.raises(KeyError):
        files["c"]


def test_a_program_that_made_no_files_has_none(tmp_path: Path) -> None:
    assert dict(result().files) == {}
    assert result().extract(tmp_path / "out") == []
    assert (tmp_path / "out").is_dir()


def test_extract_writes_files_folders_links_and_run_bits(tmp_path: Path) -> None:
    packed = archive(
        ("empty/", b"", 0),
        ("sub/run.sh", b"#!", stat.S_IFREG | 0o755),
        ("plain", b"p", 0),
        ("odd: name?.txt", b"o", FILE),
        ("sub/link", b"../plain", LINK),
    )
    written = result(packed).extract(tmp_path)
    assert sorted(path.relative_to(tmp_path).as_posix() for path in written) == [
        "odd: name?.txt",
        "plain",
        "sub/link",
        "sub/run.sh",
    ]
    assert tree(tmp_path) == {"sub/run.sh": b"#!", "plain": b"p", "odd: name?.txt": b"o", "sub/link": b"p"}
    assert (tmp_path / "empty").is_dir()
    assert os.access(tmp_path / "sub/run.sh", os.X_OK)
    assert not os.access(tmp_path / "plain", os.X_OK) or os.geteuid() == 0
    assert stat.S_IMODE((tmp_path / "plain").stat().st_mode) & 0o111 == 0
    assert (tmp_path / "sub/link").readlink() == Path("../plain")


def test_extract_replaces_what_is_there_and_leaves_nothing_half_done(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old, and longer than the new one")
    held = (tmp_path / "a").open("rb")
    with held:
        result(archive(("a", b"new", FILE))).extract(tmp_path)
        assert held.read() == b"old, and longer than the new one", "whoever has the old file open keeps it"
    assert tree(tmp_path) == {"a": b"new"}


@pytest.mark.spec("W5")
@pytest.mark.parametrize(
    "entry",
    [
        ("../evil", b"x", FILE),
        ("/evil", b"x", FILE),
        ("sub/../../evil", b"x", FILE),
        ("sub//evil", b"x", FILE),
        ("./evil", b"x", FILE),
        ("..", b"x", FILE),
        ("../evil/", b"", 0),
        ("link", b"/etc/passwd", LINK),
        ("link", b"../outside", LINK),
        ("sub/link", b"../../outside", LINK),
        ("link", b"", LINK),
        ("link", b"a/../../outside", LINK),
        ("good/below", b"x", FILE),
        ("good/", b"", 0),
        ("good/below/it", b"good", LINK),
        ("pipe", b"", stat.S_IFIFO | 0o644),
        ("device", b"", stat.S_IFCHR | 0o644),
    ],
)
def test_what_leads_elsewhere_is_refused_before_anything_is_written(
    tmp_path: Path, entry: tuple[str, bytes, int]
) -> None:
    folder = tmp_path / "out"
    with pytest.raises(Refused) as caught:
        result(archive(("good", b"g", FILE), entry)).extract(folder)
    assert caught.value.code == "bad-name"
    assert tree(tmp_path) == {}
    assert list(folder.iterdir()) == []


def test_nothing_is_written_through_a_link_of_the_archive(tmp_path: Path) -> None:
    packed = archive(("a", b"sub", LINK), ("a/file", b"x", FILE))
    with pytest.raises((Refused, OSError)):
        result(packed).extract(tmp_path / "out")
    assert not (tmp_path / "out" / "sub").exists()


@pytest.mark.spec("W5")
def test_of_links_that_lead_outside_only_together_the_one_that_goes_up_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"not for them")
    packed = archive(("p/q/r", b"../..", LINK), ("evil", b"p/q/r/../secret", LINK))
    got = result(packed)
    assert got.extract(tmp_path / "out") == [tmp_path / "out/p/q/r"]
    assert (got.left_out, os.listdir(tmp_path / "out")) == (1, ["p"])


@pytest.mark.spec("W5")
@pytest.mark.parametrize(
    ("name", "target"), [("link", b"a/../good"), ("sub/link", b".././.../../good"), ("a/l", b"b/../../good")]
)
def test_a_link_that_goes_up_from_where_it_went_down_costs_no_other_file(
    tmp_path: Path, name: str, target: bytes
) -> None:
    got = result(archive(("good", b"g", FILE), (name, target, LINK)))
    assert got.extract(tmp_path) == [tmp_path / "good"]
    assert (got.left_out, tree(tmp_path)) == (1, {"good": b"g"})


def test_nothing_is_written_through_a_link_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/victim").write_bytes(b"precious")
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "sub").symlink_to(tmp_path / "outside")
    (folder / "file").symlink_to(tmp_path / "outside/victim")
    with pytest.raises(Refused):
        result(archive(("sub/victim", b"x", FILE))).extract(folder)
    result(archive(("file", b"mine", FILE))).extract(folder)
    assert (tmp_path / "outside/victim").read_bytes() == b"precious"
    assert (folder / "file").read_bytes() == b"mine"
    assert not (folder / "file").is_symlink()


def test_a_broken_archive_is_the_peers_fault(tmp_path: Path) -> None:
    good = archive(("a", b"content " * 100, FILE))
    broken = good.replace(b"content content", b"CONTENT content", 1)
    for packed in (b"no zip at all", good[:-30], broken):
        with pytest.raises(PeerError):
            dict(result(packed).files)
        with pytest.raises(PeerError):
            result(packed).extract(tmp_path)
        assert list(tmp_path.iterdir()) == [], "no scratch file is left"


def test_check_raises_with_the_reason_and_the_end_of_stderr() -> None:
    stderr = "".join(f"line {number}\n" for number in range(100))
    with pytest.raises(JobFailed) as caught:
        result(status="FAILED", exit_code=3, reason="exit", exec_name="calcA", stderr=stderr).check()
    text = str(caught.value)
    assert text.startswith("job job-1 of calcA failed: exit code 3\n")
    assert text.endswith("line 98\nline 99")
    assert "line 9\n" not in text
    with pytest.raises(JobFailed, match=r"failed: timeout$"):
        result(status="FAILED", exit_code=None, reason="timeout").check()
    with pytest.raises(JobFailed, match="no reason given"):
        result(status="FAILED").check()


def test_a_refusal_can_be_told_as_a_result() -> None:
    refused = refused_result(Refused("too-big", "it takes 5 MB"), "job-1", "calcA", "item")
    assert (refused.ok, refused.reason, refused.item, refused.job_id) == (False, "too-big", "item", "job-1")
    assert refused.stderr == "it takes 5 MB"
    assert repr(refused) == "<Result job-1 FAILED reason='too-big' exit_code=None>"


# What did not fit a frame.


class Shelf:
    """A place with what a worker put there, and results that name it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = FolderPlace(folder / "place")

    def put(self, content: bytes) -> BlobRef:
        ref = ref_of_bytes(content)
        (self.folder / "source").write_bytes(content)
        self.place.put(ref, self.folder / "source")
        return ref

    def result(self, place: str | None = None, **fields: object) -> Result:
        record = JobResult("id", **fields)  # type: ignore[arg-type]
        return Result(record, "job-1", place=self.place.url if place is None else place)

    def path(self, ref: BlobRef) -> Path:
        return Path(self.place.store.path(ref.sha256))


@pytest.fixture(params=["in a folder that we see", "afar"])
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Shelf:
    if request.param == "afar":
        monkeypatch.setattr("wakugumi.adapters.blobs.temporary.open_here", lambda *_: None)
    return Shelf(tmp_path)


@pytest.mark.spec("C5")
def test_a_large_archive_is_fetched_when_it_is_wanted(shelf: Shelf, tmp_path: Path) -> None:
    packed = archive(("sub/a", b"one" * 1_000_000, FILE), ("link", b"sub/a", LINK))
    fetched = shelf.result(archive_blob=shelf.put(packed))
    assert (fetched.is_here, fetched.archive_bytes) == (False, len(packed))
    came: list[int] = []
    written = fetched.extract(tmp_path / "out", came.append)
    assert sum(came) == len(packed)
    assert [path.relative_to(tmp_path / "out").as_posix() for path in written] == ["sub/a", "link"]
    assert (tmp_path / "out/link").read_bytes() == b"one" * 1_000_000
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["link", "sub"], "and nothing of ours"
    assert fetched.archive == packed
    assert fetched.files["sub/a"] == b"one" * 1_000_000
    assert list(fetched.for_item(1).files) == ["sub/a", "link"]


@pytest.mark.spec("C5")
def test_all_of_a_long_output_is_there_and_its_end_without_fetching(shelf: Shelf) -> None:
    said = "é" * 4_000_000
    blob = shelf.put(said.encode() + b"\xff")
    talk = shelf.result(
        status="FAILED", stdout="éé", stdout_blob=blob, stderr="err", stderr_blob=shelf.put(b"more err")
    )
    assert (talk.stdout_end, talk.stderr_end) == ("éé", "err")
    assert (talk.stdout_bytes, talk.stderr_bytes) == (8_000_001, 8)
    assert shelf.result(stdout="éé").stdout_bytes == 4
    with pytest.raises(JobFailed, match=r"err$"):
        talk.check()
    assert talk.stdout == said + "\ufffd"
    assert talk.stderr == "more err"
    shelf.path(blob).unlink()
    assert talk.stdout == said + "\ufffd", "it is fetched once"


@pytest.mark.parametrize("gone", ["the blob", "the place", "the place was never named"])
def test_what_is_no_longer_kept_is_told_as_such(shelf: Shelf, tmp_path: Path, gone: str) -> None:
    ref = shelf.put(archive(("a", b"x", FILE)))
    late = shelf.result("" if "never" in gone else None, archive_blob=ref, stdout_blob=ref)
    if gone == "the blob":
        shelf.path(ref).unlink()
    elif gone == "the place":
        (tmp_path / "place").rename(tmp_path / "elsewhere")
    for fetch in (lambda: late.extract(tmp_path / "out"), lambda: late.stdout, lambda: late.files):
        with pytest.raises(Refused) as caught:
            fetch()
        assert caught.value.code == ("no-blob" if "never" in gone else "expired")
        assert caught.value.hint
    assert list((tmp_path / "out").iterdir()) == []
    assert gone != "the place" or not (tmp_path / "place").exists(), "and it is not made again"


@pytest.mark.parametrize("wrong", [b"short", b"y" * 5_000, b"x" * 4_999 + b"!"])
def test_wrong_bytes_are_refused_and_nothing_is_written(shelf: Shelf, tmp_path: Path, wrong: bytes) -> None:
    ref = shelf.put(b"x" * 5_000)
    path = shelf.path(ref)
    path.unlink()
    path.write_bytes(wrong)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine").write_text("mine")
    lied = shelf.result(archive_blob=ref, stdout_blob=ref)
    for fetch in (lambda: lied.extract(tmp_path / "out"), lambda: lied.stdout, lambda: lied.archive):
        with pytest.raises(Refused) as caught:
            fetch()
        assert caught.value.code == "blob-broken"
    assert tree(tmp_path / "out") == {"mine": b"mine"}


def test_a_blob_that_is_no_zip_or_leads_elsewhere_writes_nothing(shelf: Shelf, tmp_path: Path) -> None:
    no_zip = shelf.result(archive_blob=shelf.put(b"no zip at all"))
    with pytest.raises(PeerError):
        no_zip.extract(tmp_path / "out")
    with pytest.raises(PeerError):
        assert no_zip.files
    evil = shelf.result(archive_blob=shelf.put(archive(("good", b"g", FILE), ("../evil", b"x", FILE))))
    with pytest.raises(Refused) as caught:
        evil.extract(tmp_path / "out")
    assert caught.value.code == "bad-name"
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("shelf", ["afar"], indirect=True)
def test_a_transfer_that_was_lost_goes_on_where_it_ended(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = archive(("a", os.urandom(3_000_000), FILE))
    far = shelf.result(archive_blob=shelf.put(packed))
    began_at: list[int] = []
    real = FolderPlace.fetch

    def fetch(self: FolderPlace, ref: BlobRef, into: object, on_bytes: object) -> None:
        began_at.append(into.at)  # type: ignore[attr-defined]
        if len(began_at) < 3:
            into.write(packed[into.at : into.at + 1_000_000])  # type: ignore[attr-defined]
            into.close()  # type: ignore[attr-defined]
            raise Lost("the leader went away")
        real(self, ref, into, on_bytes)  # type: ignore[arg-type]

    monkeypatch.setattr(FolderPlace, "fetch", fetch)
    monkeypatch.setattr(downloads, "PAUSE_FIRST_S", 0.001)
    far.extract(tmp_path / "out")
    assert began_at == [0, 1_000_000, 2_000_000]
    monkeypatch.setattr(FolderPlace, "fetch", lambda *_: (_ for _ in ()).throw(Lost("for good")))
    with pytest.raises(Lost):
        far.extract(tmp_path / "out2")
    assert list((tmp_path / "out2").iterdir()) == []


def test_a_place_that_is_busy_is_asked_again(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    tries: list[Refused] = [Refused("full", "come again"), Refused("blob-busy", "come again")]
    real = FolderPlace.fetch

    def busy(self: FolderPlace, *args: Any) -> None:
        if tries:
            raise tries.pop()
        real(self, *args)

    monkeypatch.setattr("wakugumi.adapters.blobs.temporary.open_here", lambda *_: None)
    monkeypatch.setattr(FolderPlace, "fetch", busy)
    monkeypatch.setattr(downloads, "_wait", lambda pause_s, _on_bytes: pauses.append(pause_s))
    shelf.result(archive_blob=shelf.put(archive(("a", b"one", FILE)))).extract(tmp_path / "out")
    assert tree(tmp_path / "out") == {"a": b"one"}
    assert len(pauses) == 2


def test_what_progress_raises_ends_the_transfer_and_leaves_nothing(shelf: Shelf, tmp_path: Path) -> None:
    def stop(_count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shelf.result(archive_blob=shelf.put(archive(("a", b"x", FILE)))).extract(tmp_path / "out", stop)
    assert list((tmp_path / "out").iterdir()) == []


def test_it_can_be_ended_while_it_waits_to_try_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakugumi.adapters.blobs.temporary.open_here", lambda *_: None)
    shelf = Shelf(tmp_path)
    far = shelf.result(archive_blob=shelf.put(archive(("a", b"x", FILE))))
    tries: list[None] = []

    def lost(*_: object) -> None:
        tries.append(None)
        raise Lost("the leader went away")

    def stop(count: int) -> None:
        assert count == 0
        raise KeyboardInterrupt

    monkeypatch.setattr(FolderPlace, "fetch", lost)
    with pytest.raises(KeyboardInterrupt):
        far.extract(tmp_path / "out", stop)
    assert len(tries) == 1
    assert list((tmp_path / "out").iterdir()) == []


def test_it_can_be_ended_while_it_is_unpacked_and_leaves_whole_files(shelf: Shelf, tmp_path: Path) -> None:
    packed = archive(("a", b"a" * 100, FILE), ("b", b"b" * 9_000_000, FILE))
    large = shelf.result(archive_blob=shelf.put(packed))

    def stop(_count: int) -> None:
        if any(path.stat().st_size for path in (tmp_path / "out").glob(".waku-*-1")):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        large.extract(tmp_path / "out", stop)
    assert tree(tmp_path / "out") == {"a": b"a" * 100}


def test_files_may_be_only_counted(shelf: Shelf, tmp_path: Path) -> None:
    packed = archive(("a", b"1", FILE), ("sub/", b"", 0), ("sub/b", b"2", FILE), ("link", b"a", LINK))
    for made in (shelf.result(archive_blob=shelf.put(packed)), shelf.result(output_archive=packed)):
        assert made.extract_counted(tmp_path / "out") == 3
        assert tree(tmp_path / "out") == {"a": b"1", "sub/b": b"2", "link": b"1"}
    assert shelf.result().extract_counted(tmp_path / "out") == 0


def test_files_of_a_large_archive_leave_nothing_behind(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    before = len(os.listdir("/proc/self/fd"))
    large = shelf.result(archive_blob=shelf.put(archive(("a", b"x", FILE))))
    assert large.files["a"] == b"x"
    del large
    assert list((tmp_path / "temporary").iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) == before
