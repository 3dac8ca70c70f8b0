"""When a result is still good."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from wakugumi.app.work.map.keys import Keys, job_id, map_job_id, program_digest


def test_everything_that_matters_changes_the_key() -> None:
    keys = {
        Keys(program, args).key(name, content)
        for program in (b"1", b"2")
        for args in ((), ("a",), ("a", "b"), ("ab",), ("", "ab"))
        for name in ("x", "y")
        for content in (b"", b"y", b"yx")
    }
    assert len(keys) == 2 * 5 * 2 * 3


def test_the_same_gives_the_same_key() -> None:
    assert Keys(b"p", ["a"]).key("x", b"c") == Keys(b"p", ("a",)).key("x", b"c")


def test_an_id_is_a_uuid_that_says_it_is_a_hash() -> None:
    one = UUID(job_id("key", "me", 900.0))
    assert one.version == 8
    assert one.variant == "specified in RFC 4122"
    assert str(one) == job_id("key", "me", 900.0)
    assert str(one) != job_id("key", "me", 60.0)
    assert str(one) != job_id("key", "you", 900.0)
    assert str(one) != job_id("key", "me", 900.0, 1)


def test_a_map_without_options_has_the_ids_of_earlier_versions() -> None:
    """Which had its timeout, subject and retries in them."""
    assert map_job_id("key", "me", "calc") == job_id("key", "me", "calc", 900.0, "", "", 0)
    assert map_job_id("key", "me", "calc", "salt") == job_id("key", "me", "calc", 900.0, "", "salt", 0)


def test_a_program_is_what_its_file_holds(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"same")
    (tmp_path / "b").write_bytes(b"same")
    (tmp_path / "c").write_bytes(b"other")
    assert program_digest(str(tmp_path / "a")) == program_digest(str(tmp_path / "b"))
    assert program_digest(str(tmp_path / "a")) != program_digest(str(tmp_path / "c"))
