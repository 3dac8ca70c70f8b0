"""TOML: any text is read as it was written."""

from __future__ import annotations

import datetime as dt
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakugumi.adapters.access.toml_text import read_tables, write_tables
from wakugumi.errors import ConfigError

PATH = Path("file.toml")
texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.text("\"\\\n\r\t\x00\x7f\x85 a'u", max_size=12),
)
values = st.one_of(
    texts,
    st.lists(texts),
    st.integers(-(2**63), 2**63 - 1),
    st.datetimes(timezones=st.just(dt.UTC), min_value=dt.datetime(1970, 1, 1)),  # noqa: DTZ001
)
tables = st.lists(st.dictionaries(st.sampled_from("abc"), values), max_size=4)


@given(tables)
def test_tables_are_read_as_they_were_written(written: list[dict[str, object]]) -> None:
    text = write_tables("key", written)  # type: ignore[arg-type]
    assert tomllib.loads(text).get("key", []) == written
    assert read_tables("key", text.encode(), PATH) == written


def test_lines_of_a_certificate_stay_lines() -> None:
    assert write_tables("grid", [{"ca": "a\nb\n", "n": 1}]) == '[[grid]]\nca = """\na\nb\n"""\nn = 1\n'


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        b"[[key]",
        b"key = 1",
        b"key = [1]",
        b"[key]",
        b"[[key]]\n[[other]]",
        b"a = " + b"[" * 5000,
        b'[[key]]\nname = "a"\nname = "b"',
    ],
)
def test_another_file_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(ConfigError, match=r"file\.toml cannot be read") as caught:
        read_tables("key", data, PATH)
    assert caught.value.hint
