"""Which job does an HTTP request ask for? The path names it, the query tells what to run, the form has the input.

    POST /dispatch/night-7?program=pricer&arg=--fast&arg={input}&env=SEED=7&timeout=60

The parameters are the same on /run, /dispatch and /submit.

Equal requests make equal bytes, and are the same job: a repeated request, by HTTP or by frames, gets the job's result,
and another request under its id is a conflict.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from wakugumi.adapters.http.page import HttpRequest
from wakugumi.adapters.http.upload import Received
from wakugumi.core.ids import ClientId, JobId, job_id_from_name, show_job_id
from wakugumi.core.names import INPUT, check_exec_name
from wakugumi.core.visible_text import is_plain_name
from wakugumi.errors import Refused, bad_request
from wakugumi.limits.wire import ARGS_PER_JOB_MAX, CLIENT_ID_CHARS_MAX
from wakugumi.wire.job_options import OPTIONS, Option, checked
from wakugumi.wire.messages.job import InputFile, JobRequest
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.percent import percent_decoded

CLIENT: Final = "http"
"""Client id of jobs that name no client."""
TAKES: Final = "Waku-Takes"
"""Header with which a node lists, beside its capacity, parts of a job that older nodes do not know."""
RUNS_AS: Final = "Waku-Runs-As"
ROOT: Final = "root"
"""Value of RUNS_AS for a node whose programs have the rights of root."""
CLIENT_HEADER: Final = "Waku-Client"
_BY_FORM: Final = {option.form: option for option in OPTIONS.values() if option.form}
PARAMETERS: Final = ("program", "arg", "client", *_BY_FORM)
_HINT: Final = "docs/use/http.md has all parameters of a job"

_SECONDS: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_WHOLE: Final = re.compile(r"-?[0-9]{1,9}")


def job_of(visit: HttpRequest) -> tuple[str, JobId]:
    """The job of the request's path, as written there and as an id. Raises Refused."""
    try:
        name = percent_decoded(visit.rest)
        job = job_id_from_name(name)
    except (ValueError, Refused):
        raise bad_request(
            f"{visit.rest[:80]!r} cannot name a job",
            hint="a job is a UUID, or 1 to 128 of A-Z a-z 0-9 . _ -, as in POST /dispatch/night-7",
        ) from None
    visit.job = name
    return name, job


class JobForm(NamedTuple):
    """A job as described by a query."""

    program: str = ""
    """Empty: the default program of the runner."""
    args: tuple[str, ...] = ()
    client: ClientId = ClientId(CLIENT)
    subject: str = ""
    fields: Mapping[str, Any] = {}
    """Given options, as fields of a JobRequest."""

    @classmethod
    def of(cls, visit: HttpRequest, also: Collection[str] = ()) -> JobForm:
        """`also` are parameters that the caller reads. Raises Refused."""
        names = visit.parameters()
        if not names:
            client = visit.header(CLIENT_HEADER)
            return _PLAIN if client is None else cls(client=_client(client))
        for name in names:
            if name not in PARAMETERS and name not in also:
                known = ", ".join([*PARAMETERS, *also])
                raise _bad(f"there is no parameter {name[:80]!r}: {known}")
        program = _one(visit, "program")
        if program:
            check_exec_name(program)
        args = tuple(visit.query("arg"))
        if len(args) > ARGS_PER_JOB_MAX:
            raise _bad(f"{len(args)} arguments: at most {ARGS_PER_JOB_MAX} can be passed")
        if any("\0" in arg for arg in args):
            raise _bad("an argument holds a NUL, which no program can be given")
        client = _client(_one(visit, "client") or visit.header(CLIENT_HEADER) or CLIENT)
        given = {option.name: _given(visit, option) for name, option in _BY_FORM.items() if name in names}
        try:
            subject, fields = checked(program, {name: value for name, value in given.items() if value is not None})
        except Refused as no:
            raise Refused(no.code, no.message, no.hint or _HINT) from None
        return cls(program, args, client, subject, fields)


_PLAIN: Final = JobForm()


def request_of(form: JobForm, job: JobId, received: Received) -> bytes:
    """The job as carried by frames: the same bytes as of a client that submits it. A file that is not in memory is
    named by its hash."""
    name = received.file_name
    file = InputFile(name, content=received.content)
    if received.content is None:
        file = InputFile(name, sha256=received.sha256, size=received.size)
    return encode(JobRequest(show_job_id(job), form.client, form.program, args_of(form, name), [file], **form.fields))


def args_of(form: JobForm, file_name: str) -> list[str]:
    """A named program gets the given arguments, or the input's name alone. For an unnamed one the runner puts the input
    in."""
    if not form.program:
        return list(form.args)
    # A name that begins with a dash would be read as an option.
    path = f"./{file_name}" if file_name.startswith("-") else file_name
    return [arg.replace(INPUT, path) for arg in form.args] if form.args else [path]


def _one(visit: HttpRequest, name: str) -> str:
    values = visit.query(name)
    if len(values) > 1:
        raise _bad(f"the parameter {name!r} is given {len(values)} times")
    return values[0] if values else ""


def _client(text: str) -> ClientId:
    if not 1 <= len(text) <= CLIENT_ID_CHARS_MAX or not is_plain_name(text):
        raise _bad(f"a client id is 1 to {CLIENT_ID_CHARS_MAX} printable characters, not {text[:80]!r}")
    return ClientId(text)


def seconds_in(text: str | None) -> float | None:
    """The number in a stranger's text, if it is one."""
    return float(text) if text is not None and _SECONDS.fullmatch(text) else None


def _given(visit: HttpRequest, option: Option) -> object:
    """None without a value. Text that is no number stays text: its check refuses it."""
    if option.kind is Mapping:
        return _variables(visit.query(option.form))
    text = _one(visit, option.form)
    if option.kind is int and _WHOLE.fullmatch(text):
        return int(text)
    seconds = seconds_in(text) if option.kind is float else None
    return (text or None) if seconds is None else seconds


def _variables(words: Sequence[str]) -> dict[str, str]:
    env: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise _bad(f"env is NAME=VALUE, not {word[:80]!r}")
        if name in env:
            raise _bad(f"the variable {name[:80]!r} is given twice")
        env[name] = value
    return env


def _bad(text: str) -> Refused:
    return bad_request(text, _HINT)
