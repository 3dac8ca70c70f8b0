"""A process that hides from programs of the same user: what it can still see of itself and of others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LOOK = """
import os, subprocess, sys, threading
from pathlib import Path
from wakugumi.adapters.programs.linux import hide_from_programs
from wakugumi.adapters.programs.process_tree import OwnChildren, children_of, tasks_of_user, usage_of
from wakugumi.adapters.programs.marks import _self_and_above

assert hide_from_programs()
me = os.getpid()
child = subprocess.Popen(["sleep", "1000"])
print("children", child.pid in OwnChildren().pids(), child.pid in children_of(me))
print("own files", len(os.listdir("/proc/self/fd")) > 2, Path("/proc/self/fd/0").readlink() != "")
print("usage", usage_of(me) is not None, usage_of(child.pid) is not None)
print("above", os.getppid() in _self_and_above())
waits = threading.Event()
before = tasks_of_user(os.geteuid())
for _ in range(50):
    threading.Thread(target=waits.wait).start()
print("threads", tasks_of_user(os.geteuid()) >= 50 + 1)
waits.set()
print("child", f"LOOKED=yes" in Path(f"/proc/{child.pid}/environ").read_text())
child.kill()
child.wait()
"""


@pytest.mark.user_dependent
def test_a_hidden_process_still_knows_itself_and_its_programs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOOK], env={**os.environ, "LOOKED": "yes"}, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == [
        "children True True",
        "own files True True",
        "usage True True",
        "above True",
        "threads True",
        "child True",
    ], done.stderr


@pytest.mark.spec("O1")
@pytest.mark.skipif(os.geteuid() == 0, reason="root may do everything")
@pytest.mark.user_dependent
def test_what_a_hidden_process_was_started_with_is_closed_and_a_program_of_its_is_not() -> None:
    code = "from wakugumi.adapters.programs.linux import hide_from_programs; hide_from_programs(); print(); input()"
    words = [sys.executable, "-c", code]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as hidden:
        assert hidden.stdin is not None
        assert hidden.stdout is not None
        hidden.stdout.readline()
        with pytest.raises(PermissionError):
            Path(f"/proc/{hidden.pid}/environ").read_bytes()
        hidden.stdin.write(b"\n")


TELLS = """
import os, sys
from pathlib import Path
from wakugumi.adapters.programs.linux import hide_from_programs
hide_from_programs()
if os.fork() == 0:
    print(Path("/proc/self/cmdline").read_text().split("\\0")[3:-1], flush=True)
    print(sys.argv[1:], flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.spec("O1")
def test_a_key_in_an_address_is_not_in_the_list_of_processes() -> None:
    words = [
        "waku://k7-Xr/9@no",
        "waku://k7-Xr9Q@10.0.0.5:5000",
        "--group=a=https://me:word@h:1",
        "me@host",
        f"me:{'a' * 32}-{'b' * 52}@h",
        "tcp://h:1",
    ]
    done = subprocess.run([sys.executable, "-c", TELLS, *words], capture_output=True, text=True, check=True)
    shown, own = done.stdout.splitlines()
    hidden = [
        "waku://k7-Xr/9@no",
        "waku://*******@10.0.0.5:5000",
        "--group=a=https://*******@h:1",
        "me@host",
        f"me:{'*' * 85}@h",
        "tcp://h:1",
    ]
    assert shown == str(hidden)
    assert own == str(words)
