"""Users of this machine: which identity the kernel's word gives them."""

from __future__ import annotations

import pytest

from wakugumi.core.access.identity import Role
from wakugumi.core.access.local_rule import LocalMode, LocalRule

NONE: frozenset[int] = frozenset()


@pytest.mark.parametrize(
    ("mode", "uid", "groups", "forwarded", "role"),
    [
        ("admin", 1000, NONE, False, Role.ADMIN),
        ("admin", 0, NONE, False, Role.ADMIN),
        ("admin", 1001, NONE, False, None),
        ("admin", 1001, frozenset({50}), False, Role.CLIENT),
        ("admin", 1001, frozenset({51}), False, None),
        ("admin", None, frozenset({50}), False, None),
        ("admin", 1000, NONE, True, None),
        ("admin", 1001, frozenset({50}), True, None),
        ("client", 1000, NONE, False, Role.CLIENT),
        ("client", 0, NONE, False, Role.CLIENT),
        ("client", 1001, NONE, False, None),
        ("client", 1001, frozenset({50}), False, Role.CLIENT),
        ("none", 1000, frozenset({50}), False, None),
        ("none", 0, NONE, False, None),
    ],
)
def test_a_user_has_the_role_of_the_rule(
    mode: LocalMode, uid: int | None, groups: frozenset[int], forwarded: bool, role: Role | None
) -> None:
    identity = LocalRule(mode, 1000, 50).identity_of_user(uid, groups, forwarded=forwarded)
    assert (identity and identity.role) == role
    if identity is not None:
        assert identity.name == f"uid:{uid}"
        assert identity.proof == "user"
        assert identity.sight() is None, "users that the leader trusts share one sight"


def test_without_a_group_no_group_counts() -> None:
    assert LocalRule("admin", 1000).identity_of_user(1001, frozenset({0}), forwarded=False) is None
