"""How does a job look as bytes? The same request gives the same bytes, today and in the next run.

The bytes therefore do not depend on the order of a mapping, the clock or the process. Only the id is new each time,
unless the user gives one. The digest in the frame lets a leader distinguish a repeated request from another one (SPEC
L6). `files/inputs.py` reads files and decides which of them are sent beside the frame.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import msgspec

from wakugumi.core.ids import JobId, job_id_from_name, show_job_id
from wakugumi.core.names import check_exec_name
from wakugumi.errors import Refused, bad_request
from wakugumi.limits.wire import ARGS_PER_JOB_MAX, PAYLOAD_BYTES_MAX
from wakugumi.roles.client.files.inputs import NO_FILES, NOTHING, Attached, InputContents, JobFiles
from wakugumi.roles.client.job_spec import Arg, JobSpec, Task
from wakugumi.wire import frame
from wakugumi.wire.job_options import checked
from wakugumi.wire.messages.job import JobRequest
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.request_digest import request_digest


class Request(msgspec.Struct, frozen=True, gc=False):
    """A job ready to be sent."""

    job: JobId
    id: str
    """The id for people: as given, or the hyphenated text."""
    program: str
    frame: bytes
    attached: Attached = NOTHING
    """Content that the frame names and does not hold."""
    given: bool = False
    """The user chose the id: an earlier life of this client may have submitted the job."""
    env: bool = False
    """The job sets variables: only for a leader that supports them."""

    @property
    def is_held(self) -> bool:
        """The leader's Welcome must arrive before the job can be sent."""
        return self.env or bool(self.attached)


class Requests:
    """Makes the requests of one client. Each thread needs its own."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.next_id = _Ids().next
        self._checked_program = ""

    def make(self, spec: JobSpec, files: JobFiles = NO_FILES, broadcast_s: float | None = None) -> Request:
        """`files` are those of the spec, already read. Raises Refused for an invalid job."""
        subject, fields = self.checked(spec)
        texts = _texts(_args_of(spec))
        if len(texts) > ARGS_PER_JOB_MAX:
            raise _too_many(texts)
        given = spec.given.get("job_id")
        if given is None:
            job, name = self.next_id()
            text = name
        else:
            job, name = given_id(given)
            text = show_job_id(job)
        if broadcast_s is not None:
            fields["broadcast_s"] = broadcast_s
        record = JobRequest(text, self.client_id, spec.program, texts, files.entries, **fields)  # type: ignore[arg-type]
        return _request(job, name, subject, record, files, given is not None)

    def checked(self, spec: JobSpec) -> tuple[str, dict[str, Any]]:
        """Subject, and fields of the request. Raises Refused."""
        if spec.program != self._checked_program:
            check_exec_name(spec.program)
            self._checked_program = spec.program
        return checked(spec.program, spec.given)


class Plan:
    """The common options of all jobs of one `map`, and how an item becomes one of them."""

    def __init__(
        self, requests: Requests, common: JobSpec, files: JobFiles = NO_FILES, contents: InputContents | None = None
    ) -> None:
        """`files` are those of `common`, already read. Raises Refused."""
        self._requests = requests
        self.program = common.program
        self._common = common
        self._subject, self._fields = requests.checked(common)
        self._args = [_arg_text(arg) for arg in _args_of(common)]
        self._files = files
        self.contents = contents or InputContents()

    def text_request(self, text: str) -> Request:
        """The request of an item that is one plain argument: the same as by `request`, at half the cost."""
        if "\0" in text:
            raise _nul()
        return self._plain([*self._args, text])

    def args_request(self, args: Sequence[Arg]) -> Request:
        """The request of an item that is a list of arguments."""
        texts = [*self._args, *_texts(args)]
        if len(texts) > ARGS_PER_JOB_MAX:
            raise _too_many(texts)
        return self._plain(texts)

    def _plain(self, texts: list[str]) -> Request:
        requests, files = self._requests, self._files
        job, name = requests.next_id()
        record = JobRequest(name, requests.client_id, self.program, texts, files.entries, **self._fields)  # type: ignore[arg-type]
        return _request(job, name, self._subject, record, files)

    def request(self, task: JobSpec, loaded: JobFiles | None = None) -> Request:
        """The task's files are read here, unless `loaded` already. Raises Refused."""
        _args_of(task)
        files = self._files
        if own := task.given.get("files"):
            files = files.merged_with(self.contents.load(own) if loaded is None else loaded)
        return self._requests.make(task.over(self._common), files)


def given_id(name: object) -> tuple[JobId, str]:
    """The id that a user gave a job, and its text. Raises Refused."""
    if not isinstance(name, str | UUID):
        raise bad_request(f"a job id is text or a UUID, not {type(name).__name__}: {name!r}"[:300])
    text = str(name)
    try:
        return job_id_from_name(text), text
    except ValueError as error:
        raise bad_request(str(error)) from None


def too_big(size: int) -> Refused:
    return Refused(
        "too-big",
        f"the job takes {size:,} bytes without its files, and a frame has room for {PAYLOAD_BYTES_MAX:,}",
        hint="pass less as arguments: write it to a file, and name that with files= or --file",
    )


def task_for(item: object) -> JobSpec:
    """The job of an item of `map`. Raises TypeError for other types.

    str, int, float     one argument
    list, tuple         the arguments
    Path                an input file, whose name is the argument
    dict                the keyword arguments of `submit`
    Task                as it stands
    """
    match item:
        case JobSpec():
            return item
        case str() | int() | float():
            return Task(args=(item,))
        case Path():
            return Task(args=(item.name,), files={item.name: item})
        case list() | tuple():
            return Task(args=item)
        case dict():
            return Task(**item)
        case _:
            raise TypeError(
                f"map cannot make a job of {type(item).__name__}: "
                "an item is a str, a number, a list or tuple of arguments, a Path, a dict or a Task"
            )


class _Ids:
    """Random ids (UUID version 4), in blocks of 256 that differ in their last byte: one system call per block."""

    def __init__(self) -> None:
        self._left = 0
        self._bytes = b""
        self._text = ""

    def next(self) -> tuple[JobId, str]:
        """An id, and its text."""
        if not self._left:
            self._refill()
        self._left = left = self._left - 1
        return self._bytes + _BYTES[left], self._text + _HEX[left]  # type: ignore[return-value]

    def _refill(self) -> None:
        random = UUID(bytes=os.urandom(16), version=4)
        self._bytes = random.bytes_le[:15]
        self._text = str(random)[:34]
        self._left = 256


_BYTES: Final = [bytes([number]) for number in range(256)]
_HEX: Final = [f"{number:02x}" for number in range(256)]


def _request(job: JobId, name: str, subject: str, record: JobRequest, files: JobFiles, given: bool = False) -> Request:
    payload = _encoded(record)
    if len(payload) > PAYLOAD_BYTES_MAX:
        lighter = files.shrunk_by(len(payload) - PAYLOAD_BYTES_MAX)
        if lighter is None:
            bare = _encoded(msgspec.structs.replace(record, files=[]))
            raise too_big(len(bare) if len(bare) > PAYLOAD_BYTES_MAX else len(payload))
        files = lighter
        payload = _encoded(msgspec.structs.replace(record, files=files.entries))
        assert len(payload) <= PAYLOAD_BYTES_MAX
    data = frame.encode(frame.SUBMIT_JOB, job, request_digest(record), subject, payload)
    return Request(job, name, record.exec_name, data, files.attached, given, bool(record.env))


def _encoded(record: JobRequest) -> bytes:
    try:
        return encode(record)
    except UnicodeEncodeError as error:
        raise bad_request(f"an argument or a name is not text that UTF-8 can hold: {error.object!r}"[:300]) from None


def _args_of(spec: JobSpec) -> Sequence[Arg]:
    args = spec.given.get("args", ())
    if isinstance(args, str):  # A string is a sequence too: of letters.
        raise TypeError(f"args is a list of arguments: [{args!r}], not {args!r}")
    return args


def _texts(args: Sequence[Arg]) -> list[str]:
    return [arg if type(arg) is str and "\0" not in arg else _arg_text(arg) for arg in args]


def _too_many(texts: list[str]) -> Refused:
    return bad_request(f"{len(texts)} arguments: at most {ARGS_PER_JOB_MAX} can be passed")


def _arg_text(arg: object) -> str:
    if not isinstance(arg, str | int | float | os.PathLike) or (isinstance(arg, float) and not math.isfinite(arg)):
        raise bad_request(f"an argument is text, a number or a path, not {arg!r}"[:300])
    text = os.fspath(arg) if isinstance(arg, os.PathLike) else str(arg)
    if "\0" in text:
        raise _nul()
    return text


def _nul() -> Refused:
    return bad_request("an argument holds a NUL, which no program can be given")
