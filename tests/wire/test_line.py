"""Lines: what they say (SPEC N1), and that bad ones are told apart from good ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakugumi.errors import PeerError, Refused
from wakugumi.wire.access_line import Key
from wakugumi.wire.line import (
    Busy,
    Err,
    JobLine,
    Ok,
    read_answer,
    read_auth_line,
    read_job_line,
    write_auth_line,
    write_busy,
    write_err,
    write_exit,
    write_job_line,
    write_ok,
)


@pytest.mark.spec("N1")
def test_a_line_asks_for_a_job() -> None:
    assert read_job_line(b"JOB monday-7 a%20b.txt 12\n") == JobLine("monday-7", "a b.txt", 12)
    assert read_job_line(b"JOB x dir/%e6%9e%a0 0\r\n") == JobLine("x", "dir/枠", 0)
    assert read_job_line(b"JOB  a 1\n").job == ""  # Whether that can name a job is asked elsewhere.
    assert write_job_line("x", "a b/枠.txt", 7) == b"JOB x a%20b/%E6%9E%A0.txt 7\n"


@pytest.mark.spec("N1")
@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"\n", "bad-request"),
        (b"JOB x a\n", "bad-request"),
        (b"JOB x a 1 2\n", "bad-request"),
        (b"job x a 1\n", "bad-request"),
        (b"JOB x a b 1\n", "bad-request"),
        (b"JOB x a -1\n", "bad-request"),
        (b"JOB x a 1e3\n", "bad-request"),
        ("JOB x a ١\n".encode(), "bad-request"),
        (b"JOB x a " + b"9" * 19 + b"\n", "bad-request"),
        (b"JOB x \xff 1\n", "bad-request"),
        (b"JOB x %ff 1\n", "bad-name"),
        (b"JOB x ../a 1\n", "bad-name"),
        (b"JOB x %2e%2e%2fa 1\n", "bad-name"),
        (b"JOB x /etc/passwd 1\n", "bad-name"),
        (b"JOB x a%00b 1\n", "bad-name"),
        (b"JOB x a%5cb 1\n", "bad-name"),
        (b"JOB x .done 1\n", "bad-name"),
    ],
)
def test_what_is_no_such_line_is_refused(line: bytes, code: str) -> None:
    with pytest.raises(Refused) as caught:
        read_job_line(line)
    assert caught.value.code == code


@pytest.mark.spec("N1")
def test_the_answers_are_these_lines() -> None:
    assert (write_ok(12), read_answer(b"OK 12\n")) == (b"OK 12\n", Ok(12))
    assert (write_busy(5), read_answer(b"BUSY retry=5\r\n")) == (b"BUSY retry=5\n", Busy(5))
    assert (write_exit(3), read_answer(b"ERR exit=3\n")) == (b"ERR exit=3\n", Err("exit=3"))
    assert write_err("bad-name", "no\nsuch\x00thing") == b"ERR bad-name: no such thing\n"
    assert write_err("exit", "a\u202eb") == rb"ERR exit: a\u202eb" + b"\n"
    assert Err("exit=-9").exit_code == -9
    assert Err("bad-name: exit=9").exit_code is None


@pytest.mark.parametrize("line", [b"", b"OK\n", b"OK x\n", b"BUSY\n", b"HTTP/1.1 400 Bad Request\r\n", b"OK \xff\n"])
def test_what_is_no_answer_is_told(line: bytes) -> None:
    with pytest.raises(PeerError):
        read_answer(line)


@given(name=st.text(st.characters(exclude_categories=["Cs"]), max_size=40), size=st.integers(0, 10**18 - 1))
def test_what_is_written_is_read_or_refused_for_its_name(name: str, size: int) -> None:
    line = write_job_line("x", name, size)
    assert line.count(b"\n") == 1
    try:
        read = read_job_line(line)
    except Refused:
        assert name not in {"a.txt", "a b/枠.txt"}
    else:
        assert read == JobLine("x", name, size)


@given(st.text())
def test_a_message_never_breaks_its_line(text: str) -> None:
    line = write_err("disk", text)
    assert line.endswith(b"\n")
    assert len(line.decode().splitlines()) == 1
    assert isinstance(read_answer(line), Err)


KEY = Key("desk-1", "k" * 32, "x" * 52)


@pytest.mark.spec("O1")
def test_a_line_shows_a_key() -> None:
    assert write_auth_line(KEY) == f"AUTH {KEY.text}\n".encode()
    assert read_auth_line(write_auth_line(KEY)) == KEY
    assert read_auth_line(write_auth_line(KEY).replace(b"\n", b"\r\n")) == KEY


@pytest.mark.spec("O1")
@pytest.mark.parametrize(
    "line",
    [
        b"AUTH\n",
        b"AUTH \n",
        f"auth {KEY.text}\n".encode(),
        f"AUTH  {KEY.text}\n".encode(),
        f"AUTH {KEY.text} \n".encode(),
        f"AUTH {KEY.text[:-1]}\n".encode(),
        f"AUTH {KEY.text}\xff\n".encode("latin-1"),
        f"AUTH {KEY.text.replace(':', ' ')}\n".encode(),
    ],
)
def test_a_line_with_no_key_is_refused_without_quoting_it(line: bytes) -> None:
    with pytest.raises(Refused) as caught:
        read_auth_line(line)
    assert caught.value.code == "bad-request"
    assert "xxx" not in f"{caught.value} {caught.value.hint}"
