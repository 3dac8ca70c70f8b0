"""Members of a group of this machine, as the system's lists have them."""

from __future__ import annotations

import grp
import os
import pwd

import pytest
from tests.kit.eventually import eventually_blocking

from wakugumi.adapters.access import group_members
from wakugumi.adapters.access.group_members import GroupMembers
from wakugumi.errors import ConfigError


def test_users_whose_own_group_it_is_are_members() -> None:
    user = pwd.getpwuid(0)
    group = grp.getgrgid(user.pw_gid)
    members = GroupMembers(group.gr_name)
    assert members.group == group.gr_gid
    assert 0 in members
    assert 54_321 not in members


def test_users_that_the_group_names_are_members(monkeypatch: pytest.MonkeyPatch) -> None:
    name = pwd.getpwuid(os.geteuid()).pw_name if os.geteuid() == 0 else "root"
    entry = grp.struct_group(("grid", "x", 4_242, [name]))
    monkeypatch.setattr(grp, "getgrnam", lambda _name: entry)
    assert pwd.getpwnam(name).pw_uid in GroupMembers("grid")


def test_an_unknown_group_is_refused_with_a_hint() -> None:
    with pytest.raises(ConfigError, match="no group 'no-such-group'") as caught:
        GroupMembers("no-such-group")
    assert caught.value.hint


def test_old_lists_are_read_again_and_count_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [grp.struct_group(("grid", "x", 4_242, ["root"])), grp.struct_group(("grid", "x", 4_242, []))]
    monkeypatch.setattr(grp, "getgrnam", lambda _name: entries[0])
    members = GroupMembers("grid")
    monkeypatch.setattr(group_members, "FRESH_S", 0.0)
    entries.pop(0)
    eventually_blocking(lambda: 0 not in members)
