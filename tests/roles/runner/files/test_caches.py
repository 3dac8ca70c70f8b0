"""What does a worker do with a cache that it is sent? A real worker and a scripted leader."""

from __future__ import annotations

import base64
import os
from typing import Any

import pytest
from tests.kit.eventually import eventually
from tests.kit.inputs_world import SOURCE, WANT, InputsWorld, large
from tests.kit.scripted_places import ScriptedPlace
from tests.kit.workers_leader import CACHE_ACK, HELLO_WORKER, new_id

from wakugumi.adapters.blobs.store import ref_of_bytes
from wakugumi.limits.units import KIB

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quickly")]


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


async def test_what_is_here_already_is_not_fetched_but_told(
    world: InputsWorld, places: dict[str, ScriptedPlace]
) -> None:
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
