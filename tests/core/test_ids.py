"""Job ids: three spellings of one id, and names that stand for one."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakugumi.core.ids import JobId, job_id_from_name, parse_job_id, show_job_id
from wakugumi.limits.wire import JOB_NAME_CHARS_MAX

TEXT = "00112233-4455-6677-8899-aabbccddeeff"


@pytest.mark.spec("F2")
def test_a_job_id_stands_in_the_byte_order_of_dot_net() -> None:
    assert parse_job_id(TEXT).hex() == "33221100554477668899aabbccddeeff"
    assert parse_job_id(TEXT) == UUID(TEXT).bytes_le


@given(st.uuids())
def test_every_spelling_of_a_uuid_is_the_same_job(uuid: UUID) -> None:
    spellings = {str(uuid), uuid.hex, str(uuid).upper(), uuid.hex.upper()}
    assert {parse_job_id(text) for text in spellings} == {uuid.bytes_le}
    assert show_job_id(JobId(uuid.bytes_le)) == str(uuid)


@pytest.mark.parametrize(
    "text",
    ["", "x", TEXT[:-1], TEXT + "0", TEXT.replace("0", "g"), "{" + TEXT + "}", TEXT[:-2] + "  ", "0x" + "0" * 30],
)
def test_what_is_no_uuid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a UUID"):
        parse_job_id(text)


def test_what_is_quoted_of_a_bad_id_is_cut() -> None:
    with pytest.raises(ValueError, match="is not a UUID") as error:
        parse_job_id("x" * 1_000_000)
    assert len(str(error.value)) < 200


def test_a_name_stands_for_one_job_id_for_ever() -> None:
    assert show_job_id(job_id_from_name("price-EURUSD.1")) == "b8350bab-31fa-5d65-b5e7-85c7f7d532ac"
    assert job_id_from_name("a") != job_id_from_name("A")
    assert job_id_from_name(TEXT.upper()) == parse_job_id(TEXT)


@pytest.mark.parametrize("text", ["", ".", "..", "a b", "a/b", "ä", "x" * (JOB_NAME_CHARS_MAX + 1), "a\n"])
def test_what_cannot_name_a_job_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="cannot name a job"):
        job_id_from_name(text)


def test_the_longest_name_is_a_name() -> None:
    assert len(job_id_from_name("x" * JOB_NAME_CHARS_MAX)) == 16
