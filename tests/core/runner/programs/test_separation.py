"""Which worker may start where keys have rules, and which words its log begins with."""

from __future__ import annotations

import pytest

from wakugumi.core.runner.programs.separation import Separation, separation

AS_ROOT = "run-as=root: whoever may send jobs is root on this machine"


@pytest.mark.spec("O1")
@pytest.mark.parametrize("keys_have_rules", [False, True])
@pytest.mark.parametrize(
    ("uid", "run_as", "flags", "said"),
    [
        (0, "grid", {}, "run-as=grid"),
        (0, "", {"as_root": True}, f"{AS_ROOT} (--as-root)"),
        (0, "", {"as_root": True, "same_user": True}, f"{AS_ROOT} (--as-root)"),
        (7, "", {"same_user": True}, "run-as=same-user: programs reach all that this user can (--same-user)"),
    ],
)
def test_a_degree_that_was_chosen_is_allowed_everywhere(
    uid: int, run_as: str, flags: dict[str, bool], said: str, keys_have_rules: bool
) -> None:
    assert separation(uid, run_as, **flags, keys_have_rules=keys_have_rules) == Separation(said)


@pytest.mark.spec("O1")
@pytest.mark.parametrize(
    ("uid", "flags", "said", "hint"),
    [
        (0, {}, f"{AS_ROOT} (--run-as USER changes that)", "--as-root"),
        (0, {"same_user": True}, f"{AS_ROOT} (--run-as USER changes that)", "--as-root"),
        (7, {}, "", "--same-user"),
        (7, {"as_root": True}, "", "--same-user"),
    ],
)
def test_a_degree_that_nobody_chose_is_refused_where_keys_have_rules(
    uid: int, flags: dict[str, bool], said: str, hint: str
) -> None:
    assert separation(uid, **flags) == Separation(said), "without rules it is said, and no more"
    strict = separation(uid, **flags, keys_have_rules=True)
    assert "beyond all rules" in strict.refused
    assert hint in strict.hint
    assert "--run-as USER" in strict.hint


@pytest.mark.parametrize("flag", ["as_root", "same_user"])
def test_two_degrees_at_once_are_refused(flag: str) -> None:
    found = separation(0, "grid", **{flag: True})
    assert found.refused == f"--run-as grid and --{flag.replace('_', '-')} contradict each other"
    assert found.hint == "say one of them"
