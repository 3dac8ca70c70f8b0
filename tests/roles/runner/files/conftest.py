"""A worker whose inputs come from a scripted leader's place, or from places that a test scripts."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kit.inputs_world import InputsWorld
from tests.kit.scripted_places import ScriptedPlace
from tests.kit.worker_bench import Bench
from tests.kit.workers_leader import WorkersLeader

from wakugumi.adapters.blobs.open_place import open_place


@pytest.fixture
async def world(leader: WorkersLeader, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InputsWorld:
    monkeypatch.setattr("wakugumi.roles.runner.files.fetch.AGAIN_FIRST_S", 0.001)
    return InputsWorld(leader, bench, tmp_path)


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> dict[str, ScriptedPlace]:
    places: dict[str, ScriptedPlace] = {}
    real = open_place
    monkeypatch.setattr(
        "wakugumi.roles.runner.files.transfer.open_place", lambda url, token="": places.get(url) or real(url, token)
    )
    return places
