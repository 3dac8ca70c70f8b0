"""The world of the files machine, for its tests."""

from __future__ import annotations

import pytest
from tests.kit.files_world import World


@pytest.fixture
def world() -> World:
    return World()
