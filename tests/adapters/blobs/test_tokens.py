"""A token is leave for one blob, from one worker, for a quarter of an hour."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from wakugumi.adapters.blobs.tokens import EVERYONE, check_token, make_token
from wakugumi.core.access.identity import EMBEDDED
from wakugumi.limits.files import TOKEN_S

KEY, SHA, NOW = "c0ffee", "ab" * 32, 1_800_000_000.0


def test_a_token_is_what_the_protocol_says() -> None:
    expiry = int(NOW + TOKEN_S)
    signature = hmac.new(KEY.encode(), f"{SHA}.{expiry}".encode(), hashlib.sha256).hexdigest()
    assert make_token(KEY, SHA, NOW) == f"{expiry}.{signature}"


def test_it_holds_for_its_blob_its_worker_and_its_time() -> None:
    token = make_token(KEY, SHA, NOW)
    assert check_token(KEY, SHA, token, NOW)
    assert check_token(KEY, SHA, token, NOW + TOKEN_S)
    assert not check_token(KEY, SHA, token, NOW + TOKEN_S + 1)
    assert not check_token(KEY, "cd" * 32, token, NOW)
    assert not check_token("decaf", SHA, token, NOW)


@pytest.mark.parametrize("token", ["", ".", "1", "x.y", "-1.aa", "9" * 13 + ".aa", "１.aa", "1.é", "1.aa.bb", " 1.aa"])
def test_what_is_no_token_is_none(token: str) -> None:
    assert not check_token(KEY, SHA, token, NOW)


def test_one_that_would_hold_for_ever_is_none_though_it_is_signed() -> None:
    expiry = str(int(NOW + 100 * TOKEN_S))
    signature = hmac.new(KEY.encode(), f"{SHA}.{expiry}".encode(), hashlib.sha256).hexdigest()
    assert not check_token(KEY, SHA, f"{expiry}.{signature}", NOW)


def test_everyone_may_read_everything_and_bringing_makes_no_difference() -> None:
    EVERYONE.brings(EMBEDDED, "0" * 64)
    assert EVERYONE.may_read(EMBEDDED, "1" * 64)
