"""What can go wrong, told by whose fault it is, and one table that says what follows from each refusal.

    PeerError     they broke the protocol: one log line, that connection closes, nobody else is hurt
    Refused       the system says no and why; its code looks up retry, HTTP status, exit code and hint below
    Sick          a Refused that is this machine's fault: another machine may well do it
    Lost          gone while we waited, outcome unknown: the same id may be sent again
    ConfigError   it cannot start like this
    JournalError  what must be kept cannot be written: nothing more is accepted or reported as done, the process ends
    JobFailed     raised only by `Result.check()`: a failing program is a result, not an error

Foreign exceptions are translated into these in `adapters/`, once.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = [
    "CODES",
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


class Code(NamedTuple):
    """What a refusal's code means to those who must act on it."""

    retry: bool
    """May the same request succeed later, unchanged?"""
    http_status: int
    exit_code: int
    hint: str


EXIT_JOB_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_NOT_FOUND: Final = 3
EXIT_DENIED: Final = 4
EXIT_NO_LEADER: Final = 5
EXIT_TIMED_OUT: Final = 6

CODES: Final[dict[str, Code]] = {
    # Said to a client about what it asked for.
    "full": Code(True, 503, EXIT_JOB_FAILED, "the leader's queue is full: wait, or add workers"),
    "disk-full": Code(True, 507, EXIT_JOB_FAILED, "free room on the leader's disk (--state DIR): it goes on by itself"),
    "busy": Code(True, 503, EXIT_JOB_FAILED, "all slots are taken: come again, or ask another node"),
    "running": Code(True, 423, EXIT_JOB_FAILED, "the same job runs there: ask again, and its result is the answer"),
    "no-group": Code(True, 503, EXIT_JOB_FAILED, "every group is full or gone: come again"),
    "no-result": Code(False, 404, EXIT_NOT_FOUND, "the job is not done yet, or failed: see /status"),
    "too-slow": Code(True, 408, EXIT_JOB_FAILED, "send the whole request without long pauses"),
    "stopping": Code(True, 503, EXIT_JOB_FAILED, "the leader is shutting down: it will be back, or name another one"),
    "bad-request": Code(False, 400, EXIT_USAGE, "docs/reference/protocol.md says what a job and a question may hold"),
    "bad-subject": Code(False, 400, EXIT_USAGE, "subjects are dot-separated words: see docs/internals/words.md"),
    "bad-name": Code(False, 400, EXIT_USAGE, "file names are relative paths without '..', backslash or drive"),
    "conflict": Code(False, 409, EXIT_USAGE, "one job id is one request: choose another id for another request"),
    "too-big": Code(False, 413, EXIT_JOB_FAILED, "an old leader or worker takes 4 MiB at most: bring it up to date"),
    "unknown-job": Code(False, 404, EXIT_NOT_FOUND, "list what the leader knows with `waku jobs list`"),
    "not-dead": Code(False, 404, EXIT_NOT_FOUND, "list the dead letters with `waku dead list`"),
    "unknown-worker": Code(False, 404, EXIT_NOT_FOUND, "list the connected workers with `waku workers list`"),
    "no-worker": Code(True, 503, EXIT_JOB_FAILED, "see who is there, and for what, with `waku workers list`"),
    "unknown-question": Code(False, 400, EXIT_USAGE, "the leader is of another version than this command"),
    "not-supported": Code(False, 501, EXIT_JOB_FAILED, "this version does not do that"),
    "denied": Code(False, 403, EXIT_DENIED, "ask whoever runs the leader for the right"),
    # Said about an attempt by the worker that made it.
    "unknown-program": Code(
        False, 404, EXIT_JOB_FAILED, "install the program in the exec directory (--programs) of the workers"
    ),
    "not-executable": Code(
        False,
        422,
        EXIT_JOB_FAILED,
        "give the program its run bit (chmod +x), and a first line that names its interpreter",
    ),
    "env-refused": Code(False, 403, EXIT_DENIED, "the worker's --job-env says which variables jobs may set"),
    "no-cache": Code(False, 404, EXIT_JOB_FAILED, "put the file into the cache first: `waku caches put`"),
    "no-blob": Code(False, 404, EXIT_JOB_FAILED, "its content is gone from the leader: submit the job again"),
    "blob-broken": Code(True, 422, EXIT_JOB_FAILED, "the content is not what its SHA-256 says: send it again"),
    "blob-busy": Code(True, 409, EXIT_JOB_FAILED, "someone else is sending the same content: it will be there soon"),
    "input-changed": Code(True, 500, EXIT_JOB_FAILED, "a program beside it wrote to an input that both had"),
    "exit": Code(False, 200, EXIT_JOB_FAILED, "the program's own exit code: read its stderr"),
    "timeout": Code(False, 504, EXIT_TIMED_OUT, "give the job more time (--timeout), or find out what it waits for"),
    "output-limit": Code(False, 422, EXIT_JOB_FAILED, "write less to stdout and stderr, or write to a file"),
    "memory-limit": Code(False, 422, EXIT_JOB_FAILED, "raise the job's memory limit, or give it less to hold"),
    "cpu-limit": Code(False, 422, EXIT_JOB_FAILED, "raise the job's CPU time limit"),
    "file-limit": Code(False, 422, EXIT_JOB_FAILED, "raise the job's file size limit"),
    "process-limit": Code(False, 422, EXIT_JOB_FAILED, "raise the job's limit of processes"),
    "disk": Code(True, 507, EXIT_JOB_FAILED, "free room on the worker's disk (--jobs DIR)"),
    "worker-error": Code(True, 500, EXIT_JOB_FAILED, "the worker's log has the details"),
    "worker-lost": Code(True, 502, EXIT_JOB_FAILED, "the worker's connection ended while the job ran there"),
    "leader-lost": Code(
        True, 502, EXIT_JOB_FAILED, "the leader died while the job was with a worker that did not keep it"
    ),
    "ack-late": Code(True, 504, EXIT_JOB_FAILED, "the worker gave no sign of life in time"),
    "bad-result": Code(False, 502, EXIT_JOB_FAILED, "the worker answered with something that is not a result"),
    # How a job ended without an answer of its own.
    "cancelled": Code(False, 410, EXIT_JOB_FAILED, "someone cancelled the job"),
    "dead": Code(False, 502, EXIT_JOB_FAILED, "every attempt failed: `waku dead show ID` tells how"),
    "input-lost": Code(
        False, 500, EXIT_JOB_FAILED, "check the leader's journal with `waku store check`, then submit it"
    ),
    "silent": Code(True, 504, EXIT_JOB_FAILED, "the worker did not answer a broadcast in time: `waku workers list`"),
    "expired": Code(False, 410, EXIT_NOT_FOUND, "the result was kept for its time and then forgotten: submit it again"),
    # Said by the client library itself.
    "no-leader": Code(True, 503, EXIT_NO_LEADER, "start one with `waku up`, or name it with --leader or WAKU_LEADER"),
    "closed": Code(False, 499, EXIT_JOB_FAILED, "the client was closed before the job was done"),
    "timed-out": Code(True, 504, EXIT_TIMED_OUT, "wait longer, or ask `waku jobs explain ID`"),
    "too-many-bytes": Code(
        False, 413, EXIT_JOB_FAILED, "if you trust its worker, allow more: --max-bytes 20GB, in Python max_bytes="
    ),
}


def hint_for(code: str) -> str:
    """What a person may do about it; empty for a code of a newer version."""
    known = CODES.get(code)
    return known.hint if known else ""


class WakugumiError(Exception):
    """The root of all errors that this package raises on purpose."""

    exit_code: int = EXIT_JOB_FAILED
    hint: str = ""


class PeerError(WakugumiError):
    """The other side broke the protocol. The message says how, and is fit for a log line."""


class Refused(WakugumiError):
    """The system says no. `code` is a key of CODES, the message says why in this case."""

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


class Sick(Refused):
    """This machine cannot do it now, whatever was asked: its disk, its descriptors, its processes are used up."""


class Lost(WakugumiError):
    """Gone while we waited, and the outcome is unknown. Sending the same id again is safe."""

    exit_code = EXIT_NO_LEADER

    def __init__(self, message: str, why: str = "") -> None:
        super().__init__(message)
        self.why = why
        """Of a transfer: `dead` or `slow`."""


class ConfigError(WakugumiError):
    """It cannot start like this. The message says what is wrong, the hint what to write instead."""

    exit_code = EXIT_USAGE

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class JournalError(WakugumiError):
    """The disk does not take what must be kept. Whatever was reported as safe is safe; nothing more will be."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class JobFailed(WakugumiError):
    """`Result.check()` found a job that did not end OK."""
