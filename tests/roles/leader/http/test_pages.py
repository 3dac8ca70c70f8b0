"""A leader asked by HTTP: real sockets, a real leader, and workers that answer as a test likes."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from tests.kit.a_group import Caller, a_group, files_of, get, nothing_is_left, pages_of, post
from tests.kit.a_leader import OwnPeer, Running
from tests.kit.eventually import eventually
from tests.kit.form import BOUNDARY, FORM, form
from tests.kit.guards import KeysAtHand, shows
from tests.kit.http_peer import Answer
from tests.kit.old_peers import OldWorker

from wakugumi.adapters.blobs.store import ref_of_bytes
from wakugumi.adapters.http.upload import Received
from wakugumi.adapters.journal.journal import Journal
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.zip.add_output import splice
from wakugumi.core.access.identity import Identity, Role
from wakugumi.core.ids import job_id_from_name
from wakugumi.limits.files import INLINE_FILE_BYTES_MAX
from wakugumi.roles.access.guard import AccessGuard
from wakugumi.roles.http.job_request import JobForm, request_of
from wakugumi.roles.leader.http import clients
from wakugumi.roles.leader.leader import Leader
from wakugumi.roles.leader.settings import LeaderSettings
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.control import Holding
from wakugumi.wire.messages.job import read_request, read_result
from wakugumi.wire.messages.payload import encode

pytestmark = [pytest.mark.anyio, pytest.mark.spec("G1")]

NIGHT = UUID(bytes_le=job_id_from_name("night"))


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is gone is noticed within a hundredth of a second."""
    monkeypatch.setattr(clients, "CALLERS", clients.CALLERS._replace(gone_s=0.01))


@pytest.fixture
async def leader(tmp_path: Path) -> AsyncIterator[Running]:
    async with a_group(tmp_path, program="pricer") as leader:
        yield leader


@asynccontextmanager
async def a_worker(leader: Running, credit: int = 1) -> AsyncIterator[OldWorker]:
    async with OldWorker(leader.port) as worker:
        await worker.hello("job.assign.>", credit=credit)
        yield worker


@asynccontextmanager
async def own_worker(leader: Running, worker_id: UUID, holds: Holding | None = None) -> AsyncIterator[OwnPeer]:
    """One that knows blobs and comes back to what it runs."""
    async with OwnPeer(leader.port) as worker:
        await worker.hello_worker(worker_id, "job.assign.>", holds=holds or Holding())
        await worker.credit(1)
        yield worker


async def is_queued(leader: Running, count: int = 1) -> None:
    await leader.until(lambda machine: machine.lanes.queued == count)


# A job.


@pytest.mark.spec("G1", "N2")
async def test_a_job_is_run_by_a_worker_and_its_zip_is_the_answer(leader: Running) -> None:
    async with Caller(leader.port) as caller, a_worker(leader) as worker:
        await caller.send("/dispatch/night?program=calcA&arg=-v&arg={input}&timeout=60")
        job = await worker.assigned()
        assert job.json == {
            "JobId": str(NIGHT),
            "ClientId": "http",
            "ExecName": "calcA",
            "Args": ["-v", "in.csv"],
            "Files": [{"Name": "in.csv", "Content": "MSwyLDM="}],
            "TimeoutS": 60.0,
        }
        made = splice(b"", {"prices.csv": b"6"})
        archive = b64encode(made).decode()
        await worker.ack(job, Stdout="6\n", ExitCode=0, OutputArchive=archive, RunS=0.5, Worker="w")
        answer = await caller.answer()
        assert answer.status == 200
        assert files_of(answer) == {"prices.csv": b"6", "stdout.txt": b"6\n", "stderr.txt": b""}
        assert answer.head["content-disposition"] == 'attachment; filename="result-night.zip"'
        head = {name: value for name, value in answer.head.items() if name.startswith("waku-")}
        assert head == {
            "waku-job": "night",
            "waku-status": "OK",
            "waku-exit-code": "0",
            "waku-run-seconds": "0.500000",
            "waku-worker": "w",
        }
        assert not leader.machine.clients.results.undelivered
    await nothing_is_left(leader)


@pytest.mark.spec("W6")
async def test_a_program_that_fails_is_an_answer(leader: Running) -> None:
    async with Caller(leader.port) as caller, a_worker(leader) as worker:
        await caller.send("/dispatch/night")
        await worker.ack(await worker.assigned(), Status="FAILED", Stderr="no rate", ExitCode=3, Reason="exit")
        answer = await caller.answer()
        assert (answer.status, answer.head["waku-status"], answer.head["waku-exit-code"]) == (200, "FAILED", "3")
        assert files_of(answer)["stderr.txt"] == b"no rate"


async def test_what_is_no_answer_of_a_program_is_a_problem(leader: Running) -> None:
    async with Caller(leader.port) as caller, a_worker(leader) as worker:
        await caller.send("/dispatch/night?program=nosuch")
        await worker.ack(
            await worker.assigned(), Status="FAILED", Stderr="there is no nosuch", Reason="unknown-program"
        )
        answer = await caller.answer()
        assert (answer.status, answer.code, answer.head["waku-reason"]) == (404, "unknown-program", "unknown-program")
        assert answer.problem["detail"] == "there is no nosuch"


async def test_a_job_that_names_no_program_gets_the_group_s(leader: Running) -> None:
    async with Caller(leader.port) as caller, a_worker(leader) as worker:
        await caller.send("/dispatch/night", file_name="a%20b.csv")
        job = await worker.assigned()
        assert (job.json["ExecName"], job.json["Args"], job.subject) == ("pricer", ["a b.csv"], "job.assign.pricer")
        await worker.ack(job)
        assert (await caller.answer()).status == 200


@pytest.mark.spec("L1", "L2")
async def test_subject_key_priority_client_and_retries_are_those_of_the_query(leader: Running) -> None:
    query = "subject=job.submit.eu.prices&key=k&priority=7&retries=2&client=desk"
    async with Caller(leader.port) as caller:
        await caller.send(f"/dispatch/night?{query}")
        await is_queued(leader)
        (job,) = leader.machine.jobs.values()
        assert (job.subject, job.client.id, job.retries) == ("job.assign.eu.prices", "desk", 2)
        assert job.requirements is not None
        assert (job.requirements.key, job.requirements.priority) == ("k", 7)
        async with Caller(leader.port) as other:  # as a head, which is the same job
            await other.send(f"/dispatch/night?{query.removesuffix('&client=desk')}", b"1,2,3", "Waku-Client: desk")
            await leader.until(lambda _: pages_of(leader).callers.machine.waiting == 2)
            assert len(leader.machine.jobs) == 1


@pytest.mark.spec("O1")
async def test_a_gateway_gets_no_job_of_another_client_than_the_one_it_names(tmp_path: Path) -> None:
    gate, ops = Identity("gate", Role.GATEWAY), Identity("ops", Role.ADMIN)
    guard = AccessGuard(keys=KeysAtHand(gate, ops))
    ann, bob = "Waku-Client: ann", "Waku-Client: bob"
    async with a_group(tmp_path, guard, program="pricer") as leader, a_worker(leader) as worker:
        async with Caller(leader.port) as caller:
            await caller.send("/dispatch/night", b"1,2,3", shows(gate), ann)
            job = await worker.assigned()
            for other in ((bob,), ()):  # While it runs.
                no = await post(leader, "/dispatch/night", b"1,2,3", shows(gate), *other)
                assert (no.status, no.code) == (403, "denied"), no
                assert "job night belongs to another client" in no.problem["detail"]
            await worker.ack(job, Stdout="6\n", ExitCode=0)
            assert (await caller.answer()).status == 200
        no = await post(leader, "/dispatch/night", b"1,2,3", shows(gate), bob)
        assert (no.status, no.code) == (403, "denied")
        for again in (shows(gate), shows(ops)):
            assert files_of(await post(leader, "/dispatch/night", b"1,2,3", again, ann))["stdout.txt"] == b"6\n"


@pytest.mark.spec("C5", "C7")
async def test_a_large_input_goes_beside_the_frame_and_so_does_a_large_result(leader: Running) -> None:
    content = bytes(range(256)) * 8_192
    ref = ref_of_bytes(content)
    assert leader.leader.blobs is not None
    store = leader.leader.blobs.store
    assert store is not None
    async with Caller(leader.port) as caller, own_worker(leader, uuid4()) as worker:
        await caller.send("/dispatch/night", content)
        assigned = await worker.expect(fr.ASSIGN_JOB)
        (file,) = read_request(assigned.payload).files
        assert (file.name, file.content, file.sha256, file.size) == ("in.csv", None, ref.sha256, ref.size)
        assert store.has(ref)
        assert pages_of(leader).receiving == 0
        archive = splice(b"", {"copy": content})
        made = store.incoming / "made"
        made.write_bytes(archive)
        blob = ref_of_bytes(archive)
        store.adopt(blob, made)
        await worker.ack(NIGHT, ExitCode=0, Stdout="ok", ArchiveBlob={"Sha256": blob.sha256, "Size": blob.size})
        assert files_of(await caller.answer()) == {"copy": content, "stdout.txt": b"ok", "stderr.txt": b""}
    again = await post(leader, "/dispatch/night", content)
    assert files_of(again)["copy"] == content
    await nothing_is_left(leader)


# The same job again.


@pytest.mark.spec("L6")
async def test_the_same_id_again_gets_the_same_bytes_and_is_not_run(leader: Running) -> None:
    async with a_worker(leader, credit=5) as worker:
        async with Caller(leader.port) as caller:
            await caller.send("/dispatch/night")
            await worker.ack(await worker.assigned(), Stdout="once", ExitCode=0)
            first = await caller.answer()
            assert (await caller.post("/dispatch/night")).body == first.body
        assert (await get(leader, "/result/night")).body == first.body
        assert leader.machine.lifecycle.counts.submitted == 1


@pytest.mark.spec("L6")
async def test_the_same_id_waits_for_the_job_that_runs(leader: Running) -> None:
    async with a_worker(leader, credit=5) as worker, Caller(leader.port) as one, Caller(leader.port) as two:
        await one.send("/dispatch/night")
        job = await worker.assigned()
        await two.send("/dispatch/night")
        await leader.until(lambda _: pages_of(leader).callers.machine.waiting == 2)
        await worker.ack(job, Stdout="once", ExitCode=0)
        assert (await one.answer()).body == (await two.answer()).body
        assert leader.machine.lifecycle.counts.submitted == 1
    await nothing_is_left(leader)


@pytest.mark.spec("L6")
async def test_what_failed_is_run_again_when_it_is_sent_again(leader: Running) -> None:
    async with a_worker(leader, credit=5) as worker, Caller(leader.port) as caller:
        for exit_code, status in ((3, "FAILED"), (0, "OK")):
            await caller.send("/dispatch/night")
            await worker.ack(await worker.assigned(), Status=status, ExitCode=exit_code)
            assert (await caller.answer()).head["waku-status"] == status


@pytest.mark.spec("L6")
async def test_another_input_under_the_same_id_is_a_conflict_that_harms_nobody(leader: Running) -> None:
    async with a_worker(leader) as worker, Caller(leader.port) as caller:
        await caller.send("/dispatch/night")
        job = await worker.assigned()
        for path, content in (
            ("/dispatch/night", b"4,5,6"),
            ("/dispatch/night", b"x" * (INLINE_FILE_BYTES_MAX + 1)),
            ("/dispatch/night?arg=-v", b"1,2,3"),
            ("/dispatch/night?program=other", b"1,2,3"),
        ):
            answer = await post(leader, path, content)
            assert (answer.status, answer.code) == (409, "conflict")
            assert "retry-after" not in answer.head
        await worker.ack(job, Stdout="mine", ExitCode=0)
        assert files_of(await caller.answer())["stdout.txt"] == b"mine"
    await nothing_is_left(leader)


@pytest.mark.spec("L6")
async def test_a_job_sent_by_http_is_fetched_by_frames(leader: Running) -> None:
    async with Caller(leader.port) as caller, OwnPeer(leader.port) as client:
        await caller.send("/dispatch/night?program=calcA")
        await is_queued(leader)
        await client.hello_client("http")
        received = Received("in.csv", b"1,2,3", None, "", 5)
        payload = encode(request_of(JobForm("calcA"), job_id_from_name("night"), received))
        await client.say(fr.encode(fr.SUBMIT_JOB, NIGHT.bytes_le, payload=payload))
        assert await client.expect_ids(fr.RECEIPT) == [NIGHT]
        async with OwnPeer(leader.port) as other:
            await other.hello_client("somebody else")
            await other.say_ids(fr.CLAIM, NIGHT)
            await other.expect(fr.RECEIPT)
            async with a_worker(leader) as worker:
                await worker.ack(await worker.assigned(), Stdout="one job", ExitCode=0)
                for frame in (await client.expect(fr.RESULT), await other.expect(fr.RESULT)):
                    assert read_result(frame.corr_id, frame.payload).stdout == "one job"  # type: ignore[arg-type]
                assert files_of(await caller.answer())["stdout.txt"] == b"one job"
        assert leader.machine.lifecycle.counts.submitted == 1


@pytest.mark.spec("L6", "F9")
async def test_a_job_sent_by_frames_is_fetched_by_http(leader: Running) -> None:
    async with OwnPeer(leader.port) as client, a_worker(leader) as worker:
        await client.hello_client("desk")
        received = Received("in.csv", b"1,2,3", None, "", 5)
        form = JobForm("calcA", client="desk")  # type: ignore[arg-type]
        payload = encode(request_of(form, job_id_from_name("night"), received))
        await client.say(fr.encode(fr.SUBMIT_JOB, NIGHT.bytes_le, payload=payload))
        await client.expect(fr.RECEIPT)
        job = await worker.assigned()
        assert (await get(leader, "/result/night")).code == "no-result"
        await worker.ack(job, Stdout="one job", ExitCode=0)
        await client.expect(fr.RESULT)
        assert files_of(await get(leader, "/result/night"))["stdout.txt"] == b"one job"
        assert leader.machine.clients.results.undelivered, "only its own client says that it has it"
        assert leader.machine.clients.by_id["desk"].cap == 64  # type: ignore[index]
        answer = await post(leader, "/dispatch/night?program=calcA&client=desk")
        assert files_of(answer)["stdout.txt"] == b"one job"
        assert leader.machine.lifecycle.counts.submitted == 1


# Those who leave.


async def test_who_leaves_leaves_the_job_to_go_on_and_its_result_for_the_next(leader: Running) -> None:
    async with a_worker(leader, credit=5) as worker:
        async with Caller(leader.port) as caller:
            await caller.send("/dispatch/night")
            job = await worker.assigned()
        await nothing_is_left(leader)
        await worker.ack(job, Stdout="for nobody", ExitCode=0)
        await leader.until(lambda machine: not machine.clients.results.undelivered)
        assert files_of(await post(leader, "/dispatch/night"))["stdout.txt"] == b"for nobody"
        assert leader.machine.lifecycle.counts.submitted == 1


async def test_who_comes_back_waits_for_the_same_run(leader: Running) -> None:
    async with a_worker(leader, credit=5) as worker:
        async with Caller(leader.port) as caller:
            await caller.send("/dispatch/night")
            job = await worker.assigned()
        await nothing_is_left(leader)
        async with Caller(leader.port) as caller:
            assert (await post(leader, "/dispatch/night", b"another")).code == "conflict"
            await caller.send("/dispatch/night")
            await leader.until(lambda _: pages_of(leader).callers.machine.waiting == 1)
            await worker.ack(job, Stdout="once", ExitCode=0)
            assert files_of(await caller.answer())["stdout.txt"] == b"once"


@pytest.mark.parametrize("content", [b"small" * 10, b"large" * 100_000])
async def test_who_leaves_while_sending_leaves_nothing(leader: Running, content: bytes) -> None:
    async with Caller(leader.port) as caller:
        body = form(content)
        await caller.head("POST", "/dispatch/night", FORM, f"Content-Length: {len(body)}")
        await caller.say(body[:-30])
        await eventually(lambda: leader.leader.pages is not None and pages_of(leader).receiving == 1)
    await nothing_is_left(leader)
    assert not leader.machine.jobs


@pytest.mark.spec("L7")
@pytest.mark.parametrize("query", ["", "?client=desk", "?client=desk&program=pricer&arg={input}"])
async def test_a_leader_that_is_started_anew_gives_the_result_of_what_was_run_once(tmp_path: Path, query: str) -> None:
    worker_id = uuid4()

    @asynccontextmanager
    async def a_life() -> AsyncIterator[Running]:
        leader = Leader(Journal.open(tmp_path), settings=LeaderSettings(program="pricer"))
        try:
            yield Running(leader, await leader.listen("127.0.0.1", 0))
        finally:
            await leader.close()

    async with a_life() as leader, own_worker(leader, worker_id) as worker, Caller(leader.port) as caller:
        await caller.send("/dispatch/night")
        await worker.expect(fr.ASSIGN_JOB)
        async with Caller(leader.port) as other:
            await other.send("/dispatch/noon" + query)
            await is_queued(leader)
    async with a_life() as leader, Caller(leader.port) as caller:
        holds = Holding(running=[NIGHT.bytes_le])
        async with own_worker(leader, worker_id, holds) as worker:
            # Nobody asks for this one again: whoever does later gets it.
            assert (await worker.expect(fr.ASSIGN_JOB)).msg_id == job_id_from_name("noon")
            await worker.ack(UUID(bytes_le=job_id_from_name("noon")), Stdout="unasked", ExitCode=0)
            await worker.expect(fr.CONFIRM)
            await leader.until(lambda machine: machine.clients.results.undelivered)
            await caller.send("/dispatch/night")
            await leader.until(lambda machine: not machine.clients.results.undelivered)
            await worker.ack(NIGHT, Stdout="once", ExitCode=0)
            assert files_of(await caller.answer())["stdout.txt"] == b"once"
        assert files_of(await post(leader, "/dispatch/noon" + query))["stdout.txt"] == b"unasked"
        assert leader.machine.lifecycle.counts.submitted == 0


async def test_those_who_wait_are_told_that_the_leader_stops() -> None:
    leader, tasks = Leader(settings=LeaderSettings(program="pricer")), Tasks()
    port = await leader.listen("127.0.0.1", 0)
    async with Caller(port) as caller, Caller(port) as other:
        await caller.send("/dispatch/night")
        await is_queued(Running(leader, port))
        assert (await other.get("/health")).status == 200
        assert await leader.drain()
        health = await other.get("/health")
        assert (health.status, json.loads(health.body)["status"]) == (503, "stopping")
        refused = await other.post("/dispatch/noon")
        assert (refused.status, refused.code, refused.head["retry-after"]) == (503, "stopping", "1")
        closing = tasks.start(leader.close(), name="close")
        answer = await caller.answer()
        assert (answer.status, answer.code, answer.head["retry-after"]) == (503, "stopping", "1")
        await closing


# What they are told.


async def told(leader: Running, path: str) -> dict[str, object]:
    answer = await get(leader, path)
    assert answer.status == 200, answer
    return dict(json.loads(answer.body))


@pytest.mark.spec("G3", "L10")
async def test_where_a_job_is_and_why_can_be_asked(leader: Running) -> None:
    async with Caller(leader.port) as caller:
        await caller.send("/dispatch/night")
        await is_queued(leader)
        status = await told(leader, "/status/night")
        assert status["why"] == "no worker matches job.assign.pricer; connected: no worker at all"
        assert (status["job"], status["id"], status["state"], status["attempts"]) == ("night", str(NIGHT), "queued", 0)
        async with a_worker(leader) as worker:
            job = await worker.assigned()
            status = await told(leader, "/status/night")
            assert (status["state"], status["attempts"], status["client"]) == ("running", 1, "http")
            await worker.ack(job, ExitCode=0)
            await caller.answer()
        status = await told(leader, "/status/night")
        assert status["state"] == "done"
        assert "its result is delivered" in str(status["why"])


@pytest.mark.spec("L5")
async def test_a_client_s_jobs_by_http_are_capped_and_hold_up_nobody_else(tmp_path: Path) -> None:
    async with a_group(tmp_path, program="pricer", http_cap=1) as leader:
        port = leader.port
        async with a_worker(leader, 3) as worker, Caller(port) as one, Caller(port) as two, Caller(port) as three:
            await one.send("/dispatch/one")
            first = await worker.assigned()
            await two.send("/dispatch/two")
            await is_queued(leader)
            assert "client http is at its cap: 1 of 1 jobs in flight" in str((await told(leader, "/status/two"))["why"])
            await three.send("/dispatch/three?client=desk")
            await worker.ack(await worker.assigned(), Stdout="desk", ExitCode=0)
            assert files_of(await three.answer())["stdout.txt"] == b"desk"
            await worker.ack(first)
            await worker.ack(await worker.assigned())
            assert [(await caller.answer()).status for caller in (one, two)] == [200, 200]


@pytest.mark.spec("L10")
async def test_a_job_is_cancelled_and_who_waits_hears_so(leader: Running) -> None:
    async with Caller(leader.port) as caller, Caller(leader.port) as other:
        await caller.send("/dispatch/night")
        await is_queued(leader)
        answer = await other.ask("DELETE", "/jobs/night")
        assert (answer.status, json.loads(answer.body)) == (202, {"cancelled": True})
        answer = await caller.answer()
        assert (answer.status, answer.code) == (410, "cancelled")
        assert json.loads((await other.ask("DELETE", "/jobs/night")).body) == {"cancelled": False}
        assert (await told(leader, "/status/night"))["state"] == "failed"


@pytest.mark.parametrize(("method", "path"), [("GET", "/status/"), ("GET", "/result/"), ("DELETE", "/jobs/")])
async def test_a_job_that_is_not_known_or_none_is_said_to_be(leader: Running, method: str, path: str) -> None:
    async with Caller(leader.port) as caller:
        unknown = await caller.ask(method, f"{path}nobody")
        assert (unknown.status, unknown.code) == (404, "unknown-job")
        none = await caller.ask(method, f"{path}%2e%2e")
        assert (none.status, none.code) == (400, "bad-request")


async def test_capacity_is_the_sum_over_those_who_may_be_given_jobs(leader: Running) -> None:
    assert await told(leader, "/capacity") == {"running": 0, "limit": 0, "queued": 0, "free": 0}
    async with Caller(leader.port) as caller, a_worker(leader, credit=3) as worker, a_worker(leader, credit=2):
        await caller.send("/dispatch/night")
        await leader.until(lambda machine: any(worker.jobs for worker in machine.roster))
        await leader.until(lambda machine: len(machine.roster) == 2)
        await leader.until(lambda machine: sum(worker.credit for worker in machine.roster) == 4)
        assert await told(leader, "/capacity") == {"running": 1, "limit": 5, "queued": 0, "free": 4}
        del worker
    health = await told(leader, "/health")
    assert (health["status"], health["role"]) == ("ok", "leader")
    metrics = await get(leader, "/metrics")
    assert (metrics.status, metrics.head["content-type"].partition(";")[0]) == (200, "text/plain")
    assert "/dispatch/{job}" in (await told(leader, "/openapi.json"))["paths"]  # type: ignore[operator]


# Back pressure, and what is refused.


@pytest.mark.spec("L9")
async def test_a_full_leader_says_so_before_the_input_is_sent(tmp_path: Path) -> None:
    async with a_group(tmp_path, queue_jobs_max=1, program="pricer") as leader:
        async with Caller(leader.port) as caller, Caller(leader.port) as other:
            await caller.send("/dispatch/night")
            await is_queued(leader)
            await other.head("POST", "/dispatch/noon", FORM, "Content-Length: 1000000000", "Expect: 100-continue")
            answer = await other.answer()
            assert (answer.status, answer.code, answer.head["retry-after"]) == (503, "full", "1")
            async with Caller(leader.port) as same:  # what is known waits all the same
                await same.send("/dispatch/night")
                await leader.until(lambda _: pages_of(leader).callers.machine.waiting == 2)
        await nothing_is_left(leader)


async def test_only_so_many_inputs_are_received_at_once(tmp_path: Path) -> None:
    async with a_group(tmp_path, program="pricer", http_received_max=1) as leader:
        async with Caller(leader.port) as slow:
            await slow.head("POST", "/dispatch/slow", FORM, "Content-Length: 1000")
            await slow.say(b"--")
            await eventually(lambda: leader.leader.pages is not None and pages_of(leader).receiving == 1)
            answer = await post(leader, "/dispatch/night")
            assert (answer.status, answer.code, answer.head["retry-after"]) == (503, "busy", "1")
        await nothing_is_left(leader)


async def test_a_leader_without_a_place_takes_small_inputs_and_refuses_large_ones() -> None:
    leader = Leader(settings=LeaderSettings(program="pricer"))
    try:
        running = Running(leader, await leader.listen("127.0.0.1", 0))
        async with Caller(running.port) as caller, a_worker(running) as worker:
            await caller.send("/dispatch/night")
            await worker.ack(await worker.assigned())
            assert (await caller.answer()).status == 200
        answer = await post(running, "/dispatch/large", b"x" * (INLINE_FILE_BYTES_MAX + 100_000))
        assert (answer.status, answer.code) == (413, "too-big")
        await nothing_is_left(running)
    finally:
        await leader.close()


TWO = form()[: -len(BOUNDARY) - 8] + b"\r\n" + form()


@pytest.mark.parametrize(
    ("path", "lines", "body", "status"),
    [
        ("/dispatch/", (FORM,), form(), 400),
        ("/dispatch/..", (FORM,), form(), 400),
        ("/dispatch/%2e%2e", (FORM,), form(), 400),
        ("/dispatch/a%2Fb", (FORM,), form(), 400),
        ("/dispatch/a/b", (FORM,), form(), 400),
        ("/dispatch/%E2%98%83", (FORM,), form(), 400),
        ("/dispatch/%ff", (FORM,), form(), 400),
        (f"/dispatch/{'x' * 129}", (FORM,), form(), 400),
        ("/dispatch/night?nosuch=1", (FORM,), form(), 400),
        ("/dispatch/night?timeout=forever", (FORM,), form(), 400),
        ("/dispatch/night?program=..%2Fsh", (FORM,), form(), 400),
        ("/dispatch/night?program=%ff", (FORM,), form(), 400),
        ("/dispatch/night?subject=job..x", (FORM,), form(), 400),
        ("/dispatch/night", (), form(), 400),
        ("/dispatch/night", ("Content-Type: application/json",), b"{}", 400),
        ("/dispatch/night", ("Content-Type: multipart/form-data",), form(), 400),
        ("/dispatch/night", (FORM,), b"", 400),
        ("/dispatch/night", (FORM,), b"no form at all", 400),
        ("/dispatch/night", (FORM,), form()[:-10], 400),
        ("/dispatch/night", (FORM,), form(field="data"), 400),
        ("/dispatch/night", (FORM,), TWO, 400),
        ("/dispatch/night", (FORM,), form(file_name="../../etc/passwd"), 400),
        ("/dispatch/night", (FORM,), form(file_name="%2e%2e%2fx"), 400),
        ("/dispatch/night", (FORM,), form(file_name="C:\\x"), 400),
        ("/dispatch/night", (FORM,), form(b"x" * 1_000_000, file_name=".done"), 400),
        ("/dispatch/night", (FORM,), form(b"x" * 1_000_000)[:-10], 400),
        ("/dispatch/night", (FORM, "Waku-Client: " + "c" * 129), form(), 400),
        ("/dispatch/night", (FORM, "Host: evil.example"), form(), 400),
        ("/dispatch/night", (FORM, "Origin: http://evil.example"), form(), 403),
    ],
)
async def test_what_can_be_no_job_is_refused_and_leaves_nothing(
    leader: Running, path: str, lines: tuple[str, ...], body: bytes, status: int
) -> None:
    assert (await get(leader, "/health")).status == 200
    async with Caller(leader.port) as caller:
        answer: Answer = await caller.ask("POST", path, *lines, body=body)
    assert answer.status == status, answer
    await nothing_is_left(leader)
    assert not leader.machine.jobs
    assert leader.machine.clients.by_id == {}


async def test_an_input_beyond_all_bounds_is_refused_by_what_it_says_of_itself(leader: Running) -> None:
    async with Caller(leader.port) as caller:
        await caller.head("POST", "/dispatch/night", FORM, f"Content-Length: {1 << 50}")
        answer = await caller.answer()
        assert (answer.status, answer.code) == (413, "too-big")
    await nothing_is_left(leader)
