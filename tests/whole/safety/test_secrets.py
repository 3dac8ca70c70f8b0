"""Secrets of the grid's own processes, and programs that look for them everywhere. (SPEC O1)"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.whole.conftest import WAKU, Running

from wakugumi import Client, JobLimits
from wakugumi.adapters.programs.process_tree import with_all_below

pytestmark = pytest.mark.spec("O1")

UID = 54_321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
HALVES = ("pass-for-the-", "grid-alone")
"""A secret in two parts, so that a program can look for it without having it."""

LOOK = """#!/bin/sh
secret="$1$2"; shift 2
for pid in $(cat pids); do
    for name in environ maps mem auxv stack syscall io; do
        head -c 64 /proc/$pid/$name && echo "read $name of $pid"
    done
    ls /proc/$pid/fd /proc/$pid/map_files /proc/$pid/task/$pid/fd && echo "saw open files of $pid"
    ls /proc/$pid/cwd/ /proc/$pid/root/ && echo "went through $pid"
    grep -q "$secret" /proc/$pid/cmdline && echo "secret in the arguments of $pid"
    kill -0 $pid && echo "may signal $pid"
done 2>/dev/null
env | grep "$secret" && echo "secret in the environment"
for place in $(cat places); do grep -rsl "$secret" $place; done
ls .. && echo "listed the jobs"
cat ../.worker ../.lock && echo "read the worker's files"
for file in ../.*; do echo "saw $file"; done 2>/dev/null | grep -v '/\\.\\.*$\\|\\*'
exit 0
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user gets into."""
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="waku-secrets-"))
    folder.chmod(0o755)
    (folder / "bin").mkdir()
    (folder / "bin/look").write_text(LOOK)
    (folder / "bin/look").chmod(0o755)
    (folder / "bin/stay").write_text('#!/bin/sh\necho "$$" > "$1"; exec sleep 1000\n')
    (folder / "bin/stay").chmod(0o755)
    for name in ("ls", "env"):
        shutil.copy(f"/bin/{name}", folder / "bin" / name)
    yield folder
    shutil.rmtree(folder)


def a_worker(start: Callable[..., Running], place: Path, *words: str) -> tuple[Running, Running, str]:
    leader = start("leader", "0", "--state", place / "state")
    address = leader.line()
    folders = ["--programs", place / "bin", "--jobs", place / "jobs", "--cache", place / "cache"]
    worker = start("worker", *address.split(":"), *folders, "--cpu-cap", "off", "--slots", "4", *words)
    worker.until(lambda text: "the leader speaks version" in text)
    return leader, worker, address


@as_root
def test_a_program_of_another_user_finds_no_secret(
    place: Path, start: Callable[..., Running], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "".join(HALVES)
    root_home = place / "home"
    access = root_home / ".config/wakugumi/access.toml"
    access.parent.mkdir(parents=True)
    access.write_text(f'key = "{secret}"\n')
    access.chmod(0o600)
    (place / "tmp").mkdir(mode=0o700)
    for name, value in {
        "HOME": root_home,
        "TMPDIR": place / "tmp",
        "WAKU_KEY": secret,
        "SITE_PASSWORD": secret,
    }.items():
        monkeypatch.setenv(name, str(value))
    leader, worker, address = a_worker(start, place, "--run-as", str(UID))
    pids = with_all_below([leader.process.pid, worker.process.pid])
    assert len(pids) >= 3, "a leader, a guardian and its worker"
    places = [place, home.parent]
    with Client(address) as client:
        earlier = client.run("env", files={"large": secret.encode() * 10_000})
        assert earlier.ok, earlier.stderr
        assert "PATH=" in earlier.stdout
        assert secret not in earlier.stdout
        files = {"pids": "\n".join(map(str, pids)).encode(), "places": "\n".join(map(str, places)).encode()}
        found = client.run("look", args=list(HALVES), files=files)
    assert found.ok, found.stderr
    assert found.stdout == "", "each line is a way to a secret"


@pytest.mark.parametrize("words", [[], pytest.param(["--run-as", str(UID)], marks=as_root)], ids=["plain", "run-as"])
def test_a_program_has_no_open_files_but_its_stdio(
    place: Path, start: Callable[..., Running], home: Path, words: list[str]
) -> None:
    _, _, address = a_worker(start, place, *words, "--copy-program")
    with Client(address) as client:
        for limits in (None, JobLimits(memory_bytes=2**30, processes=50)):
            result = client.run("ls", args=["-l", "/proc/self/fd"], files={"in": b"x"}, limits=limits)
            assert result.ok, result.stderr
            numbers = {line.split(" -> ")[0].split()[-1]: line.split(" -> ")[1] for line in lines_of(result.stdout)}
            assert numbers.pop("3").endswith("/fd"), "the folder that it lists"
            assert sorted(numbers) == ["0", "1", "2"]
            assert numbers["0"] == "/dev/null"


def lines_of(listing: str) -> list[str]:
    return [line for line in listing.splitlines() if " -> " in line]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees the open files of a role")
@pytest.mark.parametrize("role", ["leader", "worker", "node", "gateway"])
def test_every_open_file_of_a_role_is_closed_for_the_programs_that_it_starts(
    place: Path, start: Callable[..., Running], home: Path, role: str
) -> None:
    if role in {"leader", "worker"}:
        leader, worker, address = a_worker(start, place)
        with Client(address) as client:
            assert client.run("ls", files={"large": bytes(5_000_000)}).ok
            running = leader if role == "leader" else worker
            check_closed(running)
        return
    words = {
        "node": ["--programs", place / "bin", "--jobs", place / "jobs", "--http", "0", "--lines", "0"],
        "gateway": ["0", "--state", place / "gate", "--group", "one=http://127.0.0.1:1"],
    }[role]
    running = start(role, *words)
    running.line()
    check_closed(running)


def check_closed(running: Running) -> None:
    """All open files of these processes but stdio have the flag by which exec closes them."""
    checked = 0
    for pid in with_all_below([running.process.pid]):
        for info in Path(f"/proc/{pid}/fdinfo").iterdir():
            if int(info.name) <= 2:
                continue
            with contextlib.suppress(FileNotFoundError):  # Closed meanwhile.
                flags = next(line for line in info.read_text().splitlines() if line.startswith("flags:"))
                what = Path(f"/proc/{pid}/fd/{info.name}").readlink()
                assert int(flags.split()[1], 8) & os.O_CLOEXEC, f"{what} is open in programs"
                checked += 1
    assert checked


@pytest.mark.parametrize("role", ["leader", "worker", "node", "gateway", "up"])
def test_a_role_that_crashes_leaves_no_memory_on_the_disk(place: Path, home: Path, role: str) -> None:
    """Its memory has keys. A sleeping program beside it, which the same signal ends, shows that dumps are on."""
    where = place / "crash"
    where.mkdir()
    programs = ["--programs", place / "bin", "--jobs", place / "jobs"]
    words = {
        "leader": ["0", "--memory"],
        "worker": ["127.0.0.1", "1", *programs],
        "node": ["--http", "0", "--lines", "off", *programs],
        "gateway": ["0", "--state", place / "gate", "--group", "one=http://127.0.0.1:1"],
        "up": ["0", "--memory", *programs],
    }[role]
    if not dumps(["sleep", "1000"], where):
        pytest.skip("this machine dumps no memory")
    for path in where.iterdir():
        path.unlink()
    assert not dumps([WAKU, role, *words], where)
    assert not list(where.glob("*core*"))


def dumps(command: list[str | Path], where: Path) -> bool:
    """Whether the kernel dumps the memory of a process of this command, or of one below it, that breaks."""
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    process = subprocess.Popen(
        command,
        cwd=where,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (most, most)),  # noqa: PLW1509
    )
    assert process.stderr is not None
    if command[0] == WAKU:
        os.read(process.stderr.fileno(), 1)  # It has begun.
    os.kill(process.pid, signal.SIGSEGV)
    _, status = os.waitpid(process.pid, 0)
    process.returncode = status
    process.stderr.close()
    return os.WCOREDUMP(status)
