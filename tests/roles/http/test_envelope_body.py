"""How is an envelope read from a body while it is received? In any pieces, and never more than its head tells."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from wakugumi.roles.http.envelope_body import EnvelopeBody
from wakugumi.wire.messages.envelope import seal
from wakugumi.wire.untrusted_json import Unreadable

pytestmark = pytest.mark.anyio

WHOLE = seal(b'{"a":1}', b"content")


async def in_pieces(data: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


@pytest.mark.parametrize("size", range(1, len(WHOLE) + 1))
async def test_the_pieces_do_not_matter(size: int) -> None:
    body = EnvelopeBody(in_pieces(WHOLE, size))
    start, at = await body.head()
    assert (start[at:], start) == (b'{"a":1}', WHOLE[:-7])
    assert await body.take(3) == b"con"
    assert b"".join([piece async for piece in body.content(4)]) == b"tent"
    assert await body.take(0) == b""
    await body.end()


@pytest.mark.parametrize("size", range(len(WHOLE) - 7))
async def test_a_head_that_is_cut_cannot_be_read(size: int) -> None:
    with pytest.raises(Unreadable, match="fewer bytes"):
        await EnvelopeBody(in_pieces(WHOLE[:size], 5)).head()


async def test_a_content_that_is_cut_or_followed_by_more_cannot_be_read() -> None:
    body = EnvelopeBody(in_pieces(WHOLE[:-1], 5))
    await body.head()
    with pytest.raises(Unreadable, match="fewer bytes"):
        assert [piece async for piece in body.content(7)]
    for size in (4, 100):  # The rest was received with the content, or is received later.
        body = EnvelopeBody(in_pieces(WHOLE, size))
        await body.head()
        await body.take(6)
        with pytest.raises(Unreadable, match="more bytes"):
            await body.end()
