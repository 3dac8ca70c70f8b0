"""Blobs that are not with the leader: in a folder that all see, and in an object store (`--blobs`)."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.kit.object_store import WEED, an_object_store
from tests.whole.conftest import Running, Waku

Start = Callable[..., Running]
SIZE = 7 * 1024 * 1024


@pytest.fixture(params=["file", pytest.param("s3", marks=pytest.mark.skipif(WEED is None, reason="no object store"))])
def blobs(request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "file":
        (home / "shared").mkdir()
        yield (home / "shared").as_uri()
        return
    (home / "weed").mkdir()
    with an_object_store(home / "weed") as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield "s3://blobs/grid-1"


@pytest.mark.spec("C7", "C1", "C3")
def test_inputs_results_and_caches_go_through_the_place_that_the_leader_names(
    blobs: str, start: Start, waku: Waku, programs: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (programs / "twice").write_text('#!/bin/sh\ncat "$1" "$1" > "$2"\nsha256sum "$1"\n')
    (programs / "twice").chmod(0o755)
    leader = start("leader", "0", "--blobs", blobs)
    address = leader.line()
    monkeypatch.setenv("WAKU_LEADER", address)
    host, port = address.rsplit(":", 1)
    folders = ["--programs", programs, "--jobs", home / "jobs", "--cache", home / "cache"]
    worker = start("worker", host, port, *folders, "--slots", "4", "--cpu-cap", "0.95")
    worker.until(lambda text: "the leader speaks version" in text)
    content = random.Random(5).randbytes(SIZE)
    (home / "big.bin").write_bytes(content)

    done = waku("run", "twice", "--file", "big.bin", "--out", "out", "--", "big.bin", "double.bin")
    assert done.returncode == 0, done.stderr
    assert (home / "out" / "double.bin").read_bytes() == content * 2

    done = waku("caches", "put", "data-v1", "big.bin")
    assert done.returncode == 0, done.stderr
    done = waku("run", "twice", "--cached", "data-v1/big.bin", "--out", "again", "--", "big.bin", "double.bin")
    assert done.stdout == f"{hashlib.sha256(content).hexdigest()}  big.bin\n", done.stderr
    if blobs.startswith("file:"):
        kept = [path.name for path in (home / "shared").rglob("*") if path.is_file()]
        assert hashlib.sha256(content).hexdigest() in kept
