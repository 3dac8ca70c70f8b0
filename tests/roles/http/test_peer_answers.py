"""What does a node or a group answer, other than a result? A real client, and a server that answers as a test says."""

from __future__ import annotations

import pytest
from tests.kit.scripted_http import says, scripted

from wakugumi.adapters.http.client import HttpClient
from wakugumi.errors import PeerError
from wakugumi.roles.http.peer_answers import CapacityAnswer, PeerRefusal, ask_capacity, refusal_in
from wakugumi.wire.problem import PeerProblem

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"running":1,"limit":2}', CapacityAnswer(1, 2)),
        (b'{"running":1,"limit":2,"queued":3,"free":0,"more":1}', CapacityAnswer(1, 2, 3, 0)),
    ],
)
async def test_a_capacity_is_read_with_its_headers(body: bytes, said: CapacityAnswer) -> None:
    calls = HttpClient()
    with scripted(says(f"HTTP/1.1 200 -\nWaku-Takes: env, job\nContent-Length: {len(body)}", body)) as url:
        capacity, answer = await ask_capacity(calls, url)
        assert (capacity, answer.header("Waku-Takes")) == (said, "env, job")
        await calls.close()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b'{"running":1,"limit":2}'),
        (200, b"fine"),
        (200, b"[" * 5_000),
        (200, b'{"limit":2}'),
        (200, b'{"running":-1,"limit":2}'),
        (200, b'{"running":1,"limit":1e30}'),
    ],
)
async def test_an_answer_that_is_no_capacity_is_the_peers_fault(status: int, body: bytes) -> None:
    calls = HttpClient()
    with scripted(says(f"HTTP/1.1 {status} -\nContent-Length: {len(body)}", body)) as url:
        with pytest.raises(PeerError, match=f"{url}/capacity answered with"):
            await ask_capacity(calls, url)
        await calls.close()


@pytest.mark.parametrize(
    ("head", "refusal"),
    [
        ("", PeerRefusal(PeerProblem("bad-request", "why"), None, takes_envelopes=False)),
        ("\nWaku-Takes: env", PeerRefusal(PeerProblem("bad-request", "why"), None, takes_envelopes=False)),
        ("\nWaku-Takes: env, job", PeerRefusal(PeerProblem("bad-request", "why"), None, takes_envelopes=True)),
        ("\nRetry-After: 2.5", PeerRefusal(PeerProblem("bad-request", "why"), 2.5, takes_envelopes=False)),
        ("\nRetry-After: never", PeerRefusal(PeerProblem("bad-request", "why"), None, takes_envelopes=False)),
    ],
)
async def test_a_refusal_has_its_reason_and_says_whether_envelopes_are_taken(head: str, refusal: PeerRefusal) -> None:
    calls, body = HttpClient(), b'{"code":"bad-request","detail":"why"}'
    with scripted(says(f"HTTP/1.1 400 -\nContent-Length: {len(body)}{head}", body)) as url:
        async with calls.call("POST", f"{url}/run/x", body=b"") as answer:
            assert await refusal_in(answer) == refusal
        await calls.close()
