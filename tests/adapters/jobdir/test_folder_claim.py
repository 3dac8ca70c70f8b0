"""Whose folder is this? One process at a time has it, and no other user may write there."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.kit.job_directories import listed

from wakugumi.adapters.jobdir.folder import JobsFolder
from wakugumi.errors import ConfigError

# The folder itself.


def test_workers_that_share_a_folder_do_not_meet(tmp_path: Path, job: str) -> None:
    first, second = JobsFolder(tmp_path), JobsFolder(tmp_path)
    assert second.path == f"{first.path}/worker-2"
    running = first.make(job)
    Path(running.path, "half").write_text("x")
    second.make(job)
    assert second.finished() == []
    assert listed(running) == ["half"], "what the other one runs is no interrupted job"
    first.close()
    third = JobsFolder(tmp_path)
    assert third.path == first.path
    second.close()
    third.close()


def test_a_folder_in_use_stays_so_if_a_cleaner_removes_its_lock_file(tmp_path: Path) -> None:
    first = JobsFolder(tmp_path)
    (tmp_path / ".lock").unlink()
    second = JobsFolder(tmp_path)
    assert second.path == f"{first.path}/worker-2"
    second.close()
    first.close()


def test_a_folder_that_cannot_be_used_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be used"):
        JobsFolder(tmp_path / "file")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_not_trusted(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12345)
    with pytest.raises(ConfigError, match="belongs to another user"):
        JobsFolder(tmp_path)


@pytest.mark.spec("O1")
@pytest.mark.parametrize("mode", [0o1777, 0o777, 0o757])
def test_a_folder_that_everybody_may_write_to_is_not_trusted(tmp_path: Path, mode: int) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(mode)
    with pytest.raises(ConfigError, match="other users may write") as caught:
        JobsFolder(tmp_path / "shared")
    assert "a folder inside" in caught.value.hint
    JobsFolder(tmp_path / "shared" / "own").close()


@pytest.mark.spec("O1")
def test_a_folder_of_our_own_may_be_open_to_its_group(tmp_path: Path) -> None:
    tmp_path.chmod(0o2775)
    JobsFolder(tmp_path).close()


CLAIM_AS_ANOTHER = """
import os, sys
from pathlib import Path
from wakugumi.adapters.jobdir.folder_claim import claim

os.setgroups([])
os.setgid(12345)
os.setuid(12345)
claim(Path(sys.argv[1]), what="jobs folder", inside="worker-", hint="")
"""


@pytest.mark.spec("O1")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_folder_of_root_that_its_group_may_write_to_is_not_trusted_by_others() -> None:
    with tempfile.TemporaryDirectory() as name:
        os.chown(name, 0, 12345)
        Path(name).chmod(0o2775)
        run = subprocess.run(
            [sys.executable, "-c", CLAIM_AS_ANOTHER, name], capture_output=True, text=True, check=False
        )
    assert "other users may write" in run.stderr
