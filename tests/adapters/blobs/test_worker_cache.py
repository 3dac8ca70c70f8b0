"""Which contents does a worker keep, under which names, and which of them go when room is needed?"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit.cache_world import World, kib
from tests.kit.own_files import written_anyway

from wakugumi.adapters.blobs.store import ref_of_bytes
from wakugumi.adapters.blobs.worker_cache import CacheFolder
from wakugumi.adapters.blobs.worker_cache_index import CacheOnDisk, refs_of
from wakugumi.core.names import check_cache_id
from wakugumi.errors import ConfigError, Refused
from wakugumi.limits.files import PARTIAL_TTL_S
from wakugumi.limits.units import KIB
from wakugumi.wire.messages.cache import CacheEntry
from wakugumi.wire.messages.references import BlobRef


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "cache", bytes_max=100 * KIB)
    yield world
    world.check()
    world.folder.close()


@pytest.mark.spec("C2")
def test_the_files_of_a_cache_are_links_to_contents_that_are_kept_once(world: World) -> None:
    refs = world.put("models", **{"a.bin": b"one", "sub/b.bin": b"one"})
    a, b = world.path / "models" / "a.bin", world.path / "models" / "sub" / "b.bin"
    assert a.read_bytes() == b.read_bytes() == b"one"
    assert a.stat().st_ino == b.stat().st_ino == os.stat(world.folder.store.path(refs["a.bin"].sha256)).st_ino
    assert world.folder.used_bytes == 3


@pytest.mark.spec("C2")
def test_the_same_is_skipped_the_new_is_added_and_nothing_is_overwritten(world: World) -> None:
    refs = world.put("models", a=b"one")
    new = ref_of_bytes(b"two")
    plan = world.folder.plan("models", {"a": refs["a"], "b": new})
    assert (plan.new, plan.skipped, plan.absent) == ({"b": new}, 1, [new])
    with pytest.raises(Refused) as caught:
        world.folder.plan("models", {"b": new, "a": new})
    assert caught.value.code == "conflict"


def test_what_is_in_a_folder_that_is_not_ours_stays(world: World) -> None:
    (world.path / "photos").mkdir()
    (world.path / "photos" / "me.jpg").write_bytes(b"mine")
    refs = {"me.jpg": world.bring(b"other")}
    with pytest.raises(Refused):
        world.folder.link("photos", refs)
    world.again()
    assert (world.path / "photos" / "me.jpg").read_bytes() == b"mine"


@pytest.mark.spec("C6")
def test_what_was_not_used_for_longest_goes_first(world: World) -> None:
    first, second = world.bring(kib(40, 1)), world.bring(kib(40, 2))
    world.folder.let_go(first.sha256, world.use(first))
    third = world.bring(kib(40, 3))
    assert world.held(first, second, third) == [True, False, True]
    assert world.gone == [second.sha256]


@pytest.mark.spec("C6")
def test_the_file_of_a_cache_goes_with_its_link_and_is_known_by_name(world: World) -> None:
    refs = world.put("models", a=kib(60))
    world.bring(kib(60, 1))
    assert world.gone == [refs["a"].sha256]
    assert not (world.path / "models" / "a").exists()
    assert world.folder.plan("models", refs).absent == [refs["a"]]


@pytest.mark.spec("C6")
def test_what_a_job_uses_is_never_removed(world: World) -> None:
    used, idle = world.bring(kib(40, 1)), world.bring(kib(40, 2))
    held = world.use(used)
    with pytest.raises(Refused) as caught:
        world.folder.make_room(BlobRef("ab" * 32, 80 * KIB))
    assert caught.value.code == "disk"
    assert world.held(used, idle) == [True, True], "what would not help is not removed either"
    world.folder.make_room(BlobRef("ab" * 32, 60 * KIB))
    assert world.held(used, idle) == [True, False]
    world.folder.not_coming(BlobRef("ab" * 32, 60 * KIB))
    world.folder.let_go(used.sha256, held)


@pytest.mark.spec("C6")
def test_what_is_pinned_goes_last(world: World) -> None:
    pinned = world.put("models", "1", True, a=kib(40))["a"]
    other = world.bring(kib(40, 1))
    world.bring(kib(40, 2))
    assert world.held(pinned, other) == [True, False]
    world.bring(kib(90, 3))
    assert world.held(pinned) == [False]


def test_room_for_what_is_coming_is_not_given_away(world: World) -> None:
    first, second = BlobRef("ab" * 32, 60 * KIB), BlobRef("cd" * 32, 60 * KIB)
    world.folder.make_room(first)
    with pytest.raises(Refused):
        world.folder.make_room(second)
    world.folder.not_coming(first)
    world.folder.make_room(second)
    world.folder.not_coming(second)


def test_what_is_larger_than_all_room_is_refused(world: World) -> None:
    ref = world.bring(kib(1))
    with pytest.raises(Refused, match="more than this worker keeps at all"):
        world.folder.make_room(BlobRef("ab" * 32, 101 * KIB))
    with pytest.raises(Refused, match="more than this worker keeps at all"):
        world.folder.plan("models", {"a": BlobRef("ab" * 32, 60 * KIB), "b": BlobRef("cd" * 32, 60 * KIB)})
    assert world.held(ref) == [True]


def test_there_are_only_so_many_contents_however_small(tmp_path: Path) -> None:
    world = World(tmp_path, blobs_max=3)
    refs = [world.bring(bytes([seed])) for seed in range(5)]
    assert world.held(*refs) == [False, False, True, True, True]
    with pytest.raises(Refused, match="at most 3 files"):
        world.folder.plan("models", {str(seed): refs[seed] for seed in range(4)})
    world.folder.close()


@pytest.mark.spec("C6")
def test_a_dropped_cache_is_gone_with_all_that_nobody_else_has(world: World) -> None:
    shared = world.put("one", a=b"shared", b=b"alone", c=b"used")
    world.put("two", a=b"shared")
    held = world.use(shared["c"])
    world.folder.drop("one")
    assert world.held(shared["a"], shared["b"], shared["c"]) == [True, False, True]
    assert not (world.path / "one").exists()
    assert (world.path / "two" / "a").read_bytes() == b"shared"
    assert list(world.folder.caches) == ["two"]
    world.folder.let_go(shared["c"].sha256, held)


@pytest.mark.spec("C2", "C6")
def test_all_is_there_after_a_restart_in_the_order_of_its_use(world: World) -> None:
    refs = world.put("models", "v7", True, **{"日本/データ.bin": kib(30), "b": kib(30, 1)})
    loose = world.bring(kib(30, 2))
    world.again()
    assert world.folder.caches == {"models": CacheOnDisk("v7", True, refs)}
    assert world.folder.plan("models", refs).absent == []
    world.bring(kib(30, 3))
    assert world.gone == [loose.sha256], "the pins are known again"


@pytest.mark.user_dependent
@pytest.mark.spec("C4")
def test_what_was_changed_while_nobody_looked_is_dropped(world: World) -> None:
    refs = world.put("models", a=b"whole", b=b"cut", c=b"replaced", d=b"linked", e=b"fine")
    content = world.folder.store.path
    with written_anyway(content(refs["a"].sha256)) as file:
        file.write(b"WHOLE")
    with written_anyway(content(refs["b"].sha256)) as file:
        file.truncate(1)
    (world.path / "models" / "c").unlink()
    (world.path / "models" / "c").write_bytes(b"other")
    os.link(content(refs["d"].sha256), world.path / "elsewhere")
    world.again()
    assert world.held(*refs.values()) == [False, False, True, False, True]
    assert sorted(os.listdir(world.path / "models")) == ["e"]


def test_what_an_interrupted_put_left_is_removed(world: World) -> None:
    kept = world.put("old", a=b"kept")
    refs = {"a": world.bring(b"one"), "b": world.bring(b"two")}
    world.folder.link("new", refs)
    world.folder.link("old", {"b": refs["b"]})
    world.again()
    assert list(world.folder.caches) == ["old"]
    assert os.listdir(world.path / "old") == ["a"]
    assert not (world.path / "new").exists()
    assert world.held(kept["a"]) == [True]


@pytest.mark.parametrize("manifest", [b"", b"{", b'{"Version":"1","Pinned":false,"Entries":[{"Name":"../a"}]}'])
def test_a_manifest_that_cannot_be_read_is_no_cache_and_can_be_put_anew(world: World, manifest: bytes) -> None:
    world.put("models", a=b"one", b=b"shared")
    shared = world.put("other", b=b"shared")["b"]
    (world.path / ".caches" / "models.json").write_bytes(manifest)
    (world.path / "photos").mkdir()
    (world.path / ".caches" / "photos").write_bytes(b"{")
    (world.path / "my photos").mkdir()
    (world.path / ".caches" / "my photos.json").write_bytes(b"{")
    world.again()
    assert list(world.folder.caches) == ["other"]
    assert os.listdir(world.path / ".caches") == ["other.json"]
    assert (world.path / "photos").exists()
    assert (world.path / "my photos").exists(), "it can be no cache"
    assert world.held(shared) == [True]
    world.put("models", a=b"two")
    assert (world.path / "models" / "a").read_bytes() == b"two"


def test_a_manifest_that_was_half_written_is_removed(world: World) -> None:
    refs = world.put("models", a=b"one")
    manifest = world.path / ".caches" / "models.json"
    (manifest.parent / "models.json.new").write_bytes(manifest.read_bytes())
    world.again()
    assert world.folder.caches == {"models": CacheOnDisk("1", False, refs)}
    assert os.listdir(manifest.parent) == ["models.json"]


def test_whoever_dies_while_a_cache_is_dropped_can_put_it_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if killed after each step that the disk sees."""
    for steps in range(8):
        world.put("models", a=b"one", b=b"shared")
        world.put("other", b=b"shared")
        left = [steps]

        def dies(left: list[int], call: Any) -> Any:
            def step(*arguments: Any, **options: Any) -> Any:
                if not left[0]:
                    raise KeyboardInterrupt
                left[0] -= 1
                return call(*arguments, **options)

            return step

        with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
            for name in ("unlink", "replace"):
                patch.setattr(os, name, dies(left, getattr(os, name)))
            world.folder.drop("models")
        world.again()
        if "models" in world.folder.caches:  # as a put of another version does
            world.folder.drop("models")
        world.put("models", "2", a=b"two")
        assert (world.path / "models" / "a").read_bytes() == b"two"
        world.folder.drop("models")
    assert left[0] > 0, "at last it was not interrupted"


@pytest.mark.spec("C6")
def test_what_is_dropped_with_one_cache_is_not_missed_by_another(world: World) -> None:
    """Also while the trash is not emptied yet."""
    refs = world.put("old", a=b"shared", b=b"shared", c=b"used")
    world.put("new", "1", True, a=b"shared")
    held = world.use(refs["c"])
    world.folder.drop("old")
    world.folder.let_go(refs["c"].sha256, held)
    world.folder.let_go(refs["a"].sha256, world.use(refs["a"]))
    assert world.held(refs["a"], refs["c"]) == [True, True]
    assert not world.gone


@pytest.mark.spec("C6")
def test_what_was_dropped_before_a_crash_is_not_missed_by_another(world: World) -> None:
    shared = world.put("new", a=b"shared")["a"]
    world.folder.close()
    os.link(world.folder.store.path(shared.sha256), world.path / ".trash" / "0123456789abcdef")
    world.again()
    assert world.held(shared) == [True]


def test_a_name_that_leads_to_a_former_content_is_given_anew(world: World) -> None:
    refs = world.put("models", a=b"one")
    (world.path / "models" / "a").unlink()
    (world.path / "models" / "a").write_bytes(b"left")
    world.folder.link("models", refs)
    assert (world.path / "models" / "a").read_bytes() == b"one"
    assert os.listdir(world.path / "models") == ["a"]


def test_a_transfer_that_nobody_went_on_with_is_given_up(world: World) -> None:
    old, new = ref_of_bytes(b"old"), ref_of_bytes(b"new")
    for ref in (old, new):
        incoming = world.folder.store.begin(ref)
        incoming.write(b"x")
        incoming.close()
    then = time.time() - PARTIAL_TTL_S - 60
    incoming_folder = world.path / ".blobs" / ".incoming"
    os.utime(incoming_folder / old.sha256, (then, then))
    world.again()
    assert os.listdir(incoming_folder) == [new.sha256]


@pytest.mark.user_dependent
@pytest.mark.spec("C4")
def test_a_content_that_was_written_to_or_that_somebody_kept_is_not_used_again(world: World) -> None:
    written, kept = world.bring(kib(1, 1)), world.bring(kib(1, 2))
    with written_anyway(world.folder.store.path(written.sha256)) as file:
        file.write(b"!")
    assert world.folder.use(written.sha256) is None
    held = world.use(kept)
    os.link(world.folder.store.path(kept.sha256), world.path / "elsewhere")
    world.folder.let_go(kept.sha256, held)
    assert world.held(written, kept) == [False, False]


def test_a_second_worker_has_a_folder_of_its_own_inside(world: World) -> None:
    other = CacheFolder(world.path, 1)
    assert other.path == f"{world.folder.path}/.worker-2"
    other.close()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cache folder"):
        CacheFolder(tmp_path / "file" / "cache", 1)


@pytest.mark.spec("C4")
def test_content_that_is_not_what_it_says_leaves_nothing(world: World) -> None:
    ref = ref_of_bytes(b"right")
    with pytest.raises(Refused, match="SHA-256"):
        world.folder.write(ref, b"wrong")
    assert os.listdir(world.path / ".blobs" / ".incoming") == []
    assert world.held(ref) == [False]


def test_a_full_disk_is_an_error_and_leaves_nothing_half_there(tmp_path: Path) -> None:
    """A limit on the size of files is what a process can have of a full disk without being root."""
    script = f"""
import resource, signal
from pathlib import Path
from wakugumi.adapters.blobs.store import ref_of_bytes
from wakugumi.adapters.blobs.worker_cache import CacheFolder
from wakugumi.errors import Refused
folder = CacheFolder(Path({str(tmp_path)!r}), 1 << 30)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
content = bytes(5000)
try:
    folder.write(ref_of_bytes(content), content)
except Refused as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert "a blob cannot be written: File too large" in done.stdout
    assert os.listdir(tmp_path / ".blobs" / ".incoming") == []


@pytest.mark.parametrize("cache_id", ["", ".blobs", "a/b", "..", "x" * 129, "a\\b", "nul"])
def test_an_id_that_is_no_folder_of_its_own_is_refused(cache_id: str) -> None:
    with pytest.raises(Refused) as caught:
        check_cache_id(cache_id)
    assert caught.value.code == "bad-name"


@pytest.mark.parametrize(
    "entries",
    [
        [CacheEntry("a", sha256="0" * 64, size=1), CacheEntry("a", sha256="0" * 64, size=1)],
        [CacheEntry("a", sha256="0" * 64, size=1), CacheEntry("a/b", sha256="0" * 64, size=1)],
        [CacheEntry("../a", sha256="0" * 64, size=1)],
        [CacheEntry("a", sha256="../../etc/passwd", size=1)],
        [CacheEntry("a", sha256="0" * 64)],
        [CacheEntry("a", sha256="0" * 64, size=-1)],
    ],
)
def test_entries_with_tricks_are_refused(entries: list[CacheEntry]) -> None:
    with pytest.raises(Refused):
        refs_of(entries)
