"""The grid as one of Python's executors, with real programs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, as_completed, wait
from pathlib import Path
from time import monotonic, sleep

import pytest
from tests.kit.processes import has_ended

from wakugumi import Client, Executor, Refused, Result, local

DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with local(2) as client:
        yield client


@pytest.fixture
def pool(client: Client) -> Iterator[Executor]:
    with Executor(client) as pool:
        yield pool


def test_futures_complete_with_results(pool: Executor) -> None:
    futures = {pool.submit("echo", "-n", number): number for number in range(20)}
    for future in as_completed(futures, timeout=DEADLINE_S):
        assert future.result().stdout == str(futures[future])


def test_a_failing_program_is_a_result_and_a_refusal_is_an_exception(pool: Executor) -> None:
    assert pool.submit("false").result(DEADLINE_S).exit_code == 1
    assert pool.submit("cat", "x", files={"x": "content"}).result(DEADLINE_S).stdout == "content"
    assert isinstance(pool.submit("a/b").exception(DEADLINE_S), Refused)
    with pytest.raises(Refused, match="not Python functions"):
        pool.submit(print)  # type: ignore[arg-type]


@pytest.mark.parametrize("way", ["submit", "map"])
def test_a_program_that_fails_is_run_again_if_that_is_asked_for(pool: Executor, tmp_path: Path, way: str) -> None:
    script = f"echo run >>{tmp_path}/runs; [ $(wc -l <{tmp_path}/runs) -ge 2 ]"
    if way == "submit":
        result = pool.submit("sh", "-c", script, retries=1).result(DEADLINE_S)
    else:
        (result,) = pool.map("sh", ["-c"], [script], retries=1, timeout=DEADLINE_S)
    assert result.ok
    assert (tmp_path / "runs").read_text() == "run\n" * 2


def test_a_cancelled_future_ends_its_program(pool: Executor, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    future = pool.submit("sh", "-c", f"echo $$ >{mark}; exec sleep 1000")
    until = monotonic() + DEADLINE_S
    while not (mark.exists() and mark.read_text().endswith("\n")):
        assert monotonic() < until
        sleep(0.005)
    assert future.cancel()
    assert wait([future], DEADLINE_S).not_done == set()
    with pytest.raises(CancelledError):
        future.result()
    while not has_ended(int(mark.read_text())):
        assert monotonic() < until
        sleep(0.005)


def test_map_keeps_the_order_and_takes_its_arguments_as_it_goes(pool: Executor, client: Client) -> None:
    taken = 0

    def numbers() -> Iterator[int]:
        nonlocal taken
        while True:
            taken += 1
            yield taken

    results = pool.map("echo", ["-n"] * 500, numbers())
    ahead = 2 * client.grid.cap
    for number in range(1, 300):
        assert next(results).stdout == str(number)
        assert taken - number <= ahead
    results.close()  # type: ignore[attr-defined]


def test_map_may_have_a_deadline(pool: Executor) -> None:
    with pytest.raises(TimeoutError):
        list(pool.map("sleep", [1000], timeout=0.1))


def test_a_callback_may_submit_more(pool: Executor) -> None:
    second: list[Future[Result]] = []
    there = threading.Event()

    def more(_future: Future[Result]) -> None:
        second.append(pool.submit("echo", "-n", "second"))
        there.set()

    pool.submit("true").add_done_callback(more)
    assert there.wait(DEADLINE_S)
    assert second[0].result(DEADLINE_S).stdout == "second"


def test_shutdown_waits_for_what_is_under_way(client: Client) -> None:
    pool = Executor(client)
    future = pool.submit("sleep", 0.2)
    pool.shutdown()
    assert future.done()
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit("true")
    assert client.run("true").ok, "a guest does not close its host's client"


def test_shutdown_may_cancel_and_may_not_wait(client: Client) -> None:
    pool = Executor(client)
    future = pool.submit("sleep", 1000)
    pool.shutdown(wait=False, cancel_futures=True)
    assert future.cancelled()


def test_options_belong_to_a_client_of_its_own(client: Client) -> None:
    with pytest.raises(TypeError):
        Executor(client, cap=3)
    with pytest.raises(Refused, match="no leader"):
        Executor("127.0.0.1:1", connect_timeout_s=0.1)
