"""What does a job look like as bytes? The same request gives the same bytes, today and in the next run.

So nothing here depends on the order of a mapping, the clock or the process. Only the id is new each time, unless it is
given. By the digest that goes along in the frame a leader tells a repeated request from another one (SPEC L6). What the
files hold, and which of them travel beside it, is the business of `contents`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias
from uuid import UUID

import msgspec

from wakugumi.core.environment import check_env
from wakugumi.core.ids import JobId, job_id_from_name, show_job_id
from wakugumi.core.names import check_exec_name
from wakugumi.core.requirements import check_wants
from wakugumi.core.subject import SubjectError, route
from wakugumi.errors import Refused
from wakugumi.limits.leader import RETRIES_MAX
from wakugumi.limits.runner import JOB_TIMEOUT_MAX_S
from wakugumi.limits.scheduling import KEY_CHARS_MAX
from wakugumi.limits.wire import ARGS_PER_JOB_MAX, PAYLOAD_BYTES_MAX
from wakugumi.roles.client.files.inputs import NO_FILES, NOTHING, Brings, Content, Contents, Loaded
from wakugumi.wire import frame
from wakugumi.wire.message import JobLimits, JobRequest, encode
from wakugumi.wire.request_digest import request_digest

Arg: TypeAlias = str | int | float | os.PathLike[str]
"""One argument of a program; a number or a path stands for its text."""

JobName: TypeAlias = str | UUID
"""A job's id as users give it: a UUID, its text, or another name (SPEC section 1)."""

_ASKS_NOTHING: Final = (None, 0, 1)


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One job to be, as `map` takes it: what is not given comes from `map`'s own arguments."""

    program: str = ""
    args: Sequence[Arg] = ()
    """Added to the arguments that `map` was given."""
    files: Mapping[str, Content] | None = None
    """Added to the files that `map` was given."""
    job_id: JobName | None = None
    subject: str = ""
    timeout_s: float | None = None
    limits: JobLimits | None = None
    retries: int | None = None
    key: str | None = None
    priority: int | None = None
    slots: int | None = None
    env: Mapping[str, str] | None = None
    """Added to the variables that `map` was given."""


class Request(msgspec.Struct, frozen=True, gc=False):
    """A job ready to be sent."""

    job: JobId
    id: str
    """The id for people: as given, or the hyphenated text."""
    program: str
    frame: bytes
    brings: Brings = NOTHING
    """Content that the frame names and does not hold."""
    given: bool = False
    """Its id is its user's own: an earlier life of this client may have submitted it."""
    env: bool = False
    """It sets variables: only for a leader that knows of them."""

    @property
    def is_held(self) -> bool:
        """Its leader has to say what it takes before it gets this job."""
        return self.env or bool(self.brings)


class Requests:
    """Makes the requests of one client. Each thread that makes some has its own."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.next_id = _Ids().next
        self._checked_program = ""

    def make(
        self,
        program: str,
        args: Sequence[Arg] = (),
        files: Loaded = NO_FILES,
        job_id: JobName | None = None,
        subject: str = "",
        timeout_s: float | None = None,
        limits: JobLimits | None = None,
        retries: int = 0,
        key: str | None = None,
        priority: int = 0,
        slots: int = 1,
        broadcast_s: float | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Request:
        """Raises Refused if this can be no job."""
        self.check(program, subject, timeout_s, limits, retries)
        if (key, priority, slots) != _ASKS_NOTHING or type(priority) is not int or type(slots) is not int:
            check_asked(key, priority, slots)
        _check_args(args)
        own = checked_env(env) if env else {}
        if job_id is None:
            job, name = self.next_id()
            text = name
        else:
            job, name = given_id(job_id)
            text = show_job_id(job)
        texts = _texts(args)
        if len(texts) > ARGS_PER_JOB_MAX:
            raise _too_many(texts)
        record = JobRequest(
            text,
            self.client_id,
            program,
            texts,
            files.entries,  # type: ignore[arg-type]
            timeout_s,
            limits,
            retries,
            key or "",
            priority,
            slots,
            broadcast_s=broadcast_s,
            env=own,
        )
        return _request(job, name, subject, record, files, job_id is not None)

    def check(self, program: str, subject: str, timeout_s: float | None, limits: object, retries: object) -> None:
        """What many jobs have in common. Raises Refused."""
        if program != self._checked_program:
            check_exec_name(program)
            self._checked_program = program
        if subject:
            try:
                route(subject, program)
            except SubjectError as error:
                raise Refused("bad-subject", str(error)) from None
        if timeout_s is not None and not 0 < timeout_s <= JOB_TIMEOUT_MAX_S:
            raise _bad(f"a timeout of {timeout_s} s: it is more than 0 and at most {JOB_TIMEOUT_MAX_S:.0f} s")
        if limits is not None and not isinstance(limits, JobLimits):
            raise TypeError(f"limits are given as JobLimits, not {type(limits).__name__}")
        if type(retries) is not int or not 0 <= retries <= RETRIES_MAX:
            raise _bad(f"retries are a whole number from 0 to {RETRIES_MAX}, not {retries!r}"[:300])


class Plan:
    """What all jobs of one `map` have in common, and how an item becomes one of them."""

    def __init__(
        self,
        requests: Requests,
        program: str,
        args: Sequence[Arg] = (),
        files: Loaded = NO_FILES,
        subject: str = "",
        timeout_s: float | None = None,
        limits: JobLimits | None = None,
        retries: int = 0,
        key: str | None = None,
        priority: int = 0,
        slots: int = 1,
        contents: Contents | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        requests.check(program, subject, timeout_s, limits, retries)
        check_asked(key, priority, slots)
        self.contents = contents or Contents()
        self._requests = requests
        self.program = program
        _check_args(args)
        self._args = [_arg_text(arg) for arg in args]
        self._files = files
        self._subject = subject
        self._timeout_s = timeout_s
        self._limits = limits
        self._retries = retries
        self._key = key
        self._priority = priority
        self._slots = slots
        self._env = checked_env(env) if env else {}

    def text_request(self, text: str) -> Request:
        """The request of an item that is one plain argument: the same as `request` gives, for half the price."""
        if "\0" in text:
            raise _nul()
        return self._plain([*self._args, text])

    def args_request(self, args: Sequence[Arg]) -> Request:
        """The same for an item that is its arguments."""
        texts = [*self._args, *_texts(args)]
        if len(texts) > ARGS_PER_JOB_MAX:
            raise _too_many(texts)
        return self._plain(texts)

    def _plain(self, texts: list[str]) -> Request:
        job, name = self._requests.next_id()
        record = JobRequest(
            name,
            self._requests.client_id,
            self.program,
            texts,
            self._files.entries,  # type: ignore[arg-type]
            self._timeout_s,
            self._limits,
            self._retries,
            self._key or "",
            self._priority,
            self._slots,
            env=self._env,
        )
        return _request(job, name, self._subject, record, self._files)

    def request(self, task: Task, loaded: Loaded | None = None) -> Request:
        """Its files are read here, unless they are `loaded` already. Raises Refused."""
        _check_args(task.args)
        files = self._files
        if task.files:
            files = files.with_these(self.contents.load(task.files) if loaded is None else loaded)
        return self._requests.make(
            task.program or self.program,
            (*self._args, *task.args),
            files,
            task.job_id,
            task.subject or self._subject,
            self._timeout_s if task.timeout_s is None else task.timeout_s,
            task.limits or self._limits,
            self._retries if task.retries is None else task.retries,
            self._key if task.key is None else task.key,
            self._priority if task.priority is None else task.priority,
            self._slots if task.slots is None else task.slots,
            env={**self._env, **task.env} if task.env else self._env,
        )


def check_asked(key: object, priority: object, slots: object) -> None:
    """What a job asks for besides being run. Raises Refused."""
    if key is not None and (not isinstance(key, str) or not key):
        raise _bad(f"a key is 1 to {KEY_CHARS_MAX} printable characters, not {key!r}"[:300])
    check_wants(key or "", priority, slots)


def checked_env(env: object) -> dict[str, str]:
    """Variables for a program, in the order of their names. Raises Refused, and TypeError for what is no mapping."""
    if not isinstance(env, Mapping):
        raise TypeError(f'env is a mapping, as {{"NAME": "VALUE"}}, not {type(env).__name__}')
    check_env(env)
    return {name: env[name] for name in sorted(env)}


def given_id(name: object) -> tuple[JobId, str]:
    """The id that a user gave a job, and its text. Raises Refused."""
    if not isinstance(name, str | UUID):
        raise _bad(f"a job id is text or a UUID, not {type(name).__name__}: {name!r}"[:300])
    text = str(name)
    try:
        return job_id_from_name(text), text
    except ValueError as error:
        raise _bad(str(error)) from None


def too_big(size: int) -> Refused:
    return Refused(
        "too-big",
        f"the job takes {size:,} bytes without its files, and a frame has room for {PAYLOAD_BYTES_MAX:,}",
        hint="pass less as arguments: write it to a file, and name that with files= or --file",
    )


def task_for(item: object) -> Task:
    """What an item of `map` asks for. Raises TypeError for what it cannot be.

    str, int, float     one argument
    list, tuple         the arguments
    Path                an input file, whose name is the argument
    dict                the keyword arguments of `submit`
    Task                as it stands
    """
    match item:
        case Task():
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
    """Random ids (UUID version 4), in blocks of 256 that differ in their last byte: one question to the system."""

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


def _request(job: JobId, name: str, subject: str, record: JobRequest, files: Loaded, given: bool = False) -> Request:
    payload = _encoded(record)
    if len(payload) > PAYLOAD_BYTES_MAX:
        lighter = files.lightened(len(payload) - PAYLOAD_BYTES_MAX)
        if lighter is None:
            bare = _encoded(msgspec.structs.replace(record, files=[]))
            raise too_big(len(bare) if len(bare) > PAYLOAD_BYTES_MAX else len(payload))
        files = lighter
        payload = _encoded(msgspec.structs.replace(record, files=files.entries))
        assert len(payload) <= PAYLOAD_BYTES_MAX
    data = frame.encode(frame.SUBMIT_JOB, job, request_digest(record), subject, payload)
    return Request(job, name, record.exec_name, data, files.brings, given, bool(record.env))


def _encoded(record: JobRequest) -> bytes:
    try:
        return encode(record)
    except UnicodeEncodeError as error:
        raise _bad(f"an argument or a name is not text that UTF-8 can hold: {error.object!r}"[:300]) from None


def _check_args(args: object) -> None:
    if isinstance(args, str):  # It is a sequence too: of letters.
        raise TypeError(f"args is a list of arguments: [{args!r}], not {args!r}")


def _texts(args: Sequence[Arg]) -> list[str]:
    return [arg if type(arg) is str and "\0" not in arg else _arg_text(arg) for arg in args]


def _too_many(texts: list[str]) -> Refused:
    return _bad(f"{len(texts)} arguments: at most {ARGS_PER_JOB_MAX} can be passed")


def _arg_text(arg: object) -> str:
    if not isinstance(arg, str | int | float | os.PathLike) or (isinstance(arg, float) and not math.isfinite(arg)):
        raise _bad(f"an argument is text, a number or a path, not {arg!r}"[:300])
    text = os.fspath(arg) if isinstance(arg, os.PathLike) else str(arg)
    if "\0" in text:
        raise _nul()
    return text


def _nul() -> Refused:
    return _bad("an argument holds a NUL, which no program can be given")


def _bad(text: str) -> Refused:
    return Refused("bad-request", text, hint="")
