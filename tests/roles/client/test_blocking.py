"""The client without async, against a real leader and a worker that answers at once, from several threads."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from time import sleep

import pytest
from tests.kit.eventually import eventually_blocking

from wakugumi import Client, Refused
from wakugumi.adapters.net.connect import adopt
from wakugumi.adapters.net.link import Link
from wakugumi.core.leader.answer_records import JobRow, StatusAnswer
from wakugumi.core.leader.questions import AskJob, AskStatus
from wakugumi.roles.client.request import Task
from wakugumi.roles.leader.leader import Leader
from wakugumi.wire import frame as fr
from wakugumi.wire.frame import Frame
from wakugumi.wire.messages.hello import HelloWorker
from wakugumi.wire.messages.job import JobResult, read_request, write_credit
from wakugumi.wire.messages.payload import encode

DEADLINE_S = 30.0


class EchoWorker:
    """Answers every job with its arguments, `retries` with how many it may have, `hold` only once it is let go."""

    def __init__(self) -> None:
        self._link: Link
        self._held: list[Frame] = []
        self.cancelled = 0

    def on_open(self, link: Link) -> None:
        self._link = link
        link.send(fr.encode(fr.HELLO_WORKER, b"w" * 16, payload=encode(HelloWorker("echo", ["cancels"]))))
        link.send(fr.encode(fr.CREDIT, payload=write_credit(4000)))

    def on_frame(self, _link: Link, frame: Frame) -> None:
        if frame.type == fr.ASSIGN_JOB:
            if read_request(frame.payload).exec_name == "hold":
                self._held.append(frame)
            else:
                self._answer(frame)
        elif frame.type == fr.CANCEL:
            self.cancelled += 1
            self._link.send(fr.encode(fr.CREDIT, payload=write_credit(1)))

    def on_alive(self, _link: Link) -> None: ...
    def on_blocked(self, _link: Link, blocked: bool) -> None: ...
    def on_lost(self, _link: Link) -> None: ...

    @property
    def held(self) -> int:
        return len(self._held)

    def let_go(self) -> None:
        for frame in self._held:
            self._answer(frame)
        self._held.clear()

    def _answer(self, frame: Frame) -> None:
        request = read_request(frame.payload)
        said = str(request.retries) if request.exec_name == "retries" else " ".join(request.args)
        if request.exec_name == "asks":
            said = f"{request.key} {request.priority} {request.slots}"
        result = JobResult(request.job_id, request.client_id, request.exec_name, stdout=said)
        self._link.send(fr.encode(fr.ACK_JOB, corr_id=frame.msg_id, payload=encode(result)))
        self._link.send(fr.encode(fr.CREDIT, payload=write_credit(1)))


class Grid:
    """A leader and its worker in a thread."""

    def __init__(self) -> None:
        self.worker: EchoWorker
        self.port = 0
        self._loop: asyncio.AbstractEventLoop
        self._leave: asyncio.Event
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def __enter__(self) -> Grid:
        self._thread.start()
        assert self._ready.wait(DEADLINE_S)
        return self

    def __exit__(self, *_error: object) -> None:
        self._loop.call_soon_threadsafe(self._leave.set)
        self._thread.join()

    def let_go(self) -> None:
        self._loop.call_soon_threadsafe(self.worker.let_go)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._leave = asyncio.Event()
        self.worker = EchoWorker()
        leader = Leader()
        self.port = await leader.listen("127.0.0.1", 0)
        ours, theirs = socket.socketpair()
        await leader.adopt(ours)
        await adopt(theirs, self.worker, trusted=True)
        self._ready.set()
        await self._leave.wait()
        await leader.close()


@pytest.fixture
def grid() -> Iterator[Grid]:
    with Grid() as grid:
        yield grid


@pytest.fixture
def client(grid: Grid) -> Iterator[Client]:
    with Client(f"127.0.0.1:{grid.port}", client_id="tester", cap=1000) as client:
        yield client


def test_what_a_job_asks_for_reaches_the_worker_whichever_way_it_is_handed_in(client: Client) -> None:
    assert client.run("asks", key="k", priority=3).stdout == "k 3 1"
    assert client.submit("asks", key="l", priority=-3).result().stdout == "l -3 1"
    items = ["x", {"args": ["x"], "key": "own", "priority": 0}, Task(args=["x"], priority=9)]
    told = [result.stdout for result in client.map("asks", items, key="k", priority=4)]
    assert sorted(told) == ["k 4 1", "k 9 1", "own 0 1"]


def test_retries_reach_the_worker_whichever_way_a_job_is_handed_in(client: Client) -> None:
    assert client.run("retries", retries=2).stdout == "2"
    assert client.submit("retries", retries=3).result().stdout == "3"
    assert [result.stdout for result in client.map("retries", ["x"], retries=4)] == ["4"]
    assert client.run("retries").stdout == "0"


@pytest.mark.spec("K1")
def test_submit_run_wait_and_ask_are_those_of_the_grid(client: Client) -> None:
    handle = client.submit("echo", args=["a", 1], job_id="first")
    handle.accepted()
    assert handle.result().stdout == "a 1"
    assert (handle.id, handle.done()) == ("first", True)
    assert client.run("echo", args=["b"]).stdout == "b"
    assert client.wait("first").stdout == "a 1"
    with pytest.raises(Refused) as caught:
        client.wait("never-heard-of")
    assert caught.value.code == "unknown-job"
    answer = client.ask(AskStatus())
    assert isinstance(answer, StatusAnswer)
    assert answer.finished_ok == 2
    assert client.status().connected


def test_a_result_may_be_waited_for_with_a_deadline_and_again(client: Client, grid: Grid) -> None:
    handle = client.submit("hold", args=["x"])
    for wait in (handle.result, lambda timeout_s: client.wait(handle.id, timeout_s)):
        with pytest.raises(Refused) as caught:
            wait(0.05)
        assert caught.value.code == "timed-out"
    grid.let_go()
    assert handle.result(DEADLINE_S).stdout == "x"


@pytest.mark.spec("L10")
def test_jobs_are_cancelled_by_handle_and_by_id(client: Client, grid: Grid) -> None:
    handles = [client.submit("hold") for _ in range(2)]
    eventually_blocking(lambda: grid.worker.held == 2, within_s=DEADLINE_S)
    handles[0].cancel()
    assert handles[0].result().reason == "cancelled"
    assert client.cancel(handles[1].id, "unknown").unknown
    assert handles[1].result().reason == "cancelled"
    with Client(f"127.0.0.1:{grid.port}", client_id="other") as other:
        theirs = other.submit("hold")
        theirs.accepted()
        assert client.cancel(theirs.id).cancelled == 1
        assert theirs.result().reason == "cancelled"


def test_map_gives_every_item_its_result_from_two_threads_at_once(client: Client) -> None:
    found: dict[str, set[object]] = {"a": set(), "b": set()}

    def work(name: str) -> None:
        for result in client.map("echo", (f"{name}{number}" for number in range(2000)), window=100):
            assert result.stdout == result.item
            found[name].add(result.item)

    threads = [threading.Thread(target=work, args=(name,)) for name in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert found == {name: {f"{name}{number}" for number in range(2000)} for name in found}


def test_map_is_never_more_than_its_window_ahead_and_runs_in_the_callers_thread(client: Client) -> None:
    taken = 0

    def items() -> Iterator[str]:
        nonlocal taken
        for number in range(1000):
            assert threading.current_thread() is threading.main_thread()
            taken += 1
            yield str(number)

    had = 0
    for result in client.map("echo", items(), window=20):
        had += 1
        assert result.ok
        assert taken - had < 20
    assert had == taken == 1000


def test_slow_items_do_not_wait_for_a_full_window(client: Client) -> None:
    seen = threading.Event()

    def items() -> Iterator[str]:
        yield "first"
        sleep(0.05)
        yield "second"
        assert seen.wait(DEADLINE_S), "the first result must come while there is room for many more items"
        yield "third"

    for result in client.map("echo", items(), window=100):
        if result.item == "first":
            seen.set()


def test_leaving_a_map_early_cancels_what_is_under_way(client: Client, grid: Grid) -> None:
    def items() -> Iterator[object]:
        yield {"program": "echo"}
        while True:
            yield "x"

    for _ in client.map("hold", items(), window=10):
        eventually_blocking(lambda: grid.worker.held == 9, within_s=DEADLINE_S)
        break
    eventually_blocking(lambda: client.status().unfinished == 0, within_s=DEADLINE_S)
    assert grid.worker.cancelled == 9


def test_errors_of_items_come_out_of_the_loop_and_refusals_do_not(client: Client) -> None:
    def items() -> Iterator[str]:
        yield "nul\0"
        yield "good"
        raise ZeroDivisionError

    results = client.map("echo", items(), window=1)
    assert [next(results).reason, next(results).reason] == ["bad-request", ""]
    with pytest.raises(ZeroDivisionError):
        next(results)
    with pytest.raises(TypeError):
        next(client.map("echo", [object()]))
    assert list(client.map("echo", [])) == []


def test_an_interrupt_ends_the_wait_and_cancels_the_job(client: Client, grid: Grid) -> None:
    def interrupt() -> None:
        eventually_blocking(lambda: grid.worker.held == 1, within_s=DEADLINE_S)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # A script's background ignores it.
    try:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            client.run("hold", job_id="held")
    finally:
        signal.signal(signal.SIGINT, before)
    eventually_blocking(lambda: grid.worker.cancelled == 1, within_s=DEADLINE_S)
    answer = client.ask(AskJob("held"))
    assert isinstance(answer, JobRow)
    assert (answer.state, answer.reason) == ("failed", "cancelled")
    assert client.run("echo", args=["still here"]).stdout == "still here"


def test_closing_ends_the_waiting_of_other_threads(grid: Grid) -> None:
    client = Client(f"127.0.0.1:{grid.port}")
    errors: list[str] = []

    def work(wait: Callable[[], object]) -> None:
        try:
            wait()
        except Refused as no:
            errors.append(no.code)

    waits: list[Callable[[], object]] = [
        lambda: client.run("hold"),
        lambda: list(client.map("hold", ["x"])),
        lambda: client.wait(client.submit("hold").id),
    ]
    threads = [threading.Thread(target=work, args=(wait,)) for wait in waits]
    for thread in threads:
        thread.start()
    eventually_blocking(lambda: grid.worker.held == 3, within_s=DEADLINE_S)
    client.close()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert errors == ["closed"] * 3
    waits.append(lambda: client.ask(AskStatus()))
    for wait in waits:
        with pytest.raises(Refused) as caught:
            wait()
        assert caught.value.code == "closed"
    client.close()


def test_a_client_that_cannot_connect_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    with pytest.raises(Refused, match="nobody listens there"):
        Client("127.0.0.1:1", connect_timeout_s=0.1)
    assert threading.active_count() == before


def test_waiting_in_the_clients_own_thread_is_refused_instead_of_for_ever(client: Client) -> None:
    caught: list[BaseException] = []

    async def inside() -> None:
        try:
            client.run("echo")
        except RuntimeError as error:
            caught.append(error)

    client.call(inside())
    assert "own thread" in str(caught[0])


def test_a_request_is_the_same_however_it_is_handed_in(client: Client) -> None:
    """The leader compares bytes (L6): a repeated request is answered, a different one refused."""
    assert client.run("echo", args=["x"], job_id="same", timeout_s=5).ok
    (same,) = client.map("echo", [{"args": ["x"], "job_id": "same"}], timeout_s=5)
    (other,) = client.map("echo", [{"args": ["y"], "job_id": "same"}], timeout_s=5)
    assert same.ok
    assert other.reason == "conflict"
