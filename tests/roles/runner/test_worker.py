"""A real worker with real programs, against leaders that are scripted on bare sockets."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit.eventually import eventually
from tests.kit.worker_bench import Bench
from tests.kit.workers_leader import (
    ACK,
    CACHE_ACK,
    CACHE_PUT,
    CANCEL,
    CREDIT,
    DEADLINE_S,
    HELLO_WORKER,
    HOLDING,
    LEAVING,
    WELCOME,
    WorkersLeader,
    new_id,
)

from wakugumi.adapters.net.address import Address
from wakugumi.errors import ConfigError
from wakugumi.limits.runner import CPU_CAP
from wakugumi.roles.runner.settings import WorkerSettings
from wakugumi.roles.runner.worker import Worker

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quickly")]


# An old leader: nine types, no welcome.


@pytest.mark.spec("F1", "F2", "F5", "F7", "F9")
async def test_an_old_leader_gets_a_hello_credit_an_ack_and_the_credit_back(
    leader: WorkersLeader, bench: Bench
) -> None:
    worker = bench.worker(leader.address, patterns="job.assign.calcA, groupB", slots=3)
    link = await leader.connection()
    hello = await link.expect(HELLO_WORKER)
    assert hello.msg_id.bytes_le == worker.worker_id
    assert hello.subject == "job.assign.calcA, groupB"
    assert (await link.expect(CREDIT)).credit == 3
    job = new_id()
    link.assign(job, "count", "a b", "c")
    result = await link.ack_of(job)
    assert result["JobId"] == str(job)
    assert result["ClientId"] == "desk-1"
    assert (result["Status"], result["ExitCode"], result["Stdout"]) == ("OK", 0, "counted a b c\n")
    assert (await link.expect(CREDIT)).credit == 1


@pytest.mark.spec("W6")
async def test_a_failing_program_is_acked_with_its_exit_code_and_words(leader: WorkersLeader, bench: Bench) -> None:
    bench.worker(leader.address)
    link = await leader.connection()
    await link.expect(HELLO_WORKER)
    await link.expect(CREDIT)
    job, unknown = new_id(), new_id()
    link.assign(job, "fail")
    result = await link.ack_of(job)
    assert (result["Status"], result["ExitCode"], result["Stderr"]) == ("FAILED", 3, "why\n")
    await link.expect(CREDIT)
    link.assign(unknown, "nothing-of-that-name")
    assert (await link.ack_of(unknown))["Reason"] == "unknown-program"
    assert (await link.expect(CREDIT)).credit == 1


@pytest.mark.spec("W4", "F7")
async def test_a_duplicate_of_a_running_job_gives_its_credit_back_and_runs_once(
    leader: WorkersLeader, bench: Bench
) -> None:
    bench.worker(leader.address)
    link = await leader.connection()
    await link.expect(HELLO_WORKER)
    await link.expect(CREDIT)
    job = new_id()
    link.assign(job, "wait")
    await bench.until_run()
    link.assign(job, "wait")
    assert (await link.expect(CREDIT)).credit == 1
    bench.gate.touch()
    assert (await link.ack_of(job))["Status"] == "OK"
    assert (await link.expect(CREDIT)).credit == 1
    assert bench.run_count == 1


@pytest.mark.spec("W4", "F7")
@pytest.mark.parametrize(("program", "status"), [("count", "OK"), ("fail", "FAILED")])
async def test_an_old_leaders_duplicate_of_a_finished_job_is_answered_and_not_run_again(
    leader: WorkersLeader, bench: Bench, program: str, status: str
) -> None:
    bench.worker(leader.address)
    link = await leader.connection()
    await link.expect(HELLO_WORKER)
    await link.expect(CREDIT)
    job = new_id()
    link.assign(job, program)
    first = await link.ack_of(job)
    await link.expect(CREDIT)
    link.assign(job, program)
    assert await link.ack_of(job) == first
    assert first["Status"] == status
    assert (await link.expect(CREDIT)).credit == 1
    assert bench.run_count == 1


@pytest.mark.spec("F4", "F9", "W7")
async def test_an_old_leader_that_comes_back_hears_only_the_nine_types_and_what_it_has_not_heard(
    leader: WorkersLeader, bench: Bench
) -> None:
    bench.worker(leader.address)
    link = await leader.connection()
    await link.expect(HELLO_WORKER)
    await link.expect(CREDIT)
    told, untold = new_id(), new_id()
    link.assign(told, "count")
    await link.ack_of(told)
    link.assign(untold, "wait")
    await bench.until_run(2)
    link.close()
    again = await leader.connection()
    await again.expect(HELLO_WORKER)
    assert (await again.expect(CREDIT)).credit == 1
    bench.gate.touch()
    assert (await again.ack_of(untold))["Status"] == "OK"
    assert (await again.expect(CREDIT)).credit == 1
    assert {message.type for message in link.heard + again.heard} <= {ACK, CREDIT, HELLO_WORKER}


# A leader of our own.


@pytest.mark.spec("L4")
async def test_a_job_outlives_its_connection_and_is_answered_over_the_next(leader: WorkersLeader, bench: Bench) -> None:
    bench.worker(leader.address)
    link = await leader.connection()
    assert await link.welcome() == {}
    assert (await link.expect(CREDIT)).credit == 2
    job = new_id()
    link.assign(job, "wait")
    await bench.until_run()
    link.close()
    again = await leader.connection()
    assert await again.welcome() == {"Running": [base64.b64encode(job.bytes_le).decode()]}
    assert (await again.expect(CREDIT)).credit == 1
    assert again.heard[0].msg_id == link.heard[0].msg_id
    bench.gate.touch()
    assert (await again.ack_of(job))["Status"] == "OK"
    assert (await again.expect(CREDIT)).credit == 1
    assert bench.run_count == 1


@pytest.mark.spec("W7")
@pytest.mark.parametrize(("program", "runs"), [("count", 1), ("fail", 1), ("nothing-of-that-name", 0)])
async def test_a_result_is_sent_over_every_connection_until_it_is_confirmed(
    leader: WorkersLeader, bench: Bench, program: str, runs: int
) -> None:
    bench.worker(leader.address)
    link = await leader.connection()
    await link.welcome()
    await link.expect(CREDIT)
    job = new_id()
    link.assign(job, program)
    first = await link.ack_of(job)
    for _ in range(2):
        link.close()
        link = await leader.connection()
        assert await link.welcome() == {"Finished": [base64.b64encode(job.bytes_le).decode()]}
        assert await link.ack_of(job) == first
        assert (await link.expect(CREDIT)).credit == 2
    link.confirm(job)
    link.assign(other := new_id(), "count")  # What it says next shows that it has read the confirmation.
    await link.ack_of(other)
    link.confirm(other)
    link.close()
    link = await leader.connection()
    assert await link.welcome() in ({}, {"Finished": [base64.b64encode(other.bytes_le).decode()]})
    assert bench.run_count == runs + 1


@pytest.mark.spec("L3", "L6")
async def test_a_confirmed_failure_runs_again_and_a_success_never(leader: WorkersLeader, bench: Bench) -> None:
    bench.worker(leader.address)
    link = await leader.connection()
    await link.welcome()
    await link.expect(CREDIT)
    failing, fine = new_id(), new_id()
    for _ in range(2):
        link.assign(failing, "fail")
        assert (await link.ack_of(failing))["Status"] == "FAILED"
        await link.expect(CREDIT)
        link.confirm(failing)
        link.assign(fine, "count")
        assert (await link.ack_of(fine))["Status"] == "OK"
        await link.expect(CREDIT)
        link.confirm(fine)
    assert bench.run_count == 3


@pytest.mark.spec("W4")
async def test_a_worker_that_was_restarted_answers_from_its_disk(leader: WorkersLeader, bench: Bench) -> None:
    bench.program("make", 'echo made > out.txt; echo run >> "$1"')
    job = new_id()
    results = []
    for life in range(2):
        worker = bench.worker(leader.address)
        link = await leader.connection()
        assert await link.welcome() == ({"Kept": [told(job)]} if life else {})
        await link.expect(CREDIT)
        link.assign(job, "make", str(bench.runs))
        results.append(await link.ack_of(job))
        link.confirm(job)
        worker.request_stop()
        await bench.stopped(worker)
    assert results[0] == results[1]
    assert results[0]["OutputArchive"]
    assert bench.run_count == 1


@pytest.mark.spec("L10", "W3")
async def test_cancel_kills_the_program_and_the_ack_says_so(leader: WorkersLeader, bench: Bench) -> None:
    bench.worker(leader.address)
    link = await leader.connection()
    await link.welcome()
    await link.expect(CREDIT)
    job = new_id()
    link.assign(job, "wait")
    await bench.until_run()
    link.send(CANCEL, job.bytes_le, corr_id=job)
    result = await link.ack_of(job)
    assert (result["Status"], result["Reason"]) == ("FAILED", "cancelled")
    assert (await link.expect(CREDIT)).credit == 1


@pytest.mark.spec("L2")
async def test_a_job_assigned_without_credit_waits_and_more_are_sent_back(leader: WorkersLeader, bench: Bench) -> None:
    bench.worker(leader.address, slots=1)
    link = await leader.connection()
    await link.welcome()
    await link.expect(CREDIT)
    first, second, third = new_id(), new_id(), new_id()
    link.assign(first, "wait")
    link.assign(second, "count")
    link.assign(third, "count")
    refused = await link.ack_of(third)
    assert (refused["Status"], refused["Reason"]) == ("FAILED", "worker-error")
    bench.gate.touch()
    await link.ack_of(first)
    await link.ack_of(second)
    assert (await link.expect(CREDIT)).credit == 1


@pytest.mark.spec("W2")
async def test_credit_waits_until_others_leave_the_cpu_alone(
    leader: WorkersLeader, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How busy a machine is cannot be arranged for a test; that the worker heeds it can be seen."""
    others = 1.0
    monkeypatch.setattr("wakugumi.roles.runner.runner.Runner.others_cpu_share", lambda _: others)
    monkeypatch.setattr("wakugumi.core.runner.assignments.CREDIT_HELD_MAX_S", 1_000.0)
    bench.program("two-seconds", "sleep 2")  # Its credit is held for as long as it ran.
    bench.worker(leader.address, cpu_cap=CPU_CAP)
    link = await leader.connection()
    await link.welcome()
    await link.expect(CREDIT)
    link.assign(job := new_id(), "two-seconds")
    await link.ack_of(job)
    link.send(CACHE_PUT, b"{}")
    await link.expect(CACHE_ACK)  # and no credit before it
    others = 0.0
    assert (await link.expect(CREDIT)).credit == 1


# The end.


@pytest.mark.spec("L10")
async def test_asked_to_stop_a_worker_finishes_delivers_and_leaves(leader: WorkersLeader, bench: Bench) -> None:
    worker = bench.worker(leader.address)
    link = await leader.connection()
    await link.welcome()
    await link.expect(CREDIT)
    job = new_id()
    link.assign(job, "wait")
    await bench.until_run()
    worker.request_stop()
    await link.expect(LEAVING)
    bench.gate.touch()
    assert (await link.ack_of(job))["Status"] == "OK"
    link.confirm(job)
    await bench.stopped(worker)
    assert await link.ended() == []


@pytest.mark.spec("L10", "W3")
async def test_asked_twice_a_worker_stops_now_and_its_programs_with_it(
    leader: WorkersLeader, bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench.program("write-pid", f'echo $$ > "{tmp_path}/pid.new"; mv "{tmp_path}/pid.new" "{bench.runs}"; sleep 600')
    worker = bench.worker(leader.address)
    link = await leader.connection()
    await link.welcome()
    await link.expect(CREDIT)
    link.assign(new_id(), "write-pid")
    await bench.until_run()
    worker.request_stop()
    await link.expect(LEAVING)
    worker.request_stop()
    assert "stopping now: running=1, given up" in caplog.messages
    assert await link.ended() == []
    with pytest.raises(ProcessLookupError):  # Before the leader hears of the end, so that no job runs twice at once.
        os.kill(int(bench.runs.read_text()), 0)
    await bench.stopped(worker)


@pytest.mark.spec("L10", "W7")
async def test_a_leaving_worker_comes_back_once_more_to_deliver(leader: WorkersLeader, bench: Bench) -> None:
    worker = bench.worker(leader.address)
    link = await leader.connection()
    await link.welcome()
    await link.expect(CREDIT)
    job = new_id()
    link.assign(job, "count")
    await link.ack_of(job)
    worker.request_stop()
    link.close()
    again = await leader.connection()
    assert (await again.welcome())["Finished"]
    await again.ack_of(job)
    await again.expect(LEAVING)
    again.confirm(job)
    await bench.stopped(worker)


async def test_a_worker_without_a_leader_stops_at_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as taken:  # Bound and not listening: nobody answers there, and nobody else can.
        taken.bind(("127.0.0.1", 0))
        worker = bench.worker(Address("127.0.0.1", taken.getsockname()[1]))
        await eventually(lambda: any("nobody listens there" in line for line in caplog.messages))
        worker.request_stop()
        await bench.stopped(worker)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"patterns": "job..x"}, "job..x"),
        ({"name": "x" * 65}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"slots": 0}, "at once"),
        ({"slots": 5_000}, "at once"),
        ({"cpu_cap": 0.05}, "CPU cap"),
    ],
)
async def test_what_no_leader_would_accept_is_refused_at_the_start(
    bench: Bench, settings: dict[str, Any], word: str
) -> None:
    with pytest.raises(ConfigError, match=word):
        Worker(WorkerSettings(leader=Address("127.0.0.1", 1), programs=bench.programs, jobs=bench.jobs, **settings))


# Killed, and started anew.


class LiveWorker:
    """A worker's process, on the bench's folders."""

    def __init__(self, leader: WorkersLeader, bench: Bench) -> None:
        self._command = [sys.executable, "-c", MAIN, str(leader.address.port), str(bench.programs), str(bench.jobs)]
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(*self._command, stderr=subprocess.DEVNULL)

    async def kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()


@pytest.fixture
async def live(leader: WorkersLeader, bench: Bench) -> AsyncIterator[LiveWorker]:
    live = LiveWorker(leader, bench)
    yield live
    await live.kill()


def told(job: uuid.UUID) -> str:
    """As it stands in Holding."""
    return base64.b64encode(job.bytes_le).decode()


@pytest.mark.spec("L4", "W4", "W7")
async def test_a_worker_that_was_killed_comes_back_under_its_id_and_its_results_are_fetched(
    leader: WorkersLeader, bench: Bench, live: LiveWorker
) -> None:
    bench.program("make", f'echo run >> "{bench.runs}"; echo made > out.txt; echo said')
    await live.start()
    link = await leader.connection()
    hello = await link.expect(HELLO_WORKER)
    link.send(WELCOME, b'{"Version":"1"}')
    assert (await link.expect(HOLDING)).json == {}
    await link.expect(CREDIT)
    ok, failed, running = new_id(), new_id(), new_id()
    link.assign(running, "wait")
    link.assign(ok, "make")
    link.assign(failed, "fail")
    acks: dict[uuid.UUID, Any] = {}
    while acks.keys() != {ok, failed}:
        if (frame := await link.read()).type == ACK:
            acks[frame.corr_id] = frame.json
    await bench.until_run(3)
    await live.kill()

    await live.start()
    link = await leader.connection()
    assert (await link.expect(HELLO_WORKER)).msg_id == hello.msg_id
    link.send(WELCOME, b'{"Version":"1"}')
    holding = (await link.expect(HOLDING)).json
    assert holding.keys() == {"Kept"}
    assert sorted(holding["Kept"]) == sorted([told(ok), told(failed)])
    assert (await link.expect(CREDIT)).credit == 4
    link.fetch(ok, failed, running)
    assert await link.ack_of(ok) == acks[ok]
    assert await link.ack_of(failed) == acks[failed]
    gone = await link.ack_of(running)
    assert (gone["Status"], gone["Reason"]) == ("FAILED", "worker-error")
    assert bench.run_count == 3, "what is on the disk is not run again"

    link.close()
    link = await leader.connection()
    holding = await link.welcome()
    assert sorted(holding.pop("Finished")) == sorted([told(ok), told(failed)])
    assert holding == {}, "what was fetched is owed, and no longer offered"
    await link.expect(CREDIT)
    assert {(await link.expect(ACK)).corr_id for _ in range(2)} == {ok, failed}


@pytest.mark.spec("L3", "L6")
async def test_a_failure_that_the_leader_knows_is_not_offered_after_a_restart(
    leader: WorkersLeader, bench: Bench, live: LiveWorker
) -> None:
    await live.start()
    link = await leader.connection()
    await link.welcome()
    await link.expect(CREDIT)
    ok, failed = new_id(), new_id()
    for job, program in ((ok, "count"), (failed, "fail")):
        link.assign(job, program)
        await link.ack_of(job)
        await link.expect(CREDIT)
        link.confirm(job)
    await eventually(lambda: not (bench.jobs / str(failed) / ".done").exists())
    await live.kill()
    await live.start()
    link = await leader.connection()
    assert await link.welcome() == {"Kept": [told(ok)]}


MAIN = """
import logging, sys
from pathlib import Path
from wakugumi.adapters.net.address import Address
from wakugumi.roles.runner.settings import WorkerSettings
from wakugumi.roles.runner.worker import main_worker
logging.basicConfig(level=logging.INFO)
port, programs, jobs = sys.argv[1:]
leader = Address("127.0.0.1", int(port))
sys.exit(main_worker(WorkerSettings(leader=leader, programs=Path(programs), jobs=Path(jobs), slots=4)))
"""


@pytest.mark.spec("L10")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_drains_the_process_and_it_ends_well(
    leader: WorkersLeader, bench: Bench, number: signal.Signals
) -> None:
    command = [sys.executable, "-c", MAIN, str(leader.address.port), str(bench.programs), str(bench.jobs)]
    process = await asyncio.create_subprocess_exec(*command, stderr=subprocess.PIPE)
    try:
        link = await leader.connection()
        await link.welcome()
        assert (await link.expect(CREDIT)).credit == 4
        link.assign(job := new_id(), "wait")
        await bench.until_run()
        process.send_signal(number)
        await link.expect(LEAVING)
        bench.gate.touch()
        assert (await link.ack_of(job))["Status"] == "OK"
        link.confirm(job)
        assert await link.ended() == []
        async with asyncio.timeout(DEADLINE_S):
            _, said = await process.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    assert process.returncode == 0, said
    assert b"connected to the leader" in said
    assert b"draining: running=1" in said
    assert b"stopped" in said


@pytest.fixture(autouse=True)
def every_word(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
