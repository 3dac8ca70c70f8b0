"""Keys: how they are written, read, hashed, and kept out of texts."""

from __future__ import annotations

import base64
import hashlib
import logging
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakugumi.errors import ConfigError
from wakugumi.wire.access_line import (
    ACCESS_KEY_CHARS_MAX,
    DIGEST_BYTES,
    SECRET_BYTES,
    Key,
    base32,
    digest_of,
    has_key,
    hide_keys,
    hide_secrets,
    is_key_name,
    parse_key,
    read_authorization,
    secret_hash,
    write_authorization,
)

pytestmark = pytest.mark.spec("O1")
KEY = Key("desk-1", base32(bytes(range(20))), base32(bytes(range(32))))

names = st.from_regex(r"[a-z0-9][a-z0-9_.-]{0,31}", fullmatch=True)
keys = st.builds(
    lambda name, digest, secret: Key(name, base32(digest), base32(secret)),
    names,
    st.binary(min_size=DIGEST_BYTES, max_size=DIGEST_BYTES),
    st.binary(min_size=SECRET_BYTES, max_size=SECRET_BYTES),
)


@given(keys)
def test_a_key_is_read_as_it_was_written(key: Key) -> None:
    assert parse_key(key.text) == key
    assert len(key.text) <= ACCESS_KEY_CHARS_MAX
    assert read_authorization(write_authorization(key)) == key
    assert read_authorization("basic " + base64.b64encode(key.text.encode()).decode()) == key


@given(keys, st.text(max_size=20))
def test_no_text_about_a_key_has_its_secret(key: Key, text: str) -> None:
    record = logging.LogRecord("x", logging.INFO, "x", 1, "joined key=%s", (key,), None)
    shown = f"{key} {key!r} {[key]} {key:} {record.getMessage()}"
    shown += hide_secrets(f"{text} waku://{key.text}@a:1 {key.text} {key.secret}")
    assert key.secret not in shown
    assert key.name in f"{key}"


@given(st.one_of(st.text(max_size=130), st.text("abc27:-.", max_size=130)))
def test_any_text_is_a_key_or_an_error_without_it(text: str) -> None:
    for wrong in (text, f"desk-1:{text}", f"desk-1:{KEY.digest}-{text}", KEY.text + text, text + KEY.text):
        try:
            assert parse_key(wrong).text == wrong
        except ConfigError as error:
            shown = "".join(traceback.format_exception(error))
            assert KEY.secret not in shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        "desk-1",
        f"{KEY.digest}-{KEY.secret}",
        f"desk-1:{KEY.digest}",
        f"desk-1:{KEY.secret}-{KEY.digest}",
        f"Desk:{KEY.digest}-{KEY.secret}",
        f"-desk:{KEY.digest}-{KEY.secret}",
        f"{'d' * 33}:{KEY.digest}-{KEY.secret}",
        f"desk-1:{KEY.digest.upper()}-{KEY.secret}",
        f"{KEY.text}\n",
        f" {KEY.text}",
        f"{KEY.text[:-1]}1",
        f"{KEY.text[:-1]}ａ",
    ],
)
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_key(text)
    with pytest.raises(ConfigError):
        read_authorization(f"Bearer x{text}" if text == f" {KEY.text}" else f"Bearer {text.strip()[:-1]}")


@pytest.mark.parametrize("value", ["", "Bearer", f"Digest {KEY.text}", KEY.text, "Basic !!", "Basic /w==", "Basic eA="])
def test_an_authorization_of_another_kind_is_refused(value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_authorization(value)
    assert KEY.secret not in str(caught.value)


def test_a_name_is_one_word_of_small_letters() -> None:
    assert all(map(is_key_name, ["a", "0", "desk-1", "rack_7.east", "d" * 32]))
    assert not any(map(is_key_name, ["", "A", "-a", ".a", "a b", "a:b", "a/b", "ä", "d" * 33, "a\n"]))


def test_hashes_are_those_of_the_design() -> None:
    assert secret_hash(KEY) == hashlib.sha256(KEY.secret.encode()).digest()
    assert digest_of(b"certificate") == base32(hashlib.sha256(b"certificate").digest()[:20])
    assert (len(KEY.digest), len(KEY.secret)) == (32, 52)


def test_plain_addresses_and_words_stay_as_they_are() -> None:
    digest = hashlib.sha256(b"x").hexdigest()
    for text in (
        f"blob {digest} of rack-1",
        "waku://10.0.0.5:5000",
        "a leader at rack-1.example:5000, port 7",
        "[::1]:5000",
    ):
        assert hide_secrets(text) == text


def test_keys_are_hidden_in_a_line_and_nothing_else_is() -> None:
    assert hide_keys(f"a {KEY.text} b") == f"a {KEY.name}:{KEY.digest}-… b"
    assert hide_keys(f"cut: {KEY.text[:-30]}") == f"cut: {KEY.name}:{KEY.digest}-…"
    assert hide_keys(f"secret={KEY.secret}") == "secret=…"
    assert has_key(f"waku://{KEY.text}@grid:5000")
    digest = hashlib.sha256(b"x").hexdigest()
    for text in (f"blob {digest} of user@host", "waku://10.0.0.5:5000", f"{KEY.name}:{KEY.digest}", "a" * 51, "a" * 53):
        assert hide_keys(text) == text
        assert not has_key(text)
