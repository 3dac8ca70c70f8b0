"""What a program sees of the worker that runs it: real processes, and programs that look."""

from __future__ import annotations

import os
import urllib.request
import zipfile
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path

import pytest
from tests.whole.conftest import Running, Waku

from wakugumi import Client, JobLimits

SECRET = {"AWS_SECRET_ACCESS_KEY": "secret-1", "PGPASSWORD": "secret-2", "SITE_CODE": "secret-3"}
HARMLESS = {"KEYBOARD": "us", "OMP_NUM_THREADS": "3"}

# The environments of all processes above it, as far as they can be read, and their memory.
PEEK = """#!/bin/sh
pid=$$
while [ "$pid" -gt 1 ]; do
  pid=$(sed -n 's/^PPid:[^0-9]*//p' "/proc/$pid/status")
  name=$(tr '\\0' ' ' < "/proc/$pid/cmdline")
  case "$name" in *waku*) ;; *) break ;; esac
  count=$((count + 1))
  tr '\\0' '\\n' < "/proc/$pid/environ" && echo "open: environ of $name"
  head -c 1 "/proc/$pid/mem" 2>&1 | grep -q 'Permission denied' || echo "open: memory of $name"
  ls "/proc/$pid/fd" > /dev/null 2>&1 && echo "open: files of $name"
done
echo "looked at $count"
"""


@pytest.fixture
def surroundings(programs: Path) -> dict[str, str]:
    """An environment with secrets in it, and programs that look for them."""
    for name, text in {"show": "#!/bin/sh\nenv\n", "peek": PEEK}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    return {**os.environ, **SECRET, **HARMLESS}


def variables(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def a_worker(
    start: Callable[..., Running], programs: Path, env: Mapping[str, str], *words: str
) -> tuple[Running, dict[str, str]]:
    """`waku worker` with this environment, and that of whoever asks its leader."""
    leader = start("leader", "0").line()
    folders = ["--programs", programs, "--jobs", programs.parent / "jobs", "--cpu-cap", "off"]
    worker = start("worker", *leader.split(":"), "job.assign.>", *folders, *words, env=env)
    worker.until(lambda text: "the leader speaks version" in text)
    return worker, {**os.environ, "WAKU_LEADER": leader}


@pytest.mark.spec("O1")
def test_a_program_gets_the_environment_of_its_worker_without_secrets_and_the_log_names_them(
    start, programs: Path, waku: Waku, surroundings: dict[str, str]
) -> None:
    words = ("--hold-env", "SITE_*", "--hold-env", "nothing", "--pass-env", "PGPASS*")
    worker, env = a_worker(start, programs, surroundings | {"WAKU_HOLD_ENV": "unheard"}, *words)
    seen = variables(waku("run", "show", env=env).stdout)
    assert seen.items() >= {**HARMLESS, "PATH": os.environ["PATH"], "PGPASSWORD": "secret-2"}.items()
    assert not seen.keys() & {"AWS_SECRET_ACCESS_KEY", "SITE_CODE", "WAKU_HOLD_ENV", "WAKU_CACHE"}
    assert {name for name in seen if name.startswith("WAKU")} == {"WAKU_JOB_ID", "WAKU_JOBS_MARK"}
    worker.signal()
    _, _, said = worker.end()
    told = [line for line in said.splitlines() if "programs do not get" in line]
    assert len(told) == 1
    assert "AWS_SECRET_ACCESS_KEY" in told[0]
    assert "SITE_CODE" in told[0]
    assert "PGPASSWORD" not in told[0]
    assert "secret-" not in said


@pytest.mark.spec("O1")
def test_a_clean_environment_is_a_short_list_and_what_is_named(
    start, programs: Path, waku: Waku, surroundings: dict[str, str], home: Path
) -> None:
    (home / "waku.toml").write_text('clean-env = true\npass-env = "KEYBOARD, SITE_*"\n')
    _, env = a_worker(start, programs, surroundings | {"LC_TIME": "C", "TZ": "UTC"})
    seen = variables(waku("run", "show", env=env).stdout)
    shell = {"PWD", "SHLVL", "_", "OLDPWD"}
    allowed = {"PATH", "HOME", "LANG", "TZ", "TMPDIR", "WAKU_JOB_ID", "WAKU_JOBS_MARK", "KEYBOARD", "SITE_CODE"}
    assert {name for name in seen if not name.startswith("LC_")} <= allowed | shell
    assert seen["LC_TIME"] == "C"
    assert seen["SITE_CODE"] == "secret-3"


@pytest.mark.spec("O1", "N2")
def test_a_node_holds_the_same_back(start, programs: Path, surroundings: dict[str, str], tmp_path: Path) -> None:
    words = ["--programs", programs, "--jobs", tmp_path / "node", "--http", "0", "--lines", "off", "--clean-env"]
    node = start("node", "--program", "show", *words, env=surroundings)
    where = node.line().split()[0].removeprefix("http://")
    form = b'--x\r\nContent-Disposition: form-data; name="file"; filename="in"\r\n\r\n\r\n--x--\r\n'
    asked = urllib.request.Request(
        f"http://{where}/run/look", form, {"Content-Type": "multipart/form-data; boundary=x", "Sec-Waku": "1"}
    )
    with urllib.request.urlopen(asked) as answer, zipfile.ZipFile(BytesIO(answer.read())) as archive:
        seen = variables(archive.read("stdout.txt").decode())
    assert not seen.keys() & (SECRET.keys() | HARMLESS.keys())
    assert seen["PATH"] == os.environ["PATH"]


@pytest.mark.spec("O1")
def test_a_grid_of_the_users_own_passes_all_of_it_on(
    waku: Waku, programs: Path, surroundings: dict[str, str], home: Path
) -> None:
    (home / "in").write_text("")
    done = waku("map", str(programs / "show"), "in", "--out", "out", env=surroundings)
    assert done.returncode == 0, done.stderr
    seen = variables((home / "out" / "in" / "stdout.txt").read_text())
    assert seen.items() >= (SECRET | HARMLESS).items()


@pytest.mark.parametrize("words", [["--hold-env", "A B"], ["--pass-env", "[A]"]])
def test_what_is_no_pattern_is_said_at_the_start(waku: Waku, programs: Path, words: list[str]) -> None:
    done = waku("worker", "127.0.0.1", "1", "--programs", programs, *words)
    assert done.returncode == 2
    assert words[0] in done.stderr
    assert "hint:" in done.stderr


@pytest.mark.spec("O1")
@pytest.mark.skipif(os.geteuid() == 0, reason="root may do everything")
@pytest.mark.user_dependent
@pytest.mark.parametrize("limits", [None, JobLimits(file_bytes=10_000_000)], ids=["plain", "through the stub"])
def test_a_program_cannot_read_what_the_processes_above_it_were_started_with(
    start, programs: Path, surroundings: dict[str, str], limits: JobLimits | None
) -> None:
    _, env = a_worker(start, programs, surroundings)
    with Client(env["WAKU_LEADER"]) as client:
        seen = client.run("peek", limits=limits).stdout
    assert "looked at 2" in seen, "the worker and its guardian"
    assert "open:" not in seen
    assert "secret-" not in seen
