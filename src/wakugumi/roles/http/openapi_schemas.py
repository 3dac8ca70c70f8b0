"""Which parameters, bodies and records do the operations of `openapi` have? JSON schemas, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from wakugumi.core.access.identity import Role
from wakugumi.core.access.known_as import Degree
from wakugumi.errors import CODES
from wakugumi.limits.wire import (
    ARGS_PER_JOB_MAX,
    CLIENT_ID_CHARS_MAX,
    ENV_VARIABLES_MAX,
    EXEC_NAME_CHARS_MAX,
    JOB_NAME_CHARS_MAX,
)
from wakugumi.wire.job_options import OPTIONS, Option

Json = dict[str, Any]

JSON: Final = "application/json"
ZIP: Final = "application/zip"

_TEXT: Final[Json] = {"type": "string"}
_PRINTABLE: Final = "^[ -~]*$"
_PLAIN: Final = "[A-Za-z0-9_-]+"
"""Other characters may be taken, too; these surely pass every rule."""
_COUNT: Final[Json] = {"type": "integer", "minimum": 0}


def _record(required: Json, optional: Json | None = None) -> Json:
    return {"type": "object", "properties": required | (optional or {}), "required": list(required)}


def _query(name: str, text: str, schema: Json) -> Json:
    return {"name": name, "in": "query", "description": text, "schema": schema}


def _header(name: str, text: str, schema: Json) -> Json:
    return {"name": name, "in": "header", "description": text, "schema": schema}


def _told(text: str) -> Json:
    return {"description": text, "schema": _TEXT}


# Proofs.

SECURITY: Final[Json] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A key, over TLS: `name:digest-secret`."},
    "basic": {
        "type": "http",
        "scheme": "basic",
        "description": "A key, over TLS: its name as the user, and `digest-secret` as the password.",
    },
    "mutualTLS": {
        "type": "mutualTLS",
        "description": "A client certificate of the grid, or of the server's --client-ca.",
    },
}

# Parameters.

_NAME: Final = "A-Za-z0-9_-"
_LONGEST: Final = JOB_NAME_CHARS_MAX
LINK_WORD: Final[Json] = {
    "name": "word",
    "in": "path",
    "required": True,
    "description": "The word of a link, which is valid once.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[a-z2-7]+$"},
}
JOB: Final[Json] = {
    "name": "job",
    "in": "path",
    "required": True,
    "description": "The job's id: a UUID, or a name that stands for one.",
    "schema": {
        "type": "string",
        "minLength": 1,
        "maxLength": _LONGEST,
        # All words of these characters but `.` and `..`.
        "pattern": rf"^([{_NAME}][.{_NAME}]*|\.[{_NAME}][.{_NAME}]*|\.\.[.{_NAME}]+)$",
        "examples": ["night-7"],
    },
}


def _schema(option: Option) -> Json:
    if option.name == "subject":
        return {"type": "string", "pattern": rf"^{_PLAIN}(\.{_PLAIN})*$", "maxLength": 250}
    if option.kind is Mapping:
        pair = {"type": "string", "pattern": r"^(?![Ww][Aa][Kk][Uu]_)[A-Za-z_][A-Za-z0-9_]*=[^\x00]*$"}
        return {"type": "array", "items": pair, "maxItems": ENV_VARIABLES_MAX}
    if option.kind is int:
        return {"type": "integer", "minimum": option.least, "maximum": option.most}
    if option.kind is float:
        return {"type": "number", "exclusiveMinimum": option.least, "maximum": option.most}
    return {"type": "string", "maxLength": option.most, "pattern": _PRINTABLE}


JOB_PARAMETERS: Final = (
    _query(
        "program",
        "What to run; nothing: the program of whoever runs it.",
        {"type": "string", "maxLength": EXEC_NAME_CHARS_MAX, "pattern": f"^{_PLAIN}$", "examples": ["pricer"]},
    ),
    _query(
        "arg",
        "Arguments, in their order; `{input}` stands for the input's name. If there are none, that is the only one.",
        {"type": "array", "items": {"type": "string", "pattern": r"^[^\x00]*$"}, "maxItems": ARGS_PER_JOB_MAX},
    ),
    _query(
        "client",
        "Whose job it is.",
        {"type": "string", "minLength": 1, "maxLength": CLIENT_ID_CHARS_MAX, "pattern": _PRINTABLE},
    ),
    *(_query(option.form, option.help_with_default, _schema(option)) for option in OPTIONS.values() if option.form),
    _header("Waku-Client", "Whose job it is, if the query does not say.", {"type": "string", "pattern": "^[ -~]+$"}),
)
REQUEST: Final = _header(
    "Waku-Request",
    "Which request it is, by its digest: then the result of another one under this id is no answer.",
    {"type": "string", "pattern": "^[0-9a-f]{32}$"},
)
ASYNC: Final = _query("async", "1: accept it, and say where to ask. A leader ignores it.", {"enum": ["0", "1"]})
SHA256: Final[Json] = {
    "name": "sha256",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
}
RANGE: Final = _header("Range", "One range of bytes.", _TEXT)
UPLOAD_PARAMETERS: Final = (
    _header("Waku-Size", "The content's size, if the body is packed.", {"type": "integer", "minimum": 0}),
    _header("Content-Range", "bytes first-last/size: goes on where an earlier upload ended.", _TEXT),
    _header("Content-Encoding", "How the body is packed.", {"enum": ["zstd", "identity"]}),
)
FORM: Final[Json] = {
    "required": True,
    "description": "One file, and nothing else.",
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "properties": {"file": {"type": "string", "format": "binary"}},
                "required": ["file"],
                "additionalProperties": False,
            }
        }
    },
}

# Responses.

PROBLEM: Final[Json] = {
    "description": "RFC 9457. `code` says what went wrong: docs/reference/errors.md has all codes.",
    **_record(
        {
            "type": _TEXT,
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "code": {"type": "string", "enum": sorted(CODES)},
            "detail": _TEXT,
            "hint": _TEXT,
        }
    ),
}
RESULT_HEADERS: Final[Json] = {
    "Waku-Job": _told("The job's id as it was given."),
    "Waku-Status": {"description": "How it ended.", "schema": {"enum": ["OK", "FAILED"]}},
    "Waku-Exit-Code": _told("Of the program, if it has one."),
    "Waku-Reason": _told("Why it FAILED: a code."),
    "Waku-Run-Seconds": _told("How long the program ran."),
    "Waku-Worker": _told("Who ran it."),
    "Waku-Unpacked-Bytes": _told("What the files that the program made have together, if the worker said so."),
    "Waku-Left-Out": _told("How many entries were left out of the ZIP: dot-files, and names that hide something."),
    "Content-Disposition": _told("A name for the ZIP."),
}
KEPT_HEADERS: Final[Json] = RESULT_HEADERS | {
    "Waku-Kept": _told("Since when it was kept, if it was not made for this request."),
}
BLOB_HEADERS: Final[Json] = {"ETag": _told("The hash.")}
CANCELLED: Final = _record({"cancelled": {"type": "boolean"}})
SUBMITTED: Final = _record({"job": _TEXT, "state": _TEXT, "status": _TEXT, "result": _TEXT})
_DEGREE: Final[Json] = {"enum": [degree.value for degree in Degree]}
HEALTH: Final = _record({"status": {"enum": ["ok", "stopping"]}, "role": _TEXT, "version": _TEXT, "access": _DEGREE})
KNOWN_AS: Final = _record(
    {
        "name": _TEXT,
        "role": {"enum": [role.value for role in Role]},
        "proof": {"enum": ["user", "key", "certificate", "embedded", "open"]},
        "degree": _DEGREE,
        "may": {"type": "array", "items": _TEXT},
        "rules": {"type": "object"},
    }
)
NODE_CAPACITY: Final = _record({"running": _COUNT, "limit": _COUNT})
CAPACITY: Final = _record({"running": _COUNT, "limit": _COUNT, "queued": _COUNT, "free": _COUNT})
_STATE: Final[Json] = {"enum": ["queued", "running", "done", "failed"]}
GROUP_STATUS: Final = _record(
    {
        "job": _TEXT,
        "id": {"type": "string", "format": "uuid"},
        "state": _STATE,
        "attempts": _COUNT,
        "client": _TEXT,
        "program": _TEXT,
        "subject": _TEXT,
        "worker": _TEXT,
        "age_s": {"type": "number"},
        "reason": _TEXT,
        "why": _TEXT,
    }
)
GATEWAY_STATUS: Final = _record(
    {
        "job": _TEXT,
        "state": _STATE,
        "async": {"type": "boolean"},
        "tries": _COUNT,
        "accepted": {"type": "number"},
        "changed": {"type": "number"},
    },
    {
        "group": _TEXT,
        "status": {"enum": ["OK", "FAILED"]},
        "reason": _TEXT,
        "detail": _TEXT,
        "exit_code": {"type": ["integer", "string"]},
        "result": _TEXT,
    },
)
