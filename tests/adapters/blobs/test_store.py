"""Blobs on a disk: whole and verified or not there, whoever writes, crashes or tidies up at the same time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from wakugumi.adapters.blobs.store import LINKED_MIN_BYTES, BlobStore, is_sha256, link_into, ref_of_bytes, ref_of_file
from wakugumi.errors import ConfigError, Refused
from wakugumi.limits.files import BLOB_RECENT_S
from wakugumi.wire.messages.references import BlobRef

HOUR_S = 3600.0


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs")


def put(store: BlobStore, content: bytes, used_ago_s: float = 0.0) -> str:
    incoming = store.begin(ref_of_bytes(content))
    incoming.write(content)
    incoming.finish()
    path = store.path(incoming.ref.sha256)
    used_at = time.time() - used_ago_s
    os.utime(path, (used_at, os.stat(path).st_mtime))
    return incoming.ref.sha256


def there(store: BlobStore) -> set[str]:
    return {entry.sha256 for entry in store.entries()}


@pytest.mark.spec("C4")
def test_what_was_written_and_verified_is_there_and_cannot_be_written_to(store: BlobStore) -> None:
    name = put(store, b"content")
    assert store.has(BlobRef(name, 7))
    assert not store.has(BlobRef(name, 8))
    assert Path(store.path(name)).read_bytes() == b"content"
    assert os.stat(store.path(name)).st_mode & 0o222 == 0
    assert store.used_bytes == 7


@pytest.mark.spec("C4")
def test_content_that_is_not_what_its_name_says_is_never_there_and_nothing_of_it_stays(store: BlobStore) -> None:
    ref = BlobRef(ref_of_bytes(b"right").sha256, 5)
    incoming = store.begin(ref)
    incoming.write(b"wrong")
    with pytest.raises(Refused, match="not what its SHA-256 says") as caught:
        incoming.finish()
    assert caught.value.code == "blob-broken"
    assert store.size(ref.sha256) is None
    assert store.received(ref.sha256) == 0


def test_more_than_was_promised_is_refused_before_it_is_written(store: BlobStore) -> None:
    incoming = store.begin(BlobRef("0" * 64, 3))
    incoming.write(b"ab")
    with pytest.raises(Refused, match="more than the 3 bytes"):
        incoming.write(b"cd")
    incoming.close()
    assert store.received("0" * 64) == 2


@pytest.mark.spec("C5")
def test_half_an_upload_is_not_visible_and_is_gone_on_with(store: BlobStore) -> None:
    ref = ref_of_bytes(b"first second")
    incoming = store.begin(ref)
    incoming.write(b"first ")
    with pytest.raises(Refused, match="6 of 12 bytes"):
        incoming.finish()
    assert store.size(ref.sha256) is None
    assert store.received(ref.sha256) == 6
    again = store.begin(ref)
    assert again.at == 6
    again.write(b"second")
    again.finish()
    assert store.has(ref)


def test_two_do_not_write_the_same_and_the_second_is_told(store: BlobStore) -> None:
    ref = ref_of_bytes(b"content")
    first = store.begin(ref)
    with pytest.raises(Refused) as caught:
        BlobStore(Path(store.folder)).begin(ref)
    assert caught.value.code == "blob-busy"
    first.close()
    store.begin(ref).abandon()


@pytest.mark.spec("C5")
def test_a_writer_that_is_killed_leaves_what_it_wrote_and_nothing_visible(store: BlobStore) -> None:
    ref = ref_of_bytes(b"x" * 1000)
    code = (
        "import os, signal, sys; from pathlib import Path; from wakugumi.adapters.blobs.store import *;"
        "i = BlobStore(Path(sys.argv[1])).begin(BlobRef(sys.argv[2], 1000)); i.write(b'x' * 400);"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, store.folder, ref.sha256], timeout=60)
    assert there(store) == set()
    again = store.begin(ref)
    assert again.at == 400
    again.write(b"x" * 600)
    again.finish()
    assert store.has(ref)


def test_what_came_before_the_power_failed_is_not_believed(store: BlobStore) -> None:
    ref = ref_of_bytes(b"content")
    Path(f"{store.folder}/.incoming/{ref.sha256}").write_bytes(b"\0\0\0\0")
    incoming = store.begin(ref)
    incoming.write(b"ent")
    with pytest.raises(Refused, match="not what its SHA-256 says"):
        incoming.finish()
    incoming = store.begin(ref)
    assert incoming.at == 0
    incoming.close()


def test_a_link_in_the_place_of_an_upload_is_not_followed(store: BlobStore, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    ref = ref_of_bytes(b"content")
    Path(f"{store.folder}/.incoming/{ref.sha256}").symlink_to(victim)
    with pytest.raises(Refused):
        store.begin(ref)
    assert victim.read_bytes() == b"precious"


LARGE = os.urandom(LINKED_MIN_BYTES)


@pytest.fixture
def linked(store: BlobStore, tmp_path: Path) -> Path:
    """A file that is an upload of the store."""
    (source := tmp_path / "source").write_bytes(LARGE)
    assert link_into(str(store.incoming), ref_of_bytes(LARGE), source) == store.scratch(ref_of_bytes(LARGE).sha256)
    return source


def test_a_linked_file_becomes_a_blob_without_a_copy(store: BlobStore, linked: Path) -> None:
    incoming = store.begin(ref_of_bytes(LARGE))
    assert incoming.at == len(LARGE)
    incoming.finish()
    assert linked.samefile(store.path(incoming.ref.sha256))
    assert link_into(str(store.incoming), incoming.ref, linked) is not None
    assert link_into(str(store.incoming), incoming.ref, linked) is None, "an upload has begun"


def test_a_linked_file_with_other_content_is_refused_and_stays(store: BlobStore, tmp_path: Path) -> None:
    (source := tmp_path / "source").write_bytes(LARGE[:-1] + b"!")
    ref = ref_of_bytes(LARGE)
    assert link_into(str(store.incoming), ref, source)
    with pytest.raises(Refused, match="not what its SHA-256 says"):
        store.begin(ref).finish()
    assert source.stat().st_size == len(LARGE)
    assert (os.listdir(store.incoming), store.has(ref)) == ([], False)


@pytest.mark.parametrize("size", ["right", "too large", "too small"])
def test_an_upload_that_begins_anew_leaves_a_linked_file_alone(
    store: BlobStore, tmp_path: Path, linked: Path, size: str
) -> None:
    ref = ref_of_bytes(LARGE)
    if size == "right":
        incoming = store.begin(ref)
        incoming.restart()
    else:
        (other := tmp_path / "other").write_bytes(LARGE + b"!" if size == "too large" else LARGE[:-1])
        os.replace(other, linked)
        os.unlink(store.scratch(ref.sha256))
        os.link(linked, store.scratch(ref.sha256))
        incoming = store.begin(ref)
    before = linked.read_bytes()
    assert incoming.at == 0
    with pytest.raises(Refused, match="another writer"):
        store.begin(ref)
    incoming.write(LARGE)
    incoming.finish()
    assert linked.read_bytes() == before
    assert not linked.samefile(store.path(ref.sha256))


@pytest.mark.parametrize("why", ["small", "name", "rights", "gone", "a link"])
def test_only_a_store_s_own_folder_gets_links(store: BlobStore, tmp_path: Path, why: str) -> None:
    content = LARGE[1:] if why == "small" else LARGE
    (source := tmp_path / "source").write_bytes(content)
    folder = store.incoming
    if why == "name":
        (folder := tmp_path / "folder").mkdir(0o700)
    elif why == "rights":
        folder.chmod(0o750)
    elif why == "gone":
        folder.rmdir()
    elif why == "a link":
        folder.rename(tmp_path / "moved")
        folder.symlink_to(tmp_path / "moved")
    assert link_into(str(folder), ref_of_bytes(content), source) is None
    assert why == "gone" or os.listdir(folder) == []


def test_a_blob_that_is_removed_while_it_is_read_is_read_to_its_end(store: BlobStore) -> None:
    name = put(store, b"content")
    file = store.open(name)
    store.remove(name)
    try:
        assert os.pread(file, 100, 0) == b"content"
    finally:
        os.close(file)
    with pytest.raises(Refused) as caught:
        store.open(name)
    assert caught.value.code == "no-blob"


def test_without_room_nothing_is_begun(tmp_path: Path) -> None:
    full = BlobStore(tmp_path, free_min_bytes=1 << 60)
    with pytest.raises(Refused, match="no room for a blob of 7 bytes") as caught:
        full.begin(ref_of_bytes(b"content"))
    assert caught.value.code == "disk"
    with pytest.raises(Refused, match="no room"):
        BlobStore(tmp_path).begin(BlobRef("0" * 64, 1 << 60))


def test_the_least_recently_used_go_first_until_the_rest_fits(store: BlobStore) -> None:
    old, older, new = (put(store, b"a" * 10, 2 * HOUR_S), put(store, b"b" * 10, 3 * HOUR_S), put(store, b"c" * 10))
    assert store.evict(30, lambda _: False, time.time()) == []
    assert (store.swept_bytes, store.budget_bytes) == (30, 30)
    assert [entry.sha256 for entry in store.evict(25, lambda _: False, time.time())] == [older]
    assert (store.swept_bytes, store.budget_bytes) == (store.used_bytes, 25)
    assert there(store) == {old, new}


def test_what_is_held_stays_however_old_it_is(store: BlobStore) -> None:
    held, free = put(store, b"a" * 10, 9 * HOUR_S), put(store, b"b" * 10, HOUR_S)
    assert [entry.sha256 for entry in store.evict(0, {held}.__contains__, time.time())] == [free]
    assert there(store) == {held}


def test_what_was_asked_for_just_now_stays_however_full_it_is(store: BlobStore) -> None:
    asked, served, idle = (put(store, content, HOUR_S) for content in (b"a", b"b", b"c"))
    store.size(asked)
    os.close(store.open(served))
    assert [entry.sha256 for entry in store.evict(0, lambda _: False, time.time())] == [idle]
    later = time.time() + BLOB_RECENT_S + 1
    assert {entry.sha256 for entry in store.evict(0, lambda _: False, later)} == {asked, served}


def test_what_is_asked_for_while_others_tidy_up_is_not_removed_under_the_asker(store: BlobStore) -> None:
    name = put(store, b"a", HOUR_S)

    def is_held(_sha256: str) -> bool:
        BlobStore(Path(store.folder)).size(name)
        return False

    assert store.evict(0, is_held, time.time()) == []
    assert there(store) == {name}


def test_what_nobody_used_for_long_goes_though_there_is_room(store: BlobStore) -> None:
    old, new = put(store, b"a", 30 * HOUR_S), put(store, b"b", 20 * HOUR_S)
    assert [entry.sha256 for entry in store.evict(1 << 40, lambda _: False, time.time(), 24 * HOUR_S)] == [old]
    assert there(store) == {new}


def test_a_blob_counts_as_used_when_it_has_come_and_not_when_it_began_to(store: BlobStore) -> None:
    incoming = store.begin(ref_of_bytes(b"a"))
    incoming.write(b"a")
    os.utime(f"{store.folder}/.incoming/{incoming.ref.sha256}", (time.time() - 30 * HOUR_S,) * 2)
    incoming.finish()
    assert store.evict(0, lambda _: False, time.time(), HOUR_S) == []


def test_a_use_changes_no_time_but_that_of_access(store: BlobStore) -> None:
    name = put(store, b"a", HOUR_S)
    before = os.stat(store.path(name))
    store.size(name)
    after = os.stat(store.path(name))
    assert after.st_mtime_ns == before.st_mtime_ns
    assert after.st_atime > before.st_atime


def test_an_upload_that_nobody_goes_on_with_is_removed_but_not_one_that_someone_writes(store: BlobStore) -> None:
    left, busy, fresh = (ref_of_bytes(content) for content in (b"left", b"busy", b"fresh"))
    for ref in (left, fresh):
        incoming = store.begin(ref)
        incoming.write(b"x")
        incoming.close()
    writing = store.begin(busy)
    for ref in (left, busy):
        os.utime(f"{store.folder}/.incoming/{ref.sha256}", (0, 0))
    assert store.remove_abandoned(time.time(), HOUR_S) == 1
    assert [store.received(ref.sha256) for ref in (left, fresh)] == [0, 1]
    writing.write(b"busy")
    writing.finish()
    assert store.has(busy)


@pytest.mark.parametrize(
    "name", ["", "a" * 63, "a" * 65, "A" * 64, "g" * 64, "../" * 21 + "a", "a" * 63 + "\n", "１" * 64, "a" * 63 + "/"]
)
def test_nothing_but_64_hexadecimal_digits_names_a_blob(name: str) -> None:
    assert not is_sha256(name)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match="cannot be used"):
        BlobStore(tmp_path / "file" / "blobs")


def test_a_pipe_is_no_file_to_refer_to(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        ref_of_file(tmp_path / "pipe")


def test_a_file_that_was_hashed_on_its_way_is_adopted_without_being_copied(tmp_path: Path) -> None:
    store = BlobStore(tmp_path)
    source = store.incoming / "received-1"
    source.write_bytes(b"content")
    ref = ref_of_bytes(b"content")
    inode = source.stat().st_ino
    store.adopt(ref, source)
    assert store.has(ref)
    assert os.stat(store.path(ref.sha256)).st_ino == inode
    assert os.stat(store.path(ref.sha256)).st_mode & 0o777 == 0o444
    assert list(store.incoming.iterdir()) == []
    with pytest.raises(Refused):
        store.adopt(ref, source)
