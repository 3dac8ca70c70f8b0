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

from msgspec import structs

from wakugumi.adapters.http.page import HttpRequest
from wakugumi.adapters.http.upload import Received
from wakugumi.core.access.decide import check_submit
from wakugumi.core.access.identity import Identity
from wakugumi.core.access.rule_lists import allows_name
from wakugumi.core.ids import HTTP_CLIENT, ClientId, JobId, job_id_from_name, show_job_id
from wakugumi.core.names import INPUT, check_exec_name
from wakugumi.core.subject import route
from wakugumi.core.visible_text import is_plain_name
from wakugumi.errors import Refused, bad_request
from wakugumi.limits.wire import ARGS_PER_JOB_MAX, CLIENT_ID_CHARS_MAX
from wakugumi.wire.job_options import OPTIONS, Option, checked
from wakugumi.wire.messages.job import InputFile, JobRequest
from wakugumi.wire.percent import percent_decoded

CLIENT: Final = HTTP_CLIENT
RUNS_AS: Final = "Waku-Runs-As"
ROOT: Final = "root"
"""Value of RUNS_AS for a node whose programs have the rights of root."""
CLIENT_HEADER: Final = "Waku-Client"
_BY_FORM: Final = {option.form: option for option in OPTIONS.values() if option.form}
PARAMETERS: Final = ("program", "arg", "client", *_BY_FORM)
_ANYWHERE: Final = "job.assign.>"
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
    client: ClientId = CLIENT
    subject: str = ""
    fields: Mapping[str, Any] = {}
    """Given options, as fields of a JobRequest."""

    @classmethod
    def of(cls, visit: HttpRequest, also: Collection[str] = ()) -> JobForm:
        """`also` are parameters that the caller reads. Raises Refused."""
        names = visit.parameters()
        if not names:
            client = visit.header(CLIENT_HEADER) or default_client(visit.identity)
            return _PLAIN if client == CLIENT else cls(client=check_client(client))
        for name in names:
            if name not in PARAMETERS and name not in also:
                known = ", ".join([*PARAMETERS, *also])
                raise _bad(f"there is no parameter {name[:80]!r}: {known}")
        program, args = _one(visit, "program"), tuple(visit.query("arg"))
        client = check_client(_one(visit, "client") or visit.header(CLIENT_HEADER) or default_client(visit.identity))
        given = {option.name: _given(visit, option) for name, option in _BY_FORM.items() if name in names}
        given = {name: value for name, value in given.items() if value is not None}
        subject, fields = check_job(program, args, given)
        return cls(program, args, client, subject, fields)


_PLAIN: Final = JobForm()


def check_job(program: str, args: Sequence[str], given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The subject, and the given options as fields of a JobRequest, of a job by HTTP, whether a query or an envelope
    describes it. Raises Refused."""
    if program:
        check_exec_name(program)
    if len(args) > ARGS_PER_JOB_MAX:
        raise _bad(f"{len(args)} arguments: at most {ARGS_PER_JOB_MAX} can be passed")
    if any("\0" in arg for arg in args):
        raise _bad("an argument holds a NUL, which no program can be given")
    try:
        return checked(program, given)
    except Refused as no:
        raise Refused(no.code, no.message, no.hint or _HINT) from None


def request_of(form: JobForm, job: JobId, received: Received) -> JobRequest:
    """The same job as of a client that submits it by frames."""
    args = args_of(form, received.file_name)
    return JobRequest(show_job_id(job), form.client, form.program, args, [input_of(received)], **form.fields)


def with_program(request: JobRequest, program: str) -> JobRequest:
    """The request of an unnamed program, for this one."""
    if not program:
        return request
    form = JobForm(program, tuple(request.args))
    return structs.replace(request, exec_name=program, args=args_of(form, request.files[0].name))


def input_of(received: Received) -> InputFile:
    """A received file as one of a job: a file that is not in memory is named by its hash."""
    if received.content is not None:
        return InputFile(received.file_name, content=received.content)
    return InputFile(received.file_name, sha256=received.sha256, size=received.size)


def args_of(form: JobForm, file_name: str) -> list[str]:
    """A named program gets the given arguments, or the input's name alone. For an unnamed one the runner puts the input
    in."""
    if not form.program:
        return list(form.args)
    # A name that begins with a dash would be read as an option.
    path = f"./{file_name}" if file_name.startswith("-") else file_name
    return [arg.replace(INPUT, path) for arg in form.args] if form.args else [path]


def default_client(identity: Identity) -> str:
    """The client id of a job that names none: a key with rules about client ids speaks for itself."""
    return CLIENT if allows_name(identity.clients(), CLIENT) else identity.name


def check_sender(identity: Identity, form: JobForm) -> None:
    """May it submit this job? Without a program and a subject the receiver chooses both, so the job may go anywhere.
    Raises Refused."""
    is_named = form.program or form.subject
    check_submit(identity, form.client, form.program, route(form.subject, form.program) if is_named else _ANYWHERE)


def _one(visit: HttpRequest, name: str) -> str:
    values = visit.query(name)
    if len(values) > 1:
        raise _bad(f"the parameter {name!r} is given {len(values)} times")
    return values[0] if values else ""


def check_client(text: str) -> ClientId:
    """Raises Refused."""
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
