"""Do the helpers of tests/kit that others lean on fail when they must?"""

from __future__ import annotations

import pytest
from tests.kit.eventually import eventually, eventually_blocking


async def test_eventually_looks_until_the_condition_is_true() -> None:
    looks = iter([False, 0, [], "now"])
    await eventually(lambda: next(looks))
    assert next(looks, None) is None


def test_eventually_blocking_looks_until_the_condition_is_true() -> None:
    looks = iter([False, "now"])
    eventually_blocking(lambda: next(looks))
    assert next(looks, None) is None


async def test_a_condition_that_stays_false_fails_with_its_own_words() -> None:
    sky = "blue"
    with pytest.raises(AssertionError, match=r"this did not hold: the sky is green$"):
        await eventually(lambda: False, "the sky is green", within_s=0)
    with pytest.raises(AssertionError, match=r"this did not hold: eventually_blocking.*sky == .green."):
        eventually_blocking(lambda: sky == "green", within_s=0)


def test_a_condition_gets_a_last_look_after_the_deadline() -> None:
    looks = iter([False, True])
    eventually_blocking(lambda: next(looks), within_s=0)
