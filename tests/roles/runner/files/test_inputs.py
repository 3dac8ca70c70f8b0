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
from tests.kit.inputs_world import LARGE, SOURCE, WANT, InputsWorld, large
from tests.kit.own_files import written_anyway
from tests.kit.worker_bench import Bench
from tests.kit.workers_leader import ACK, CACHE_ACK, CANCEL, DEADLINE_S, HELLO_WORKER, Message, WorkersLeader, new_id

from wakugumi.adapters.blobs.open_place import open_place
from wakugumi.adapters.blobs.place import OnBytes
from wakugumi.adapters.blobs.store import Incoming, ref_of_bytes
from wakugumi.adapters.jobdir.directory import JobDir
from wakugumi.errors import ConfigError, Lost, Refused
from wakugumi.limits.files import LARGE_TRANSFERS_MAX
from wakugumi.limits.units import KIB
from wakugumi.roles.runner.files import inputs
from wakugumi.wire.messages.references import BlobRef

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quickly")]


@pytest.fixture
async def world(leader: WorkersLeader, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InputsWorld:
    monkeypatch.setattr("wakugumi.roles.runner.files.fetch._AGAIN_FIRST_S", 0.001)
    return InputsWorld(leader, bench, tmp_path)


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


async def test_what_was_asked_of_a_lost_leader_is_asked_of_the_next(
    world: InputsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wakugumi.roles.runner.files.fetch.WANTS_OPEN_MAX", 1)
    await world.worker()
    job = world.assign(a=b"one")
    first = await world.next(WANT)
    world.link.close()
    await world.connect()
    second = await world.next(WANT)
    assert (first.msg_id, first.payload) == (second.msg_id, second.payload)
    world.answer(second, world.has(b"one"))
    assert (await world.ended(job))["Status"] == "OK"


async def test_more_than_may_be_asked_at_once_comes_in_turn(world: InputsWorld) -> None:
    await world.worker()
    contents = [str(number).encode() for number in range(50)]
    by_sha = {ref_of_bytes(content).sha256: content for content in contents}
    job = world.assign(**{f"f{number}": content for number, content in enumerate(contents)})
    for _ in contents:
        want = await world.next(WANT)
        world.answer(want, world.has(by_sha[want.json["Sha256"]]))
    assert (await world.ended(job))["Status"] == "OK"


@pytest.mark.spec("C5")
@pytest.mark.parametrize("how", ["asked", "fetched"])
async def test_large_inputs_hold_up_nobody_but_their_like(
    world: InputsWorld, places: dict[str, Scripted], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Whether they wait for a source, or all of their sources are slow."""
    monkeypatch.setattr("wakugumi.roles.runner.files.fetch.LARGE_WORK_BYTES", 100)
    gate = asyncio.Event()
    loop = asyncio.get_running_loop()

    class Slow(Scripted):
        def fetch(self, ref: BlobRef, into: Incoming, on_bytes: OnBytes = lambda _: None) -> None:
            asyncio.run_coroutine_threadsafe(gate.wait(), loop).result(DEADLINE_S)
            super().fetch(ref, into, on_bytes)

    await world.worker()
    contents = [f"{number:0200}".encode() for number in range(30)]
    by_sha = {ref_of_bytes(content).sha256: content for content in contents}
    large_job = world.assign(**{f"f{number}": content for number, content in enumerate(contents)})
    wants = [await world.next(WANT) for _ in range(LARGE_TRANSFERS_MAX)]

    def answer_slowly(want: Message) -> None:
        content = by_sha[want.json["Sha256"]]
        url = f"http://slow-{want.json['Sha256']}"
        places[url] = Slow(url, content, [None])
        world.answer(want, ref_of_bytes(content), url)

    if how == "fetched":
        for want in wants:
            answer_slowly(want)
    for number in range(8):
        content = f"small {number}".encode()
        small_job = world.assign(x=content)
        want = await world.next(WANT)
        assert want.json["Sha256"] == ref_of_bytes(content).sha256
        world.answer(want, world.has(content))
        assert (await world.ended(small_job))["Stdout"] == f"small {number}\n"
    if how == "asked":
        for want in wants:
            answer_slowly(want)
    gate.set()
    for _ in range(len(contents) - LARGE_TRANSFERS_MAX):
        answer_slowly(await world.next(WANT))
    assert (await world.ended(large_job))["Status"] == "OK"


@pytest.mark.spec("C5")
@pytest.mark.parametrize("how", ["asked", "fetched", "all the same"])
async def test_large_caches_hold_up_nobody_but_their_like(
    world: InputsWorld, places: dict[str, Scripted], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The worker learns how large a cache is from the source alone, and gives back those that it cannot use yet."""
    monkeypatch.setattr("wakugumi.roles.runner.files.fetch.LARGE_WORK_BYTES", 100)
    gate = asyncio.Event()
    loop = asyncio.get_running_loop()
    busy: dict[uuid.UUID, str] = {}
    """The sources that are kept for this worker, by want."""

    class Slow(Scripted):
        def fetch(self, ref: BlobRef, into: Incoming, on_bytes: OnBytes = lambda _: None) -> None:
            asyncio.run_coroutine_threadsafe(gate.wait(), loop).result(DEADLINE_S)
            super().fetch(ref, into, on_bytes)

    def answer_slowly(want: Message) -> None:
        name = "same" if how == "all the same" else want.json["CacheId"]
        content, url = f"{name:200}".encode(), f"http://{name}-{want.msg_id}"
        places[url] = Slow(url, content, [None])
        busy[want.msg_id] = url
        world.answer(want, ref_of_bytes(content), url)

    async def next_but_given_up(*kinds: int) -> Message:
        while True:
            message = await world.next(*kinds)
            if message.type != WANT or "Failed" not in message.json:
                return message
            assert message.json["Failed"] == {"Url": busy.pop(message.msg_id), "Why": "given-up"}

    await world.worker()
    large_job = world.assign(**{f"f{number}": f"large-{number}" for number in range(30)})
    held = []
    for number in range(8):
        content = f"small {number}".encode()
        small_job = world.assign(x=content)
        while "CacheId" in (want := await next_but_given_up(WANT)).json:
            if how == "asked":
                held.append(want)
            else:
                answer_slowly(want)
        assert want.json["Sha256"] == ref_of_bytes(content).sha256
        world.answer(want, world.has(content))
        assert (await world.ended(small_job))["Stdout"] == f"small {number}\n"
    assert len(busy) == {"asked": 0, "fetched": LARGE_TRANSFERS_MAX, "all the same": 1}[how]
    gate.set()
    for want in held:
        answer_slowly(want)
    while (message := await next_but_given_up(WANT, ACK)).type == WANT:
        answer_slowly(message)
    assert (message.corr_id, message.json["Status"]) == (large_job, "OK")


# Bad sources.


class Scripted:
    """A place that does what a test likes, for the tries it was made for."""

    def __init__(self, url: str, content: bytes, ends: list[Exception | None]) -> None:
        self.url = url
        self.content = content
        self.ends = ends
        self.began_at: list[int] = []

    def fetch(self, ref: BlobRef, into: Incoming, on_bytes: OnBytes = lambda _: None) -> None:
        self.began_at.append(into.at)
        try:
            data = self.content[into.at :]
            end = self.ends.pop(0)
            if end is not None:
                into.write(data[: len(data) // 2])
                raise end
            into.write(data)
            on_bytes(len(data))
            into.finish()
        finally:
            into.close()


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> dict[str, Scripted]:
    places: dict[str, Scripted] = {}
    real = open_place
    monkeypatch.setattr(
        "wakugumi.roles.runner.files.transfer.open_place", lambda url, token="": places.get(url) or real(url, token)
    )
    return places


@pytest.mark.spec("C5")
@pytest.mark.parametrize(
    ("end", "why"),
    [
        (Lost("it went away"), "dead"),
        (Lost("nothing came", "slow"), "slow"),
        (Refused("no-blob", "not here"), "dead"),
        (Refused("full", "come again"), "busy"),
        (ConfigError("no such URL"), "dead"),
    ],
)
async def test_a_source_that_fails_half_way_is_replaced_and_the_transfer_goes_on(
    world: InputsWorld, places: dict[str, Scripted], end: Exception, why: str
) -> None:
    await world.worker()
    content = large()
    bad = places["http://bad"] = Scripted("http://bad", content, [end])
    good = places["http://good"] = Scripted("http://good", content, [None])
    job = world.assign("count", a=content)
    first = await world.next(WANT)
    world.answer(first, ref_of_bytes(content), "http://bad", Token="t")
    second = await world.next(WANT)
    assert second.msg_id == first.msg_id
    assert second.json["Failed"] == {"Url": "http://bad", "Why": why}
    world.answer(second, ref_of_bytes(content), "http://good")
    assert (await world.ended(job))["Status"] == "OK"
    assert (bad.began_at, good.began_at) == ([0], [LARGE // 2])


@pytest.mark.spec("C4", "C8")
async def test_a_source_that_lies_is_told_and_what_it_gave_is_thrown_away(
    world: InputsWorld, places: dict[str, Scripted]
) -> None:
    await world.worker()
    evil = places["http://evil"] = Scripted("http://evil", large(1), [None])
    job = world.assign("count", a=large())
    world.answer(await world.next(WANT), ref_of_bytes(large()), "http://evil")
    want = await world.next(WANT)
    assert want.json["Failed"] == {"Url": "http://evil", "Why": "lied"}
    good = places["http://good"] = Scripted("http://good", large(), [None])
    world.answer(want, ref_of_bytes(large()), "http://good")
    assert (await world.ended(job))["Status"] == "OK"
    assert (evil.began_at, good.began_at) == ([0], [0])


@pytest.mark.spec("C4", "C8")
@pytest.mark.parametrize("body", [large() + b"more", b"garbage"], ids=["too much", "no zstd"])
async def test_a_source_that_sends_what_cannot_be_lies(world: InputsWorld, body: bytes) -> None:
    from tests.kit.scripted_http import says, scripted

    await world.worker()
    head = f"HTTP/1.1 200 OK\nContent-Length: {len(body)}" + ("\nContent-Encoding: zstd" if len(body) < LARGE else "")
    job = world.assign("count", a=large())
    with scripted(says(head, body)) as url:
        world.answer(await world.next(WANT), ref_of_bytes(large()), url)
        want = await world.next(WANT)
        assert want.json["Failed"] == {"Url": url, "Why": "lied"}
    world.answer(want, world.has(large()))
    assert (await world.ended(job))["Status"] == "OK"


@pytest.mark.spec("C8")
@pytest.mark.parametrize("url", ["file://{}/theirs", "s3://bucket/theirs", "http://[", "theirs"])
async def test_a_source_that_is_no_workers_is_dead_and_nothing_is_touched(world: InputsWorld, url: str) -> None:
    await world.worker()
    url = url.format(world.folder)
    job = world.assign("count", a=large())
    world.answer(await world.next(WANT), ref_of_bytes(large()), url)
    want = await world.next(WANT)
    assert want.json["Failed"] == {"Url": url, "Why": "dead"}
    assert not (world.folder / "theirs").exists()
    world.has(large())
    world.answer(want, ref_of_bytes(large()), world.place.url)
    assert (await world.ended(job))["Status"] == "OK", "the leader's own place may be named"


@pytest.mark.spec("C4", "C8")
async def test_after_several_sources_nobody_is_accused_before_one_was_asked_for_all(
    world: InputsWorld, places: dict[str, Scripted]
) -> None:
    await world.worker()
    places["http://evil"] = Scripted("http://evil", large(1), [Lost("half of it, and wrong")])
    good = places["http://good"] = Scripted("http://good", large(), [None, None])
    job = world.assign("count", a=large())
    world.answer(await world.next(WANT), ref_of_bytes(large()), "http://evil")
    world.answer(await world.next(WANT), ref_of_bytes(large()), "http://good")
    assert (await world.ended(job))["Status"] == "OK"
    assert good.began_at == [LARGE // 2, 0]


async def test_a_job_fails_when_no_source_is_good(
    world: InputsWorld, places: dict[str, Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wakugumi.roles.runner.files.fetch.FETCH_TRIES_MAX", 3)
    await world.worker()
    places["http://evil"] = Scripted("http://evil", large(1), [None] * 3)
    job = world.assign("count", a=large())
    for _ in range(3):
        world.answer(await world.next(WANT), ref_of_bytes(large()), "http://evil")
    assert (await world.ended(job))["Reason"] == "blob-broken"
    await world.gave_up(large(), "http://evil")


async def test_a_failure_of_our_own_is_told_so_that_the_source_is_free_for_others(
    world: InputsWorld, places: dict[str, Scripted]
) -> None:
    await world.worker()
    places["http://good"] = Scripted("http://good", large(), [Refused("disk", "the disk is full")])
    job = world.assign("count", a=large())
    want = await world.next(WANT)
    world.answer(want, ref_of_bytes(large()), "http://good")
    assert (await world.ended(job))["Reason"] == "disk"
    assert await world.gave_up(large(), "http://good") == want.msg_id


async def test_who_waits_for_another_transfer_of_the_same_frees_its_own_source(
    world: InputsWorld, places: dict[str, Scripted]
) -> None:
    await world.worker()
    gate = asyncio.Event()
    loop = asyncio.get_running_loop()

    class Patient(Scripted):
        def fetch(self, ref: BlobRef, into: Incoming, on_bytes: OnBytes = lambda _: None) -> None:
            asyncio.run_coroutine_threadsafe(gate.wait(), loop).result(DEADLINE_S)
            super().fetch(ref, into, on_bytes)

    places["http://patient"] = Patient("http://patient", large(), [None])
    jobs = {world.assign("count", a=large()), world.assign("count", b="data-1")}
    wants = [await world.next(WANT) for _ in jobs]
    for want in sorted(wants, key=lambda want: "CacheId" in want.json):
        world.answer(want, ref_of_bytes(large()), "http://patient")
    by_name = next(want for want in wants if "CacheId" in want.json)
    given_up = await world.next(WANT)
    assert given_up.msg_id == by_name.msg_id
    assert given_up.json["Failed"] == {"Url": "http://patient", "Why": "given-up"}
    gate.set()
    assert {(await world.next(ACK)).corr_id for _ in jobs} == jobs
    assert not [one for one in world.others if one.type == WANT]


async def test_a_job_cancelled_between_two_tries_frees_the_source_of_the_first(
    world: InputsWorld, places: dict[str, Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wakugumi.roles.runner.files.fetch._AGAIN_FIRST_S", 3_600.0)
    monkeypatch.setattr("wakugumi.roles.runner.files.fetch.FETCH_AGAIN_MAX_S", 3_600.0)
    worker = await world.worker()
    places["http://bad"] = Scripted("http://bad", large(), [Lost("it went away")] * 2)
    job = world.assign("count", a=large())
    for _ in range(2):
        world.answer(await world.next(WANT), ref_of_bytes(large()), "http://bad")
    fetching = worker._supply._fetching
    await eventually(lambda: any(fetch.again is not None and fetch.tries == 2 for fetch in fetching._fetches.values()))
    world.link.send(CANCEL, job.bytes_le)
    await world.gave_up(large(), "http://bad")


async def test_a_transfer_outlives_the_connection(world: InputsWorld, places: dict[str, Scripted]) -> None:
    await world.worker()
    gate = asyncio.Event()
    loop = asyncio.get_running_loop()

    class Patient(Scripted):
        def fetch(self, ref: BlobRef, into: Incoming, on_bytes: OnBytes = lambda _: None) -> None:
            asyncio.run_coroutine_threadsafe(gate.wait(), loop).result(DEADLINE_S)
            super().fetch(ref, into, on_bytes)

    patient = places["http://patient"] = Patient("http://patient", large(), [None])
    job = world.assign("count", a=large())
    world.answer(await world.next(WANT), ref_of_bytes(large()), "http://patient")
    world.link.close()
    await world.connect()
    gate.set()
    await world.told(Blobs=[ref_of_bytes(large()).sha256])
    assert (await world.ended(job))["Status"] == "OK"
    assert patient.began_at == [0]
    assert not [one for one in world.others if one.type == WANT]


async def test_an_input_for_which_there_is_no_room_fails_its_job_alone(world: InputsWorld) -> None:
    await world.worker(cache_bytes=100 * KIB)
    job = world.assign(a=large())
    world.answer(await world.next(WANT), world.has(large()))
    assert (await world.ended(job))["Reason"] == "disk"
    await world.gave_up(large())
    other = world.assign(a=b"small")
    await world.served(b"small")
    assert (await world.ended(other))["Status"] == "OK"


# Caches.


@pytest.mark.spec("C1", "C2")
async def test_a_put_is_answered_when_all_its_files_are_here(world: InputsWorld) -> None:
    await world.worker()
    put = world.put("data-1", **{"a": b"one", "sub/ü": large()})
    await world.served(b"one")
    await world.served(large())
    assert await world.put_ended(put) == ("OK", "added=2, skipped=0")
    await world.told(Caches={"data-1": "v1/2"})
    assert (world.cache / "data-1" / "a").read_bytes() == b"one"
    assert (world.cache / "data-1" / "sub" / "ü").read_bytes() == large()
    again = world.put("data-1", **{"a": b"one", "sub/ü": large()})
    assert await world.put_ended(again) == ("SKIPPED", "added=0, skipped=2")
    more = world.put("data-1", a=b"one", b=b"two")
    await world.served(b"two")
    assert await world.put_ended(more) == ("OK", "added=1, skipped=1")
    other = world.put("data-1", c=b"three", b=b"other")
    status, message = await world.put_ended(other)
    assert (status, message.split(":")[0]) == ("FAILED", "conflict")
    assert (world.cache / "data-1" / "b").read_bytes() == b"two"
    assert not (world.cache / "data-1" / "c").exists()


@pytest.mark.spec("C1", "C2", "F9")
async def test_an_old_leaders_put_brings_the_files_along_and_its_jobs_find_them(world: InputsWorld) -> None:
    world.bench.worker(world.leader.address, cache=world.cache)
    world.link = await world.leader.connection()
    await world.link.expect(HELLO_WORKER)
    put = new_id()
    entries = [
        {"Name": "a.bin", "Content": base64.b64encode(large()).decode()},
        {"Name": "empty", "Content": ""},
    ]
    world.send_put(put, CacheId="models", Entries=entries)
    assert await world.put_ended(put) == ("OK", "added=2, skipped=0")
    job = world.assign("show", **{"a.bin": "models"})
    assert (await world.ended(job))["Stdout"] == large().decode("utf-8", "replace") + "\n"
    world.send_put(put, CacheId="models", Entries=entries)
    assert await world.put_ended(put) == ("SKIPPED", "added=0, skipped=2")


async def test_the_same_put_asked_again_meanwhile_is_answered_with_it(world: InputsWorld) -> None:
    await world.worker()
    first, second = (world.put("models", a=b"one") for _ in range(2))
    await world.served(b"one")
    answers = {(await world.next(CACHE_ACK)).corr_id for _ in range(2)}
    assert answers == {first, second}


@pytest.mark.parametrize(
    "request_",
    [
        {"CacheId": "models", "Entries": []},
        {"CacheId": "..", "Entries": [{"Name": "a", "Content": ""}]},
        {"CacheId": "models", "Entries": [{"Name": "../a", "Content": ""}]},
        {"CacheId": "models", "Entries": [{"Name": "a", "Content": ""}, {"Name": "A", "Content": ""}]},
        {"CacheId": "models", "Entries": [{"Name": "a", "Content": ""}, {"Name": "a/b", "Content": ""}]},
        {"CacheId": "models", "Entries": [{"Name": "a", "Content": "eA==", "Sha256": "0" * 64, "Size": 1}]},
        {"CacheId": "models", "Entries": 7},
        {"CacheId": "models", "Entries": [{"Name": "a", "Sha256": "0" * 64, "Size": 1 << 60}]},
    ],
    ids=str,
)
async def test_a_put_with_tricks_fails_and_leaves_nothing(world: InputsWorld, request_: dict[str, Any]) -> None:
    await world.worker()
    put = new_id()
    world.send_put(put, **request_)
    assert (await world.put_ended(put))[0] == "FAILED"
    assert not [name for name in os.listdir(world.cache) if name[0] != "."]
    put = world.put("models", a=b"one")
    await world.served(b"one")
    assert (await world.put_ended(put))[0] == "OK"


async def test_names_that_cannot_stand_beside_older_ones_fail(world: InputsWorld) -> None:
    await world.worker()
    await world.cached("models", a=b"one")
    put = world.put("models", **{"a/b": b"two"})
    await world.served(b"two")
    status, message = await world.put_ended(put)
    assert (status, message.split(":")[0]) == ("FAILED", "bad-name")
    assert await world.put_ended(world.put("models", a=b"one")) == ("SKIPPED", "added=0, skipped=1")


async def test_a_put_for_which_there_is_no_room_fails_with_the_reason(world: InputsWorld) -> None:
    await world.worker(cache_bytes=300 * KIB)
    await world.cached("models", a=b"one")
    put = world.put("big", a=large(), b=large(1))
    status, message = await world.put_ended(put)
    assert (status, message.split(":")[0]) == ("FAILED", "disk")
    assert await world.put_ended(world.put("models", a=b"one")) == ("SKIPPED", "added=0, skipped=1")


@pytest.mark.spec("C2")
async def test_a_put_that_fails_at_its_very_end_changes_nothing_and_can_be_tried_again(world: InputsWorld) -> None:
    await world.worker(cache_bytes=300 * KIB)
    await world.cached("models", a=large())
    job = world.assign("count", b=large(1))
    await world.served(large(1))
    await world.ended(job)
    assert not (world.cache / "models" / "a").exists(), "there was no room for both"
    in_the_way = world.cache / ".caches" / "models.json.new"
    in_the_way.mkdir()
    failed = world.put("models", a=large(), b=b"two")
    for content in (large(), b"two"):
        await world.served(content)
    assert (await world.put_ended(failed))[0] == "FAILED"
    assert os.listdir(world.cache / "models") == []
    in_the_way.rmdir()
    again = world.put("models", a=large(), b=b"two")
    assert await world.put_ended(again) == ("OK", "added=1, skipped=1"), "and nothing is fetched again"
    assert (world.cache / "models" / "a").read_bytes() == large()


@pytest.mark.spec("C3")
async def test_a_job_gets_a_file_of_a_cache_without_asking(world: InputsWorld) -> None:
    await world.worker()
    await world.cached("models", a=large(), b=b"small")
    job = world.assign(a="models", b="models")
    assert (await world.ended(job))["Stdout"] == (large() + b"small").decode("utf-8", "replace") + "\n"
    assert not world.others


@pytest.mark.spec("C2")
async def test_another_version_of_a_cache_takes_the_place_of_the_old_one(world: InputsWorld) -> None:
    await world.worker()
    await world.cached("models", "v1", a=b"old", b=b"old too")
    await world.cached("models", "v2", a=b"new")
    await world.told(Caches={"models": "v2/1"})
    assert os.listdir(world.cache / "models") == ["a"]
    assert (await world.ended(world.assign(a="models")))["Stdout"] == "new\n"


@pytest.mark.spec("C3", "C6")
async def test_after_a_reconnect_a_cache_counts_only_once_the_leader_has_confirmed_it(world: InputsWorld) -> None:
    await world.worker()
    await world.cached("models", a=b"old")
    world.link.close()
    await world.connect()
    assert world.stock[0]["Caches"] == {"models": "v1/1"}
    assert world.stock[0]["Blobs"] == [ref_of_bytes(b"old").sha256]
    job = world.assign(a="models")
    want = await world.next(WANT)
    assert want.json == {"CacheId": "models", "Name": "a"}
    world.answer(want, world.has(b"new"))
    assert (await world.ended(job))["Stdout"] == "new\n"
    assert await world.put_ended(world.put("models", a=b"old")) == ("SKIPPED", "added=0, skipped=1")
    assert (await world.ended(world.assign(a="models")))["Stdout"] == "old\n"
    assert not world.others


async def test_what_is_here_already_is_not_fetched_but_told(world: InputsWorld, places: dict[str, Scripted]) -> None:
    await world.worker()
    await world.cached("models", a=b"one")
    world.stock.clear()
    job = world.assign(other="elsewhere")
    world.answer(await world.next(WANT), ref_of_bytes(b"one"), "http://never")
    assert (await world.ended(job))["Stdout"] == "one\n"
    await world.told(Blobs=[ref_of_bytes(b"one").sha256])


@pytest.mark.spec("C6")
async def test_all_is_told_and_used_again_after_a_restart(world: InputsWorld) -> None:
    worker = await world.worker()
    await world.cached("models", a=large())
    worker.request_stop()
    await world.bench.stopped(worker)
    await world.worker()
    assert world.stock[0]["Caches"] == {"models": "v1/1"}
    assert await world.put_ended(world.put("models", a=large())) == ("SKIPPED", "added=0, skipped=1")
    assert (await world.ended(world.assign("count", a="models")))["Status"] == "OK"
    assert not world.others


@pytest.mark.spec("C6")
async def test_what_goes_for_want_of_room_is_told_and_fetched_again_when_needed(world: InputsWorld) -> None:
    await world.worker(cache_bytes=300 * KIB)
    await world.cached("models", a=large())
    world.stock.clear()
    job = world.assign("count", b=large(1))
    await world.served(large(1))
    await world.ended(job)
    await world.told(Gone=[ref_of_bytes(large()).sha256])
    job = world.assign("count", a="models")
    assert (await world.served(large()))["Sha256"] == ref_of_bytes(large()).sha256
    assert (await world.ended(job))["Status"] == "OK"


@pytest.mark.spec("C6")
async def test_a_dropped_cache_is_gone_for_the_next_job_and_stays_for_the_running(world: InputsWorld) -> None:
    world.bench.program("late", f'while [ ! -e "{world.bench.gate}" ]; do sleep 0.01; done; cat a')
    await world.worker()
    await world.cached("models", a=large())
    running = world.assign("late", a="models")
    await eventually(lambda: bool(list(world.bench.jobs.glob("*/a"))))
    world.drop("models")
    await world.told(Caches={"models": ""})
    assert not (world.cache / "models").exists()
    next_job = world.assign(a="models")
    assert (await world.served(b"of another life"))["CacheId"] == "models"
    assert (await world.ended(next_job))["Stdout"] == "of another life\n"
    world.bench.gate.touch()
    assert (await world.ended(running))["Stdout"] == large().decode("utf-8", "replace")


async def test_a_cache_that_is_dropped_while_it_is_put_is_not_there(world: InputsWorld) -> None:
    await world.worker()
    put = world.put("models", a=b"one")
    want = await world.next(WANT)
    world.drop("models")
    world.answer(want, world.has(b"one"))
    assert await world.put_ended(put) == ("FAILED", "no-cache: it was dropped meanwhile")
    assert not (world.cache / "models").exists()
    job = world.assign(a="models")
    want = await world.next(WANT)
    world.link.send(SOURCE, b'{"Code":"no-cache"}', corr_id=want.msg_id)
    assert (await world.ended(job))["Reason"] == "no-cache"


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
    monkeypatch.setattr("wakugumi.roles.runner.files.inputs._SWEEP_S", 0.02)
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
    world: InputsWorld, places: dict[str, Scripted]
) -> None:
    await world.worker()
    places["http://one"] = Scripted("http://one", large(), [Refused("disk", "a blob cannot be written: no space left")])
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
    monkeypatch.setattr(inputs, "_SWEEP_S", 0.01)
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
