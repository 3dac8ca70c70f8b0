"""Does a program start with its limits, variables and user, and is a failed start told?"""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from wakugumi.adapters.programs import set_limits

TELLS = (
    "import resource as r; print(*[r.getrlimit(getattr(r, f'RLIMIT_{n}')) for n in ('CPU', 'FSIZE', 'NPROC', 'DATA')])"
)
MUCH = str(2**40)


def start(*words: str, env: dict[bytes, bytes] | None = None) -> tuple[subprocess.CompletedProcess[str], bytes]:
    """The stub with these words after STATUS and ENV, and what it wrote to STATUS."""
    told, status = os.pipe()
    variables = os.memfd_create("variables")
    os.write(variables, b"\0".join(b"%b=%b" % pair for pair in (env or {}).items()))
    where = "-" if env is None else str(variables)
    command = [sys.executable, "-I", "-S", set_limits.__file__, str(status), where, *words]
    done = subprocess.run(command, capture_output=True, text=True, pass_fds=(status, variables), timeout=60)
    os.close(status)
    os.close(variables)
    with open(told, "rb") as file:
        return done, file.read()


def limits_with(*words: str) -> str:
    done, status = start(*words, "-", sys.executable, "-I", "-S", "-c", TELLS)
    assert (done.returncode, status) == (0, b""), done.stderr
    return done.stdout.strip()


def now(name: int) -> tuple[int, int]:
    return resource.getrlimit(name)


def test_a_program_has_the_limits_that_were_given_and_no_others() -> None:
    others = now(resource.RLIMIT_NPROC)
    assert (
        limits_with(MUCH, "7", "100000", "-")
        == f"(7, {7 + set_limits.CPU_GRACE_S}) (100000, 100000) {others} ({MUCH}, {MUCH})"
    )
    names = (resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC, resource.RLIMIT_DATA)
    assert limits_with("-", "-", "-", "-") == " ".join(str(now(name)) for name in names)


def test_a_limit_is_never_raised() -> None:
    code = "import resource, subprocess, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))"
    code += "; subprocess.run(sys.argv[1:], close_fds=False, check=True)"
    stub = [sys.executable, "-I", "-S", set_limits.__file__, "2", "-", "-", "-", "9000", "-", "-"]
    words = [sys.executable, "-c", code, *stub, sys.executable, "-I", "-S", "-c", TELLS]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert "(5000, 5000)" in done.stdout, done.stderr


def test_a_program_has_exactly_the_variables_of_the_file() -> None:
    done, _ = start("-", "-", "-", "-", "-", "/usr/bin/env", env={b"A": b"1=2", b"B": b""})
    assert sorted(done.stdout.splitlines()) == ["A=1=2", "B="]


def test_signals_that_python_ignores_are_not_ignored_by_the_program() -> None:
    done, _ = start("-", "-", "-", "-", "-", "/bin/cat", "/proc/self/status")
    (ignored,) = [int(line.split()[1], 16) for line in done.stdout.splitlines() if line.startswith("SigIgn:")]
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        assert not ignored >> (number - 1) & 1


def test_a_program_that_cannot_start_is_told_by_its_number(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("no program")
    for path, number in ((tmp_path / "gone", errno.ENOENT), (tmp_path / "plain", errno.EACCES)):
        done, status = start("-", "-", "-", "-", "-", str(path))
        assert (done.returncode, status) == (127, str(number).encode())


def test_the_status_file_is_not_open_in_the_program() -> None:
    done, status = start("-", "-", "-", "-", "-", "/bin/ls", "/proc/self/fd", env={b"A": b"1"})
    assert status == b""
    assert done.stdout.split() == ["0", "1", "2", "3"], "3 is the folder that ls reads"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may become anyone")
def test_a_user_that_cannot_be_become_is_told_apart() -> None:
    done, status = start("-", "-", "-", "-", "12345:12345:12345", "/bin/true")
    assert (done.returncode, status) == (127, f"{set_limits.NOT_THE_USER}{errno.EPERM}".encode())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_program_is_the_user_for_ever() -> None:
    done, _ = start("-", "-", "-", "-", "12345:12346:12346,12347", "/bin/cat", "/proc/self/status")
    status = {name: rest.split() for name, _, rest in (line.partition(":") for line in done.stdout.splitlines())}
    assert status["Uid"] == ["12345"] * 4
    assert status["Gid"] == ["12346"] * 4
    assert status["Groups"] == ["12346", "12347"]
    assert status["NoNewPrivs"] == ["1"]
    for name in ("CapPrm", "CapEff", "CapAmb"):
        assert int(status[name][0], 16) == 0, name


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_folders_are_tried_as_the_user(tmp_path: Path) -> None:
    def ask(what: str, *folders: str) -> int:
        words = [sys.executable, "-I", "-S", set_limits.__file__, what, "12345:12345:12345", *folders]
        return subprocess.run(words, capture_output=True, timeout=60).returncode

    (tmp_path / "closed").mkdir(0o700)
    closed = str(tmp_path / "closed")
    assert ask(set_limits.REACH, "/", "/tmp") == 0
    assert ask(set_limits.REACH, "/", closed, closed) == set_limits.CLOSED_FROM + 1
    assert ask(set_limits.WRITE, "/dev/shm") == 0
    assert ask(set_limits.WRITE, "/") == ask(set_limits.WRITE, "/etc/passwd") == set_limits.CLOSED_FROM


IN_A_SESSION = """
import ctypes, os, platform, sys
call, joins, adds = ctypes.CDLL(None).syscall, {"x86_64": 250, "aarch64": 219}, {"x86_64": 248, "aarch64": 217}
machine = platform.machine()
if machine not in joins or call(joins[machine], 1, None) < 0 or call(adds[machine], b"user", b"grid", b"x", 1, -3) < 0:
    sys.exit("no keyrings here")
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.spec("O1")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_program_of_another_user_loses_the_keys_of_the_workers_session() -> None:
    def keys(user: str) -> list[str]:
        stub = [sys.executable, "-I", "-S", set_limits.__file__, "2", "-", "-", "-", "-", "-", user]
        words = [sys.executable, "-c", IN_A_SESSION, *stub, "/bin/cat", "/proc/keys"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        if "no keyrings" in done.stderr:
            pytest.skip(done.stderr)
        assert done.returncode == 0, done.stderr
        return [line for line in done.stdout.splitlines() if " user " in line and "grid" in line]

    assert keys("-"), "root's own program has them"
    assert not keys("12345:12345:12345")
