"""What is the result of a job that ended, could not run, or whose result no leader takes?"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import msgspec
import pytest

from wakugumi.adapters.jobdir.directory import JobDir
from wakugumi.adapters.programs.output_files import Capture
from wakugumi.adapters.programs.processes import RunningProgram
from wakugumi.core.ids import job_id_from_name
from wakugumi.errors import CODES
from wakugumi.roles.runner.make_result import NOT_BEGUN, TAIL_BYTES, conclude, refuse, too_big
from wakugumi.wire.messages.job import FAILED, OK, JobRequest, JobResult, read_result, write_result

JOB = job_id_from_name("job-1")
REQUEST = JobRequest("job-1", "desk", "calcA")


@pytest.mark.parametrize("code", sorted(NOT_BEGUN))
def test_a_job_that_was_not_begun_may_run_elsewhere(code: str) -> None:
    made = refuse(REQUEST, None, code, "no room", "mill", sick=True)
    result = read_result(JOB, made.payload)
    assert (made.ok, made.reason, made.ran_s, made.fault) == (False, code, 0.0, "no room")
    assert (result.job_id, result.client_id, result.exec_name, result.worker) == ("job-1", "desk", "calcA", "mill")
    assert (result.status, result.reason, result.exit_code) == (FAILED, code, None)
    assert result.stderr == "wakugumi: no room\n"
    assert result.not_begun is True
    assert code in CODES


def test_a_job_that_no_machine_can_run_is_not_sent_to_another_one() -> None:
    made = refuse(REQUEST, None, "env-refused", "no such variable", "mill", sick=False)
    assert made.fault == ""
    assert read_result(JOB, made.payload).not_begun is msgspec.UNSET


@pytest.mark.parametrize(
    ("stderr", "before"), [("", ""), ("said", "said\n"), ("said\n", "said\n")], ids=["none", "open", "whole"]
)
def test_a_result_for_a_leader_of_frames_tells_where_the_whole_one_is(stderr: str, before: str) -> None:
    whole = JobResult("job-1", "desk", "calcA", stdout="out", stderr=stderr, exit_code=0, run_s=1.5, worker="mill")
    result = too_big(whole, "/jobs/1", 3600)
    assert result.stderr.startswith(before + "wakugumi: ")
    assert result.stderr.endswith("It is kept for 3600 s in /jobs/1 on worker mill\n")
    assert (result.status, result.reason) == (FAILED, "too-big")
    assert (result.job_id, result.stdout, result.exit_code, result.run_s) == ("job-1", "out", 0, 1.5)


def test_of_long_texts_the_end_is_kept() -> None:
    whole = JobResult("job-1", stdout="a" * TAIL_BYTES + "end", stderr="b" * 2 * TAIL_BYTES, worker="mill")
    result = too_big(whole, "/jobs/1", 1)
    assert (len(result.stdout), len(result.stderr)) == (TAIL_BYTES, TAIL_BYTES)
    assert result.stdout.endswith("aend")
    assert result.stderr.endswith("on worker mill\n")


def ended(tmp_path: Path, out: bytes, err: bytes, **fields: object) -> RunningProgram:
    """A program that printed this and ended after two seconds."""
    files = [os.open(tmp_path / name, os.O_RDWR | os.O_CREAT) for name in ("out", "err")]
    for file, text in zip(files, (out, err), strict=True):
        os.write(file, text)
    capture = Capture(*files)
    capture.measure()
    child = RunningProgram("job-1", capture, 1.0, 100.0, None)
    child.ended_at = 3.0
    for name, value in fields.items():
        setattr(child, name, value)
    return child


class Directory:
    """A job's directory, with one file if `has_file`."""

    unpacked_bytes = None

    def __init__(self, *, has_file: bool = False) -> None:
        self.has_file = has_file

    def pack(self, _room: int, texts: Mapping[str, bytes]) -> bytes | None:
        return b"".join([b"file", *texts.values()]) if self.has_file else None

    def seal(self, result: JobResult, _payload: bytes, archive: bytes | None, _texts: object = None) -> JobResult:
        return msgspec.structs.replace(result, output_archive=archive)


@pytest.mark.parametrize(
    ("fields", "ok", "reason", "stderr"),
    [
        ({}, True, "", "warned"),
        ({"exit_code": 7}, False, "exit", "warned"),
        (
            {"exit_code": 137, "signal": 9},
            False,
            "exit",
            "warned\nwakugumi: the program was ended by signal 9 (SIGKILL)\n",
        ),
        (
            {"exit_code": 200, "signal": 72},
            False,
            "exit",
            "warned\nwakugumi: the program was ended by signal 72 (unknown)\n",
        ),
        ({"reason": "timeout", "why": "it took too long"}, False, "timeout", "warned\nwakugumi: it took too long\n"),
        ({"reason": "output-limit"}, False, "output-limit", "warned"),
    ],
)
def test_a_program_that_ended_has_its_output_and_the_reason(
    tmp_path: Path, fields: dict[str, object], ok: bool, reason: str, stderr: str
) -> None:
    child = ended(tmp_path, b"out\xff", b"warned", **fields)
    made = conclude(REQUEST, child, cast(JobDir, Directory()), "mill", 60.0)
    child.capture.close()
    result = read_result(JOB, made.payload)
    assert (made.ok, made.reason, made.ran_s) == (ok, reason, 2.0)
    assert (result.stdout, result.stderr, result.run_s, result.worker) == ("out\ufffd", stderr, 2.0, "mill")
    assert (result.status, result.exit_code) == (OK if ok else FAILED, child.exit_code)


@pytest.mark.spec("N2")
@pytest.mark.parametrize(
    ("wanted", "out", "has_file", "packed"),
    [
        (True, b"out", True, True),
        (True, b"out", False, False),
        (False, b"out", True, False),
        (True, b"x" * TAIL_BYTES, True, False),
    ],
)
def test_short_output_is_put_into_an_archive_of_files_if_it_is_wanted_there(
    tmp_path: Path, wanted: bool, out: bytes, has_file: bool, packed: bool
) -> None:
    request = msgspec.structs.replace(REQUEST, archive_output=wanted)
    child = ended(tmp_path, out, b"warned")
    made = conclude(request, child, cast(JobDir, Directory(has_file=has_file)), "mill", 60.0, write=write_result)
    child.capture.close()
    result = read_result(JOB, made.payload)
    assert (result.stdout, result.stderr) == (out.decode(), "warned")
    assert result.archive_output is (True if packed else msgspec.UNSET)
    assert result.output_archive == (b"file" + (out + b"warned" if packed else b"") if has_file else None)
    assert result.unpacked_bytes is msgspec.UNSET
