"""When does something hold that nobody announces? Polls until a condition is true: `eventually` in a loop,
`eventually_blocking` in a thread. The deadline only ends a test that would hang."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import monotonic, sleep
from typing import Final

WITHIN_S: Final = 20.0
"""Less than SILENCE_MAX_S and its like: nothing may hold only because a peer was given up."""
PROCESS_WITHIN_S: Final = 60.0
"""For whole processes, which start slowly on a busy machine."""
_PAUSE_FIRST_S: Final = 0.001
_PAUSE_MAX_S: Final = 0.01


async def eventually(holds: Callable[[], object], what: str = "", *, within_s: float = WITHIN_S) -> None:
    for pause_s in _pauses(holds, what, within_s):
        await asyncio.sleep(pause_s)


def eventually_blocking(holds: Callable[[], object], what: str = "", *, within_s: float = PROCESS_WITHIN_S) -> None:
    for pause_s in _pauses(holds, what, within_s):
        sleep(pause_s)


def _pauses(holds: Callable[[], object], what: str, within_s: float) -> Iterator[float]:
    """The pauses between the looks; ends when the condition is true. The last look comes after the deadline."""
    pause_s, until, is_over = _PAUSE_FIRST_S, monotonic() + within_s, False
    while not holds():
        assert not is_over, f"within {within_s:g} s this did not hold: {what or _source(holds)}"
        yield pause_s
        pause_s = min(2 * pause_s, _PAUSE_MAX_S)
        is_over = monotonic() > until


def _source(holds: Callable[[], object]) -> str:
    with suppress(OSError, TypeError):
        return inspect.getsource(holds).strip()
    return repr(holds)
