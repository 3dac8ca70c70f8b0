"""`waku run`, `submit` and `map` with files of any size: nobody has to think of it. The leader is scripted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kit.answering_leader import AnsweringLeader

from wakugumi.adapters.blobs.store import BlobStore
from wakugumi.app.cli import call
from wakugumi.limits.files import INLINE_FILE_BYTES_MAX
from wakugumi.limits.units import MIB
from wakugumi.limits.wire import PAYLOAD_BYTES_MAX
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.hello import BLOBS, Welcome
from wakugumi.wire.messages.job import Missing, read_request
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.messages.references import BlobRef


class TakesBlobs(AnsweringLeader):
    """It does every job at once, as soon as it has the files."""

    def __init__(self, folder: Path) -> None:
        self.store = BlobStore(folder)
        self.done: list[list[dict[str, object]]] = []
        self.asked_for: list[str] = []
        super().__init__()

    def _reply(self, frame: fr.Frame) -> bytes:
        if frame.type == fr.HELLO_CLIENT:
            place = Path(self.store.folder).as_uri()
            return fr.encode(fr.WELCOME, payload=encode(Welcome("1", [BLOBS], place)))
        if frame.type == fr.SUBMIT_JOB:
            files = read_request(frame.payload).files
            refs = [BlobRef(file.sha256, file.size or 0) for file in files if file.sha256]
            missing = [ref.sha256 for ref in refs if not self.store.has(ref)]
            if missing:
                self.asked_for += missing
                return fr.encode(fr.MISSING, corr_id=frame.msg_id, payload=encode(Missing(missing)))
            self.done.append(json.loads(frame.payload)["Files"])
        return super()._reply(frame)


@pytest.fixture
def leader(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[TakesBlobs]:
    leader = TakesBlobs(tmp_path / "place")
    monkeypatch.setenv("WAKU_LEADER", leader.address)
    yield leader
    leader.close()


def sparse(path: Path, size: int, first: bytes = b"") -> str:
    """A file of so many bytes, and its SHA-256."""
    with path.open("wb") as file:
        file.write(first)
        file.truncate(size)
    return hashlib.sha256(first + bytes(size - len(first))).hexdigest()


@pytest.mark.spec("C5")
@pytest.mark.parametrize("command", ["run", "submit"])
def test_a_file_is_sent_however_large_it_is(leader: TakesBlobs, tmp_path: Path, command: str) -> None:
    sha = sparse(tmp_path / "big.bin", 40 * MIB)
    assert call([command, "p", "--file", str(tmp_path / "big.bin"), "-f", f"again={tmp_path / 'big.bin'}"]) == 0
    by_reference = {"Sha256": sha, "Size": 40 * MIB}
    assert leader.done == [[{"Name": "again", **by_reference}, {"Name": "big.bin", **by_reference}]]
    assert leader.asked_for == [sha, sha], "once for each of its names"
    assert leader.store.size(sha) == 40 * MIB


def test_a_map_takes_inputs_of_any_size_and_does_only_what_changed(
    leader: TakesBlobs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    sizes = {
        "a": 10,
        "b": INLINE_FILE_BYTES_MAX + 1,
        "c": PAYLOAD_BYTES_MAX,
        "d": PAYLOAD_BYTES_MAX + 1,
        "e": 20 * MIB,
    }
    for name, size in sizes.items():
        sparse(folder / name, size, name.encode())
    words = ["map", "p", str(folder), "--out", str(tmp_path / "out")]
    assert call(words) == 0
    entries = {str(files[0]["Name"]): files[0] for files in leader.done}
    assert {name for name, entry in entries.items() if "Content" in entry} == {"a"}
    assert {name: entry["Size"] for name, entry in entries.items() if "Size" in entry} == {
        name: size for name, size in sizes.items() if name != "a"
    }
    assert call(words) == 0
    assert "5 of 5 inputs done (5 before)" in capsys.readouterr().err
    assert len(leader.done) == 5
    changed = sparse(folder / "e", 20 * MIB, b"other")
    assert call(words) == 0
    assert len(leader.done) == 6
    assert leader.done[5] == [{"Name": "e", "Sha256": changed, "Size": 20 * MIB}]
    capsys.readouterr()
