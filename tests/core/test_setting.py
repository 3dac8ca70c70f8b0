"""What a field says of its setting: names, help, bounds, and how a text becomes its value."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
import pytest

from wakugumi.core.setting import Setting, options_of, read_bytes, read_duration, words
from wakugumi.errors import ConfigError


class Base(msgspec.Struct, frozen=True, kw_only=True):
    slots: Annotated[int, Setting("Jobs at once.", also=("OLD_SLOTS",), least=1, most=8)] = 4
    inner: int = 1


class Role(Base, frozen=True, kw_only=True):
    kept_s: Annotated[float, Setting("Hours to keep.", key="keep-hours", least=0, most=10, per=3600)] = 7200.0
    size: Annotated[int, Setting("Size limit.", shown="2GB", read=read_bytes)] = 2 * 10**9
    share: Annotated[float | None, Setting("Share.", least=0.1, most=0.9, off=True)] = 0.5
    how: Annotated[Literal["one", "two"], Setting("Choice.", key="role-how", flag="how", short="-H")] = "one"
    names: Annotated[tuple[str, ...], Setting("Name.", key="name", joined=" ")] = ()
    open: Annotated[bool, Setting("Open it.", only_flag=True)] = False


OPTIONS = options_of(Role)


def test_only_fields_with_a_setting_are_options() -> None:
    assert list(OPTIONS) == ["slots", "kept_s", "size", "share", "how", "names", "open"]


def test_flag_key_and_variables_follow_from_the_name() -> None:
    found = {name: (option.flag, option.key, option.env) for name, option in OPTIONS.items()}
    assert found["slots"] == ("--slots", "slots", ("WAKU_SLOTS", "OLD_SLOTS"))
    assert found["kept_s"] == ("--keep-hours", "keep-hours", ("WAKU_KEEP_HOURS",))
    assert found["how"] == ("--how", "role-how", ("WAKU_ROLE_HOW",))
    assert found["open"] == ("--open", "open", ())


def test_help_ends_with_the_default_and_the_variables() -> None:
    assert {name: option.help for name, option in OPTIONS.items()} == {
        "slots": "Jobs at once. [default: 4] [env: WAKU_SLOTS, OLD_SLOTS]",
        "kept_s": "Hours to keep. [default: 2] [env: WAKU_KEEP_HOURS]",
        "size": "Size limit. [default: 2GB] [env: WAKU_SIZE]",
        "share": "Share. [default: 0.5] [env: WAKU_SHARE]",
        "how": "Choice. [default: one] [env: WAKU_ROLE_HOW]",
        "names": "Name. May be repeated. [env: WAKU_NAME, with blanks between]",
        "open": "Open it.",
    }


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("slots", "8", 8),
        ("kept_s", "1.5", 5400.0),
        ("size", "3MB", 3_000_000),
        ("size", "", 2 * 10**9),
        ("share", "off", None),
        ("share", "0.9", 0.9),
        ("how", "two", "two"),
        ("names", " a  b ", ("a", "b")),
        ("open", "Yes", True),
    ],
)
def test_a_text_becomes_the_value_of_the_field(field: str, text: str, value: object) -> None:
    assert OPTIONS[field].of_text(text, "X") == value
    assert OPTIONS[field].of_flag(text) == value


@pytest.mark.parametrize(
    ("field", "text", "complaint"),
    [
        ("slots", "x", "X is 'x', which is not a whole number"),
        ("slots", "9", "X is 9, and must be 1 to 8"),
        ("kept_s", "11", "X is 11, and must be 0 to 10"),
        ("size", "x", "X is 'x', which is no size"),
        ("share", "x", "X is 'x', which is neither a number nor off"),
        ("share", "1", "X is 1, and must be 0.1 to 0.9, or off"),
        ("how", "three", "X is 'three', and must be one of one, two"),
        ("open", "x", "X is 'x', which is not true or false"),
    ],
)
def test_a_text_that_cannot_be_is_told_with_its_place(field: str, text: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as told:
        OPTIONS[field].of_text(text, "X")
    assert str(told.value) == complaint


def test_toml_has_types_of_its_own() -> None:
    assert OPTIONS["kept_s"].of_toml(2, "X") == 7200.0
    assert OPTIONS["share"].of_toml("off", "X") is None
    assert OPTIONS["open"].of_toml(True, "X") is True
    with pytest.raises(ConfigError, match="X is '4', which is not a whole number"):
        OPTIONS["slots"].of_toml("4", "X")


def test_a_flag_that_is_repeated_is_one_value() -> None:
    assert OPTIONS["names"].of_flag(("a", "b c")) == ("a", "b", "c")
    assert words(" a, ,b ", ",") == ("a", "b")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("1500", 1500),
        ("20GB", 20_000_000_000),
        ("20 gb", 20_000_000_000),
        ("512MiB", 512 << 20),
        ("512Mi", 512 << 20),
        ("1.5T", 1_500_000_000_000),
        ("2k", 2000),
        ("3B", 3),
    ],
)
def test_a_size_is_read_as_people_write_it(text: str, number: int) -> None:
    assert read_bytes(text, "--blob-bytes") == number


@pytest.mark.parametrize("text", ["", "GB", "-1", "1e9", "20 gigabytes", "1.2.3", "nan"])
def test_what_is_no_size_is_told_with_its_place(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--blob-bytes is .* which is no size"):
        read_bytes(text, "--blob-bytes")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("45s", 45), ("90min", 5400), ("90 m", 5400), ("12h", 43_200), ("1.5d", 129_600), ("2w", 1_209_600)],
)
def test_a_duration_is_read_as_people_write_it(text: str, seconds: float) -> None:
    assert read_duration(text, "--expires") == seconds


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1e9s", "30 days", "nan"])
def test_what_is_no_duration_is_told_with_its_place(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--expires is .* which is no duration"):
        read_duration(text, "--expires")
