"""How does a content that is not here get here, and what if its source is bad? A real worker and a scripted leader."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from tests.kit.eventually import eventually
from tests.kit.inputs_world import LARGE, WANT, InputsWorld, fetch_bounds, large
from tests.kit.scripted_places import ScriptedPlace
from tests.kit.workers_leader import ACK, CANCEL, DEADLINE_S, Message

from wakugumi.adapters.blobs.place import OnBytes
from wakugumi.adapters.blobs.store import Incoming, ref_of_bytes
from wakugumi.core.transfers.fetching import USUAL_BOUNDS
from wakugumi.errors import ConfigError, Lost, Refused
from wakugumi.limits.files import LARGE_TRANSFERS_MAX
from wakugumi.limits.units import KIB
from wakugumi.wire.messages.references import BlobRef

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quickly")]


async def test_what_was_asked_of_a_lost_leader_is_asked_of_the_next(
    world: InputsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch_bounds(monkeypatch, asked=1)
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
    world: InputsWorld, places: dict[str, ScriptedPlace], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Whether they wait for a source, or all of their sources are slow."""
    fetch_bounds(monkeypatch, large_bytes=100)
    gate = asyncio.Event()
    loop = asyncio.get_running_loop()

    class Slow(ScriptedPlace):
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
    world: InputsWorld, places: dict[str, ScriptedPlace], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The worker learns how large a cache is from the source alone, and gives back those that it cannot use yet."""
    fetch_bounds(monkeypatch, large_bytes=100)
    gate = asyncio.Event()
    loop = asyncio.get_running_loop()
    busy: dict[uuid.UUID, str] = {}
    """The sources that are kept for this worker, by want."""

    class Slow(ScriptedPlace):
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
    world: InputsWorld, places: dict[str, ScriptedPlace], end: Exception, why: str
) -> None:
    await world.worker()
    content = large()
    bad = places["http://bad"] = ScriptedPlace("http://bad", content, [end])
    good = places["http://good"] = ScriptedPlace("http://good", content, [None])
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
    world: InputsWorld, places: dict[str, ScriptedPlace]
) -> None:
    await world.worker()
    evil = places["http://evil"] = ScriptedPlace("http://evil", large(1), [None])
    job = world.assign("count", a=large())
    world.answer(await world.next(WANT), ref_of_bytes(large()), "http://evil")
    want = await world.next(WANT)
    assert want.json["Failed"] == {"Url": "http://evil", "Why": "lied"}
    good = places["http://good"] = ScriptedPlace("http://good", large(), [None])
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
    world: InputsWorld, places: dict[str, ScriptedPlace]
) -> None:
    await world.worker()
    places["http://evil"] = ScriptedPlace("http://evil", large(1), [Lost("half of it, and wrong")])
    good = places["http://good"] = ScriptedPlace("http://good", large(), [None, None])
    job = world.assign("count", a=large())
    world.answer(await world.next(WANT), ref_of_bytes(large()), "http://evil")
    world.answer(await world.next(WANT), ref_of_bytes(large()), "http://good")
    assert (await world.ended(job))["Status"] == "OK"
    assert good.began_at == [LARGE // 2, 0]


async def test_a_job_fails_when_no_source_is_good(
    world: InputsWorld, places: dict[str, ScriptedPlace], monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch_bounds(monkeypatch, retry=USUAL_BOUNDS.retry._replace(first_s=0.001, tries_max=3))
    await world.worker()
    places["http://evil"] = ScriptedPlace("http://evil", large(1), [None] * 3)
    job = world.assign("count", a=large())
    for _ in range(3):
        world.answer(await world.next(WANT), ref_of_bytes(large()), "http://evil")
    assert (await world.ended(job))["Reason"] == "blob-broken"
    await world.gave_up(large(), "http://evil")


async def test_a_failure_of_our_own_is_told_so_that_the_source_is_free_for_others(
    world: InputsWorld, places: dict[str, ScriptedPlace]
) -> None:
    await world.worker()
    places["http://good"] = ScriptedPlace("http://good", large(), [Refused("disk", "the disk is full")])
    job = world.assign("count", a=large())
    want = await world.next(WANT)
    world.answer(want, ref_of_bytes(large()), "http://good")
    assert (await world.ended(job))["Reason"] == "disk"
    assert await world.gave_up(large(), "http://good") == want.msg_id


async def test_who_waits_for_another_transfer_of_the_same_frees_its_own_source(
    world: InputsWorld, places: dict[str, ScriptedPlace]
) -> None:
    await world.worker()
    gate = asyncio.Event()
    loop = asyncio.get_running_loop()

    class Patient(ScriptedPlace):
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
    world: InputsWorld, places: dict[str, ScriptedPlace], monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch_bounds(monkeypatch, retry=USUAL_BOUNDS.retry._replace(first_s=3_600.0, longest_s=3_600.0))
    worker = await world.worker()
    places["http://bad"] = ScriptedPlace("http://bad", large(), [Lost("it went away")] * 2)
    job = world.assign("count", a=large())
    for _ in range(2):
        world.answer(await world.next(WANT), ref_of_bytes(large()), "http://bad")
    fetching = worker._supply._fetching
    fetches = fetching.machine.by_want
    await eventually(lambda: any(one.transfer.tries == 2 and not one.is_asked for one in fetches.values()))
    world.link.send(CANCEL, job.bytes_le)
    await world.gave_up(large(), "http://bad")


async def test_a_transfer_outlives_the_connection(world: InputsWorld, places: dict[str, ScriptedPlace]) -> None:
    await world.worker()
    gate = asyncio.Event()
    loop = asyncio.get_running_loop()

    class Patient(ScriptedPlace):
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
