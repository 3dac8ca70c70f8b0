"""What a user gets back: the files above all, which came from a stranger."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from tests.kit.packed_results import archive, tree

from wakugumi.errors import JobFailed, PeerError, Refused
from wakugumi.roles.client.result import Result, refused_result
from wakugumi.wire.messages.job import JobResult

FILE = stat.S_IFREG | 0o644


LINK = stat.S_IFLNK | 0o777


def result(packed: bytes | None = None, **fields: object) -> Result:
    return Result(JobResult("id", output_archive=packed, **fields), "job-1")  # type: ignore[arg-type]


def test_files_are_read_from_the_archive_by_name() -> None:
    files = result(archive(("a.txt", b"one", FILE), ("sub/", b"", 0), ("sub/b", b"two", FILE))).files
    assert dict(files) == {"a.txt": b"one", "sub/b": b"two"}
    assert len(files) == 2
    with pytest.raises(KeyError):
        files["c"]


def test_a_program_that_made_no_files_has_none(tmp_path: Path) -> None:
    assert dict(result().files) == {}
    assert result().extract(tmp_path / "out") == []
    assert (tmp_path / "out").is_dir()


def test_extract_writes_files_folders_links_and_run_bits(tmp_path: Path) -> None:
    packed = archive(
        ("empty/", b"", 0),
        ("sub/run.sh", b"#!", stat.S_IFREG | 0o755),
        ("plain", b"p", 0),
        ("odd: name?.txt", b"o", FILE),
        ("sub/link", b"../plain", LINK),
    )
    written = result(packed).extract(tmp_path)
    assert sorted(path.relative_to(tmp_path).as_posix() for path in written) == [
        "odd: name?.txt",
        "plain",
        "sub/link",
        "sub/run.sh",
    ]
    assert tree(tmp_path) == {"sub/run.sh": b"#!", "plain": b"p", "odd: name?.txt": b"o", "sub/link": b"p"}
    assert (tmp_path / "empty").is_dir()
    assert os.access(tmp_path / "sub/run.sh", os.X_OK)
    assert not os.access(tmp_path / "plain", os.X_OK) or os.geteuid() == 0
    assert stat.S_IMODE((tmp_path / "plain").stat().st_mode) & 0o111 == 0
    assert (tmp_path / "sub/link").readlink() == Path("../plain")


def test_extract_replaces_what_is_there_and_leaves_nothing_half_done(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old, and longer than the new one")
    held = (tmp_path / "a").open("rb")
    with held:
        result(archive(("a", b"new", FILE))).extract(tmp_path)
        assert held.read() == b"old, and longer than the new one", "whoever has the old file open keeps it"
    assert tree(tmp_path) == {"a": b"new"}


@pytest.mark.spec("W5")
@pytest.mark.parametrize(
    "entry",
    [
        ("../evil", b"x", FILE),
        ("/evil", b"x", FILE),
        ("sub/../../evil", b"x", FILE),
        ("sub//evil", b"x", FILE),
        ("./evil", b"x", FILE),
        ("..", b"x", FILE),
        ("../evil/", b"", 0),
        ("link", b"/etc/passwd", LINK),
        ("link", b"../outside", LINK),
        ("sub/link", b"../../outside", LINK),
        ("link", b"", LINK),
        ("link", b"a/../../outside", LINK),
        ("good/below", b"x", FILE),
        ("good/", b"", 0),
        ("good/below/it", b"good", LINK),
        ("pipe", b"", stat.S_IFIFO | 0o644),
        ("device", b"", stat.S_IFCHR | 0o644),
    ],
)
def test_what_leads_elsewhere_is_refused_before_anything_is_written(
    tmp_path: Path, entry: tuple[str, bytes, int]
) -> None:
    folder = tmp_path / "out"
    with pytest.raises(Refused) as caught:
        result(archive(("good", b"g", FILE), entry)).extract(folder)
    assert caught.value.code == "bad-name"
    assert tree(tmp_path) == {}
    assert list(folder.iterdir()) == []


def test_nothing_is_written_through_a_link_of_the_archive(tmp_path: Path) -> None:
    packed = archive(("a", b"sub", LINK), ("a/file", b"x", FILE))
    with pytest.raises((Refused, OSError)):
        result(packed).extract(tmp_path / "out")
    assert not (tmp_path / "out" / "sub").exists()


@pytest.mark.spec("W5")
def test_of_links_that_lead_outside_only_together_the_one_that_goes_up_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"not for them")
    packed = archive(("p/q/r", b"../..", LINK), ("evil", b"p/q/r/../secret", LINK))
    got = result(packed)
    assert got.extract(tmp_path / "out") == [tmp_path / "out/p/q/r"]
    assert (got.left_out, os.listdir(tmp_path / "out")) == (1, ["p"])


@pytest.mark.spec("W5")
@pytest.mark.parametrize(
    ("name", "target"), [("link", b"a/../good"), ("sub/link", b".././.../../good"), ("a/l", b"b/../../good")]
)
def test_a_link_that_goes_up_from_where_it_went_down_costs_no_other_file(
    tmp_path: Path, name: str, target: bytes
) -> None:
    got = result(archive(("good", b"g", FILE), (name, target, LINK)))
    assert got.extract(tmp_path) == [tmp_path / "good"]
    assert (got.left_out, tree(tmp_path)) == (1, {"good": b"g"})


def test_nothing_is_written_through_a_link_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/victim").write_bytes(b"precious")
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "sub").symlink_to(tmp_path / "outside")
    (folder / "file").symlink_to(tmp_path / "outside/victim")
    with pytest.raises(Refused):
        result(archive(("sub/victim", b"x", FILE))).extract(folder)
    result(archive(("file", b"mine", FILE))).extract(folder)
    assert (tmp_path / "outside/victim").read_bytes() == b"precious"
    assert (folder / "file").read_bytes() == b"mine"
    assert not (folder / "file").is_symlink()


def test_a_broken_archive_is_the_peers_fault(tmp_path: Path) -> None:
    good = archive(("a", b"content " * 100, FILE))
    broken = good.replace(b"content content", b"CONTENT content", 1)
    for packed in (b"no zip at all", good[:-30], broken):
        with pytest.raises(PeerError):
            dict(result(packed).files)
        with pytest.raises(PeerError):
            result(packed).extract(tmp_path)
        assert list(tmp_path.iterdir()) == [], "no scratch file is left"


def test_check_raises_with_the_reason_and_the_end_of_stderr() -> None:
    stderr = "".join(f"line {number}\n" for number in range(100))
    with pytest.raises(JobFailed) as caught:
        result(status="FAILED", exit_code=3, reason="exit", exec_name="calcA", stderr=stderr).check()
    text = str(caught.value)
    assert text.startswith("job job-1 of calcA failed: exit code 3\n")
    assert text.endswith("line 98\nline 99")
    assert "line 9\n" not in text
    with pytest.raises(JobFailed, match=r"failed: timeout$"):
        result(status="FAILED", exit_code=None, reason="timeout").check()
    with pytest.raises(JobFailed, match="no reason given"):
        result(status="FAILED").check()


def test_a_refusal_can_be_told_as_a_result() -> None:
    refused = refused_result(Refused("too-big", "it takes 5 MB"), "job-1", "calcA", "item")
    assert (refused.ok, refused.reason, refused.item, refused.job_id) == (False, "too-big", "item", "job-1")
    assert refused.stderr == "it takes 5 MB"
    assert repr(refused) == "<Result job-1 FAILED reason='too-big' exit_code=None>"
