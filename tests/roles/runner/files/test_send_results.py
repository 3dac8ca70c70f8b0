"""How does a result's bulk reach the leader? A real worker against a leader that is scripted on a bare socket."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import os
import threading
import uuid
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit.eventually import eventually
from tests.kit.worker_bench import Bench
from tests.kit.workers_leader import ACK, CANCEL, CREDIT, HEARTBEAT, HELLO_WORKER, HOLDING, Connection, WorkersLeader

from wakugumi.adapters.blobs.place import FolderPlace
from wakugumi.adapters.jobdir.large_parts import Whole
from wakugumi.core.ids import JobId
from wakugumi.core.transfers import deliveries
from wakugumi.errors import Lost, Refused
from wakugumi.roles.runner.files import send_results
from wakugumi.wire.messages.references import BlobRef

pytestmark = pytest.mark.anyio

WELCOME, MISSING, STOCK = 16, 28, 29
SIZE = 5_000_000
NOISE = f"head -c {SIZE} /dev/urandom > big"


@pytest.fixture(autouse=True)
def at_once(quickly: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "PAUSE_FIRST_S", 0.01)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    bench.program("big", f'echo run >> "{bench.runs}"; {NOISE}; echo said')
    yield bench
    await bench.close()


@pytest.fixture
def place(tmp_path: Path) -> FolderPlace:
    return FolderPlace(tmp_path / "place")


async def greet(link: Connection, place: FolderPlace | None) -> Any:
    """Welcome the worker, and return what it holds."""
    await link.expect(HELLO_WORKER)
    told = {"Version": "1"} if place is None else {"Version": "1", "Wants": ["blobs"], "Blobs": place.url}
    link.send(WELCOME, json.dumps(told).encode())
    message = await link.read()
    while message.type in {HEARTBEAT, STOCK}:
        message = await link.read()
    assert message.type == HOLDING
    return message.json


def miss(link: Connection, job: uuid.UUID, *blobs: str) -> None:
    link.send(MISSING, json.dumps({"Blobs": blobs}).encode(), corr_id=job)


async def result_of_a_big_job(link: Connection, program: str = "big") -> tuple[uuid.UUID, Any]:
    await link.expect(CREDIT)
    job = uuid.uuid4()
    link.assign(job, program)
    told = await link.ack_of(job)
    await link.expect(CREDIT)
    return job, told


def content(place: FolderPlace, ref: dict[str, Any]) -> bytes:
    data = Path(place.store.path(ref["Sha256"])).read_bytes()
    assert (hashlib.sha256(data).hexdigest(), len(data)) == (ref["Sha256"], ref["Size"])
    return data


@pytest.mark.spec("C5", "W7")
async def test_what_the_leader_misses_is_put_into_its_place_and_the_same_ack_follows(
    leader: WorkersLeader, bench: Bench, place: FolderPlace
) -> None:
    bench.worker(leader.address, cpu_cap=None)
    link = await leader.connection()
    await greet(link, place)
    job, told = await result_of_a_big_job(link)
    assert (told["Status"], told["Stdout"], told["OutputArchive"]) == ("OK", "said\n", None)
    ref = told["ArchiveBlob"]
    assert not place.has(BlobRef(ref["Sha256"], ref["Size"])), "nothing is put before it was asked for"
    miss(link, job, ref["Sha256"])
    assert await link.ack_of(job) == told
    packed = zipfile.ZipFile(io.BytesIO(content(place, ref)))
    assert len(packed.read("big")) == SIZE
    link.confirm(job)
    assert bench.run_count == 1


async def test_output_and_files_are_put_as_they_are_asked_for(
    leader: WorkersLeader, bench: Bench, place: FolderPlace
) -> None:
    bench.program("talk", f"{NOISE}; head -c {SIZE} /dev/zero | tr '\\0' x; head -c {SIZE} /dev/zero | tr '\\0' e >&2")
    bench.worker(leader.address, cpu_cap=None)
    link = await leader.connection()
    await greet(link, place)
    job, told = await result_of_a_big_job(link, "talk")
    refs = [told[name] for name in ("ArchiveBlob", "StdoutBlob", "StderrBlob")]
    miss(link, job, *(ref["Sha256"] for ref in refs[:2]))
    assert await link.ack_of(job) == told
    miss(link, job, refs[2]["Sha256"])
    assert await link.ack_of(job) == told
    assert content(place, refs[1]) == b"x" * SIZE
    assert content(place, refs[2]) == b"e" * SIZE


@pytest.mark.parametrize("own", [True, False])
async def test_a_leader_without_a_place_gets_a_failure_that_says_where_it_is(
    leader: WorkersLeader, bench: Bench, own: bool
) -> None:
    bench.worker(leader.address, cpu_cap=None)
    link = await leader.connection()
    if own:
        await greet(link, None)
    else:
        await link.expect(HELLO_WORKER)
    job, told = await result_of_a_big_job(link)
    assert (told["Status"], told["Reason"], told["ExitCode"], told["Stdout"]) == ("FAILED", "too-big", 0, "said\n")
    assert f"in {bench.jobs}/{job} on worker" in told["Stderr"]
    assert "ArchiveBlob" not in told
    assert (bench.jobs / str(job) / "result.zip").stat().st_size > SIZE


@pytest.mark.spec("C5", "W7")
async def test_a_worker_that_was_restarted_before_the_leader_had_it_all_delivers_it(
    leader: WorkersLeader, bench: Bench, place: FolderPlace
) -> None:
    worker = bench.worker(leader.address, cpu_cap=None)
    link = await leader.connection()
    await greet(link, place)
    job, told = await result_of_a_big_job(link)
    worker.request_stop()
    worker.request_stop()
    await bench.stopped(worker)
    bench.worker(leader.address, cpu_cap=None)
    link = await leader.connection()
    assert "Kept" in await greet(link, place)
    await link.expect(CREDIT)
    link.fetch(job)
    assert await link.ack_of(job) == told
    miss(link, job, told["ArchiveBlob"]["Sha256"])
    assert await link.ack_of(job) == told
    assert len(content(place, told["ArchiveBlob"])) > SIZE
    assert bench.run_count == 1


@pytest.mark.spec("C5", "W7")
@pytest.mark.parametrize("late", [True, False], ids=["only late", "really old"])
async def test_where_a_leader_with_a_place_was_only_a_job_shows_that_one_has_none(
    leader: WorkersLeader, bench: Bench, place: FolderPlace, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    monkeypatch.setattr("wakugumi.core.runner.leader_line.SILENT_LEFT", 0)
    bench.program("small", "true")
    bench.worker(leader.address, cpu_cap=None, old_leader=True)
    link = await leader.connection()
    await greet(link, place)
    job, told = await result_of_a_big_job(link)
    link.close()
    link = await leader.connection()
    await link.expect(HELLO_WORKER)
    await link.expect(CREDIT)
    if late:
        link.send(WELCOME, json.dumps({"Version": "1", "Wants": ["blobs"], "Blobs": place.url}).encode())
        await link.expect(STOCK)
        assert "Kept" in (await link.expect(HOLDING)).json
        link.fetch(job)
        assert await link.ack_of(job) == told
        return
    other = uuid.uuid4()
    link.assign(other, "small")
    short = await link.ack_of(job)
    assert (short["Status"], short["Reason"]) == ("FAILED", "too-big")
    assert (await link.ack_of(other))["Status"] == "OK"
    await link.expect(CREDIT)
    another = uuid.uuid4()
    link.assign(another, "big")
    assert (await link.ack_of(another))["Reason"] == "too-big", "now it is known"


async def test_a_new_connection_asks_again_and_what_is_on_its_way_goes_on(
    leader: WorkersLeader, bench: Bench, place: FolderPlace
) -> None:
    bench.worker(leader.address, cpu_cap=None)
    link = await leader.connection()
    await greet(link, place)
    job, told = await result_of_a_big_job(link)
    ref = BlobRef(told["ArchiveBlob"]["Sha256"], told["ArchiveBlob"]["Size"])
    elsewhere = place.store.begin(ref)  # Someone else is at it: so the worker has to wait.
    miss(link, job, ref.sha256)
    await link.closed()
    link = await leader.connection()
    await greet(link, place)
    assert await link.ack_of(job) == told, "owed, so it is told again"
    await link.expect(CREDIT)
    miss(link, job, ref.sha256)
    elsewhere.abandon()
    assert await link.ack_of(job) == told
    assert place.has(ref)


class Reluctant:
    """A place that cannot be reached so many times, or says no."""

    def __init__(self, place: FolderPlace, *errors: Exception) -> None:
        self.url = place.url
        self.errors = list(errors)
        self.tries = 0
        self._place = place

    def __call__(self, url: str, _token: str = "") -> Reluctant:
        assert url == self.url
        return self

    def link(self, *args: Any) -> None:
        self._place.link(*args)

    def put(self, *args: Any) -> None:
        self.tries += 1
        if self.errors:
            raise self.errors.pop(0)
        self._place.put(*args)


async def test_a_place_that_cannot_be_reached_is_tried_again(
    leader: WorkersLeader, bench: Bench, place: FolderPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    reluctant = Reluctant(place, Lost("gone"), Refused("disk", "full"), Refused("blob-broken", "a bit fell over"))
    monkeypatch.setattr("wakugumi.adapters.blobs.open_place.open_place", reluctant)
    bench.worker(leader.address, cpu_cap=None)
    link = await leader.connection()
    await greet(link, place)
    job, told = await result_of_a_big_job(link)
    miss(link, job, told["ArchiveBlob"]["Sha256"])
    assert await link.ack_of(job) == told
    assert reluctant.tries == 4


@pytest.mark.spec("W9")
async def test_a_result_waits_while_the_machine_can_start_no_thread(
    leader: WorkersLeader, bench: Bench, place: FolderPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, refused = threading.Thread.start, 0

    def hardly(thread: threading.Thread) -> None:
        nonlocal refused
        if thread.name.startswith("waku-delivery") and refused < 3:
            refused += 1
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", hardly)
    bench.worker(leader.address, cpu_cap=None)
    link = await leader.connection()
    await greet(link, place)
    job, told = await result_of_a_big_job(link)
    miss(link, job, told["ArchiveBlob"]["Sha256"])
    assert await link.ack_of(job) == told
    assert refused == 3
    assert place.has(BlobRef(told["ArchiveBlob"]["Sha256"], told["ArchiveBlob"]["Size"]))


@pytest.mark.parametrize(
    ("errors", "code"),
    [((Refused("denied", "not you"),), "denied"), ((Refused("blob-broken", "no"),) * 3, "blob-broken")],
)
async def test_what_can_never_be_delivered_is_a_failure(
    leader: WorkersLeader,
    bench: Bench,
    place: FolderPlace,
    monkeypatch: pytest.MonkeyPatch,
    errors: tuple[Refused, ...],
    code: str,
) -> None:
    monkeypatch.setattr("wakugumi.adapters.blobs.open_place.open_place", Reluctant(place, *errors))
    bench.worker(leader.address, cpu_cap=None)
    link = await leader.connection()
    await greet(link, place)
    job, told = await result_of_a_big_job(link)
    miss(link, job, told["ArchiveBlob"]["Sha256"])
    failed = await link.ack_of(job)
    assert (failed["Status"], failed["Reason"]) == ("FAILED", code)
    link.confirm(job)
    link.assign(job, "big")
    assert (await link.ack_of(job))["Status"] == "OK", "it is run again: what lies here cannot be delivered"
    assert bench.run_count == 2


async def test_files_that_are_gone_are_a_failure_and_not_a_wait(
    leader: WorkersLeader, bench: Bench, place: FolderPlace
) -> None:
    bench.worker(leader.address, cpu_cap=None)
    link = await leader.connection()
    await greet(link, place)
    job, told = await result_of_a_big_job(link)
    os.unlink(bench.jobs / str(job) / "result.zip")
    miss(link, job, told["ArchiveBlob"]["Sha256"])
    failed = await link.ack_of(job)
    assert (failed["Status"], failed["Reason"]) == ("FAILED", "worker-error")
    assert "no longer on the worker's disk" in failed["Stderr"]
    miss(link, uuid.uuid4(), "0" * 64)
    assert (await link.expect(ACK)).json["Reason"] == "worker-error", "of a job that it never had, too"


@pytest.mark.parametrize("how", ["confirmed", "cancelled"])
async def test_what_nobody_wants_any_more_is_not_brought(
    leader: WorkersLeader, bench: Bench, place: FolderPlace, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "PAUSE_FIRST_S", 0.05)
    worker = bench.worker(leader.address, cpu_cap=None)
    link = await leader.connection()
    await greet(link, place)
    job, told = await result_of_a_big_job(link)
    ref = BlobRef(told["ArchiveBlob"]["Sha256"], told["ArchiveBlob"]["Size"])
    elsewhere = place.store.begin(ref)
    miss(link, job, ref.sha256)
    await eventually(lambda: bool(worker.deliveries.under_way))
    if how == "confirmed":
        link.confirm(job)
    else:
        link.send(CANCEL, job.bytes_le, corr_id=job)
    await eventually(lambda: not worker.deliveries.under_way)
    elsewhere.abandon()
    assert not place.has(ref)


@pytest.mark.spec("C5")
async def test_large_results_on_their_way_hold_up_nobody_but_their_like(
    leader: WorkersLeader, bench: Bench, place: FolderPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "LARGE_WORK_BYTES", SIZE + 500_000)
    gate = threading.Event()
    real = FolderPlace.put

    def put(self: FolderPlace, ref: BlobRef, *args: Any) -> None:
        if ref.size > deliveries.LARGE_WORK_BYTES:
            assert gate.wait(30)
        real(self, ref, *args)

    monkeypatch.setattr(FolderPlace, "put", put)
    bench.program("huge", f"head -c {SIZE + 1_000_000} /dev/urandom > huge")
    bench.worker(leader.address, slots=1, cpu_cap=None)
    link = await leader.connection()
    await greet(link, place)
    await link.expect(CREDIT)
    jobs = {}
    for program in [*["huge"] * (deliveries.AT_ONCE + 2), "big"]:
        job = uuid.uuid4()
        link.assign(job, program)
        jobs[job] = (await link.ack_of(job))["ArchiveBlob"]["Sha256"]
        await link.expect(CREDIT)
        miss(link, job, jobs[job])
    *huge, big = jobs
    try:
        assert (await link.expect(ACK)).corr_id == big
    finally:
        gate.set()
    assert {(await link.expect(ACK)).corr_id for _ in huge} == set(huge)


async def test_many_results_are_brought_a_few_at_a_time(
    leader: WorkersLeader, bench: Bench, place: FolderPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = [0, 0]  # Now, and at most.
    guard = threading.Lock()
    both = threading.Barrier(2)
    real = FolderPlace.put

    def put(self: FolderPlace, *args: Any) -> None:
        with guard:
            counts[0] += 1
            counts[1] = max(counts)
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(5)  # So that two meet, if two may.
        real(self, *args)
        with guard:
            counts[0] -= 1

    monkeypatch.setattr(deliveries, "AT_ONCE", 2)
    monkeypatch.setattr(FolderPlace, "put", put)
    bench.worker(leader.address, slots=1, cpu_cap=None)
    link = await leader.connection()
    await greet(link, place)
    await link.expect(CREDIT)
    jobs = {}
    for _ in range(6):
        job = uuid.uuid4()
        link.assign(job, "big")
        jobs[job] = await link.ack_of(job)
        await link.expect(CREDIT)
    for job, told in jobs.items():
        miss(link, job, told["ArchiveBlob"]["Sha256"])
    acked = {(await link.expect(ACK)).corr_id for _ in jobs}
    assert acked == jobs.keys()
    assert counts == [0, 2]
    for told in jobs.values():
        assert place.has(BlobRef(told["ArchiveBlob"]["Sha256"], told["ArchiveBlob"]["Size"]))


async def test_a_worker_stops_while_a_delivery_waits(leader: WorkersLeader, bench: Bench, place: FolderPlace) -> None:
    worker = bench.worker(leader.address, cpu_cap=None)
    link = await leader.connection()
    await greet(link, place)
    job, told = await result_of_a_big_job(link)
    elsewhere = place.store.begin(BlobRef(told["ArchiveBlob"]["Sha256"], told["ArchiveBlob"]["Size"]))
    miss(link, job, told["ArchiveBlob"]["Sha256"])
    await eventually(lambda: bool(worker.deliveries.under_way))
    worker.request_stop()
    worker.request_stop()
    async with asyncio.timeout(20):
        await bench.stopped(worker)
    elsewhere.abandon()


async def test_a_delivery_that_fails_for_a_reason_nobody_foresaw_is_told(caplog: pytest.LogCaptureFixture) -> None:
    def load(_job: JobId) -> Whole | None:
        raise MemoryError

    job = JobId(uuid.uuid4().bytes_le)
    told: asyncio.Future[tuple[JobId, str, str]] = asyncio.get_running_loop().create_future()
    all_of_it = send_results.ResultUploads(load, lambda *_: None, lambda *failure: told.set_result(failure))
    all_of_it.connected("http://127.0.0.1:1")
    all_of_it.missing(job, ["ab" * 32])
    async with asyncio.timeout(20):
        failure = await told
    assert failure == (job, "worker-error", "the worker failed to deliver the result: MemoryError")
    assert "result not delivered" in caplog.text
    await all_of_it.close()
