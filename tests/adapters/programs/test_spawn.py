"""How is a program started? Each way gives it the same session, directory, output and variables."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from wakugumi.adapters.programs.spawn import Spawner, above_stdio

TELL = b'echo "$PWD $A $B $WAKU_JOB_ID $(ulimit -Sm)"; [ $$ = $(cut -d" " -f6 /proc/$$/stat) ] && echo leads'


@pytest.fixture(params=[True, False], ids=["posix_spawn", "Popen"])
def spawner(request: pytest.FixtureRequest) -> Iterator[Spawner]:
    spawner = Spawner({b"PATH": os.environb[b"PATH"], b"A": b"1"}, resident_set=4096 * 1024, by_libc=request.param)
    yield spawner
    spawner.close()


def said(spawner: Spawner, cwd: Path, env: dict[bytes, bytes] | None = None, program: bytes = TELL) -> str:
    with open(cwd / "out", "wb") as out:
        pid = spawner.start([b"/bin/sh", b"-c", program], os.fsencode(cwd), out.fileno(), out.fileno(), "job-7", env)
    assert os.waitpid(pid, 0)[1] == 0
    return (cwd / "out").read_text()


@pytest.mark.user_dependent
def test_a_program_leads_a_session_in_its_directory_with_the_jobs_variables(spawner: Spawner, tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_RSS)
    assert said(spawner, tmp_path) == f"{tmp_path} 1  job-7 4096\nleads\n"
    assert said(spawner, tmp_path, {b"B": b"2", b"A": b"3"}) == f"{tmp_path} 3 2 job-7 4096\nleads\n"
    assert said(spawner, tmp_path) == f"{tmp_path} 1  job-7 4096\nleads\n", "the next job has nothing of that one"
    assert resource.getrlimit(resource.RLIMIT_RSS) == before


def test_what_cannot_be_started_raises_as_exec_does(spawner: Spawner, tmp_path: Path) -> None:
    with open(tmp_path / "out", "wb") as out:
        for command, error in (([b"/no/such"], OSError), ([b"/bin/sh", b"a\0b"], ValueError)):
            with pytest.raises(error):
                spawner.start(command, os.fsencode(tmp_path), out.fileno(), out.fileno(), "job-7")


def test_a_stub_gets_no_variable_of_the_job_and_the_files_that_it_needs(
    spawner: Spawner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "relative:/absolute:")
    variables = spawner.variables({b"B": b"2"}, "job-7")
    program = b"env; tr '\\0' '\\n' < /proc/self/fd/%d" % variables
    with open(tmp_path / "out", "wb") as out:
        words = [b"/bin/sh", b"-c", program]
        pid = spawner.start_stub(words, b"/", out.fileno(), out.fileno(), "job-7", (variables,))
    os.close(variables)
    assert os.waitpid(pid, 0)[1] == 0
    stub, of_job = (tmp_path / "out").read_text().split("PATH=" + os.environ["PATH"])
    assert "LD_LIBRARY_PATH=/absolute\n" in stub
    assert "B=2" not in stub
    assert of_job == "\nA=1\nB=2\nWAKU_JOB_ID=job-7"


@pytest.mark.parametrize("env", [{b"A=": b""}, {b"A": b"\0"}, {b"A\0": b""}])
def test_variables_that_no_program_can_get_are_an_error(spawner: Spawner, env: dict[bytes, bytes]) -> None:
    with pytest.raises(ValueError, match="a variable has a NUL"):
        spawner.variables(env, "job-7")


def test_a_file_above_stdio_stays_as_it_is() -> None:
    file = os.open(os.devnull, os.O_RDONLY)
    try:
        assert above_stdio(file) == file
    finally:
        os.close(file)
