"""Where do stdout and stderr of a program go?"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from wakugumi.adapters.programs.output_files import Captures


def test_what_was_written_is_read_as_text_with_replacement_characters(tmp_path: Path) -> None:
    captures = Captures(str(tmp_path))
    capture = captures.take()
    os.write(capture.out, b"caf\xe9 \xff\x00 \xe2\x82\xac")
    os.write(capture.err, b"plain")
    assert capture.measure() == 11
    assert capture.texts(1_000) == ("caf\ufffd \ufffd\0 \u20ac", "plain")
    assert capture.texts(3) == ("\u20ac", "ain")
    capture.close()


def test_the_files_have_no_name(tmp_path: Path) -> None:
    capture = Captures(str(tmp_path)).take()
    assert os.listdir(tmp_path) == []
    assert os.fstat(capture.out).st_nlink == 0
    capture.close()


def test_an_abandoned_capture_serves_again_as_if_it_were_new(tmp_path: Path) -> None:
    captures = Captures(str(tmp_path))
    first = captures.take()
    os.write(first.out, b"secret" * 1_000)
    os.lseek(first.err, 500, os.SEEK_SET)
    for file in (first.out, first.err):
        fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND | os.O_NONBLOCK)
    first.measure()
    captures.give_back(first, abandoned=True)

    second = captures.take()
    assert second is first
    assert second.measure() == 0
    for file in (second.out, second.err):
        assert not fcntl.fcntl(file, fcntl.F_GETFL) & (os.O_APPEND | os.O_NONBLOCK)
        os.write(file, b"new")
    second.measure()
    assert second.texts(100) == ("new", "new")
    second.close()


def test_room_set_aside_without_a_byte_written_is_given_back_too(tmp_path: Path) -> None:
    captures = Captures(str(tmp_path))
    capture = captures.take()
    os.posix_fallocate(capture.out, 0, 1_000_000)
    os.ftruncate(capture.out, 0)
    os.posix_fallocate(capture.out, 0, 1)
    capture.measure()
    captures.give_back(capture, abandoned=True)
    assert os.fstat(captures.take().out).st_blocks == 0
    capture.close()


def test_a_capture_that_someone_may_still_write_to_is_never_used_again(tmp_path: Path) -> None:
    captures = Captures(str(tmp_path))
    first = captures.take()
    stray = os.dup(first.out)
    captures.give_back(first, abandoned=False)
    second = captures.take()
    os.write(stray, b"from the job before")
    assert second.measure() == 0
    second.close()
    os.close(stray)


def test_closing_closes_what_waits(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    captures = Captures(str(tmp_path))
    both = [captures.take(), captures.take()]
    for capture in both:
        captures.give_back(capture, abandoned=True)
    captures.close()
    assert set(os.listdir("/proc/self/fd")) == before
