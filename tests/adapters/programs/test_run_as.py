"""As which user do programs run, with which variables, and which folders are theirs to change?"""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from wakugumi.adapters.programs.run_as import User, check_reach, check_way, user_named, users_environment
from wakugumi.errors import ConfigError

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run programs as another user")
GRID = User(12345, 12346, (12346, 12347), "grid", "/home/grid")


def known() -> pwd.struct_passwd:
    """A user of this machine without the rights of root."""
    return next(user for user in pwd.getpwall() if user.pw_uid and 0 not in os.getgrouplist(user.pw_name, user.pw_gid))


def test_a_user_is_written_for_the_stub_and_for_the_program() -> None:
    assert GRID.text == "12345:12346:12346,12347"
    assert GRID.environment == {b"HOME": b"/home/grid", b"USER": b"grid", b"LOGNAME": b"grid"}


def test_variables_of_the_workers_own_user_are_left_out_unless_named() -> None:
    worker = {
        b"HOME": b"/root",
        b"PATH": b"/root/bin",
        b"XDG_RUNTIME_DIR": b"/run",
        b"SHELL": b"/bin/sh",
        b"LANG": b"C",
    }
    path = {b"PATH": b"/usr/local/bin:/usr/bin:/bin"}
    assert users_environment(GRID, worker, ()) == {b"LANG": b"C"} | path | GRID.environment
    named = users_environment(GRID, worker, {b"PATH", b"SHELL", b"HOME"})
    assert named == {b"LANG": b"C", b"PATH": b"/root/bin", b"SHELL": b"/bin/sh"} | GRID.environment


@as_root
def test_a_temporary_folder_stays_only_if_the_user_may_write_there(tmp_path: Path) -> None:
    closed = os.fsencode(tmp_path)
    worker = {b"TMPDIR": closed, b"TMP": b"/dev/shm", b"TEMP": b"relative"}
    assert users_environment(GRID, worker, ()).keys() & worker.keys() == {b"TMP"}
    assert users_environment(GRID, worker, {b"TMPDIR"})[b"TMPDIR"] == closed


@as_root
def test_a_user_is_found_by_name_and_by_number() -> None:
    user = known()
    by_name, by_number = user_named(user.pw_name), user_named(str(user.pw_uid))
    assert by_name == by_number
    assert by_name[:2] + by_name[3:] == (user.pw_uid, user.pw_gid, user.pw_name, user.pw_dir)
    assert user.pw_gid in by_name.groups


@as_root
def test_a_number_that_the_machine_does_not_know_is_a_user_without_a_home() -> None:
    assert user_named("54321") == User(54321, 54321, (54321,), "54321", "/")
    assert user_named("54321:54322") == User(54321, 54322, (54322,), "54321", "/")


@as_root
@pytest.mark.parametrize("text", ["no such user", "", "root", "0", "54321:0", "54321:x", str(2**32 - 1), "9" * 100])
def test_a_user_that_is_root_or_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--run-as") as refused:
        user_named(text)
    assert "--run-as grid" in refused.value.hint


@pytest.mark.skipif(os.geteuid() == 0, reason="root can")
def test_only_root_can_run_as_another_user() -> None:
    with pytest.raises(ConfigError, match="only root"):
        user_named("54321")


@as_root
def test_a_closed_folder_is_told_by_what_it_is_for(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(0o700)
    check_reach(GRID, [("root folder", "/")])
    with pytest.raises(ConfigError, match=r"grid cannot get into the jobs folder .*closed"):
        check_reach(GRID, [("root folder", "/"), ("jobs folder", str(tmp_path / "closed"))])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Closed to other writers, and so is the way there."""
    made = tmp_path / "top" / "jobs"
    made.mkdir(parents=True)
    for each in (made, made.parent):
        each.chmod(0o755)
    return made


def is_safe(path: Path | str, user: User = GRID) -> bool:
    try:
        check_way(user, "jobs folder", str(path))
    except ConfigError:
        return False
    return True


def test_a_folder_is_safe_if_only_its_owner_writes_there(folder: Path) -> None:
    assert is_safe(folder)
    assert is_safe(folder / "not yet there" / "nor this")
    assert is_safe(f"{folder}/../jobs")


@pytest.mark.parametrize(
    ("mode", "of_last", "of_parent"), [(0o757, False, False), (0o1777, False, True), (0o775, True, True)]
)
def test_a_folder_that_others_write_to_is_not_safe_but_behind_a_sticky_bit(
    folder: Path, mode: int, of_last: bool, of_parent: bool
) -> None:
    folder.chmod(mode)
    assert is_safe(folder) is of_last
    folder.chmod(0o755)
    folder.parent.chmod(mode)
    assert is_safe(folder) is of_parent


def test_a_folder_of_the_user_or_of_a_group_of_theirs_is_not_safe(folder: Path) -> None:
    assert not is_safe(folder, GRID._replace(uid=folder.stat().st_uid))
    folder.chmod(0o775)
    assert is_safe(folder)
    assert not is_safe(folder, GRID._replace(groups=(folder.stat().st_gid,)))
    assert not is_safe(folder, GRID._replace(gid=folder.stat().st_gid))


def test_the_target_of_a_link_counts_too(folder: Path) -> None:
    (folder / "link").symlink_to("../open")
    assert is_safe(folder / "link")
    (folder.parent / "open").mkdir()
    (folder.parent / "open").chmod(0o777)
    assert not is_safe(folder / "link")
    assert not is_safe(folder / "link" / "sub")


def test_a_folder_that_is_not_safe_is_told_by_what_it_is_for(folder: Path) -> None:
    folder.chmod(0o777)
    with pytest.raises(ConfigError, match=r"in place of the jobs folder .*mode 777"):
        check_way(GRID, "jobs folder", str(folder))


def test_links_in_a_ring_end_the_way(folder: Path) -> None:
    (folder / "a").symlink_to("b")
    (folder / "b").symlink_to("a")
    assert is_safe(folder / "a")
