"""Peers that speak just the nine old types, against our leader: they work in full, and hear nothing new."""

from __future__ import annotations

import asyncio
import base64
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from uuid import UUID, uuid4
from zipfile import ZipFile

import pytest
from tests.kit import old_peers as old
from tests.kit.a_leader import Running, a_leader
from tests.kit.old_peers import Message, OldClient, OldWorker

from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.net.address import Address
from wakugumi.roles.client.grid import connect
from wakugumi.roles.runner.settings import WorkerSettings
from wakugumi.roles.runner.worker import Worker

pytestmark = pytest.mark.anyio

JOB = UUID("00112233-4455-6677-8899-aabbccddeeff")


@pytest.mark.spec("F4", "F6")
async def test_a_job_goes_from_an_old_client_to_an_old_worker_and_back() -> None:
    async with a_leader() as leader, OldClient(leader.port) as client, OldWorker(leader.port) as worker:
        await client.hello("desk-1", {"ClientId": "desk-1", "DesiredParallelism": 8})
        await worker.hello("job.assign.*", credit=2)
        files = [{"Name": "in.txt", "CacheId": None, "Content": "NDI="}]
        job_id = await client.submit(Args=["--mode=fast"], Files=files)
        job = await worker.assigned()
        assert (job.msg_id, job.subject) == (job_id, "job.assign.calca")
        assert (job.json["Args"], job.json["Files"]) == (["--mode=fast"], files)
        await worker.ack(job, Stdout="42\n", OutputArchive="UEs=", ExitCode=0)
        assert await client.result() == (
            job_id,
            {
                "JobId": str(job_id),
                "ClientId": "old",
                "ExecName": "calcA",
                "Status": "OK",
                "Stdout": "42\n",
                "Stderr": "",
                "OutputArchive": "UEs=",
                "ExitCode": 0,
            },
        )


async def test_many_jobs_of_two_old_clients_run_on_two_old_workers() -> None:
    tasks = Tasks()
    async with (
        a_leader() as leader,
        OldClient(leader.port) as one,
        OldClient(leader.port) as other,
        OldWorker(leader.port) as first,
        OldWorker(leader.port) as second,
    ):
        for worker in (first, second):
            await worker.hello(credit=3)
            tasks.start(worker.serve(lambda request: f"did {request['JobId']}"), name="old worker")
        for client, name in ((one, "one"), (other, "other")):
            await client.hello(name)
        sent = {client: [await client.submit() for _ in range(50)] for client in (one, other)}
        for client, jobs in sent.items():
            results = await client.results(50)
            assert {job: result["Stdout"] for job, result in results.items()} == {job: f"did {job}" for job in jobs}
        await tasks.close()


@pytest.mark.spec("F2", "F9")
async def test_ids_keep_their_byte_order_both_ways() -> None:
    async with a_leader() as leader, OldClient(leader.port) as client, OldWorker(leader.port) as worker:
        await client.hello("desk-1")
        await worker.hello(credit=1)
        await client.submit(job_id=JOB)
        async with asyncio.timeout(old.DEADLINE_S):
            raw = await worker.reader.readexactly(37)
        dotnet = bytes.fromhex("33221100 5544 7766 8899aabbccddeeff")
        assert raw[5:21] == dotnet
        (size,) = struct.unpack_from("<I", raw)
        rest = await worker.reader.readexactly(size + 4 - len(raw))
        assert f'"JobId": "{JOB}"'.encode() in rest
        await worker.ack(old.unpack((raw + rest)[4:]))
        raw = await client.reader.readexactly(37)
        assert raw[21:37] == dotnet


@pytest.mark.spec("F9")
async def test_the_payloads_job_id_wins_over_the_frames() -> None:
    async with a_leader() as leader, OldClient(leader.port) as client, OldWorker(leader.port) as worker:
        await client.hello("desk-1")
        await worker.hello(credit=2)
        await client.send(Message(old.SUBMIT_JOB, uuid4(), payload=b'{"JobId":"%s"}' % JOB.hex.upper().encode()))
        assert (await worker.assigned()).msg_id == JOB
        in_frame_only = uuid4()
        await client.send(Message(old.SUBMIT_JOB, in_frame_only, payload=b'{"ExecName":"calcA"}'))
        assert (await worker.assigned()).msg_id == in_frame_only


@pytest.mark.spec("F5", "L5")
@pytest.mark.parametrize(
    ("subject", "config", "cap"),
    [
        ("desk-1", None, 4),
        ("", {"ClientId": "desk-1"}, 4),
        ("", {"ClientId": "desk-1", "DesiredParallelism": 2}, 2),
        ("desk-1", {"ClientId": "desk-1", "DesiredParallelism": 3}, 3),
        ("desk-1", {"DesiredParallelism": None}, 4),
    ],
)
async def test_every_form_of_a_clients_hello_sets_its_cap(subject: str, config: dict[str, object], cap: int) -> None:
    async with a_leader() as leader, OldClient(leader.port) as client, OldWorker(leader.port) as worker:
        await worker.hello(credit=100)
        await client.hello(subject, config)
        for _ in range(cap + 2):
            await client.submit()
        jobs = [await worker.assigned() for _ in range(cap)]
        # Another client's job overtakes those above the cap: had there been more, they would have come first.
        async with OldClient(leader.port) as marker:
            await marker.hello("marker")
            marked = await marker.submit()
            assert (await worker.assigned()).msg_id == marked
        await worker.ack(jobs[0])
        await client.result()
        assert (await worker.assigned()).msg_id not in {job.msg_id for job in jobs}


@pytest.mark.spec("F5", "S4")
@pytest.mark.parametrize(
    ("patterns", "heard", "not_heard"),
    [
        ("", ["job.assign.a", "a.b.c"], []),
        ("job.assign.>", ["job.assign.a", "a.b.c"], []),
        ("job.assign.*", ["job.assign.a"], ["job.assign.a.b"]),
        ("groupA", ["job.assign.groupA", "job.submit.groupA.x.y"], ["job.assign.groupB", "groupAB"]),
        ("job.assign.a job.assign.b", ["a", "b"], ["c"]),
        ("job.assign.a,job.assign.b", ["a", "b"], ["c"]),
        (" groupA,  job.assign.b.* ", ["groupA", "groupA.x", "b.x"], ["b"]),
        ("JOB.Assign.A", ["job.assign.a"], ["b"]),
    ],
)
async def test_every_form_of_a_workers_hello_says_what_it_hears(
    patterns: str, heard: list[str], not_heard: list[str]
) -> None:
    async with a_leader() as leader, OldClient(leader.port) as client, OldWorker(leader.port) as worker:
        await client.hello("desk-1", {"DesiredParallelism": 100})
        await worker.hello(patterns, credit=100)
        for subject in not_heard:
            await client.submit(subject)
        jobs = {await client.submit(subject) for subject in heard}
        assert {(await worker.assigned()).msg_id for _ in heard} == jobs


@pytest.mark.spec("F5")
async def test_connections_that_share_a_client_id_each_get_what_they_submitted() -> None:
    async with (
        a_leader() as leader,
        OldClient(leader.port) as one,
        OldClient(leader.port) as other,
        OldWorker(leader.port) as worker,
    ):
        await one.hello("desk-1")
        await other.hello("desk-1")
        await worker.hello(credit=2)
        first, second = await one.submit(), await other.submit()
        for job in [await worker.assigned() for _ in range(2)]:
            await worker.ack(job)
        assert (await one.result())[0] == first
        assert (await other.result())[0] == second


@pytest.mark.spec("F8")
@pytest.mark.parametrize(
    ("subject", "program", "routed"),
    [
        ("job.submit.calcA", "calcA", "job.assign.calca"),
        ("job.submit.group.calcA", "x", "job.assign.group.calca"),
        ("job.assign.calcA", "x", "job.assign.calca"),
        ("job.assign.a.b.c", "x", "job.assign.a.b.c"),
        ("groupA", "x", "job.assign.groupa"),
        ("groupA.x", "x", "job.assign.groupa.x"),
        ("", "calcA", "job.assign.calca"),
        ("", "my tool.v2", "job.assign.my_tool_v2"),
        ("", "", "job.assign.default"),
        ("計算", "x", "job.assign.計算"),
    ],
)
async def test_every_form_of_a_submits_subject_is_routed(subject: str, program: str, routed: str) -> None:
    async with a_leader() as leader, OldClient(leader.port) as client, OldWorker(leader.port) as worker:
        await client.hello("desk-1")
        await worker.hello(credit=1)
        job_id = await client.submit(subject, ExecName=program)
        job = await worker.assigned()
        assert (job.msg_id, job.subject) == (job_id, routed)


@pytest.mark.spec("F9")
async def test_an_empty_ack_is_a_result_without_output() -> None:
    async with a_leader() as leader, OldClient(leader.port) as client, OldWorker(leader.port) as worker:
        await client.hello("desk-1")
        await worker.hello(credit=1)
        job_id = await client.submit()
        await worker.ack(await worker.assigned())
        found, result = await client.result()
        assert (found, result["JobId"], result["Status"]) == (job_id, str(job_id), "OK")
        assert (result["Stdout"], result["Stderr"], result["OutputArchive"]) == ("", "", None)
        assert (result["ClientId"], result["ExecName"]) == ("desk-1", "calcA")


@pytest.mark.spec("F9")
@pytest.mark.parametrize("back_first", [True, False])
async def test_a_result_waits_for_an_old_client_that_connects_again(back_first: bool) -> None:
    async with a_leader() as leader, OldWorker(leader.port) as worker:
        await worker.hello(credit=1)
        async with OldClient(leader.port) as client:
            await client.hello("desk-1")
            job_id = await client.submit()
            job = await worker.assigned()
            client.die()
        await leader.until(lambda machine: not machine.clients.connections)
        if not back_first:
            await worker.ack(job, Stdout="kept")
            await leader.until(lambda machine: machine.clients.results.undelivered)
        async with OldClient(leader.port) as stranger, OldClient(leader.port) as client:
            await stranger.hello("desk-2")
            await client.hello("desk-1")
            if back_first:
                await leader.until(lambda machine: len(machine.clients.connections) == 2)
                await worker.ack(job, Stdout="kept")
            found, result = await client.result()
            assert (found, result["Stdout"]) == (job_id, "kept")
            assert not leader.machine.clients.results.undelivered


@pytest.mark.spec("L6")
async def test_a_job_that_is_done_is_answered_again_and_not_run_again() -> None:
    async with a_leader() as leader, OldClient(leader.port) as client, OldWorker(leader.port) as worker:
        await client.hello("desk-1")
        await worker.hello(credit=2)
        job_id = await client.submit()
        await worker.ack(await worker.assigned(), Stdout="once")
        first = await client.result()
        await client.submit(job_id=job_id)
        assert await client.result() == first
        other = await client.submit()
        assert (await worker.assigned()).msg_id == other


@pytest.mark.spec("L6", "W6")
async def test_what_an_old_worker_calls_failed_is_the_answer_and_a_new_submit_runs_it_again() -> None:
    async with a_leader() as leader, OldClient(leader.port) as client, OldWorker(leader.port) as worker:
        await client.hello("desk-1")
        await worker.hello(credit=2)
        job_id = await client.submit()
        await worker.ack(await worker.assigned(), Status="FAILED", Stderr="no such mode", ExitCode=3)
        _, result = await client.result()
        assert (result["Status"], result["Stderr"], result["ExitCode"]) == ("FAILED", "no such mode", 3)
        await client.submit(job_id=job_id)
        assert (await worker.assigned()).msg_id == job_id


@pytest.mark.spec("F11")
@pytest.mark.parametrize(
    ("subject", "payload", "why"),
    [
        ("job.submit.calcA", b"process this", "the payload is not a job request"),
        ("job.submit.calcA", b'{"JobId":7}', "the payload is not a job request"),
        ("job.submit..calcA", b'{"ExecName":"calcA"}', "bad subject"),
        ("job.assign.*", b'{"ExecName":"calcA"}', "bad subject"),
        ("", b'{"ExecName":"%s"}' % (b"x" * 129), "an exec name has at most 128 characters"),
        ("a", b'{"TimeoutS":0}', "TimeoutS"),
    ],
)
async def test_an_old_client_is_refused_by_a_failed_result_with_the_reason(
    subject: str, payload: bytes, why: str
) -> None:
    async with a_leader() as leader, OldClient(leader.port) as client:
        await client.hello("desk-1")
        await client.send(Message(old.SUBMIT_JOB, JOB, subject=subject, payload=payload))
        found, result = await client.result()
        assert (found, result["JobId"], result["Status"]) == (JOB, str(JOB), "FAILED")
        assert why in result["Stderr"]
        await client.submit("job..a")
        assert (await client.result())[1]["Status"] == "FAILED"


@pytest.mark.spec("F11", "L9")
async def test_a_full_leader_stops_reading_from_an_old_client_and_goes_on_when_it_has_room() -> None:
    tasks, total = Tasks(), 400
    async with a_leader(queue_jobs_max=4) as leader, OldClient(leader.port) as client:
        await client.hello("desk-1", {"DesiredParallelism": 50})

        async def submit_all() -> list[UUID]:
            return [await client.submit(Args=["x" * 100_000]) for _ in range(total)]

        submitting = tasks.start(submit_all(), name="submit")
        await leader.until(lambda machine: machine.full)
        for _ in range(100):
            await asyncio.sleep(0)
        assert not submitting.done()
        # What one turn of the loop had read already is taken: some 8 MiB at most.
        assert leader.machine.lanes.queued < 100
        async with OldWorker(leader.port) as worker:
            await worker.hello(credit=4)
            tasks.start(worker.serve(lambda _request: "done"), name="old worker")
            results = await client.results(total)
            assert set(results) == set(await submitting)
            await tasks.close()
        assert not leader.machine.full


@pytest.mark.spec("L4", "F7")
@pytest.mark.parametrize("how", ["reset", "end"])
async def test_the_job_of_an_old_worker_that_dies_goes_to_another_at_once(how: str) -> None:
    async with a_leader() as leader, OldClient(leader.port) as client, OldWorker(leader.port) as other:
        await client.hello("desk-1")
        async with OldWorker(leader.port) as worker:
            await worker.hello(credit=1)
            job_id = await client.submit()
            await worker.assigned()
            await other.hello(credit=1)
            if how == "reset":
                worker.die()
        job = await other.assigned()
        assert job.msg_id == job_id
        await other.ack(job, Stdout="by the other one")
        assert (await client.result())[1]["Stdout"] == "by the other one"


@pytest.mark.spec("F7", "L2")
async def test_nothing_is_assigned_without_credit_and_credit_adds_up() -> None:
    async with a_leader() as leader, OldClient(leader.port) as client, OldWorker(leader.port) as worker:
        await client.hello("desk-1", {"DesiredParallelism": 10})
        await worker.hello()
        jobs = [await client.submit() for _ in range(4)]
        await leader.until(lambda machine: machine.lanes.queued == 4)
        await worker.credit(1)
        await worker.credit(2)
        assert [(await worker.assigned()).msg_id for _ in range(3)] == jobs[:3]
        assert leader.machine.lanes.queued == 1


@pytest.mark.spec("C1")
async def test_a_cache_put_of_an_old_client_is_answered_at_once() -> None:
    async with a_leader() as leader, OldClient(leader.port) as client, OldClient(leader.port) as second:
        await client.hello("desk-1")
        await second.hello("desk-1")
        answer, msg_id = await second.put_cache("data-v1", "job.assign.>")
        assert (answer.type, answer.corr_id, answer.subject) == (old.CACHE_ACK, msg_id, "cache.ack.data-v1")
        assert (answer.json["CacheId"], answer.json["Status"]) == ("data-v1", "FAILED")
        assert "no caches" in answer.json["Message"]
        job = await client.submit("job..a")
        assert (await client.result())[0] == job


# Old and new side by side.


@asynccontextmanager
async def our_worker(leader: Running, folder: Path, scripts: dict[str, str]) -> AsyncIterator[Worker]:
    """A worker of ours with these shell programs, stopped at the end."""
    programs = folder / "bin"
    programs.mkdir()
    for name, script in scripts.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    tasks = Tasks()
    worker = Worker(
        WorkerSettings(leader=Address("127.0.0.1", leader.port), programs=programs, jobs=folder / "jobs", slots=2)
    )
    running = tasks.start(worker.run(), name="our worker")
    try:
        yield worker
    finally:
        worker.request_stop()
        worker.request_stop()
        async with asyncio.timeout(old.DEADLINE_S):
            await asyncio.wait([running])


@pytest.mark.spec("F4", "F6", "W1", "W6")
async def test_an_old_client_has_its_job_done_by_our_worker(tmp_path: Path) -> None:
    scripts = {"calcA": 'cat in.txt; echo "$@" >&2; echo made > out.txt; exit 3'}
    async with (
        a_leader() as leader,
        OldClient(leader.port) as client,
        our_worker(leader, tmp_path, scripts),
    ):
        await client.hello("desk-1")
        files = [{"Name": "in.txt", "CacheId": None, "Content": base64.b64encode(b"forty-two\n").decode()}]
        job_id = await client.submit(Args=["--mode=fast", "a b"], Files=files)
        found, result = await client.result()
        assert (found, result["JobId"], result["ExecName"]) == (job_id, str(job_id), "calcA")
        assert (result["Status"], result["ExitCode"]) == ("FAILED", 3)
        assert (result["Stdout"], result["Stderr"]) == ("forty-two\n", "--mode=fast a b\n")
        with ZipFile(BytesIO(base64.b64decode(result["OutputArchive"]))) as archive:
            assert {name: archive.read(name) for name in archive.namelist()} == {"out.txt": b"made\n"}


async def test_an_old_client_has_many_jobs_done_by_our_worker(tmp_path: Path) -> None:
    async with (
        a_leader() as leader,
        OldClient(leader.port) as client,
        our_worker(leader, tmp_path, {"calcA": "echo $1"}),
    ):
        await client.hello("desk-1", {"ClientId": "desk-1", "DesiredParallelism": 2})
        jobs = {await client.submit(Args=[str(number)]): number for number in range(20)}
        results = await client.results(20)
        assert {job: int(result["Stdout"]) for job, result in results.items()} == jobs
        assert {result["OutputArchive"] for result in results.values()} == {None}


@pytest.mark.spec("F11")
async def test_what_our_worker_cannot_do_is_told_to_an_old_client(tmp_path: Path) -> None:
    async with a_leader() as leader, OldClient(leader.port) as client, our_worker(leader, tmp_path, {}):
        await client.hello("desk-1")
        await client.submit(ExecName="no-such-program")
        await client.submit(ExecName="../etc/passwd")
        await client.submit(Files=[{"Name": "../x", "Content": ""}])
        await client.submit(Files=[{"Name": "a", "CacheId": "data-v1"}])
        results = await client.results(4)
        assert {result["Status"] for result in results.values()} == {"FAILED"}
        assert all(result["Stderr"] for result in results.values())


@pytest.mark.spec("F4", "F9", "K1")
async def test_our_client_has_its_jobs_done_by_an_old_worker() -> None:
    tasks = Tasks()
    async with a_leader() as leader, OldWorker(leader.port) as worker:
        await worker.hello("job.assign.*", credit=3)
        tasks.start(worker.serve(lambda request: " ".join(request["Args"])), name="old worker")
        async with connect(f"127.0.0.1:{leader.port}", client_id="desk-1") as grid:
            found = {result.item: result.stdout async for result in grid.map("calcA", [str(n) for n in range(50)])}
            assert found == {str(number): str(number) for number in range(50)}
            job = await grid.submit("calcA", args=["once"])
            await job.accepted()
            assert (await job).check().stdout == "once"
        await tasks.close()


@pytest.mark.spec("F9", "W6")
async def test_our_client_understands_what_an_old_worker_answers() -> None:
    async with a_leader() as leader, OldWorker(leader.port) as worker:
        await worker.hello(credit=3)
        async with connect(f"127.0.0.1:{leader.port}", client_id="desk-1") as grid:
            empty = await grid.submit("calcA")
            await worker.ack(await worker.assigned())
            assert (await empty).ok
            failed = await grid.submit("calcA")
            await worker.ack(await worker.assigned(), Status="FAILED", Stderr="no such mode", ExitCode=3)
            result = await failed
            assert (result.ok, result.stderr, result.exit_code) == (False, "no such mode", 3)
            strange = await grid.submit("calcA")
            job = await worker.assigned()
            await worker.send(Message(old.ACK_JOB, corr_id=job.msg_id, payload=b'{"Status":"OK","Stdout":7}'))
            result = await strange
            assert (result.ok, result.reason) == (False, "bad-result")
            assert grid.status().connected


@pytest.mark.spec("L4")
async def test_our_clients_job_survives_the_death_of_an_old_worker() -> None:
    async with (
        a_leader() as leader,
        OldWorker(leader.port) as other,
        connect(f"127.0.0.1:{leader.port}", client_id="desk-1") as grid,
    ):
        async with OldWorker(leader.port) as worker:
            await worker.hello(credit=1)
            job = await grid.submit("calcA", args=["1"])
            await worker.assigned()
            worker.die()
        await other.hello(credit=1)
        await other.ack(await other.assigned(), Stdout="by the other one")
        assert (await job).stdout == "by the other one"
