"""Old peers know no blobs: they get what fits a frame, and a clear FAILED with the reason for what does not."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from tests.kit.a_leader import OwnPeer, Running, a_leader
from tests.kit.old_peers import DEADLINE_S, SUBMIT_JOB, Message, OldClient, OldWorker

from wakugumi.adapters.blobs.place import FolderPlace
from wakugumi.adapters.blobs.store import ref_of_bytes
from wakugumi.core.ids import JobId
from wakugumi.roles.leader.files.blobs import LeaderBlobs
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.control import Holding
from wakugumi.wire.messages.job import JobResult, read_result

pytestmark = pytest.mark.anyio

SMALL = os.urandom(300_000)
LARGE = os.urandom(4_000_000)
"""More than a frame holds."""


@pytest.fixture
def place(tmp_path: Path) -> FolderPlace:
    return FolderPlace(tmp_path / "blobs")


@pytest.fixture
async def leader(place: FolderPlace) -> AsyncIterator[Running]:
    async with a_leader(blobs=LeaderBlobs(place, url=place.url)) as leader:
        yield leader


def put(place: FolderPlace, content: bytes) -> dict[str, object]:
    ref = ref_of_bytes(content)
    if not place.has(ref):
        incoming = place.store.begin(ref)
        incoming.write(content)
        incoming.finish()
    return {"Sha256": ref.sha256, "Size": ref.size}


@asynccontextmanager
async def own_client(leader: Running) -> AsyncIterator[OwnPeer]:
    async with OwnPeer(leader.port) as peer:
        await peer.hello_client()
        yield peer


@asynccontextmanager
async def own_worker(leader: Running, credit: int = 1) -> AsyncIterator[OwnPeer]:
    async with OwnPeer(leader.port) as peer:
        await peer.hello_worker(uuid4(), holds=Holding())
        await peer.credit(credit)
        yield peer


async def submitted(client: OwnPeer, files: list[dict[str, object]], **request: object) -> UUID:
    job = uuid4()
    await client.submit(job, Files=files, **request)
    assert await client.expect_ids(fr.RECEIPT) == [job]
    return job


async def result_of(client: OwnPeer, job: UUID) -> JobResult:
    frame = await client.expect(fr.RESULT)
    assert UUID(bytes_le=frame.corr_id) == job
    return read_result(JobId(job.bytes_le), frame.payload)


@pytest.mark.spec("F11", "C7")
async def test_an_old_worker_gets_content_that_fits_a_frame_in_the_frame(leader: Running, place: FolderPlace) -> None:
    async with own_client(leader) as client, OldWorker(leader.port) as worker:
        await worker.hello(credit=1)
        inline = {"Name": "c", "Content": base64.b64encode(b"x").decode()}
        files = [{"Name": "a", **put(place, SMALL)}, {"Name": "b", "CacheId": "data"}, inline]
        job = await submitted(client, files, Args=["1"], Retries=0)
        assigned = await worker.assigned()
        assert assigned.msg_id == job
        found = assigned.json
        assert (found["JobId"], found["ExecName"], found["Args"]) == (str(job), "calcA", ["1"])
        assert found["Files"] == [{"Name": "a", "Content": base64.b64encode(SMALL).decode()}, *files[1:]]
        await worker.ack(assigned, Stdout="fine")
        assert (await result_of(client, job)).stdout == "fine"


@pytest.mark.spec("F11", "C7")
async def test_what_does_not_fit_fails_with_the_reason_and_the_old_worker_keeps_its_credit(
    leader: Running, place: FolderPlace
) -> None:
    async with own_client(leader) as client, OldWorker(leader.port) as worker:
        await worker.hello(credit=1)
        job = await submitted(client, [{"Name": "a", **put(place, LARGE)}], Retries=3)
        result = await result_of(client, job)
        assert (result.status, result.reason) == ("FAILED", "too-big")
        assert str(len(LARGE)) in result.stderr
        after = await submitted(client, [])
        assert (await worker.assigned()).msg_id == after


async def test_a_blob_that_is_gone_fails_with_the_reason(leader: Running, place: FolderPlace) -> None:
    async with own_client(leader) as client, OldWorker(leader.port) as worker:
        file = put(place, SMALL)
        job = await submitted(client, [{"Name": "a", **file}])
        place.remove(str(file["Sha256"]))
        await worker.hello(credit=1)
        result = await result_of(client, job)
        assert (result.status, result.reason) == ("FAILED", "no-blob")


@pytest.mark.spec("F11", "C7")
async def test_an_old_worker_beside_one_of_ours_is_given_no_blobs(leader: Running, place: FolderPlace) -> None:
    async with own_client(leader) as client, OldWorker(leader.port) as old, own_worker(leader, 3) as ours:
        await old.hello(credit=9)
        await leader.until(lambda machine: len(machine.roster) == 2)
        jobs = [await submitted(client, [{"Name": "a", **put(place, LARGE)}]) for _ in range(3)]
        assert [UUID(bytes_le=(await ours.expect(fr.ASSIGN_JOB)).msg_id) for _ in jobs] == jobs


@pytest.mark.spec("F11", "C7")
async def test_an_old_client_gets_an_archive_that_fits_a_frame_in_the_frame(
    leader: Running, place: FolderPlace
) -> None:
    async with OldClient(leader.port) as client, own_worker(leader) as worker:
        await client.hello("old")
        job = await client.submit()
        await worker.expect(fr.ASSIGN_JOB)
        await worker.ack(job, Stdout="all", Stderr="", ArchiveBlob=put(place, SMALL))
        found, result = await client.result()
        assert (found, result["Status"], result["Stdout"], result["Stderr"]) == (job, "OK", "all", "")
        assert base64.b64decode(result["OutputArchive"]) == SMALL
        assert not [name for name in result if name.endswith("Blob")]
        await leader.until(lambda machine: not machine.clients.results.undelivered)


@pytest.mark.spec("F10", "F11")
@pytest.mark.parametrize(
    ("said", "cut", "status", "reason"),
    [
        ({"Status": "OK", "ExitCode": 0}, ["Stdout"], "FAILED", "too-big"),
        ({"Status": "OK", "ExitCode": 0}, ["Stderr"], "OK", None),
        ({"Status": "OK", "ExitCode": 0}, ["Stdout", "Stderr"], "FAILED", "too-big"),
        ({"Status": "FAILED", "ExitCode": 3, "Reason": "exit"}, ["Stdout"], "FAILED", "exit"),
    ],
)
async def test_an_old_client_is_told_what_was_cut_of_the_output_and_where_all_of_it_is(
    leader: Running, place: FolderPlace, said: dict[str, object], cut: list[str], status: str, reason: str | None
) -> None:
    async with OldClient(leader.port) as client, own_worker(leader) as worker:
        await client.hello("old")
        job = await client.submit()
        await worker.expect(fr.ASSIGN_JOB)
        blobs = {f"{name}Blob": put(place, LARGE) for name in cut}
        await worker.ack(job, **said, Stdout="end of out", Stderr="end of err", ArchiveBlob=put(place, SMALL), **blobs)
        found, result = await client.result()
        assert (found, result["Status"], result.get("Reason")) == (job, status, reason)
        assert (result["Stdout"], result["ExitCode"]) == ("end of out", said["ExitCode"])
        assert base64.b64decode(result["OutputArchive"]) == SMALL
        assert not [name for name in result if name.endswith("Blob")]
        assert "end of err" in result["Stderr"]
        for name in cut:
            assert f"{len(LARGE)} bytes of {name.lower()} do not fit a frame" in result["Stderr"]
        assert f"waku jobs wait {job}" in result["Stderr"]
        async with own_client(leader) as other:
            await other.say_ids(fr.CLAIM, job)
            assert set(blobs) <= set(json.loads((await other.expect(fr.RESULT)).payload)), "all of it is kept"


async def test_a_result_with_no_room_for_a_word_about_its_blobs_is_cut_further(
    leader: Running, place: FolderPlace
) -> None:
    async with OldClient(leader.port) as client, own_worker(leader) as worker:
        await client.hello("old")
        job = await client.submit()
        await worker.expect(fr.ASSIGN_JOB)
        ref = put(place, LARGE)
        room = fr.payload_max("") - 500
        await worker.ack(job, Stdout="x" * room, Stderr="", StdoutBlob=ref)
        found, result = await client.result()
        assert (found, result["Status"], result["Reason"]) == (job, "FAILED", "too-big")
        assert result["Stdout"].strip("x") == ""
        assert f"{len(LARGE)} bytes of stdout" in result["Stderr"]


@pytest.mark.spec("F11", "C7")
async def test_an_old_client_is_told_why_it_does_not_get_an_archive_that_does_not_fit(
    leader: Running, place: FolderPlace
) -> None:
    async with OldClient(leader.port) as client, own_worker(leader) as worker:
        await client.hello("old")
        job = await client.submit()
        await worker.expect(fr.ASSIGN_JOB)
        await worker.ack(job, Stdout="out", Stderr="err", ExitCode=0, ArchiveBlob=put(place, LARGE))
        found, result = await client.result()
        assert (found, result["Status"], result["Reason"]) == (job, "FAILED", "too-big")
        assert (result["Stdout"], result["ExitCode"], result["OutputArchive"]) == ("out", 0, None)
        assert result["Stderr"].startswith("err\n")
        assert str(len(LARGE)) in result["Stderr"]


@pytest.mark.spec("F4", "F11")
async def test_an_old_client_that_names_blobs_is_refused_by_a_failed_result(
    leader: Running, place: FolderPlace
) -> None:
    async with OldClient(leader.port) as client:
        await client.hello("old")
        job = await client.submit(Files=[{"Name": "a", **put(place, SMALL)}])
        found, result = await client.result()
        assert (found, result["Status"], result["Reason"]) == (job, "FAILED", "not-supported")


async def test_an_old_client_that_leaves_while_its_archive_is_read_gets_it_when_it_is_back(
    leader: Running, place: FolderPlace
) -> None:
    async with own_worker(leader) as worker:
        async with OldClient(leader.port) as client:
            await client.hello("old")
            job = await client.submit()
            await worker.expect(fr.ASSIGN_JOB)
            client.die()
            await leader.until(lambda machine: not machine.clients.connections)
        await worker.ack(job, ArchiveBlob=put(place, SMALL))
        await worker.expect(fr.CONFIRM)
        async with OldClient(leader.port) as client, asyncio.timeout(DEADLINE_S):
            await client.hello("old")
            found, result = await client.result()
            assert (found, base64.b64decode(result["OutputArchive"])) == (job, SMALL)


# What the leader did not look at may be anything.


@pytest.mark.spec("F11")
@pytest.mark.parametrize("odd", [b'"Files":null', b'"Files":[],"Args":null', b'"Files":[{"Name":"a","Content":"%%%"}]'])
async def test_an_odd_request_goes_to_an_old_worker_as_it_came(leader: Running, odd: bytes) -> None:
    async with OldClient(leader.port) as client, OldWorker(leader.port) as worker:
        await client.hello("old")
        await worker.hello(credit=1)
        job = uuid4()
        payload = b'{"JobId":"%s","ExecName":"calcA","Key":"a\\u002Bb",%s}' % (str(job).encode(), odd)
        await client.send(Message(SUBMIT_JOB, job, subject="job.submit.calcA", payload=payload))
        assigned = await worker.assigned()
        assert (assigned.msg_id, assigned.payload) == (job, payload)
        await worker.ack(assigned, Stdout="fine")
        assert (await client.result())[1]["Stdout"] == "fine"


@pytest.mark.spec("F11")
@pytest.mark.parametrize("odd", [{"ExitCode": "0"}, {"Stderr": None}, {"OutputArchive": "%%%"}])
async def test_an_odd_result_goes_to_an_old_client_as_it_came(leader: Running, odd: dict[str, object]) -> None:
    async with OldClient(leader.port) as client, OldWorker(leader.port) as worker:
        await client.hello("old")
        await worker.hello(credit=1)
        await client.submit()
        await worker.ack(await worker.assigned(), Stdout="bell \x07", **odd)
        result = (await client.result())[1]
        assert (result["Stdout"], result["Status"]) == ("bell \x07", "OK")
        assert odd.items() <= result.items()
        await leader.serves()


@pytest.mark.spec("F11", "C7")
async def test_an_odd_request_with_blobs_fails_and_the_old_worker_keeps_its_credit(
    leader: Running, place: FolderPlace
) -> None:
    async with own_client(leader) as client, OldWorker(leader.port) as worker:
        await worker.hello(credit=1)
        job = await submitted(client, [{"Name": "a", **put(place, SMALL)}], Args=None)
        result = await result_of(client, job)
        assert (result.status, result.reason) == ("FAILED", "bad-request")
        after = await submitted(client, [])
        assert (await worker.assigned()).msg_id == after


@pytest.mark.spec("F11", "C7")
async def test_an_odd_result_with_blobs_is_a_failure_to_an_old_client(leader: Running, place: FolderPlace) -> None:
    async with OldClient(leader.port) as client, own_worker(leader) as worker:
        await client.hello("old")
        job = await client.submit()
        await worker.expect(fr.ASSIGN_JOB)
        await worker.ack(job, Stdout=None, ArchiveBlob=put(place, SMALL))
        found, result = await client.result()
        assert (found, result["Status"], result["Reason"]) == (job, "FAILED", "bad-result")
        await leader.serves()


@pytest.mark.spec("L3", "L4")
async def test_a_job_that_an_unforeseen_failure_keeps_from_an_old_worker_goes_to_another(
    leader: Running, place: FolderPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    async with own_client(leader) as client:
        async with OldWorker(leader.port) as worker:
            await worker.hello(credit=1)
            with monkeypatch.context() as patch:
                patch.setattr(LeaderBlobs, "read", fails)
                job = await submitted(client, [{"Name": "in", **put(place, SMALL)}])
                async with asyncio.timeout(DEADLINE_S):
                    assert await worker.reader.read() == b"", "the connection ends, and with it the assignment"
        async with OldWorker(leader.port) as worker:
            await worker.hello(credit=1)
            await worker.ack(await worker.assigned())
            assert (await result_of(client, job)).status == "OK"


async def test_a_result_that_an_unforeseen_failure_keeps_from_an_old_client_is_sent_again(
    leader: Running, place: FolderPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    async with own_worker(leader) as worker:
        with monkeypatch.context() as patch:
            patch.setattr(LeaderBlobs, "read", fails)
            async with OldClient(leader.port) as client:
                await client.hello("old")
                job = await client.submit("calcA")
                await worker.expect(fr.ASSIGN_JOB)
                await worker.ack(job, ArchiveBlob=put(place, SMALL))
                async with asyncio.timeout(DEADLINE_S):
                    assert await client.reader.read() == b"", "the connection ends"
        async with OldClient(leader.port) as client:
            await client.hello("old")
            assert (await client.receive()).corr_id == job
