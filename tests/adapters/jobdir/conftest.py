"""A jobs folder of each test's own, and the name of a job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from wakugumi.adapters.jobdir.folder import JobsFolder


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[JobsFolder]:
    folder = JobsFolder(tmp_path / "jobs")
    yield folder
    folder.close()


@pytest.fixture
def job() -> str:
    return str(uuid4())
