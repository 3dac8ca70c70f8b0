"""What may a job ask for, and which values are out of bounds?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakugumi.core.ids import WorkerId
from wakugumi.core.requirements import CACHE, Requirements, check_wants, without_shuns
from wakugumi.errors import Refused
from wakugumi.limits.scheduling import CREDIT_MAX, KEY_CHARS_MAX, PRIORITY_MAX

ONE = WorkerId(b"1" * 16)


@pytest.mark.parametrize(
    ("files", "blobs"), [((), False), ((f"{CACHE}models",), False), (("0" * 64, f"{CACHE}models"), True)]
)
def test_blobs_are_those_of_the_files_that_are_no_caches(files: tuple[str, ...], blobs: bool) -> None:
    assert Requirements(files=files).blobs is blobs


def test_shunned_workers_are_no_wish_of_the_client() -> None:
    assert without_shuns(None) is None
    assert without_shuns(Requirements()) is None
    assert without_shuns(Requirements(shuns=(ONE,))) is None
    assert without_shuns(Requirements(key="a", shuns=(ONE,))) == Requirements(key="a")


@given(st.text("ab-._", max_size=KEY_CHARS_MAX), st.integers(-PRIORITY_MAX, PRIORITY_MAX), st.integers(1, CREDIT_MAX))
def test_a_value_within_its_bounds_is_accepted(key: str, priority: int, slots: int) -> None:
    check_wants(key, priority, slots)


@pytest.mark.parametrize(
    ("key", "priority", "slots", "named"),
    [
        ("a" * (KEY_CHARS_MAX + 1), 0, 1, "key"),
        ("a\u202eb", 0, 1, "key"),
        ("", PRIORITY_MAX + 1, 1, "priority"),
        ("", -PRIORITY_MAX - 1, 1, "priority"),
        ("", True, 1, "priority"),
        ("", 0.5, 1, "priority"),
        ("", 0, 0, "slots"),
        ("", 0, CREDIT_MAX + 1, "slots"),
        ("", 0, "2", "slots"),
        ("", 0, 10**400, "slots"),
    ],
)
def test_a_value_out_of_bounds_is_refused_by_its_name(key: str, priority: object, slots: object, named: str) -> None:
    with pytest.raises(Refused) as refused:
        check_wants(key, priority, slots)
    assert refused.value.code == "bad-request"
    assert named in refused.value.message
    assert len(refused.value.message) <= 300
