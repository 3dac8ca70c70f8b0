"""Forms: what they hold, that no split of the stream matters, and that little is kept of a bad one."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakugumi.errors import Refused
from wakugumi.limits.http import PART_HEAD_BYTES_MAX
from wakugumi.wire.form import Data, FormPart, Multipart, boundary_of, encode_head, encode_tail

B = b"xYz"


def form(content: bytes, disposition: str = 'form-data; name="file"; filename="a.txt"') -> bytes:
    return b"--xYz\r\nContent-Disposition: " + disposition.encode() + b"\r\n\r\n" + content + b"\r\n--xYz--\r\n"


def read(pieces: Iterable[bytes]) -> list[tuple[FormPart, bytes]]:
    parser = Multipart(B)
    found: list[tuple[FormPart, bytes]] = []
    content: list[bytes] = []
    part: FormPart | None = None
    for piece in pieces:
        for event in parser.feed(piece):
            if isinstance(event, FormPart):
                assert part is None
                part, content = event, []
            elif isinstance(event, Data):
                content.append(event.data)
            else:
                assert part is not None
                found.append((part, b"".join(content)))
                part = None
    parser.finish()
    return found


def cut(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    places = sorted({at % (len(data) + 1) for at in cuts} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(places)]


tricky = st.lists(
    st.sampled_from([b"\r", b"\n", b"\r\n", b"--", b"-", b"xYz", b"\r\n--xY", b"\r\n--x", b"a", b"\x00", b"--xYz"])
).map(b"".join)


@given(content=tricky | st.binary(max_size=200), cuts=st.lists(st.integers(0, 1000)))
def test_any_split_of_a_form_gives_the_same_file(content: bytes, cuts: list[int]) -> None:
    if b"\r\n--xYz" in b"\r\n" + content:
        return
    assert read(cut(form(content), cuts)) == [(FormPart("file", "a.txt"), content)]


@given(content=tricky)
def test_byte_by_byte_gives_the_same_file(content: bytes) -> None:
    if b"\r\n--xYz" in b"\r\n" + content:
        return
    data = form(content)
    assert read(data[at : at + 1] for at in range(len(data))) == [(FormPart("file", "a.txt"), content)]


@given(data=st.binary(max_size=300) | tricky, cuts=st.lists(st.integers(0, 300)))
def test_random_bytes_are_refused_and_nothing_else_happens(data: bytes, cuts: list[int]) -> None:
    def outcome(pieces: list[bytes]) -> object:
        try:
            return read(pieces)
        except Refused as error:
            return error.code

    assert outcome(cut(data, cuts)) == outcome([data])


def test_several_parts_are_told_one_after_the_other() -> None:
    body = form(b"one")[: -len(b"--\r\n")] + b"\r\n" + form(b"two", 'form-data; name="b"')[len(b"--xYz\r\n") :]
    assert read([body]) == [(FormPart("file", "a.txt"), b"one"), (FormPart("b", None), b"two")]


@pytest.mark.parametrize(
    ("disposition", "name"),
    [
        ('form-data; name="file"; filename="a b.txt"', "a b.txt"),
        ("form-data; name=file; filename=plain.txt", "plain.txt"),
        ('FORM-DATA ; filename="a%20b%C3%A9" ; name="file" ;', "a bé"),
        ('form-data; name="file"; filename="100%.txt"', "100%.txt"),
        ('form-data; name="file"; filename="a\\"b;c"', 'a"b;c'),
        ('form-data; name="file"; filename="x"; filename*=UTF-8\'\'%e6%9e%a0', "枠"),
        ('form-data; name="file"; filename="枠"', "枠"),
        ('form-data; name="file"', None),
    ],
)
def test_a_file_name_is_read_as_clients_write_it(disposition: str, name: str | None) -> None:
    assert read([form(b"x", disposition)]) == [(FormPart("file", name), b"x")]


def test_what_stands_before_and_behind_does_not_count() -> None:
    assert read([b"hello\r\n" + form(b"x") + b"--xYz\r\nmore", b" and more"]) == [(FormPart("file", "a.txt"), b"x")]


@given(content=tricky, before=st.sampled_from([b"", b"hello\r\n", b"--xY\r\n\r\n"]), cuts=st.lists(st.integers(0, 300)))
def test_the_place_of_the_first_content_is_known_with_its_head(content: bytes, before: bytes, cuts: list[int]) -> None:
    if b"\r\n--xYz" in b"\r\n" + content:
        return
    body = before + form(content)
    parser, is_known = Multipart(b"xYz"), False
    for piece in cut(body, cuts):
        is_known = is_known or any(isinstance(event, FormPart) for event in parser.feed(piece))
        assert bool(parser.content_at) == is_known
    assert body[parser.content_at :].startswith(content)
    assert body[: parser.content_at].endswith(b"\r\n\r\n")
    assert body[: parser.content_at].count(b"Content-Disposition") == 1


def test_what_stands_before_is_the_same_however_it_is_cut() -> None:
    body = b"hello --xYz\r\n is no line of its own\r\n" + form(b"x")
    for cut in range(len(body)):
        assert read([body[:cut], body[cut:]]) == [(FormPart("file", "a.txt"), b"x")]


BROKEN = {
    "no end": form(b"x")[:-6],
    "nothing": b"",
    "no boundary at all": b"x" * (3 * PART_HEAD_BYTES_MAX),
    "an endless head": b"--xYz\r\n" + b"X-A: b\r\n" * PART_HEAD_BYTES_MAX,
    "an endless line": b"--xYz" + b" " * 1000,
    "more on the boundary's line": b"--xYzzz\r\n" + form(b"x"),
    "no head": b"--xYz\r\n\r\nx\r\n--xYz--",
    "no colon": b"--xYz\r\nhello\r\n\r\nx\r\n--xYz--",
    "no name": form(b"x", "form-data"),
    "another kind": form(b"x", 'attachment; name="file"'),
    "two dispositions": form(b"x", 'form-data; name="file"\r\nContent-Disposition: form-data; name="file"'),
    "a name twice": form(b"x", 'form-data; name="file"; name="b"'),
    "base64": form(b"x", 'form-data; name="file"\r\nContent-Transfer-Encoding: base64'),
    "an open quote": form(b"x", 'form-data; name="file'),
    "not UTF-8 behind percent signs": form(b"x", 'form-data; name="file"; filename="%ff"'),
    "another alphabet": form(b"x", "form-data; name=\"file\"; filename*=latin1''%ff"),
    "a head that is not UTF-8": b"--xYz\r\nX: \xff\r\n\r\nx\r\n--xYz--",
}


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_form_is_refused(body: bytes) -> None:
    with pytest.raises(Refused) as caught:
        read([body])
    assert caught.value.code in {"bad-request", "bad-name"}
    with pytest.raises(Refused):
        read(body[at : at + 1] for at in range(len(body)))


def test_content_is_passed_on_and_not_kept() -> None:
    parser = Multipart(B)
    parser.feed(form(b"")[:-11])
    for piece in (b"a" * 100_000, b"\r" + b"b" * 100_000, b"\r\n--xY" + b"c" * 100_000):
        assert parser.feed(piece) == [Data(piece)]


@pytest.mark.parametrize(
    ("said", "boundary"),
    [
        ("multipart/form-data; boundary=abc", b"abc"),
        ('Multipart/Form-Data;charset=utf-8; boundary="a b"', b"a b"),
        ("multipart/form-data; boundary=----WebKitFormBoundaryABC;", b"----WebKitFormBoundaryABC"),
    ],
)
def test_a_boundary_is_found(said: str, boundary: bytes) -> None:
    assert boundary_of(said) == boundary


@pytest.mark.parametrize(
    "said",
    [
        *(
            None,
            "",
            "text/plain",
            "multipart/form-data",
            "multipart/mixed; boundary=a",
            "multipart/form-data; boundary=",
        ),
        *('multipart/form-data; boundary="a "', "multipart/form-data; boundary=é", "multipart/form-data; boundary=a<b"),
        "multipart/form-data; boundary=" + 71 * "a",
        "multipart/form-data; boundary=a; boundary=b",
    ],
)
def test_a_body_that_is_no_form_is_refused(said: str | None) -> None:
    with pytest.raises(Refused, match="boundary"):
        boundary_of(said)


@given(name=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30), content=st.binary(max_size=50))
def test_our_own_forms_are_read_as_they_were_meant(name: str, content: bytes) -> None:
    body = encode_head(B, "file", name) + content + encode_tail(B)
    if b"\r\n--xYz" not in b"\r\n" + content:
        assert read([body]) == [(FormPart("file", name), content)]
