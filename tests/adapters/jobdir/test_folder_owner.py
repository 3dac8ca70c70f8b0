"""Whose jobs folder is this?"""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest
from tests.kit.job_directories import listed

from wakugumi.adapters.jobdir.folder import JobsFolder


@pytest.mark.spec("L4")
def test_a_worker_keeps_its_id_as_long_as_it_has_the_same_folder(tmp_path: Path) -> None:
    ids = []
    for _ in range(2):
        folder, beside = JobsFolder(tmp_path / "jobs"), JobsFolder(tmp_path / "jobs")
        ids.append((folder.worker_id(), beside.worker_id()))
        assert folder.worker_id() == ids[-1][0]
        folder.close()
        beside.close()
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 2
    assert len(ids[0][0]) == 16


@pytest.mark.parametrize("spoil", ["node", "inode", "zeros", "torn", "link", "folder", "gone"])
def test_an_id_that_may_be_anothers_or_cannot_be_read_makes_room_for_a_new_one(
    jobs: JobsFolder, tmp_path: Path, spoil: str
) -> None:
    first = jobs.worker_id()
    file = Path(jobs.path, ".worker")
    owner = json.loads(file.read_text())
    assert UUID(owner["WorkerId"]).bytes_le == first
    file.unlink()
    if spoil == "node":
        file.write_text(json.dumps({**owner, "Node": "the-machine-it-was-cloned-from"}))
    elif spoil == "inode":
        file.write_text(json.dumps({**owner, "Inode": owner["Inode"] + 1}))
    elif spoil == "zeros":
        file.write_text(json.dumps({**owner, "WorkerId": str(UUID(int=0))}))
    elif spoil == "torn":
        file.write_text(json.dumps(owner)[:-9])
    elif spoil == "link":
        (tmp_path / "elsewhere").write_text(json.dumps(owner))
        file.symlink_to(tmp_path / "elsewhere")
    elif spoil == "folder":
        file.mkdir()
    second = jobs.worker_id()
    assert second != first
    if spoil != "folder":  # that cannot be replaced: the new id is good for this life
        assert jobs.worker_id() == second
    assert "elsewhere" not in listed(tmp_path) or json.loads((tmp_path / "elsewhere").read_text()) == owner
