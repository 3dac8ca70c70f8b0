"""Are the bytes of our records what other readers of ZIP expect?"""

from __future__ import annotations

import io
import struct
import zipfile
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakugumi.adapters.zip.records import (
    BY_UNIX,
    CENTRAL,
    END,
    END_64,
    ENTRIES_MAX,
    LOCATOR_64,
    MAX_32,
    STORED,
    UTF8_FLAG,
    dos_time,
    end_of,
    line_of,
)

FIRST, LAST = datetime(1980, 1, 1, tzinfo=UTC), datetime(2107, 12, 31, 23, 59, 58, tzinfo=UTC)
NUMBERS = st.one_of(st.integers(0, 100), st.integers(MAX_32 - 2, MAX_32 + 2), st.integers(0, 2**50))


def moment_of(packed: tuple[int, int]) -> datetime:
    time, date = packed
    day = (date >> 9) + 1980, date >> 5 & 0xF, date & 0x1F
    return datetime(*day, time >> 11, time >> 5 & 0x3F, (time & 0x1F) * 2, tzinfo=UTC)


def read_back(line: bytes) -> zipfile.ZipInfo:
    """The only entry of an archive that has this list, as the standard library reads it."""
    (found,) = zipfile.ZipFile(io.BytesIO(line + end_of(1, len(line), 0))).infolist()
    return found


@given(st.datetimes(FIRST.replace(tzinfo=None), LAST.replace(tzinfo=None)))
def test_a_time_is_kept_but_for_an_odd_second(when: datetime) -> None:
    when = when.replace(tzinfo=UTC, microsecond=0)
    assert moment_of(dos_time(when.timestamp())) == when.replace(second=when.second // 2 * 2)


@pytest.mark.parametrize(("seconds", "kept"), [(-1e15, FIRST), (0.0, FIRST), (1e15, LAST)])
def test_a_time_that_zip_cannot_write_is_the_nearest_one(seconds: float, kept: datetime) -> None:
    assert moment_of(dos_time(seconds)) == kept


@given(NUMBERS, NUMBERS)
def test_sizes_of_any_length_are_read_back(size: int, raw: int) -> None:
    found = read_back(line_of("größe".encode(), 0o100640, UTF8_FLAG, STORED, (0, 33), 7, size, raw, 0))
    assert (found.filename, found.CRC, found.compress_size, found.file_size) == ("größe", 7, size, raw)
    assert found.external_attr >> 16 == 0o100640
    assert found.create_system == BY_UNIX >> 8


@given(NUMBERS, NUMBERS, NUMBERS)
def test_only_numbers_of_more_than_32_bits_are_in_the_extra_field(size: int, raw: int, at: int) -> None:
    line = line_of(b"n", 0o644, 0, STORED, (0, 33), 0, size, raw, at)
    large = [number for number in (raw, size, at) if number >= MAX_32]
    extra = line[CENTRAL.size + 1 :]
    assert extra == (struct.pack(f"<HH{len(large)}Q", 1, 8 * len(large), *large) if large else b"")
    assert CENTRAL.unpack(line[: CENTRAL.size])[-1] == min(at, MAX_32)


@pytest.mark.parametrize(("name", "is_folder"), [(b"a", False), (b"a/", True), (b"a/b", False)])
def test_a_folder_is_marked_for_readers_on_windows(name: bytes, is_folder: bool) -> None:
    found = read_back(line_of(name, 0o755, 0, STORED, (0, 33), 0, 0, 0, 0))
    assert bool(found.external_attr & 0x10) is is_folder is found.is_dir()


@pytest.mark.parametrize(
    ("count", "size", "at", "is_long"),
    [
        (0, 0, 0, False),
        (ENTRIES_MAX - 1, MAX_32 - 1, MAX_32 - 1, False),
        (ENTRIES_MAX, 5, 6, True),
        (1, MAX_32, 6, True),
        (1, 5, MAX_32, True),
    ],
)
def test_an_end_has_the_long_form_only_where_the_short_one_is_too_small(
    count: int, size: int, at: int, is_long: bool
) -> None:
    end = end_of(count, size, at)
    assert len(end) == END.size + (END_64.size + LOCATOR_64.size if is_long else 0)
    if is_long:
        assert END_64.unpack(end[: END_64.size])[-4:] == (count, count, size, at)
        assert LOCATOR_64.unpack(end[END_64.size : -END.size])[2] == at + size
