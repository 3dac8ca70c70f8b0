"""A worker whose inputs come from a scripted leader's place, or from places that a test scripts."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kit.inputs_world import InputsWorld, fetch_bounds
from tests.kit.scripted_places import ScriptedPlace
from tests.kit.worker_bench import Bench
from tests.kit.workers_leader import WorkersLeader

from wakugumi.adapters.blobs.open_place import open_place
from wakugumi.core.transfers.fetching import USUAL_BOUNDS


@pytest.fixture
async def world(leader: WorkersLeader, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InputsWorld:
    fetch_bounds(monkeypatch, retry=USUAL_BOUNDS.retry._replace(first_s=0.001))
    return InputsWorld(leader, bench, tmp_path)


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> dict[str, ScriptedPlace]:
    places: dict[str, ScriptedPlace] = {}
    real = open_place
    monkeypatch.setattr(
        "wakugumi.roles.runner.files.transfer.open_place",
        lambda url, token="", leader="": places.get(url) or real(url, token, leader),
    )
    return places
