"""How does a part of a result that did not fit a frame reach the client?"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.kit.packed_results import archive, tree

from wakugumi.adapters.blobs.place import FolderPlace
from wakugumi.adapters.blobs.store import Incoming, ref_of_bytes
from wakugumi.core.transfers import downloads
from wakugumi.errors import JobFailed, Lost, PeerError, Refused
from wakugumi.roles.client.result import Result
from wakugumi.wire.messages.job import JobResult
from wakugumi.wire.messages.references import BlobRef

FILE = stat.S_IFREG | 0o644


LINK = stat.S_IFLNK | 0o777


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
    assert (fetched.is_complete, fetched.archive_bytes) == (False, len(packed))
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
    monkeypatch.setattr(downloads, "DOWNLOAD_RETRY", downloads.DOWNLOAD_RETRY._replace(first_s=0.001))
    far.extract(tmp_path / "out")
    assert began_at == [0, 1_000_000, 2_000_000]
    monkeypatch.setattr(FolderPlace, "fetch", lambda *_: (_ for _ in ()).throw(Lost("for good")))
    with pytest.raises(Lost):
        far.extract(tmp_path / "out2")
    assert list((tmp_path / "out2").iterdir()) == []


@pytest.mark.parametrize("shelf", ["afar"], indirect=True)
def test_the_first_large_file_is_the_download_itself(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transfer that is cut at any byte of the head goes on; afterwards the content is not written again."""
    zeros = bytes(1_048_576)
    noise = os.urandom(1_048_576) + zeros + os.urandom(1_048_577)
    packed = archive(("sub/a", noise, FILE | 0o111), ("b", b"b" * 2_000_000, FILE))
    far = shelf.result(archive_blob=shelf.put(packed))
    inodes: set[int] = set()
    real = FolderPlace.fetch
    cuts = [1, 29, 30, 34, 35, 36, 1_000_000]

    def fetch(self: FolderPlace, ref: BlobRef, into: Incoming, on_bytes: Any) -> None:
        if cuts:
            into.write(packed[into.at : cuts.pop(0)])
            into.close()
            raise Lost("the leader went away")
        inodes.update(path.stat().st_ino for path in (tmp_path / "out").iterdir())
        real(self, ref, into, on_bytes)

    monkeypatch.setattr(FolderPlace, "fetch", fetch)
    monkeypatch.setattr(downloads, "DOWNLOAD_RETRY", downloads.DOWNLOAD_RETRY._replace(first_s=0.001, tries_max=99))
    far.extract(tmp_path / "out")
    made = (tmp_path / "out/sub/a").stat()
    assert {made.st_ino} == inodes
    assert os.access(tmp_path / "out/sub/a", os.X_OK)
    assert made.st_blocks * 512 < len(noise) - len(zeros) // 2, "zeros become holes"
    assert tree(tmp_path / "out") == {"sub/a": noise, "b": b"b" * 2_000_000}
    assert sorted(os.listdir(tmp_path / "out")) == ["b", "sub"], "and nothing of ours"


@pytest.mark.parametrize("shelf", ["afar"], indirect=True)
def test_a_first_file_with_a_wrong_checksum_is_not_written(shelf: Shelf, tmp_path: Path) -> None:
    packed = archive(("a", b"a" * 2_000_000, FILE), ("b", b"b", FILE))
    broken = shelf.result(archive_blob=shelf.put(packed[:1_000] + b"!" + packed[1_001:]))
    with pytest.raises(PeerError, match="'a' in the result's archive is broken; 1 files were written before it"):
        broken.extract(tmp_path / "out")
    assert tree(tmp_path / "out") == {"b": b"b"}


def test_a_place_that_is_busy_is_asked_again(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[Refused] = [Refused("full", "come again"), Refused("blob-busy", "come again")]
    real = FolderPlace.fetch

    def busy(self: FolderPlace, *args: Any) -> None:
        if tries:
            raise tries.pop()
        real(self, *args)

    monkeypatch.setattr("wakugumi.adapters.blobs.temporary.open_here", lambda *_: None)
    monkeypatch.setattr(FolderPlace, "fetch", busy)
    monkeypatch.setattr(downloads, "DOWNLOAD_RETRY", downloads.DOWNLOAD_RETRY._replace(first_s=0.001))
    shelf.result(archive_blob=shelf.put(archive(("a", b"one", FILE)))).extract(tmp_path / "out")
    assert tree(tmp_path / "out") == {"a": b"one"}
    assert not tries


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
