"""How do a job's inputs get here, and what is the leader told? A real worker against a scripted leader."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import shutil
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.kit.eventually import eventually
from tests.kit.inputs_world import SOURCE, WANT, InputsWorld, large
from tests.kit.own_files import written_anyway
from tests.kit.scripted_places import ScriptedPlace
from tests.kit.workers_leader import ACK, CANCEL, DEADLINE_S, new_id

from wakugumi.adapters.blobs.store import ref_of_bytes
from wakugumi.adapters.jobdir.directory import JobDir
from wakugumi.errors import Refused
from wakugumi.limits.units import KIB
from wakugumi.roles.runner.files import inputs

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quickly")]


# Inputs of jobs.


@pytest.mark.spec("C3", "C4")
@pytest.mark.parametrize("content", [b"", b"small", large()], ids=["empty", "small", "large"])
async def test_an_input_that_is_not_here_is_fetched_first_and_then_kept(world: InputsWorld, content: bytes) -> None:
    await world.worker()
    job = world.assign(**{"データ.bin": content})
    want = await world.served(content)
    ref = ref_of_bytes(content)
    assert want == {"Sha256": ref.sha256} | ({"Size": ref.size} if content else {})
    result = await world.ended(job)
    assert (result["Status"], result["Stdout"]) == ("OK", content.decode("utf-8", "replace") + "\n")
    await world.told(Blobs=[ref.sha256])
    again = world.assign(a=content)
    assert (await world.ended(again))["Status"] == "OK"
    assert not world.others, "and nothing was asked"


async def test_two_jobs_that_need_the_same_wait_for_one_transfer(world: InputsWorld) -> None:
    await world.worker()
    jobs = {world.assign(a=b"same"), world.assign(b=b"same")}
    await world.served(b"same")
    acks = {(await world.next(ACK)).corr_id for _ in jobs}
    assert acks == jobs
    assert not [one for one in world.others if one.type == WANT]


@pytest.mark.spec("C3")
async def test_a_source_that_is_none_ends_the_job_with_its_code(world: InputsWorld) -> None:
    await world.worker()
    for files, code in (({"a": b"nowhere"}, "no-blob"), ({"a": "no-such-cache"}, "no-cache")):
        job = world.assign(**files)
        want = await world.next(WANT)
        world.link.send(SOURCE, json.dumps({"Code": code, "Message": "gone"}).encode(), corr_id=want.msg_id)
        result = await world.ended(job)
        assert (result["Reason"], "gone" in result["Stderr"]) == (code, True)


@pytest.mark.parametrize(
    "file", [{"Sha256": "../../x", "Size": 1}, {"Sha256": "0" * 64}, {}, {"Sha256": "0" * 64, "Size": -1}]
)
async def test_a_reference_that_cannot_be_is_refused(world: InputsWorld, file: dict[str, Any]) -> None:
    await world.worker()
    job = new_id()
    world.link.assign(job, "show", Files=[{"Name": "a", **file}])
    assert (await world.ended(job))["Reason"] == "bad-request"


async def test_a_leader_without_blobs_has_none_to_give(world: InputsWorld) -> None:
    world.bench.worker(world.leader.address, cache=world.cache)
    await world.connect(wants="")
    for files, code in (({"a": b"x"}, "no-blob"), ({"a": "models"}, "no-cache")):
        job = world.assign(**files)
        assert (await world.ended(job))["Reason"] == code


async def test_a_job_that_waits_for_its_inputs_can_be_cancelled(world: InputsWorld) -> None:
    await world.worker(slots=1)
    job = world.assign(a=b"late")
    await world.next(WANT)
    world.link.send(CANCEL, job.bytes_le)
    other = world.assign("count")
    while (ack := await world.next(ACK)).corr_id != other:
        assert (ack.corr_id, ack.json["Reason"]) == (job, "cancelled")


async def test_a_job_has_all_its_time_however_long_its_inputs_take(world: InputsWorld) -> None:
    await world.worker()
    job = new_id()
    ref = ref_of_bytes(b"late")
    world.link.assign(job, "show", TimeoutS=0.5, Files=[{"Name": "a", "Sha256": ref.sha256, "Size": ref.size}])
    want = await world.next(WANT)
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.sleep(0.6)  # longer than its program may take
    world.answer(want, world.has(b"late"))
    assert (await world.ended(job))["Status"] == "OK"


# Programs that write to their inputs.


WRITERS = {
    "append": "echo x >> a",
    "truncate": ": > a",
    "mode": "chmod 600 a; echo x >> a",
    "in place": "printf X | dd of=a conv=notrunc 2>/dev/null",
}


@pytest.mark.spec("C3")
@pytest.mark.parametrize("script", WRITERS.values(), ids=WRITERS.keys())
async def test_a_program_that_writes_to_its_input_changes_it_for_itself_alone(
    world: InputsWorld, script: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "wakugumi.inputs")
    world.bench.program("sum", "sha256sum < a")
    world.bench.program("write", f"{script}; sha256sum < a")
    await world.worker()
    await world.cached("models", a=large())
    is_right = f"{ref_of_bytes(large()).sha256}  -\n"
    assert (await world.ended(world.assign("sum", a="models")))["Stdout"] == is_right
    result = await world.ended(world.assign("write", a="models"))
    assert (result["Status"], result["Stdout"] != is_right) == ("OK", True), "it goes on with its own"
    await world.told(Gone=[ref_of_bytes(large()).sha256])
    job = world.assign("sum", a="models")
    await world.served(large())
    assert (await world.ended(job))["Stdout"] == is_right
    world.stock.clear()
    assert (await world.ended(world.assign("write", a="models")))["Status"] == "OK"
    assert (await world.ended(world.assign("sum", a="models")))["Stdout"] == is_right
    assert not world.stock, "from the second time on it has a copy"
    assert len([one for one in caplog.records if "writes to its inputs" in one.message]) == 1


async def test_what_was_taken_out_gives_its_room_back_by_itself(
    world: InputsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wakugumi.roles.runner.files.inputs.SWEEP_S", 0.02)
    world.bench.program("write", "echo x >> a")
    await world.worker()
    await world.cached("models", a=large())
    assert (await world.ended(world.assign("write", a="models")))["Status"] == "OK"
    await world.told(Gone=[ref_of_bytes(large()).sha256])
    await eventually(lambda: not os.listdir(world.cache / ".trash"))


async def test_a_program_that_writes_to_one_input_has_copies_of_all_others(world: InputsWorld) -> None:
    world.bench.program("write", "echo x >> a")
    await world.worker()
    for seed in (1, 2):
        job = world.assign("write", a=large(seed))
        await world.served(large(seed))
        assert (await world.ended(job))["Status"] == "OK"
    gone = [sha256 for stock in world.stock for sha256 in stock.get("Gone", [])]
    assert gone == [ref_of_bytes(large(1)).sha256]


@pytest.mark.spec("C3")
async def test_a_job_beside_one_that_writes_never_ends_well_with_what_it_may_have_read(world: InputsWorld) -> None:
    started = world.folder / "started"
    world.bench.program(
        "late", f'touch {started}; while [ ! -e "{world.bench.gate}" ]; do sleep 0.01; done; sha256sum < a'
    )
    world.bench.program("write", "echo x >> a")
    await world.worker(slots=2)
    await world.cached("models", a=large())
    reader = world.assign("late", a="models")
    await eventually(started.exists)
    writer = world.assign("write", a="models")
    results = {}
    for _ in range(2):
        ack = await world.next(ACK)
        results[ack.corr_id] = ack.json["Reason"]
    assert results == {reader: "input-changed", writer: "input-changed"}
    world.bench.gate.touch()
    job = world.assign("late", a="models")
    await world.served(large())
    assert (await world.ended(job))["Stdout"] == f"{ref_of_bytes(large()).sha256}  -\n"


@pytest.mark.spec("C3")
async def test_jobs_beside_each_other_that_all_write_have_copies_in_the_end(world: InputsWorld) -> None:
    world.bench.program("write", "sha256sum < a; echo x >> a")
    await world.worker(slots=2)
    await world.cached("models", a=large())
    await world.ended(world.assign("write", a="models"))
    jobs = [world.assign("write", a="models") for _ in range(2)]
    await world.served(large())
    for _ in jobs:
        ack = await world.next(ACK)
        assert (ack.json["Status"], ack.json["Stdout"]) == ("OK", f"{ref_of_bytes(large()).sha256}  -\n")


@pytest.mark.spec("C3")
async def test_a_program_that_writes_and_never_runs_alone_is_learnt_too(
    world: InputsWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "wakugumi.inputs")
    gate = world.bench.gate
    world.bench.program("write", f'while [ ! -e "{gate}" ]; do sleep 0.01; done; echo x >> a; sleep 60')
    await world.worker(slots=2)
    await world.cached("models", a=large())
    await world.ended(world.assign("count", a="models"))
    jobs = [world.assign("write", a="models") for _ in range(2)]
    await eventually(lambda: len(list(world.bench.jobs.glob("*/a"))) == 2)
    gate.touch()
    results = {}
    for _ in jobs:
        ack = await world.next(ACK)
        results[ack.corr_id] = ack.json["Reason"]
    assert results == dict.fromkeys(jobs, "input-changed")
    assert [one.args for one in caplog.records if "writes to its inputs" in one.message] == [("write",)]


@pytest.mark.user_dependent
@pytest.mark.spec("C3")
async def test_a_link_that_a_program_hides_is_worth_nothing(world: InputsWorld) -> None:
    hidden = world.folder / "hidden"
    world.bench.program("hide", f"ln a {hidden} 2>/dev/null || cp a {hidden}")
    await world.worker()
    await world.cached("models", a=large())
    assert (await world.ended(world.assign("hide", a="models")))["Status"] == "OK"
    await world.told(Gone=[ref_of_bytes(large()).sha256])
    with written_anyway(hidden, "ab") as file:
        file.write(b"!")
    job = world.assign("count", a="models")
    await world.served(large())
    await world.ended(job)


def another_file_system(folder: Path) -> Path:
    other = Path("/dev/shm")
    if not other.is_dir() or other.stat().st_dev == folder.stat().st_dev:
        pytest.skip("there is only one file system")
    return other


@pytest.mark.spec("C3")
async def test_across_file_systems_a_copy_is_made(world: InputsWorld) -> None:
    elsewhere = another_file_system(world.folder)
    world.cache = Path(elsewhere, f"waku-test-{uuid.uuid4()}")
    world.bench.program("write", "echo x >> a; sha256sum < a")
    world.bench.program("sum", "sha256sum < a")
    worker = await world.worker()
    try:
        await world.cached("models", a=large())
        world.stock.clear()
        assert (await world.ended(world.assign("write", a="models")))["Status"] == "OK"
        assert (await world.ended(world.assign("sum", a="models")))["Stdout"] == f"{ref_of_bytes(large()).sha256}  -\n"
        assert not world.stock
    finally:
        worker.request_stop()
        worker.request_stop()
        await world.bench.stopped(worker)
        shutil.rmtree(world.cache)


async def test_inputs_that_are_links_are_no_output(world: InputsWorld) -> None:
    world.bench.program("make", "echo made > b")
    await world.worker()
    await world.cached("models", a=large())
    result = await world.ended(world.assign("make", a="models"))
    assert result["OutputArchive"] is not None
    assert len(base64.b64decode(result["OutputArchive"])) < KIB


async def test_copies_for_a_job_that_cannot_be_started_are_removed_in_a_thread(
    world: InputsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[bool] = []
    remove = JobDir.remove

    def noted(directory: JobDir) -> None:
        removed.append(threading.current_thread() is threading.main_thread())
        remove(directory)

    monkeypatch.setattr(JobDir, "remove", noted)
    await world.worker()
    put = world.put("models", a=large(), b=large())
    await world.served(large())
    assert (await world.put_ended(put))[0] == "OK"
    world.bench.program("broken", "")
    (world.bench.programs / "broken").write_text("#!/no/such/interpreter")
    result = await world.ended(world.assign("broken", a="models", b="models"))
    assert (result["Status"], result["ExitCode"]) == ("FAILED", None)
    assert removed == [False]
    assert not list(world.bench.jobs.glob("*/a"))


async def test_a_disk_that_is_full_half_way_fails_the_job_and_leaves_nothing(
    world: InputsWorld, places: dict[str, ScriptedPlace]
) -> None:
    await world.worker()
    places["http://one"] = ScriptedPlace(
        "http://one", large(), [Refused("disk", "a blob cannot be written: no space left")]
    )
    job = world.assign("count", a=large())
    world.answer(await world.next(WANT), ref_of_bytes(large()), "http://one")
    result = await world.ended(job)
    assert (result["Reason"], "no space left" in result["Stderr"]) == ("disk", True)
    assert os.listdir(world.cache / ".blobs" / ".incoming") == []
    await world.gave_up(large(), "http://one")
    put = world.put("models", a=b"small")
    await world.served(b"small")
    assert (await world.put_ended(put))[0] == "OK", "others are not harmed"


async def test_the_cache_goes_on_being_swept_after_a_failure_that_nobody_foresaw(
    world: InputsWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(inputs, "SWEEP_S", 0.01)
    worker = (await world.worker()).station
    assert worker.supply is not None
    swept = 0

    def fails(_now: float) -> None:
        nonlocal swept
        swept += 1
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(worker.supply.folder, "sweep", fails)
    await eventually(lambda: swept > 2)
    assert "sweep of the cache failed" in caplog.text
