"""What carries the mark of a jobs folder is found and ended, however it hides, and nothing else is."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from tests.kit.eventually import eventually_blocking
from tests.kit.processes import has_ended

from wakugumi.adapters.programs.marks import MARK_VARIABLE, Mark, end_marked
from wakugumi.adapters.programs.spawn import Spawner

DEADLINE_S = 30.0
NO_LIMIT = "ulimit -m unlimited; "
"""A program may take the limit off."""
NO_VARIABLE = 'exec env -i "PATH=$PATH" sh -c '


class Marked:
    """Programs with a mark, and those without."""

    def __init__(self, folder: Path) -> None:
        self.folder_id = uuid4().bytes_le
        self.mark = Mark(self.folder_id)
        self.folder = folder
        self._spawner = Spawner({b"PATH": os.environb[b"PATH"]} | self.variable, resident_set=self.mark.number)
        self._started: list[int] = []
        self._null = os.open(os.devnull, os.O_RDWR)

    @property
    def variable(self) -> dict[bytes, bytes]:
        return {MARK_VARIABLE.encode(): self.mark.text.encode()}

    def start(self, shell: str) -> int:
        """Starts it with the mark; it has begun when it has written its id to the file `pids`."""
        before = len(self.pids())
        here = os.fsencode(self.folder)
        pid = self._spawner.start([b"/bin/sh", b"-c", shell.encode()], here, self._null, self._null, "job")
        self._started.append(pid)
        eventually_blocking(lambda: len(self.pids()) > before)
        return pid

    def pids(self) -> list[int]:
        file = self.folder / "pids"
        return [int(word) for word in file.read_text().split()] if file.exists() else []

    def close(self) -> None:
        end_marked(self.mark)
        for pid in self._started:
            os.waitpid(pid, 0)
        os.close(self._null)
        self._spawner.close()


@pytest.fixture
def marked(tmp_path: Path) -> Iterator[Marked]:
    marked = Marked(tmp_path)
    yield marked
    marked.close()


STAY = "echo $$ >> pids; exec sleep 1000"


@pytest.mark.spec("W3")
@pytest.mark.user_dependent
@pytest.mark.parametrize(
    "shell",
    [
        STAY,
        NO_LIMIT + STAY,
        f"{NO_VARIABLE}'{STAY}'",
        f"setsid {NO_VARIABLE.removeprefix('exec ')}'(setsid sh -c \"{STAY.replace('$', chr(92) + '$')}\" &)'",
    ],
    ids=["both", "only the variable", "only the limit", "only the limit, in another session, without its parent"],
)
def test_either_half_of_the_mark_is_enough(marked: Marked, shell: str) -> None:
    marked.start(shell)
    (pid,) = marked.pids()
    eventually_blocking(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n")
    assert marked.mark.is_on(pid)
    assert not Mark(uuid4().bytes_le).is_on(pid)
    assert end_marked(Mark(uuid4().bytes_le)) == 0
    assert not has_ended(pid)
    assert end_marked(marked.mark) >= 1
    assert has_ended(pid)


def test_without_pidfds_as_well(marked: Marked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    marked.start(STAY)
    assert end_marked(marked.mark) == 1
    assert all(map(has_ended, marked.pids()))


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM, errno.EMFILE], ids=errno.errorcode.get)
def test_where_no_pidfd_is_given_as_well(marked: Marked, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuses(_pid: int, _flags: int = 0) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pidfd_open", refuses)
    marked.start(STAY)
    assert end_marked(marked.mark) == 1
    assert all(map(has_ended, marked.pids()))


def test_what_lost_the_mark_below_one_that_has_it_is_ended_too(marked: Marked) -> None:
    marked.start(f"{NO_LIMIT}(env -i PATH=$PATH sh -c '{STAY}') & wait")
    (pid,) = marked.pids()
    assert not marked.mark.is_on(pid)
    end_marked(marked.mark)
    eventually_blocking(lambda: has_ended(pid))


CHAIN = """
import fcntl, os, sys, time
from uuid import uuid4
from wakugumi.adapters.programs.linux import become_subreaper
from wakugumi.adapters.programs.spawn import Spawner
from wakugumi.adapters.programs.marks import Mark, end_marked

def runs_away():
    lock = open("lock", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)  # All that it forks holds the same lock.
    open("begun", "w").close()
    until = time.monotonic() + 50.0  # Should the test fail.
    while time.monotonic() < until:
        if os.fork():
            os._exit(0)
        os.setsid()

if sys.argv[1:]:
    runs_away()
become_subreaper()  # And reaps them in the end: not every machine's init is quick.
mark = Mark(uuid4().bytes_le)
Spawner({}, resident_set=mark.number).start([os.fsencode(sys.executable), *map(os.fsencode, sys.orig_argv[1:]), b"run"],
    b".", 0, 2, "job")
while not os.path.exists("begun"):
    time.sleep(0.005)
ended = end_marked(mark)
with open("lock") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
while True:
    try:
        os.waitpid(-1, 0)
    except ChildProcessError:
        break
print(ended)
"""


def test_what_forks_and_leaves_without_end_is_caught(tmp_path: Path) -> None:
    (tmp_path / "chain.py").write_text(CHAIN)
    command = [sys.executable, "chain.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 1


def test_who_carries_the_mark_itself_is_not_ended_nor_those_above_it(marked: Marked) -> None:
    script = (
        "import sys\n"
        "from wakugumi.adapters.programs.marks import Mark, end_marked\n"
        "mark = Mark(bytes.fromhex(sys.argv[1]))\n"
        "import os\n"
        "assert mark.is_on(os.getpid()) and mark.is_on(os.getppid())\n"
        "print(end_marked(mark))\n"
    )
    command = ["/bin/sh", "-c", '"$@"; echo above', "sh", sys.executable, "-c", script, marked.folder_id.hex()]
    environment = {**os.environ, MARK_VARIABLE: marked.mark.text}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.stdout == "0\nabove\n", done.stderr


def test_the_limit_looks_like_none_and_may_be_set_by_the_program(marked: Marked) -> None:
    marked.start("ulimit -Sm > said; ulimit -Hm >> said; ulimit -Sm 1000000 && ulimit -Sm >> said; " + STAY)
    soft, hard, own = (marked.folder / "said").read_text().split()
    assert int(soft) * 1024 >= 1 << 61
    assert hard == "unlimited"
    assert own == "1000000"
    assert marked.mark.is_on(marked.pids()[0]), "by its variable"


def test_where_the_hard_limit_is_lower_the_variable_is_the_mark(tmp_path: Path) -> None:
    script = (
        "import os, resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_RSS, (1 << 30, 1 << 30))\n"
        "from wakugumi.adapters.programs.spawn import Spawner\n"
        "Spawner({}, resident_set=1 << 62).start([b'/bin/sh', b'-c', b'ulimit -m'], b'/', 1, 2, 'job')\n"
        "sys.exit(os.wait()[1])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stdout) == (0, f"{1 << 20}\n"), done.stderr
    assert resource.getrlimit(resource.RLIMIT_RSS)[1] == resource.RLIM_INFINITY, "as the other tests need it"
