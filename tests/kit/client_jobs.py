"""Jobs that a client submits, by number."""

from __future__ import annotations

from wakugumi.core.client import events as fo
from wakugumi.core.ids import JobId


def job(number: int) -> JobId:
    return JobId(number.to_bytes(16, "big"))


def frame(number: int) -> bytes:
    return b"submit %d" % number


def submit(number: int) -> fo.Submit:
    return fo.Submit(job(number), frame(number))


A, B, C = job(1), job(2), job(3)
