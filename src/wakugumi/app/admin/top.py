"""`waku top`: how does a leader do, live? On a terminal until q or Ctrl-C; elsewhere once.

The leader is asked repeatedly (`AskTop`), and each answer is drawn. Without an answer the last picture stays, with the
time since. The terminal is restored at the end, whatever the cause.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter, validators
from msgspec.structs import replace

from wakugumi.app import logs
from wakugumi.app.admin.ask import ask
from wakugumi.app.client_settings import LEADER_HERE
from wakugumi.app.flags import with_settings
from wakugumi.app.options import Asking
from wakugumi.app.show.output import console, is_drawable, json_line_out, lines_out
from wakugumi.app.show.top_view import plain, view
from wakugumi.app.stoppable import Stopped, run
from wakugumi.app.work.target import connected
from wakugumi.core.leader import answer_records as an
from wakugumi.core.leader import questions as qu
from wakugumi.wire.access_line import hide_secrets

if TYPE_CHECKING:
    from rich.live import Live

EVERY_S_MIN: Final = 0.1
EVERY_S_MAX: Final = 3_600.0
_SILENT_FROM_S: Final = 2.0
"""A shorter wait for an answer is not shown."""
_REDRAW_S: Final = 1.0
"""Redrawn also without an answer: the window may change, and the time since the last answer grows."""
_PIPE_COLUMNS: Final = 160
"""Width without a terminal: room for all columns and long names."""
_LEAVE_KEYS: Final = frozenset(b"qQ\x03\x04")
"""q, and Ctrl-C and Ctrl-D if the terminal passes them on."""


@with_settings
def top(
    *,
    every: Annotated[
        float,
        Parameter(validator=validators.Number(gte=EVERY_S_MIN, lte=EVERY_S_MAX), help="Seconds between two updates."),
    ] = 1.0,
    once: Annotated[
        bool, Parameter(negative="", show_default=False, help="Show one picture and end, as without a terminal.")
    ] = False,
    asking: Asking,
) -> int:
    """waku top [--every S] [--once] [--leader HOST:PORT] [-o table|json|quiet]

    q or Ctrl-C ends the view. While the leader is lost, the view says so; it goes on when the leader is back. Rates,
    waits (from accepted to assigned) and run times are those of the last minute: half of the jobs took at most p50, 99
    of 100 at most p99. failed, again (assigned once more) and dead count since the leader's start. A group is the token
    after job.assign in its workers' patterns; * are workers for all groups.

    Without a terminal, or with --once, one picture is printed. With -o json each update is one line of JSON.

    Examples:
      waku top
      waku top --leader grid:5000 --every 5
      waku top --once
      waku top -o json --every 60
    """
    how = asking.output
    is_live = how == "table" and not once and is_drawable(sys.stdout)
    # Log lines would break the picture, which itself shows a lost leader.
    logs.start(replace(asking, log_level="error") if is_live and not asking.log_level else asking, quiet=True)
    if is_live:
        return _live(asking, every)
    if how == "json" and not once:
        return _json_lines(asking, every)
    answer = ask(qu.AskTop(), an.TopAnswer, asking)
    match how:
        case "json":
            _json_line(answer)
        case "quiet":
            lines_out(["full" if answer.status.full else "ok"])
        case _:
            width = shutil.get_terminal_size((_PIPE_COLUMNS, 0)).columns
            lines_out([plain(line).rstrip() for line in view(answer, _called(asking), width)])
    return 0


def _json_lines(asking: Asking, every_s: float) -> int:
    with contextlib.suppress(Stopped):
        run(_follow(asking, every_s, _json_line, lambda: None))
    return 0


def _json_line(answer: an.TopAnswer) -> None:
    json_line_out(answer)


def _live(asking: Asking, every_s: float) -> int:
    with contextlib.suppress(Stopped):
        run(_watch(asking, every_s))
    return 0


async def _watch(asking: Asking, every_s: float) -> None:
    """Draws until a key ends it, or a signal cancels it."""
    screen = _Screen(_called(asking))
    try:
        await _follow(asking, every_s, screen.show, screen.asked)
    except asyncio.CancelledError:
        if not screen.left:
            raise
    finally:
        screen.close()


async def _follow(
    asking: Asking, every_s: float, show: Callable[[an.TopAnswer], None], asked: Callable[[], None]
) -> None:
    """Asks and shows for ever. A lost leader is waited for."""
    async with connected(asking) as grid:
        while True:
            asked()
            answer = await grid.ask(qu.AskTop())
            assert isinstance(answer, an.TopAnswer)
            show(answer)
            await asyncio.sleep(every_s)


class _Screen:
    """Draws on the terminal from the first answer on."""

    def __init__(self, leader: str) -> None:
        self._leader = leader
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._answer: an.TopAnswer | None = None
        self._asked_at: float | None = None
        self._live: Live | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._open = contextlib.ExitStack()
        self.left = False
        """A key ended the view."""

    def asked(self) -> None:
        self._asked_at = self._loop.time()

    def show(self, answer: an.TopAnswer) -> None:
        self._answer = answer
        self._asked_at = None
        if self._live is None:
            self._begin()
        self._draw()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._open.close()

    def _begin(self) -> None:
        from rich.live import Live

        self._open.enter_context(_keys(self._loop, self._leave))
        # stderr is not redirected: errors are shown after the terminal is restored.
        self._live = Live(
            console=console(), screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._open.enter_context(self._live)
        self._timer = self._loop.call_later(_REDRAW_S, self._redraw)

    def _redraw(self) -> None:
        self._draw()
        self._timer = self._loop.call_later(_REDRAW_S, self._redraw)

    def _draw(self) -> None:
        from rich.text import Text

        assert self._live is not None
        assert self._answer is not None
        silent_s = self._loop.time() - self._asked_at if self._asked_at is not None else 0.0
        width, height = self._live.console.size
        lines = view(
            self._answer, self._leader, width, height, silent_s=silent_s if silent_s >= _SILENT_FROM_S else 0.0
        )
        picture = Text("\n", no_wrap=True, overflow="crop").join(Text.assemble(*line) for line in lines)
        self._live.update(picture, refresh=True)

    def _leave(self) -> None:
        self.left = True
        assert self._task is not None
        self._task.cancel()


@contextlib.contextmanager
def _keys(loop: asyncio.AbstractEventLoop, leave: Callable[[], None]) -> Iterator[None]:
    """Reads single keys without showing them. Without a terminal on stdin only signals end the view."""
    import termios
    import tty

    if sys.stdin is None or not sys.stdin.isatty():
        yield
        return
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)

    def pressed() -> None:
        try:
            keys = os.read(number, 1024)
        except OSError:
            keys = b""  # The terminal is gone.
        if not keys or _LEAVE_KEYS.intersection(keys):
            loop.remove_reader(number)
            leave()

    try:
        tty.setcbreak(number, termios.TCSANOW)
        loop.add_reader(number, pressed)
        yield
    finally:
        loop.remove_reader(number)
        with contextlib.suppress(termios.error):  # The terminal may be gone.
            termios.tcsetattr(number, termios.TCSANOW, before)


def _called(asking: Asking) -> str:
    return hide_secrets(asking.leader) or LEADER_HERE
