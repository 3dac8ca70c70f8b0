"""Why are connections rejected? If no file descriptor is left, the log must say so.

uvloop silently closes such a connection; asyncio logs a traceback every second. While a port is open, this module
therefore tries regularly to open a file: it logs one line when that fails, and one when it works again.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import time
from typing import Any, Final
from weakref import WeakKeyDictionary, ref

from wakugumi.adapters.machine.open_files import open_files_max

log = logging.getLogger("wakugumi.net")

LOOK_S: Final = 1.0
_SHORT: Final = frozenset({errno.EMFILE, errno.ENFILE})
_ASYNCIO_SAYS: Final = "socket.accept() out of system resource"

_watches: WeakKeyDictionary[asyncio.AbstractEventLoop, ref[Watch]] = WeakKeyDictionary()
"""Weak references, because a watch is its loop's exception handler, and a strong one would keep both for ever."""


def watch_descriptors(server: asyncio.Server) -> None:
    """While `server` serves, log when new connections are rejected for lack of file descriptors."""
    loop = asyncio.get_running_loop()
    known = _watches.get(loop)
    watch = None if known is None else known()
    if watch is None:
        watch = Watch(loop)
        _watches[loop] = ref(watch)
    watch.add(server)


class Watch:
    """Watches the servers of one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._servers: list[asyncio.Server] = []
        self._timer: asyncio.TimerHandle | None = None
        self._short_since: float | None = None
        self._handler = loop.get_exception_handler()
        loop.set_exception_handler(self._on_exception)

    def add(self, server: asyncio.Server) -> None:
        self._servers.append(server)
        if self._timer is None:
            self._timer = self._loop.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._servers = [server for server in self._servers if server.is_serving()]
        if not self._servers:
            self._end()
            return
        self._timer = self._loop.call_later(LOOK_S, self._look)
        try:
            os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            if error.errno in _SHORT:
                self._is_short(error)
        else:
            if self._short_since is not None:
                log.warning("new connections are accepted again seconds=%.0f", time.monotonic() - self._short_since)
                self._short_since = None

    def _end(self) -> None:
        """Restore the loop's exception handler after the last server is closed."""
        self._timer = None
        if self._loop.get_exception_handler() == self._on_exception:
            self._loop.set_exception_handler(self._handler)
        del _watches[self._loop]

    def _is_short(self, error: OSError) -> None:
        if self._short_since is not None:
            return
        self._short_since = time.monotonic()
        if error.errno == errno.EMFILE:
            why = f"all {open_files_max()} file descriptors of this process are in use"
            hint = "raise its limit of open files (ulimit -n, LimitNOFILE= of a service), or open fewer connections"
        else:
            why = "the system has no file descriptor left"
            hint = "raise fs.file-max, or see which process holds them"
        log.error("new connections are turned away: %s; hint: %s", why, hint)

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if context.get("message") == _ASYNCIO_SAYS and isinstance(error, OSError) and error.errno in _SHORT:
            self._is_short(error)
        elif self._handler is not None:
            self._handler(loop, context)
        else:
            loop.default_exception_handler(context)
