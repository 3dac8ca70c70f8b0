"""Which options does a job have? Each option once: its name, type, help, bounds, flag and form parameter.

    Python    submit(…, priority=7)    `JobOptions`, for type checkers and `help` (`roles/client/job_spec.py`)
    shell     --priority 7             flags made from the rows (`app/work/job_flags.py`)
    HTTP      ?priority=7              a query read by the rows (`roles/http/job_request.py`), and OpenAPI
    wire      "Priority":7             the field of the same name in `JobRequest`
    leader    head.priority            the same field of `SubmitHead`, read in `roles/leader/submit.py`
    worker    request.timeout_s        read in `roles/runner/runner.py`, bounds in `roles/runner/check_request.py`

A new option is one row here, and its field in `JobRequest`, whose bytes are a contract of their own. An option that is
None is not given.
"""

# No `from __future__ import annotations`: the rows are read from the annotations without an `eval`.
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, TypedDict, get_args, get_origin

import msgspec

from wakugumi.core.environment import check_env
from wakugumi.core.subject import SUBJECT_BYTES_MAX, SubjectError, route
from wakugumi.core.visible_text import is_plain_name
from wakugumi.errors import Refused, bad_request
from wakugumi.limits.leader import RETRIES_MAX
from wakugumi.limits.runner import JOB_TIMEOUT_MAX_S, JOB_TIMEOUT_S
from wakugumi.limits.scheduling import CREDIT_MAX, KEY_CHARS_MAX, PRIORITY_MAX
from wakugumi.wire.messages.job import JobLimits


class Option(msgspec.Struct, frozen=True):
    """One option. The annotation around it gives its name and kind."""

    help: str
    least: float = 0
    most: float = 0
    """Upper bound of a number, or of the length of a text. A float must be above `least`."""
    flag: str = ""
    """Flag on the command line; none if empty."""
    form: str = ""
    """Parameter of a query; none if empty."""
    for_leader: bool = False
    """A node need not know this option. Other options, unless `wire/node_request.py` can pass them on, restrict a job
    to
    workers."""
    default: str = ""
    """Default, for people; empty if there is none."""
    noun: str = ""
    """Beginning of an error, such as "a key is"."""
    check: Callable[[Any], object] | None = None
    """In place of the bounds: from the given value to the one on the wire. Raises Refused or TypeError."""
    name: str = ""
    kind: type = str
    """int, float, str or Mapping; another one only Python can give."""

    @property
    def help_with_default(self) -> str:
        return f"{self.help} [default: {self.default}]" if self.default else self.help

    def refused(self, bounds: str, value: object) -> Refused:
        text = f"{self.noun or f'{self.name} is'} {bounds}, not {value!r}"
        return bad_request(text[:300])


_NUMBERS: Final = (int, float)


def _checks(option: Option) -> Callable[[Any], object]:
    """From the given value to the one on the wire. Raises Refused, or TypeError for mistakes that only programs
    make."""
    if option.check is not None:
        return option.check
    least, most = option.least, option.most

    def whole(value: object) -> object:
        if type(value) is int and least <= value <= most:
            return value
        raise option.refused(f"a whole number from {least} to {most}", value)

    def seconds(value: object) -> object:
        if isinstance(value, _NUMBERS) and least < value <= most:
            return value
        raise option.refused(f"above {least} and at most {most:.0f} seconds", value)

    def text(value: object) -> object:
        if isinstance(value, str) and least <= len(value) <= most and is_plain_name(value):
            return value
        raise option.refused(f"{least} to {most} printable characters", value)

    return {int: whole, float: seconds, str: text}[option.kind]


def _subject(subject: object) -> object:
    """`checked` also checks that the subject fits the program."""
    if not isinstance(subject, str):
        raise TypeError(f"a subject is text, not {type(subject).__name__}")
    return subject


def _limits(limits: object) -> object:
    if not isinstance(limits, JobLimits):
        raise TypeError(f"limits are given as JobLimits, not {type(limits).__name__}")
    return limits


def _env(env: object) -> dict[str, str]:
    """In the order of the names: the same variables give the same bytes."""
    if not isinstance(env, Mapping):
        raise TypeError(f'env is a mapping, as {{"NAME": "VALUE"}}, not {type(env).__name__}')
    check_env(env)
    return {name: env[name] for name in sorted(env)}


class EachOptions(TypedDict, total=False):
    """Options of every job, also of the parts of a broadcast."""

    subject: Annotated[
        str | None,
        Option(
            "Subject of the job.",
            default="the subject of its program",
            most=SUBJECT_BYTES_MAX,
            flag="--subject",
            form="subject",
            for_leader=True,
            check=_subject,
        ),
    ]
    env: Annotated[
        Mapping[str, str] | None,
        Option(
            "a variable for the program, in place of the worker's own. Part of the job, like its arguments.",
            flag="--env",
            form="env",
            check=_env,
        ),
    ]
    timeout_s: Annotated[
        float | None,
        Option(
            "Time limit of a job in seconds. A job that takes longer fails with the reason timeout.",
            default=f"{JOB_TIMEOUT_S:g}",
            most=JOB_TIMEOUT_MAX_S,
            flag="--timeout",
            form="timeout",
            noun="a timeout is",
        ),
    ]
    retries: Annotated[
        int | None,
        Option(
            "Further runs of a program that ends with a non-zero exit code or takes too long.",
            default="0",
            most=RETRIES_MAX,
            flag="--retries",
            form="retries",
            for_leader=True,
            noun="retries are",
        ),
    ]
    limits: Annotated[JobLimits | None, Option("What its program may use of a machine.", check=_limits)]


class JobOptions(EachOptions, total=False):
    """Options of a job that runs once."""

    key: Annotated[
        str | None,
        Option(
            "Key of the job: jobs with the same key go to the same worker, if the leader's policy is sticky.",
            least=1,
            most=KEY_CHARS_MAX,
            flag="--key",
            form="key",
            for_leader=True,
            noun="a key is",
        ),
    ]
    priority: Annotated[
        int | None,
        Option(
            "Priority among your jobs of the same subject, -100 to 100.",
            default="0",
            least=-PRIORITY_MAX,
            most=PRIORITY_MAX,
            flag="--priority",
            form="priority",
            for_leader=True,
            noun="a priority is",
        ),
    ]
    slots: Annotated[
        int | None,
        Option(
            "Slots of one worker that a job takes.",
            default="1",
            least=1,
            most=CREDIT_MAX,
            flag="--job-slots",
            noun="slots are",
        ),
    ]


def rows(options: type) -> dict[str, Option]:
    """The options of a TypedDict, by name."""
    return {
        name: msgspec.structs.replace(hint.__metadata__[0], name=name, kind=_kind(hint.__origin__))
        for name, hint in options.__annotations__.items()
    }


def _kind(hint: Any) -> type:
    """The type without `| None` and without its parameters."""
    if type(None) in get_args(hint):
        hint = get_args(hint)[0]
    kind: type = get_origin(hint) or hint
    return kind


OPTIONS: Final = rows(JobOptions)
CHECKS: Final = {name: _checks(option) for name, option in OPTIONS.items()}


def checked(program: str, given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The subject of a frame, and the fields of a JobRequest. Other names are left out. Raises Refused."""
    fields: dict[str, Any] = {}
    for name, value in given.items():
        check = CHECKS.get(name)
        if check is not None:
            fields[name] = check(value)
    subject: str = fields.pop("subject", "")
    if subject:
        try:
            route(subject, program)
        except SubjectError as error:
            raise Refused("bad-subject", str(error)) from None
    return subject, fields
