"""What is in an input, and what is its key?"""

from __future__ import annotations

from pathlib import Path

import pytest

from wakugumi.app.work.map.inputs import Input
from wakugumi.app.work.map.keys import Keys
from wakugumi.app.work.map.read_input import InputReader, common_files
from wakugumi.errors import Refused
from wakugumi.limits.files import INLINE_FILE_BYTES_MAX
from wakugumi.roles.client.files.inputs import Cached, InputBlob, InputContents


@pytest.fixture
def reader() -> InputReader:
    return InputReader(Keys(b"program", ["-v"]), InputContents())


def test_a_small_input_is_read_whole_and_a_large_one_is_known_by_its_hash(tmp_path: Path, reader: InputReader) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(b"abc")
    large.write_bytes(b"x" * (INLINE_FILE_BYTES_MAX + 1))
    key, content = reader.read(Input(str(small), "small"))
    assert (key, content) == (Keys(b"program", ["-v"]).key("small", b"abc"), b"abc")
    assert isinstance(reader.read(Input(str(large), "large"))[1], InputBlob)


def test_an_input_that_is_gone_is_refused(tmp_path: Path, reader: InputReader) -> None:
    with pytest.raises(Refused):
        reader.read(Input(str(tmp_path / "gone"), "gone"))


def test_common_files_are_named_with_their_content(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    first = list(common_files({"b": Cached("set-1"), "a": path}, InputContents()))
    assert [line.split("\0")[1:3] for line in first] == [["file", "a"], ["cached", "b"]]
    path.write_bytes(b"abcd")
    assert next(common_files({"a": path}, InputContents())) != first[0]
