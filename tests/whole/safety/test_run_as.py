"""A worker of root's that runs programs as another user: real processes, real files, and programs that try."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from uuid import uuid4

import pytest
from tests.kit.eventually import eventually_blocking
from tests.kit.form import FORM_HEADERS, form
from tests.kit.processes import has_ended, kill_together
from tests.whole.conftest import SCRIPTS, Running, Waku

from wakugumi import Cached, Client, JobLimits, Result
from wakugumi.adapters.folder_lock import FolderInUse, FolderLock
from wakugumi.adapters.jobdir.done_record import DONE
from wakugumi.adapters.jobdir.folder import JobsFolder
from wakugumi.adapters.jobdir.folder_claim import LOCK
from wakugumi.adapters.programs.named_programs import Programs
from wakugumi.adapters.programs.run_as import user_named
from wakugumi.core.ids import show_job_id
from wakugumi.errors import ConfigError, Refused
from wakugumi.roles.runner.files.uploaded_inputs import UploadedInputs
from wakugumi.wire.messages.job import InputFile

pytestmark = [pytest.mark.spec("O1"), pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")]

UID = 54_321
"""Nobody has this number, and it needs no name."""
DEADLINE_S = 60.0

PROGRAMS = {
    "who": "#!/bin/sh\nid -u; id -g; id -G; echo $HOME $USER $LOGNAME; grep NoNewPrivs /proc/self/status; pwd; env\n",
    "make": "#!/bin/sh\nmkdir -p sub/deep; echo made > sub/deep/file; chmod 700 sub/deep; chmod 600 sub/deep/file\n"
    'echo "$PWD" > here; cat "$PWD/here"; echo again >> /dev/stdout; echo error >> /dev/stderr\n',
    "change": '#!/bin/sh\nstat -c "%u %a" "$@"; for f in "$@"; do echo more >> "$f" || exit 3; done; cat "$@"\n',
    "leave": "#!/bin/sh\nsetsid sleep 1000 &\necho $! > pid; cat pid\n",
    "stay": '#!/bin/sh\nsetsid sleep 1000 &\necho $! $$ > "$1"; exec sleep 1000\n',
    "steal": "#!/bin/sh\ncat /etc/shadow; ls /root; cat ../.worker; ls ..; cat /proc/$PPID/environ; kill -9 $PPID\n"
    "ln -s /etc/shadow shadow; ln /etc/shadow hard; ln -s /etc etc; touch ../evil; echo tried\n",
    "forge": '#!/bin/sh\nmv big .done; echo > "$1"; exec sleep 1000\n',
    "variables": "#!/bin/sh\ncat /proc/self/environ > environ\n",
    "move": "#!/bin/sh\nfor f in *; do mv $f $f.out || exit 3; done\n",
    "locked": "#!/bin/sh\nmkdir a a/b; echo x > a/b/c; chmod 000 a/b a; chmod 000 .\n",
}


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user gets into; those of pytest are its user's own."""
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="waku-as-"))
    folder.chmod(0o755)
    (folder / "bin").mkdir()
    for name, text in PROGRAMS.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def a_worker(
    start: Callable[..., Running], place: Path, *words: str, user: str = str(UID), folder: str = ""
) -> tuple[Running, str]:
    leader = start("leader", "0", "--memory").line()
    folders = ["--programs", place / "bin", "--jobs", place / folder / "jobs", "--cache", place / folder / "cache"]
    limits = ["--cpu-cap", "off", "--slots", "4"]
    worker = start("worker", *leader.split(":"), "job.assign.>", *folders, *limits, "--run-as", user, *words)
    worker.until(lambda text: "the leader speaks version" in text)
    return worker, leader


def test_a_program_is_another_user_through_and_through(place: Path, start, home: Path) -> None:
    worker, leader = a_worker(start, place)
    with Client(leader) as client:
        for limits in (None, JobLimits(processes=50, memory_bytes=1 << 30)):
            result = client.run("who", limits=limits)
            assert result.ok, result.stderr
            lines = result.stdout.splitlines()
            assert lines[:4] == [str(UID), str(UID), str(UID), f"/ {UID} {UID}"]
            assert lines[4].split() == ["NoNewPrivs:", "1"]
            assert lines[5] == f"{place}/jobs/{result.job_id}"
            assert not [line for line in lines if line.startswith(("XDG_", "SUDO_"))]
    assert f"run-as={UID}" in worker.until(lambda text: "slots=" in text)


def test_a_program_gets_the_users_own_variables_and_not_roots(
    place: Path, start, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "closed").mkdir(mode=0o700)
    (place / "free").mkdir()
    (place / "free").chmod(0o1777)
    monkeypatch.setenv("PATH", f"{place}/closed:{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(place / "closed"))
    monkeypatch.setenv("TMP", str(place / "free"))
    monkeypatch.setenv("TEMP", "relative")
    monkeypatch.setenv("OLDPWD", "/root")
    _, leader = a_worker(start, place)
    _, other = a_worker(start, place, "--pass-env", "PATH", "--pass-env", "TMPDIR", folder="other")
    with Client(leader) as client:
        result = client.run("variables")
    got = variables(result, home / "out")
    assert {b"HOME=/", f"USER={UID}".encode(), f"LOGNAME={UID}".encode(), b"PATH=/usr/local/bin:/usr/bin:/bin"} <= got
    assert {f"PWD={place}/jobs/{result.job_id}".encode(), f"TMP={place}/free".encode()} <= got
    assert not [it for it in got if it.startswith((b"TMPDIR=", b"TEMP=", b"OLDPWD="))]
    with Client(other) as client:
        named = variables(client.run("variables"), home / "named")
    assert {f"PATH={os.environ['PATH']}".encode(), f"TMPDIR={place}/closed".encode()} <= named


def test_what_it_makes_comes_back_and_nothing_is_left(place: Path, start, home: Path) -> None:
    _, leader = a_worker(start, place)
    with Client(leader) as client:
        result = client.run("make")
        assert result.ok, result.stderr
        directory = place / "jobs" / result.job_id
        assert result.stdout == f"{directory}\nagain\n"
        assert result.stderr == "error\n"
        result.extract(home / "out")
        assert (home / "out/sub/deep/file").read_text() == "made\n"
        assert (directory.stat().st_uid, directory.stat().st_mode & 0o777) == (0, 0o700)
        assert sorted(os.listdir(directory)) == [".done", "result.zip"]
        assert client.run("locked").ok
        assert sorted(os.listdir(place / "jobs" / client.run("locked").job_id)) == [".done", "result.zip"]


@pytest.mark.spec("C3")
def test_inputs_are_its_own_and_a_large_one_of_a_cache_is_safe(place: Path, start, home: Path) -> None:
    _, leader = a_worker(start, place)
    large = os.urandom(3_000_000)
    (home / "large").write_bytes(large)
    with Client(leader) as client:
        client.put_cache("data", {"large": home / "large"})
        result = client.run("change", args=["in", "sub/in"], files={"in": b"small\n", "sub/in": b"deep\n"})
        assert result.stdout == f"{UID} 644\n{UID} 644\nsmall\nmore\ndeep\nmore\n", result.stderr
        named = Cached("data")
        wrote = client.run("change", args=["large"], files={"large": named})
        assert not wrote.ok, "it is a link that belongs to the worker"
        read = client.run("make", files={"large": named})
        assert read.ok
    contents = [path for path in (place / "cache").rglob("*") if path.is_file() and path.stat().st_size == len(large)]
    assert contents
    assert {hashlib.sha256(path.read_bytes()).digest() for path in contents} == {hashlib.sha256(large).digest()}


@pytest.mark.spec("W1", "C3")
def test_an_input_that_it_gives_another_name_comes_back(place: Path, start, home: Path) -> None:
    _, leader = a_worker(start, place)
    large = os.urandom(300_000)
    (home / "large").write_bytes(large)
    with Client(leader) as client:
        client.put_cache("data", {"large": home / "large"})
        for _ in range(2):
            result = client.run("move", files={"large": Cached("data"), "small": b"small"})
            assert result.ok, result.stderr
            result.extract(home / "out")
            assert {path.name: path.read_bytes() for path in (home / "out").iterdir()} == {
                "large.out": large,
                "small.out": b"small",
            }


@pytest.mark.spec("W5")
def test_it_reaches_nothing_of_the_worker(place: Path, start, home: Path) -> None:
    worker, leader = a_worker(start, place)
    with Client(leader) as client:
        result = client.run("steal")
        assert result.stdout == "tried\n"
        result.extract(home / "out")
        assert not [path for path in (home / "out").rglob("*") if path.is_file()]
        assert client.run("who").ok, "the worker lives"
    assert worker.process.poll() is None
    assert not (place / "jobs/evil").exists()


@pytest.mark.spec("W3")
def test_what_it_leaves_running_is_ended_in_every_way(place: Path, start, home: Path) -> None:
    worker, leader = a_worker(start, place)
    with Client(leader) as client:
        pid = int(client.run("leave").stdout)
        assert has_ended(pid)
        result = client.run("stay", args=[f"{place}/jobs/none"], timeout_s=1)
        assert result.reason == "timeout"
    (place / "out").mkdir()
    (place / "out").chmod(0o777)
    handle = Client(leader)
    handle.submit("stay", args=[f"{place}/out/pids"])
    eventually_blocking(
        lambda: (place / "out/pids").exists() and len((place / "out/pids").read_text().split()) == 2,
    )
    pids = [int(pid) for pid in (place / "out/pids").read_text().split()]
    kill_together(worker.process.pid)
    assert not any(map(has_ended, pids))
    folders = ["--programs", place / "bin", "--jobs", place / "jobs", "--cache", place / "cache"]
    again = start("worker", *leader.split(":"), "job.assign.>", *folders, "--run-as", str(UID))
    again.until(lambda text: "the leader speaks version" in text)
    eventually_blocking(lambda: all(map(has_ended, pids)))
    handle.close()


EVIL = """
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void began(void) { dprintf(1, "%d\\n", (int)geteuid()); }
"""


@pytest.mark.spec("O1")
@pytest.mark.parametrize("limits", [None, JobLimits(processes=50)])
def test_a_library_of_the_job_is_loaded_as_its_user_alone(
    place: Path, start, home: Path, limits: JobLimits | None
) -> None:
    (home / "evil.c").write_text(EVIL)
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no compiler")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", home / "evil.so", home / "evil.c"], check=True)
    _, leader = a_worker(start, place, "--job-env", "*")
    secret = "päss wörd\n=x="
    with Client(leader) as client:
        env = {"LD_PRELOAD": "./evil.so", "LD_LIBRARY_PATH": ".", "SECRET": secret, "EMPTY": ""}
        result = client.run("variables", files={"evil.so": home / "evil.so"}, env=env, limits=limits)
        large = client.run("variables", env={"LARGE": "x" * 60_000}, limits=limits)
    assert set(result.stdout.split()) == {str(UID)}, "the stub loaded it as root"
    got = variables(result, home / "out")
    assert {f"SECRET={secret}".encode(), b"EMPTY=", b"LD_PRELOAD=./evil.so"} <= got
    assert f"WAKU_JOB_ID={result.job_id}".encode() in got
    assert b"LD_LIBRARY_PATH=." in got
    assert b"LARGE=" + b"x" * 60_000 in variables(large, home / "large")


def variables(result: Result, out: Path) -> set[bytes]:
    result.extract(out)
    return set((out / "environ").read_bytes().split(b"\0"))


FORGED = b'{"JobId":"x","WorkerId":"","ExecName":"","Status":"OK"}'


@pytest.mark.spec("W5")
def test_a_result_that_a_program_forges_of_a_linked_input_is_none(place: Path, start, home: Path) -> None:
    worker, leader = a_worker(start, place)
    (home / "big").write_bytes(FORGED + b" " * 300_000)
    (place / "out").mkdir()
    (place / "out").chmod(0o777)
    with Client(leader) as client:
        client.put_cache("data", {"big": home / "big"})
        job = client.submit("forge", args=[f"{place}/out/forged"], files={"big": Cached("data")})
        eventually_blocking((place / "out/forged").exists)
        directory = place / "jobs" / job.id
        assert ((directory / ".done").stat().st_uid, directory.stat().st_uid) == (0, UID), "it is linked"

        def is_stopped() -> bool:
            worker.process.send_signal(signal.SIGTERM)  # The second one ends it at once.
            return worker.process.poll() is not None

        eventually_blocking(is_stopped)
    assert not directory.exists()


@pytest.fixture
def jobs(place: Path) -> Iterator[JobsFolder]:
    folder = JobsFolder(place / "jobs", user_named(str(UID)))
    yield folder
    folder.close()


def forged(jobs: JobsFolder, place: Path, job: str) -> Path:
    """The directory of a job that runs, and has made a `.done` of an input that belongs to the worker."""
    (place / "content").write_bytes(FORGED)
    directory = jobs.make(job)

    def bring(name: str, path: str, folder: int | None) -> bool:
        os.link(place / "content", name, dst_dir_fd=folder)
        return False

    directory.place([InputFile("big")], bring)
    directory.hand_over()
    Path(directory.path, "big").rename(f"{directory.path}/{DONE}")
    return Path(directory.path)


@pytest.mark.parametrize(("owner", "mode"), [(UID, 0o700), (UID, 0o777), (0, 0o777)])
def test_a_directory_that_a_program_had_last_is_interrupted(
    jobs: JobsFolder, place: Path, owner: int, mode: int
) -> None:
    job = str(uuid4())
    directory = forged(jobs, place, job)
    os.chown(directory, owner, owner)
    directory.chmod(mode)
    assert jobs.load(job) is None
    assert not jobs.retire(job) or not directory.exists()
    directory = forged(jobs, place, job)
    os.chown(directory, owner, owner)
    directory.chmod(mode)
    assert jobs.finished(interrupted_ttl_s=1000.0) == []
    assert [show_job_id(one) for one, _ in jobs.interrupted] == [job]
    assert (directory.stat().st_uid, directory.stat().st_mode & 0o7777) == (0, 0o700)
    assert os.listdir(directory) == []
    os.chown(directory, owner, owner)
    directory.chmod(mode)
    assert jobs.finished() == []
    assert not directory.exists()


@pytest.mark.parametrize("how", ["owner", "mode", "link"])
def test_a_spare_directory_that_somebody_changed_serves_no_other_job(jobs: JobsFolder, place: Path, how: str) -> None:
    old, new = str(uuid4()), str(uuid4())
    jobs.record(old, FORGED)
    assert jobs.retire(old)
    directory = place / "jobs" / old
    inode = directory.stat().st_ino
    if how == "owner":
        os.chown(directory, UID, UID)
    elif how == "mode":
        directory.chmod(0o777)
    else:
        (directory / "sub").symlink_to(place)
    made = Path(jobs.make(new).path)
    assert made.stat().st_ino != inode
    assert (made.stat().st_uid, made.stat().st_mode & 0o7777, os.listdir(made)) == (0, 0o700, [])


@pytest.mark.parametrize("content", [b"evil", None])
@pytest.mark.parametrize("planted", ["link", "folder", "file"])
def test_inputs_go_through_nothing_that_was_there_before(
    jobs: JobsFolder, place: Path, planted: str, content: bytes | None
) -> None:
    foreign = place / "foreign"
    foreign.mkdir(mode=0o700)
    directory = jobs.make(str(uuid4()))
    sub = Path(directory.path, "sub")
    if planted == "link":
        sub.symlink_to(foreign)
    elif planted == "folder":
        sub.mkdir()
    else:
        sub.write_text("")
    with pytest.raises(Refused, match="inputs cannot be written"):
        directory.place([InputFile("sub/evil", content)], UploadedInputs({"sub/evil": place / "bin/who"}).place(None))
    assert os.listdir(foreign) == []
    assert sub.lstat().st_uid == 0


def test_inputs_are_not_put_into_a_directory_of_another_user(jobs: JobsFolder, place: Path) -> None:
    directory = jobs.make(str(uuid4()))
    os.chown(directory.path, UID, UID)
    with pytest.raises(Refused, match="inputs cannot be written"):
        directory.place([InputFile("in", b"x")])
    assert os.listdir(directory.path) == []


def test_a_user_with_a_name_has_its_home_and_groups(place: Path, start, home: Path) -> None:
    _, leader = a_worker(start, place, user="nobody")
    with Client(leader) as client:
        lines = client.run("who").stdout.splitlines()
    expected = subprocess.run(["id", "-u", "nobody"], capture_output=True, text=True, check=True).stdout.strip()
    assert lines[0] == expected
    assert lines[3] == f"{Path('~nobody').expanduser()} nobody nobody"


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ("root", "rights of root"),
        ("0", "rights of root"),
        ("1234:0", "rights of root"),
        ("no-such-user", "no such user"),
        ("-1", "no such user"),
        ("99999999999", "not a valid user"),
        ("1:x", "not a valid user"),
        ("54321:x", "not a valid user"),
    ],
)
def test_whom_programs_cannot_be_is_said_at_the_start(place: Path, waku: Waku, user: str, said: str) -> None:
    done = waku("worker", "127.0.0.1", "1", "--programs", place / "bin", "--jobs", place / "jobs", f"--run-as={user}")
    assert done.returncode == 2
    assert said in done.stderr
    assert "hint:" in done.stderr


@pytest.mark.parametrize("closed", ["bin", "jobs"])
def test_a_folder_that_the_user_cannot_get_into_is_said_at_the_start(place: Path, waku: Waku, closed: str) -> None:
    (place / "closed").mkdir(mode=0o700)
    (place / "closed/bin").mkdir()
    folders = {"bin": place / "bin", "jobs": place / "jobs"} | {closed: place / "closed" / closed}
    words = ["--programs", folders["bin"], "--jobs", folders["jobs"], "--run-as", str(UID)]
    done = waku("worker", "127.0.0.1", "1", *words)
    assert done.returncode == 2
    assert f"{UID} cannot get into the" in done.stderr
    assert str(place / "closed" / closed) in done.stderr
    assert "hint:" in done.stderr


def another_s_link(place: Path, tmp: Path) -> tuple[Path, Path]:
    (tmp / "jobs").symlink_to(place / "secret")
    os.chown(tmp / "jobs", UID, UID, follow_symlinks=False)
    return tmp / "jobs", tmp / "jobs"


def below_another_s_link(place: Path, tmp: Path) -> tuple[Path, Path]:
    another_s_link(place, tmp)
    return tmp / "jobs/deep/jobs", tmp / "jobs"


def below_the_user_s_folder(place: Path, tmp: Path) -> tuple[Path, Path]:
    (place / "home").mkdir()
    os.chown(place / "home", UID, UID)
    return place / "home/sub/jobs", place / "home"


def behind_root_s_link_to_it(place: Path, tmp: Path) -> tuple[Path, Path]:
    _, home = below_the_user_s_folder(place, tmp)
    (place / "link").symlink_to("home/../home")
    return place / "link/jobs", home


def below_a_folder_of_everybody(place: Path, tmp: Path) -> tuple[Path, Path]:
    tmp.chmod(0o777)
    return tmp / "own/jobs", tmp


def below_a_folder_of_the_group(place: Path, tmp: Path) -> tuple[Path, Path]:
    os.chown(tmp, 0, UID)
    tmp.chmod(0o770)
    return tmp / "jobs", tmp


@pytest.mark.parametrize(
    "where",
    [
        another_s_link,
        below_another_s_link,
        below_the_user_s_folder,
        behind_root_s_link_to_it,
        below_a_folder_of_everybody,
        below_a_folder_of_the_group,
    ],
)
def test_a_jobs_folder_that_the_user_could_replace_is_refused(
    place: Path, where: Callable[[Path, Path], tuple[Path, Path]]
) -> None:
    (place / "secret").mkdir(mode=0o700)
    tmp = place / "tmp"
    tmp.mkdir()
    tmp.chmod(0o1777)
    path, why = where(place, tmp)
    with pytest.raises(ConfigError, match="could put something else in place") as caught:
        JobsFolder(path, user_named(str(UID)))
    assert f"{why} " in str(caught.value)
    assert caught.value.hint
    assert ((place / "secret").stat().st_mode & 0o777, os.listdir(place / "secret")) == (0o700, [])
    assert not path.is_dir() or path.is_symlink()


def test_a_link_of_root_s_leads_to_a_jobs_folder_and_one_of_another_user_does_not(place: Path) -> None:
    (place / "data").mkdir()
    (place / "jobs").symlink_to(place / "data")
    JobsFolder(place / "jobs", user_named(str(UID))).close()
    assert (place / "data").stat().st_mode & 0o777 == 0o711
    os.chown(place / "jobs", UID, UID, follow_symlinks=False)
    for user in (user_named(str(UID)), None):
        with pytest.raises(ConfigError):
            JobsFolder(place / "jobs", user)


@pytest.mark.parametrize("by", [0, UID, None])
def test_a_jobs_folder_that_vanished_is_claimed_again(jobs: JobsFolder, place: Path, by: int | None) -> None:
    spare = str(uuid4())
    jobs.record(spare, FORGED)
    assert jobs.retire(spare)
    shutil.rmtree(place / "jobs")
    if by is not None:
        (place / "jobs").mkdir(mode=0o755)
        os.chown(place / "jobs", by, by)
    for _ in range(2):
        if by == UID:
            with pytest.raises(Refused, match="could put something else in place"):
                jobs.make(str(uuid4()))
            assert os.listdir(place / "jobs") == []
        else:
            directory = jobs.make(str(uuid4()))
            directory.place([InputFile("in", b"x")])
            assert (place / "jobs").stat().st_mode & 0o777 == 0o711
            with pytest.raises(FolderInUse):
                FolderLock(jobs.path, LOCK)


@pytest.mark.parametrize("mode", [0o755, 0o777, 0o1777, 0o775])
def test_a_folder_with_programs_that_the_user_may_write_to_is_refused(place: Path, waku: Waku, mode: int) -> None:
    os.chown(place / "bin", UID if mode == 0o755 else 0, UID)
    (place / "bin").chmod(mode)
    done = waku("worker", "127.0.0.1", "1", "--programs", place / "bin", "--jobs", place / "jobs", f"--run-as={UID}")
    assert done.returncode == 2
    assert f"in place of the folder with the programs {place}/bin" in done.stderr
    assert "hint:" in done.stderr


def test_a_cache_folder_that_the_user_could_replace_is_refused(place: Path, waku: Waku) -> None:
    _, why = below_the_user_s_folder(place, place)
    words = ["--programs", place / "bin", "--jobs", place / "jobs", "--cache", why / "cache", f"--run-as={UID}"]
    done = waku("worker", "127.0.0.1", "1", *words)
    assert done.returncode == 2
    assert f"in place of the cache folder {why}/cache" in done.stderr
    assert "hint:" in done.stderr
    assert os.listdir(why) == []


def test_a_link_that_came_in_place_of_a_program_is_not_copied(jobs: JobsFolder, place: Path) -> None:
    (place / "secret").write_text("secret")
    programs = Programs(place / "bin")
    program = programs.resolve("who")
    Path(program).unlink()
    Path(program).symlink_to(place / "secret")
    with pytest.raises(Refused, match="leads out of"):
        programs.open(program)
    Path(program).unlink()
    os.mkfifo(program)
    source = programs.open(program)
    with pytest.raises(Refused, match="it is not a file"):
        jobs.make(str(uuid4())).place_program(program, source)
    os.close(source)
    (place / "bin/inside").symlink_to("make")
    source = programs.open(programs.resolve("inside"))
    copied = Path(jobs.make(str(uuid4())).place_program(programs.resolve("inside"), source))
    os.close(source)
    assert (copied.name, copied.read_text()) == ("inside", PROGRAMS["make"])
    assert (copied.stat().st_uid, copied.stat().st_mode & 0o7777) == (UID, 0o755)
    (place / "elsewhere").symlink_to("secret")
    named = Programs(None, {"named": place / "elsewhere"})
    source = named.open(named.resolve("named"))
    assert os.read(source, 10) == b"secret"
    os.close(source)


@pytest.mark.spec("N2")
def test_a_node_does_the_same_with_large_inputs_and_programs_that_are_copied_in(place: Path, start, home: Path) -> None:
    words = ["--programs", place / "bin", "--jobs", place / "jobs", "--http", "0", "--lines", "off", "--copy-program"]
    node = start("node", *words, "--run-as", f"{UID}:{UID + 1}")
    where = node.line().split()[0]
    with ran(f"{where}/run/look?program=change&arg=in", b"x" * 3_000_000) as archive:
        printed = archive.read("stdout.txt")
        assert printed.startswith(f"{UID} 6".encode()), printed[:100]
        assert printed.endswith(b"xmore\n")
        assert archive.namelist() == ["stdout.txt", "stderr.txt"]
    with ran(f"{where}/run/who?program=who", b"") as archive:
        assert archive.read("stdout.txt").decode().splitlines()[:2] == [str(UID), str(UID + 1)]
    for path in (place / "jobs").iterdir():
        assert not path.stat().st_mode & 0o077, f"{path} is open to others"


def test_a_worker_and_a_node_of_root_say_so_and_others_do_not(place: Path, start, waku: Waku, monkeypatch) -> None:
    leader = start("leader", "0", "--memory").line()
    monkeypatch.setenv("WAKU_LEADER", leader)
    for name, words in {"bare": [], "safe": ["--run-as", str(UID)]}.items():
        folders = ["--programs", place / "bin", "--jobs", place / name]
        worker = start("worker", *leader.split(":"), *folders, "--name", name, *words)
        first = worker.until(lambda text: "the leader speaks version" in text).splitlines()[0]
        assert ("is root on this machine" in first) == (name == "bare")
    rows = json.loads(waku("workers", "list", "-o", "json").stdout)["workers"]
    assert {row["name"]: row["as_root"] for row in rows} == {"bare": True, "safe": False}
    assert "bare: programs run as root" in waku("workers", "list").stderr
    node = start("node", "--programs", place / "bin", "--jobs", place / "node", "--http", "0", "--lines", "off")
    url = node.line().split()[0]
    assert "is root on this machine" in node.until(lambda text: "\n" in text).splitlines()[0]
    group = start("leader", "0", "--memory", "--node", f"{url},name=far").line()
    eventually_blocking(lambda: "far: programs run as root" in waku("workers", "list", "--leader", group).stderr)
    monkeypatch.delenv("WAKU_LEADER")
    embedded = waku("run", SCRIPTS.parent / "bin/python", "--", "-c", "print('hello')")
    assert embedded.stdout == "hello\n"
    assert "root" not in embedded.stderr


def ran(url: str, content: bytes) -> zipfile.ZipFile:
    """The answer to a job by HTTP."""
    request = urllib.request.Request(url, form(content, "in"), FORM_HEADERS)
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
        return zipfile.ZipFile(BytesIO(answer.read()))
