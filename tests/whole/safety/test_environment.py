"""What a program sees of the worker that runs it: real processes, and programs that look."""

from __future__ import annotations

import os
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path

import pytest
from tests.kit.form import FORM_HEADERS, form
from tests.whole.conftest import WITHIN_S, Running, Waku

from wakugumi import Client, JobLimits, Refused

SECRET = {"AWS_SECRET_ACCESS_KEY": "secret-1", "PGPASSWORD": "secret-2", "SITE_CODE": "secret-3"}
HARMLESS = {"KEYBOARD": "us", "OMP_NUM_THREADS": "3"}

# The environments of all processes above it, as far as they can be read, and their memory.
PEEK = """#!/bin/sh
pid=$$
while [ "$pid" -gt 1 ]; do
  pid=$(sed -n 's/^PPid:[^0-9]*//p' "/proc/$pid/status")
  name=$(tr '\\0' ' ' < "/proc/$pid/cmdline")
  case "$name" in */bin/waku*) ;; *) break ;; esac
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
    told = [line for line in said.splitlines() if "variables withheld from programs" in line]
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
    asked = urllib.request.Request(f"http://{where}/run/look", form(b""), FORM_HEADERS | {"Sec-Waku": "1"})
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


@pytest.mark.spec("U8", "L6")
def test_a_job_sets_variables_of_its_own_which_go_before_those_of_the_worker(
    start, programs: Path, waku: Waku, surroundings: dict[str, str], home: Path
) -> None:
    _, env = a_worker(start, programs, surroundings)
    seen = variables(waku("run", "show", "--env", "SEED=7", "--env", "KEYBOARD=jp", "--env=NOTE=a=b", env=env).stdout)
    assert (seen["SEED"], seen["KEYBOARD"], seen["NOTE"], seen["OMP_NUM_THREADS"]) == ("7", "jp", "a=b", "3")
    with Client(env["WAKU_LEADER"]) as client:
        limited = variables(client.run("show", env={"SEED": "ü"}, limits=JobLimits(processes=50)).stdout)
        assert limited["SEED"] == "ü"
        first = client.run("show", job_id="night-7", env={"SEED": "1"})
        assert client.run("show", job_id="night-7", env={"SEED": "1"}).stdout == first.stdout
        with pytest.raises(Refused) as caught:
            client.run("show", job_id="night-7", env={"SEED": "2"})
        assert caught.value.code == "conflict"
        items = [{"env": {"SEED": str(seed)}} for seed in range(3)]
        results = [variables(result.stdout) for result in client.map("show", items, env={"ALL": "x", "SEED": "none"})]
        assert sorted((it["SEED"], it["ALL"]) for it in results) == [("0", "x"), ("1", "x"), ("2", "x")]
        everywhere, _ = client.broadcast("show", env={"SEED": "9"})
        assert [variables(result.stdout)["SEED"] for result in everywhere] == ["9"]
        refused = client.run("show", env={"LD_PRELOAD": "./evil.so"})
        assert refused.reason == "env-refused"
        assert "LD_PRELOAD" in refused.stderr
    for words in (["--env", "A"], ["--env", "A=1", "--env", "A=2"], ["--env", "WAKU_X=1"], ["--env", "1=2"]):
        done = waku("run", "show", *words, env=env)
        assert (done.returncode, "hint:" in done.stderr) == (2, True)


@pytest.mark.spec("U8")
def test_a_worker_says_which_variables_jobs_may_set(start, programs: Path, surroundings: dict[str, str]) -> None:
    _, env = a_worker(start, programs, surroundings, "--job-env", "SEED", "--job-env", "PYTHON*")
    with Client(env["WAKU_LEADER"]) as client:
        assert client.run("show", env={"SEED": "7", "PYTHONPATH": "x"}).ok
        assert client.run("show", env={"TZ": "UTC"}).reason == "env-refused"


@pytest.mark.spec("U8")
def test_a_map_with_other_variables_is_another_map(
    waku: Waku, programs: Path, surroundings: dict[str, str], home: Path
) -> None:
    (home / "in").write_text("")
    words = ("map", str(programs / "show"), "in", "--out", "out")
    for more, skipped in (
        ([], 0),
        ([], 1),
        (["--env", "LD_X=1"], 0),
        (["--env", "LD_X=1"], 1),
        (["--env", "LD_X=2"], 0),
    ):
        done = waku(*words, *more, env=surroundings)
        assert done.returncode == 0, done.stderr
        assert ("(1 before)" in done.stderr) == bool(skipped), done.stderr
    assert variables((home / "out" / "in" / "stdout.txt").read_text())["LD_X"] == "2", "the user's own grid"


@pytest.mark.spec("U8", "L6", "G2")
def test_by_http_variables_reach_programs_of_all_tiers_and_another_one_is_a_conflict(
    start, programs: Path, surroundings: dict[str, str], home: Path
) -> None:
    words = ["--programs", programs, "--jobs", home / "node", "--http", "0", "--lines", "off"]
    node = start("node", *words, env=surroundings).line().split()[0].removeprefix("http://")
    leader = start("leader", "0", "--memory", "--node", f"http://{node}").line()
    gateway = start("gateway", "0", "--group", f"one=http://{leader}").line().removeprefix("http://")
    for where in (f"{node}/run", f"{leader}/dispatch", f"{gateway}/submit"):
        job = f"http://{where}/{where.rpartition('/')[2]}-7?program=show&arg=x"
        status, text = posted(f"{job}&env=SEED%3D7&env=NOTE=a%3Db")
        assert (status, variables(text).get("SEED"), variables(text).get("NOTE")) == (200, "7", "a=b"), text
        assert posted(f"{job}&env=NOTE=a%3Db&env=SEED=7")[0] == 200, "the same, in another order"
        if not where.endswith("/run"):  # A node's own answers by the id alone.
            assert posted(f"{job}&env=SEED=8")[0] == 409
            assert posted(job)[0] == 409
        assert posted(f"http://{where}/bad?program=show&env=SEED")[0] == 400


def posted(url: str) -> tuple[int, str]:
    """A job by HTTP: the status, and what its program printed. It comes again as long as it is told to."""
    headers = FORM_HEADERS | {"Sec-Waku": "1"}
    until = time.monotonic() + WITHIN_S
    while True:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, form(b""), headers)) as answer:
                archive = zipfile.ZipFile(BytesIO(answer.read()))
                return answer.status, archive.read("stdout.txt").decode()
        except urllib.error.HTTPError as error:
            if error.code not in {503, 423} or time.monotonic() > until:
                return error.code, error.read().decode()
            time.sleep(0.1)


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
