"""What can go wrong, and what follows from each refusal? Exceptions by whose fault it is, and one table of codes.

    PeerError     the peer broke the protocol: one log line, that connection closes, no other peer is affected
    Refused       the request is refused; its code looks up retry, HTTP status, exit code and hint below
    Sick          a Refused that is this machine's fault: another machine may well do it
    Lost          the connection ended, outcome unknown: the same id may be sent again
    ConfigError   a role or command cannot start like this
    JournalError  the journal cannot be written: no job is accepted or reported as done any more, the process ends
    JobFailed     raised only by `Result.check()`: a failing program is a result, not an error

Foreign exceptions are translated into these in `adapters/`, once.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = [
    "CODES",
    "CODES_BY_SENDER",
    "Code",
    "ConfigError",
    "JobFailed",
    "JournalError",
    "Lost",
    "PeerError",
    "Refused",
    "Sick",
    "WakugumiError",
    "hint_for",
]


EXIT_JOB_FAILED: Final = 1
"""The job failed, or the request was refused."""
EXIT_USAGE: Final = 2
"""The command line, a setting or the request is wrong."""
EXIT_NOT_FOUND: Final = 3
"""The job, worker or result does not exist, or no longer."""
EXIT_DENIED: Final = 4
"""The right to do this is missing."""
EXIT_NO_LEADER: Final = 5
"""No leader was reached, or the connection was lost."""
EXIT_TIMED_OUT: Final = 6
"""The job or the wait took too long."""


class Code(NamedTuple):
    """Consequences of the code of a refusal or a failure. The page docs/reference/errors.md is made of these."""

    http_status: int
    meaning: str
    hint: str
    retry: bool = False
    """May the same request succeed later, unchanged?"""
    exit_code: int = EXIT_JOB_FAILED


CODES_BY_SENDER: Final[dict[str, dict[str, Code]]] = {
    "A leader about a request of a client": {
        "full": Code(503, "the leader's queue is full", "wait, or add workers", retry=True),
        "disk-full": Code(
            507,
            "the leader's disk has no room for its journal",
            "free room on the disk of --state DIR: the leader goes on by itself",
            retry=True,
        ),
        "stopping": Code(
            503, "the leader is shutting down", "wait until it is back, or name another leader", retry=True
        ),
        "bad-request": Code(
            400,
            "the request is not a job, or a field has a value that is not allowed",
            "docs/reference/protocol.md and docs/use/http.md have all fields",
            exit_code=EXIT_USAGE,
        ),
        "bad-subject": Code(
            400,
            "the subject or pattern breaks the rules",
            "subjects are dot-separated words, patterns may hold * and >: docs/use/words.md",
            exit_code=EXIT_USAGE,
        ),
        "bad-name": Code(
            400,
            "the name of a file or program is not allowed",
            "file names are relative paths without '..', backslash or drive",
            exit_code=EXIT_USAGE,
        ),
        "conflict": Code(
            409,
            "the job id belongs to another request",
            "one job id is one request: choose another id",
            exit_code=EXIT_USAGE,
        ),
        "too-big": Code(
            413, "more bytes than the peer takes", "an old leader or worker takes 4 MiB at most: bring it up to date"
        ),
        "unknown-job": Code(
            404,
            "the leader does not know the job, or no longer",
            "list the known jobs with `waku jobs list`",
            exit_code=EXIT_NOT_FOUND,
        ),
        "not-dead": Code(
            404,
            "the job is not among the dead letters",
            "list the dead letters with `waku dead list`",
            exit_code=EXIT_NOT_FOUND,
        ),
        "unknown-worker": Code(
            404,
            "no worker has this name",
            "list the connected workers with `waku workers list`",
            exit_code=EXIT_NOT_FOUND,
        ),
        "unknown-key": Code(
            404,
            "no key has this name",
            "list the keys with `waku keys list`",
            exit_code=EXIT_NOT_FOUND,
        ),
        "no-worker": Code(
            503,
            "no worker matches; a cache is kept for workers that join later",
            "list the workers and their patterns with `waku workers list`",
            retry=True,
        ),
        "unknown-question": Code(
            400,
            "the leader does not know the question",
            "leader and command are of different versions: bring both up to date",
            exit_code=EXIT_USAGE,
        ),
        "not-supported": Code(
            501, "this version does not do that", "leave the option out, or bring the peer up to date"
        ),
        "denied": Code(
            403,
            "the role or the rules of the peer do not allow this, or the peer is a web page of another site",
            "ask the operator of the leader for the right",
            exit_code=EXIT_DENIED,
        ),
    },
    "A node, leader or gateway about a job over HTTP or TCP lines": {
        "busy": Code(
            503,
            "all slots for running or receiving are taken",
            "try again after `Retry-After`, or use another node",
            retry=True,
        ),
        "running": Code(
            423,
            "the same job is running there",
            "send the request again: the result of that run is the answer",
            retry=True,
        ),
        "no-group": Code(
            503,
            "every group of the gateway is full, rests or is gone",
            "try again later, and look at the groups with /metrics",
            retry=True,
        ),
        "no-result": Code(
            404,
            "the job is not done yet, or failed without a result",
            "see /status for its state",
            exit_code=EXIT_NOT_FOUND,
        ),
        "too-slow": Code(
            408,
            "almost nothing of the request was received for 20 s",
            "send the whole request without long pauses",
            retry=True,
        ),
    },
    "A worker about an attempt": {
        "unknown-program": Code(
            404,
            "the worker has no such program",
            "install the program in the exec directory (--programs) of the workers",
        ),
        "not-executable": Code(
            422,
            "the program cannot be started",
            "give it its run bit (chmod +x), and a first line that names its interpreter",
        ),
        "env-refused": Code(
            403,
            "the job sets a variable that the worker does not allow",
            "the worker's --job-env says which variables jobs may set",
            exit_code=EXIT_DENIED,
        ),
        "no-cache": Code(
            404,
            "neither the worker nor its leader has the cached file",
            "put the file into the cache first: `waku caches put`",
        ),
        "no-authority": Code(
            404, "the server has no authority and no keys of its own", "make the first key: waku keys make NAME"
        ),
        "no-blob": Code(404, "the content is gone from the leader", "submit the job again"),
        "blob-broken": Code(422, "the content is not what its SHA-256 or size says", "send it again", retry=True),
        "blob-busy": Code(
            409, "another peer is sending the same content", "try again: the content will be there soon", retry=True
        ),
        "input-changed": Code(
            500,
            "another program wrote to an input that both share",
            "let programs write to files of their own",
            retry=True,
        ),
        "exit": Code(200, "the program ended with another exit code than 0", "read its stderr"),
        "timeout": Code(
            504,
            "the program ran longer than its timeout",
            "give the job more time (--timeout), or find out what it waits for",
            exit_code=EXIT_TIMED_OUT,
        ),
        "output-limit": Code(
            422, "more stdout or stderr than is kept", "write less to stdout and stderr, or write to a file"
        ),
        "memory-limit": Code(
            422,
            "the job broke its memory limit, or its worker's",
            "give the job less to hold, or raise the limit that the message names",
        ),
        "cpu-limit": Code(
            422, "the job broke its limit of CPU time, or its worker's", "raise the limit that the message names"
        ),
        "file-limit": Code(422, "the job broke its file size limit", "raise the job's file size limit"),
        "process-limit": Code(
            422, "the job broke its limit of processes, or its worker's", "raise the limit that the message names"
        ),
        "disk": Code(
            507, "the worker's disk is full or broken", "free room on the worker's disk (--jobs DIR)", retry=True
        ),
        "worker-error": Code(500, "the worker could not do its part", "the worker's log has the details", retry=True),
    },
    "A leader about an attempt": {
        "worker-lost": Code(
            502,
            "the worker's connection ended while the job ran there",
            "`waku jobs story ID` names the worker: see its log",
            retry=True,
        ),
        "leader-lost": Code(
            502,
            "the leader died, and the job's worker did not keep it",
            "four of these count as one attempt: the next leader goes on",
            retry=True,
        ),
        "ack-late": Code(
            504,
            "the worker gave no sign of life in time",
            "`waku jobs story ID` names the worker: see its log",
            retry=True,
        ),
        "bad-result": Code(502, "the worker's answer is not a result", "bring the worker up to date"),
    },
    "A leader about the end of a job": {
        "cancelled": Code(410, "a client cancelled the job", "submit the job again if its result is still wanted"),
        "dead": Code(
            502,
            "every attempt failed; the job stays as a dead letter",
            "`waku dead show ID` has the reason of each attempt",
        ),
        "input-lost": Code(
            500,
            "the leader's journal no longer has the request",
            "check the journal with `waku store check`, then submit it again",
        ),
        "silent": Code(
            504,
            "the worker did not answer a broadcast in time",
            "look at the worker with `waku workers list`",
            retry=True,
        ),
        "expired": Code(
            410, "the result was kept for its time and then forgotten", "submit the job again", exit_code=EXIT_NOT_FOUND
        ),
    },
    "The client library": {
        "no-leader": Code(
            503,
            "no leader could be reached in time",
            "start one with `waku up`, or name it with --leader or WAKU_LEADER",
            retry=True,
            exit_code=EXIT_NO_LEADER,
        ),
        "closed": Code(
            499, "the client was closed before the job was done", "keep the client open until the result is there"
        ),
        "timed-out": Code(
            504,
            "the caller's own time for waiting is over",
            "wait longer, or ask `waku jobs explain ID`",
            retry=True,
            exit_code=EXIT_TIMED_OUT,
        ),
        "too-many-bytes": Code(
            413,
            "the files of a result have too many bytes",
            "if you trust the worker, allow more: --max-bytes 20GB, in Python max_bytes=",
        ),
    },
}
CODES: Final = {code: row for rows in CODES_BY_SENDER.values() for code, row in rows.items()}


def hint_for(code: str) -> str:
    """Advice for a person; empty for a code of a newer version."""
    known = CODES.get(code)
    return known.hint if known else ""


class WakugumiError(Exception):
    """The root of all errors that this package raises on purpose."""

    exit_code: int = EXIT_JOB_FAILED
    hint: str = ""


class PeerError(WakugumiError):
    """The peer broke the protocol. The message says how, and is fit for a log line."""


class Refused(WakugumiError):
    """The request was refused. `code` is a key of CODES, the message says why in this case."""

    def __init__(self, code: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint_for(code) if hint is None else hint

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        known = CODES.get(self.code)
        return known.exit_code if known else EXIT_JOB_FAILED

    @property
    def retry(self) -> bool:
        """May the same request succeed later, unchanged?"""
        known = CODES.get(self.code)
        return known.retry if known else False


def bad_request(text: str, hint: str = "") -> Refused:
    """A request that cannot be done as it is: the text says all, so there is no hint unless one is given."""
    return Refused("bad-request", text, hint)


class Sick(Refused):
    """The machine cannot do the work now: its disk, descriptors or processes are used up. Another machine may."""


class Lost(WakugumiError):
    """The other side is gone, and the outcome is unknown. Sending the same job id again is safe."""

    exit_code = EXIT_NO_LEADER

    def __init__(self, message: str, why: str = "") -> None:
        super().__init__(message)
        self.why = why
        """Of a transfer: `dead` or `slow`."""


class ConfigError(WakugumiError):
    """A role or command cannot start like this. The message names the fault, the hint the remedy."""

    exit_code = EXIT_USAGE

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class JournalError(WakugumiError):
    """The disk does not take the journal. Jobs that were reported as accepted are safe; no further job is accepted."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class JobFailed(WakugumiError):
    """`Result.check()` found a job that did not end OK."""
