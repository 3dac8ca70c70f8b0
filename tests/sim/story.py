"""How is a broken world told? One line for each thing that happened: when, who, what; payloads cut, ids as numbers.

A world that runs for its counts tells nothing: a failing seed is run again with a story, and is the same world.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from wakugumi.core.ids import JobId

LINES_MAX: Final = 200_000
_NAMES: Final = ("jobs", "running", "finished", "kept", "asked")


class Line(NamedTuple):
    at: float
    who: str
    what: str
    about: object


class Story:
    """What happened in a world, the last of it."""

    def __init__(self) -> None:
        self._lines: deque[Line] = deque(maxlen=LINES_MAX)

    def add(self, at: float, who: str, what: str, about: object) -> None:
        self._lines.append(Line(at, who, what, about))

    def of(self, job: JobId | None, lines: int) -> list[str]:
        """The last lines that concern this job, and whatever befell the world meanwhile."""
        chosen = [line for line in self._lines if line.about is None or job is None or job in _jobs_of(line.about)]
        return [_show(line) for line in chosen[-lines:]]


def _jobs_of(about: object) -> list[JobId]:
    if isinstance(about, bytes):
        return [JobId(about)]
    found = []
    job = getattr(about, "job", None) or getattr(about, "about", None)
    if job is not None:
        found.append(job)
    for name in _NAMES:
        found.extend(getattr(about, name, ()))
    found.extend(result.job for result in getattr(about, "results", ()))
    found.extend(JobId(frame[:16]) for frame in getattr(about, "frames", ()))
    if isinstance(frame := getattr(about, "frame", None), bytes):
        found.append(JobId(frame[:16]))
    return found


def _show(line: Line) -> str:
    about = "" if line.about is None else show(line.about)
    return f"{line.at:10.3f}  {line.who:<8} {line.what} {about}".rstrip()


def show(value: object) -> str:
    """A value with job ids as numbers and bytes cut short."""
    if isinstance(value, bytes):
        if len(value) == 16 and value[:8] == bytes(8):
            return f"job{int.from_bytes(value, 'big')}"
        return repr(value[:40])
    if isinstance(value, list | tuple):
        shown = ", ".join(show(one) for one in value[:8])
        return f"[{shown}{', …' if len(value) > 8 else ''}]"
    fields = getattr(value, "__struct_fields__", None)
    if fields is not None:
        inside = " ".join(f"{name}={show(getattr(value, name))}" for name in fields if name != "subject")
        return f"{type(value).__name__} {inside}".rstrip()
    return repr(value)
