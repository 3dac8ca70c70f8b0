"""What is one job, as a program asks for it? And do `help`, the async and the blocking client tell the same?"""

from __future__ import annotations

import inspect
import os
import pickle
import pydoc
import subprocess
import sys
from collections.abc import Callable
from inspect import Parameter
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import wakugumi
from wakugumi import Client, Executor, Grid, Task
from wakugumi.roles.client.job_spec import BroadcastOptions, FutureOptions, JobSpec, MapOptions, SubmitOptions
from wakugumi.wire.job_options import JobOptions, rows

CALLS: list[tuple[Callable[..., Any], type]] = [
    (Grid.submit, SubmitOptions),
    (Grid.run, SubmitOptions),
    (Grid.map, MapOptions),
    (Grid.broadcast, BroadcastOptions),
    (Client.submit, SubmitOptions),
    (Client.run, SubmitOptions),
    (Client.map, MapOptions),
    (Client.broadcast, BroadcastOptions),
    (Executor.submit, FutureOptions),
    (Executor.map, JobOptions),
    (Task, SubmitOptions),
]


def test_a_spec_is_a_value() -> None:
    spec = Task("calcA", args=["-v"], priority=7)
    assert spec == Task("calcA", priority=7, args=["-v"], key=None, retries=None) != Task("calcA", args=["-v"])
    assert spec != JobSpec("calcA", args=["-v"], priority=7)
    assert (spec.program, spec.args, spec.priority, spec.key, spec.subject) == ("calcA", ["-v"], 7, None, "")
    assert repr(spec) == "Task('calcA', args=['-v'], priority=7)"
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert len({Task(args=("1",)), Task(args=("1",)), Task(args=("2",))}) == 2
    with pytest.raises(AttributeError, match="priority stays as it is"):
        spec.priority = 8
    with pytest.raises(AttributeError, match="no option 'colour'"):
        _ = spec.colour


def test_what_an_item_does_not_say_comes_from_its_map() -> None:
    common = JobSpec("calcA", args=["-v"], env={"A": "1", "B": "1"}, subject="eu", retries=2, priority=7)
    assert JobSpec().over(common) == common
    assert JobSpec(subject="", args=[]).over(common) == common
    own = JobSpec("calcB", args=["x"], env={"B": "2"}, subject="us", retries=0, key="k").over(common)
    assert own == JobSpec(
        "calcB", args=["-v", "x"], env={"A": "1", "B": "2"}, subject="us", retries=0, priority=7, key="k"
    )
    assert Task(args=["x"]).over(JobSpec("calcA")) == JobSpec("calcA", args=["x"])


@pytest.mark.parametrize(("call", "options"), CALLS)
def test_help_shows_each_option_with_its_default_and_its_meaning(call: Callable[..., Any], options: type) -> None:
    parameters = inspect.signature(call).parameters
    named = [name for name, one in parameters.items() if one.kind is Parameter.KEYWORD_ONLY]
    assert set(named) >= options.__annotations__.keys()
    assert not any(one.kind is Parameter.VAR_KEYWORD for one in parameters.values())
    assert all(parameters[name].default in (None, "", ()) for name in options.__annotations__)
    page = pydoc.plain(pydoc.render_doc(call))
    for name, option in rows(options).items():
        assert f"{name}: {option.help}" in page
    assert f"timeout_s: {float | None} = None" in page


@pytest.mark.parametrize(
    "name", sorted(name for name in vars(Client) if not name.startswith("_") and hasattr(Grid, name))
)
def test_the_blocking_client_takes_what_the_grid_takes(name: str) -> None:
    ours, theirs = (inspect.signature(getattr(owner, name)).parameters for owner in (Client, Grid))
    if name == "wait":  # The Grid's is awaited, and `asyncio.timeout` does that there.
        ours = {each: one for each, one in ours.items() if each != "timeout_s"}  # type: ignore[assignment]
    assert list(ours) == list(theirs)
    for each, one in ours.items():
        assert (one.kind, one.default) == (theirs[each].kind, theirs[each].default), each
        if (name, each) != ("map", "items"):  # A Client takes no asynchronous ones.
            assert one.annotation == theirs[each].annotation, each
    assert getattr(Client, name).__doc__
    assert not inspect.iscoroutinefunction(getattr(Client, name))


def test_a_client_is_made_as_a_grid_is() -> None:
    ours, theirs = inspect.signature(Client), inspect.signature(wakugumi.connect)
    assert list(ours.parameters.values()) == list(theirs.parameters.values())


def test_all_that_a_grid_does_a_client_does() -> None:
    public = {name for name in vars(Grid) if not name.startswith("_") and inspect.isfunction(vars(Grid)[name])}
    inner = {"all_tried", "served", "set_patience", "new_window"}
    assert public - inner <= set(dir(Client))


@pytest.mark.parametrize("call", ["submit", "run", "map", "broadcast"])
def test_a_name_that_is_no_option_is_an_error_of_types(call: str, tmp_path: Path) -> None:
    wrong = {"map": {"job_id": "one"}, "broadcast": {"priority": 1}}.get(call, {"colour": "red"})
    items: list[Any] = [["1"]] if call == "map" else []
    (name,) = wrong
    with wakugumi.local(1, programs=tmp_path) as client:
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
            getattr(client, call)("calcA", *items, **wrong)
        with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
            list(client.map("calcA", [{"colour": "red"}]))


def test_the_annotations_of_options_can_be_read() -> None:
    for _, options in CALLS:
        assert get_type_hints(options)["timeout_s"] == float | None


WRONG = """
import wakugumi

async def use(grid: wakugumi.Grid, client: wakugumi.Client, pool: wakugumi.Executor) -> None:
    reveal_type(client.run("p", priority=1, env={"A": "1"}, args=["x", 1, 1.5]))
    reveal_type(client.caches(limit=3))
    await grid.run("p", priority="high")
    await grid.submit("p", colour="red")
    grid.map("p", [], job_id="one")
    grid.broadcast("p", slots=2)
    client.run("p", retries="two")
    client.map("p", [], retrys=1)
    client.put_cache("c", {}, shares=1)
    pool.submit("p", "x", priority="high")
    wakugumi.Task(args=["x"], timeout_s="1")
    wakugumi.Client("here", cap="many")
"""


def test_type_checkers_know_each_option_of_each_call(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(WRONG)
    told = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", "wrong.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(Path(wakugumi.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=100,
    )
    errors = [line.split(": error: ")[1] for line in told.stdout.splitlines() if ": error: " in line]
    words = ["priority", "colour", "job_id", "slots", "retries", "retrys", "shares", "priority", "timeout_s", "cap"]
    assert [error.split('"')[1] for error in errors] == words, told.stdout + told.stderr
    assert told.stdout.count("Revealed type is") == 2
    assert "result.Result" in told.stdout
    assert "list[wakugumi.core.leader.answer_records.CacheRow]" in told.stdout
