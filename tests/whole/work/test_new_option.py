"""How many places does a new option of a job touch? One row and one field: it comes to the worker by every way.

The package is copied, `--colour` is added to the copy, and real processes run it.
"""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from pathlib import Path
from shutil import copytree, ignore_patterns
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from tests.kit.form import FORM_HEADERS, form
from tests.whole.conftest import WITHIN_S, GridHere, Waku

import wakugumi

ADDED = {
    "wire/job_options.py": (
        "    limits: Annotated[",
        '    colour: Annotated[str | None, Option("Which colour.", 1, 20, flag="--colour", form="colour")]\n',
    ),
    "wire/messages/job.py": (
        '    env: dict[str, str] = {}\n    """Variables for the program, beside',
        '    colour: str = ""\n',
    ),
}
"""The one row, and its field on the wire."""
MEANING = (
    "roles/runner/runner.py",
    "bounds=bounds, env=request.env",
    'bounds=bounds, env={**request.env, "COLOUR": request.colour}',
)
"""What the worker does with it."""

PYTHON = """
import asyncio, sys, wakugumi

def shown(results):
    return [result.check().stdout.strip() for result in results]

async def by_await(url):
    async with wakugumi.connect(url, client_id="a") as grid:
        print("run", shown([await grid.run("colour", colour="red")]))
        print("submit", shown([await (await grid.submit("colour", colour="red"))]))
        items = ["x", wakugumi.Task(colour="blue"), {"colour": "green"}]
        print("map", sorted(shown([result async for result in grid.map("colour", items, colour="red")])))
        print("broadcast", shown([result async for result in grid.broadcast("colour", colour="red")]))

asyncio.run(by_await(sys.argv[1]))
with wakugumi.Client(sys.argv[1], client_id="b") as grid:
    print("run", shown([grid.run("colour", colour="red")]))
    print("submit", shown([grid.submit("colour", colour="red").result()]))
    print("map", shown(grid.map("colour", ["x"], colour="red")))
    print("broadcast", shown(grid.broadcast("colour", colour="red")[0]))
    with wakugumi.Executor(grid) as pool:
        print("future", shown([pool.submit("colour", colour="red").result()]))
    try:
        grid.run("colour", colour="x" * 21)
    except wakugumi.Refused as no:
        print(no.code, no.message)
from wakugumi.wire.messages.job import InputFile, JobRequest
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.node_request import why_not_simple
job = JobRequest("id", exec_name="colour", args=["in"], files=[InputFile("in", content=b"1")], colour="red")
print("node:", why_not_simple(encode(job)))
help(wakugumi.Client.run)
"""


@pytest.fixture
def coloured(tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package with the option, for all processes that a test starts from now on."""
    package = tmp_path / "coloured" / "wakugumi"
    copytree(Path(wakugumi.__file__).parent, package, ignore=ignore_patterns("__pycache__"))
    for name, (before, line) in ADDED.items():
        put(package / name, before, line + before)
    put(package / MEANING[0], *MEANING[1:])
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    (programs / "colour").write_text("#!/bin/sh\necho $COLOUR\n")
    (programs / "colour").chmod(0o755)
    return package.parent


def put(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1, f"{file.name} has changed: where does a new option go?"
    file.write_text(text.replace(old, new))


@pytest.mark.usefixtures("coloured")
class TestNewOption:
    """`coloured` goes before `grid`, whose processes have the option."""

    def test_the_command_line_has_it_and_brings_it_to_the_worker(self, waku: Waku, programs: Path) -> None:
        for command in ("run", "submit", "map", "broadcast"):
            assert "Which colour." in waku(command, "--help").stdout
        done = waku("run", programs / "colour", "--colour", "red")
        assert (done.stdout, done.returncode) == ("red\n", 0), done.stderr
        assert "colour is 1 to 20 printable characters" in waku("run", programs / "colour", "--colour", "").stderr

    def test_a_leader_s_grid_has_it_by_each_command(self, waku: Waku, grid: GridHere, home: Path) -> None:
        assert waku("run", "colour", "--colour", "red").stdout == "red\n"
        job = waku("submit", "colour", "--colour", "red").stdout.strip()
        assert '"red\\n"' in waku("jobs", "wait", job, "-o", "json").stdout
        assert "    red" in waku("broadcast", "colour", "--colour", "red").stdout
        (home / "in").write_text("1")
        assert waku("map", "colour", "in", "--colour", "red").returncode == 0
        assert (home / "waku-out/in/stdout.txt").read_text() == "red\n"

    def test_python_has_it_in_each_call(self, grid: GridHere) -> None:
        done = subprocess.run(
            [sys.executable, "-c", PYTHON, grid.address], capture_output=True, text=True, timeout=WITHIN_S
        )
        ways, _, page = done.stdout.partition("Help on")
        assert ways.splitlines() == [
            "run ['red']",
            "submit ['red']",
            "map ['blue', 'green', 'red']",
            "broadcast ['red']",
            "run ['red']",
            "submit ['red']",
            "map ['red']",
            "broadcast ['red']",
            "future ['red']",
            f"bad-request colour is 1 to 20 printable characters, not '{'x' * 21}'",
            "node: it has colour",
        ], done.stderr
        assert "colour: str | None = None" in page
        assert "colour: Which colour." in page

    def test_a_query_has_it_and_its_description_says_so(self, grid: GridHere) -> None:
        url = f"http://{grid.address}"
        body = form(b"1")
        asked = Request(f"{url}/dispatch/one?program=colour&colour=red", body, FORM_HEADERS)
        with urlopen(asked, timeout=WITHIN_S) as got:
            assert zipfile.ZipFile(io.BytesIO(got.read())).read("stdout.txt") == b"red\n"
        asked = Request(f"{url}/dispatch/two?program=colour&colour={'x' * 21}", body, FORM_HEADERS)
        with pytest.raises(HTTPError, match="400") as caught:
            urlopen(asked, timeout=WITHIN_S)
        with caught.value as no:
            assert b"colour is 1 to 20 printable characters" in no.read()
        with urlopen(f"{url}/openapi.json", timeout=WITHIN_S) as told:
            assert b'"Which colour."' in told.read()
