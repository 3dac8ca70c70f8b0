"""A leader and the nodes that it knows by address: real processes, killed where it hurts."""

from __future__ import annotations

import http.client
import io
import json
import signal
import zipfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic, sleep

import pytest
from tests.kit.eventually import eventually_blocking
from tests.kit.form import FORM_HEADERS, form
from tests.whole.conftest import WITHIN_S, Running, Waku

from wakugumi.app.serve.free_ports import free_port

Start = Callable[..., Running]
JOBS = 10


@pytest.fixture
def counting(programs: Path) -> Path:
    """`count IN` writes down that it runs, waits to be let go, and answers with its input."""
    here = programs.parent
    script = f'#!/bin/sh\ncat "$1" >> {here}/ran\nwhile [ ! -e {here}/go ]; do sleep 0.02; done\ncat "$1" > out\n'
    (programs / "count").write_text(script)
    (programs / "count").chmod(0o755)
    return here


def _node(start: Start, here: Path, name: str, port: int = 0) -> tuple[Running, str]:
    folders = ["--programs", here / "programs", "--jobs", here / f"jobs-{name}"]
    node = start("node", "--program", "count", *folders, "--slots", "3", "--http", str(port), "--lines", "off")
    return node, node.line().split()[0]


def _post(port: int, job: str, content: bytes) -> tuple[int, bytes]:
    """As any HTTP client does, again and again while nobody answers: the same id is the same job."""
    body = form(content)
    until = monotonic() + WITHIN_S
    while True:
        conn = http.client.HTTPConnection("127.0.0.1", port, timeout=WITHIN_S)
        try:
            conn.request("POST", f"/dispatch/{job}", body, FORM_HEADERS)
            answer = conn.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            assert monotonic() < until, "the leader never answered"
            sleep(0.05)  # until somebody listens there again
        finally:
            conn.close()


def _ran(here: Path) -> Counter[str]:
    path = here / "ran"
    return Counter(path.read_text().split()) if path.exists() else Counter()


@pytest.mark.spec("G1", "L4", "L7")
def test_a_leader_killed_and_started_anew_loses_nothing_and_runs_nothing_twice(start: Start, counting: Path) -> None:
    urls = [_node(start, counting, name)[1] for name in ("one", "two")]
    port = free_port()
    words = ["leader", str(port), "--state", counting / "journal", *(f"--node={url}" for url in urls)]
    leader = start(*words)
    assert leader.line().endswith(str(port))
    with ThreadPoolExecutor(JOBS) as pool:
        answers = [pool.submit(_post, port, f"job-{number}", b"%d\n" % number) for number in range(JOBS)]
        eventually_blocking(lambda: len(_ran(counting)) == 6, "both nodes never had their slots full")
        leader.signal(signal.SIGKILL)
        leader.process.wait()
        again = start(*words)
        again.line()
        (counting / "go").touch()
        for number, answer in enumerate(answers):
            status, body = answer.result(WITHIN_S)
            assert status == 200, body
            with zipfile.ZipFile(io.BytesIO(body)) as archive:
                assert archive.read("out") == b"%d\n" % number
    assert _ran(counting) == Counter(str(number) for number in range(JOBS))


@pytest.mark.spec("G1", "L4")
def test_a_node_killed_in_the_midst_loses_nothing(start: Start, waku: Waku, counting: Path) -> None:
    dying, url = _node(start, counting, "one")
    leader = start("leader", "0", "--node", f"{url},weight=2,name=left")
    address = leader.line()
    port = int(address.rpartition(":")[2])
    with ThreadPoolExecutor(JOBS) as pool:
        answers = [pool.submit(_post, port, f"job-{number}", b"%d\n" % number) for number in range(4)]
        eventually_blocking(lambda: len(_ran(counting)) == 3, "the node never had its slots full")
        dying.signal(signal.SIGKILL)
        dying.process.wait()

        def listed() -> dict[str, dict[str, object]]:
            told = json.loads(waku("workers", "list", "--leader", address, "--output", "json").stdout)
            return {row["name"]: row for row in (told if isinstance(told, list) else told["workers"])}

        leader.until(lambda text: "is out of order" in text)
        # Between two rests the node is tried again, and listed as busy.
        eventually_blocking(lambda: listed()["left"]["state"] == "resting")
        eventually_blocking(lambda: "left rests: " in waku("workers", "list", "--leader", address).stderr)
        _node(start, counting, "one", int(url.rpartition(":")[2]))
        (counting / "go").touch()
        assert [answer.result(WITHIN_S)[0] for answer in answers] == [200] * 4
        assert (listed()["left"]["weight"], listed()["left"]["rests"]) == (2, "")
