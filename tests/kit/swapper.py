"""A hostile program: a folder and a link to another one take turns under one name, as fast as it can."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import TracebackType

_PROGRAM = """
import ctypes, os, signal, sys
path, link, target = map(os.fsencode, sys.argv[1:])
exchange = ctypes.CDLL(None).renameat2
go_on, swaps = [True], 0
signal.signal(signal.SIGTERM, lambda *_: go_on.clear())
print("ready", flush=True)
while go_on:
    if exchange(-100, path, -100, link, 2) == 0:
        swaps += 1
    if not os.path.islink(path) and not os.path.islink(link):
        if os.path.isdir(link):  # The link was removed.
            os.rename(link, b"%b-%d" % (link, swaps))
        os.symlink(target, link)
print(swaps)
"""


class Swapper:
    """Exchanges the folder and the link from its beginning to its end, in a process of its own."""

    def __init__(self, path: Path, target: Path) -> None:
        self._words = [sys.executable, "-c", _PROGRAM, str(path), str(path.with_name("link")), str(target)]
        self.swaps = 0
        """Number of exchanges, at the end."""

    def __enter__(self) -> Swapper:
        self._process = subprocess.Popen(self._words, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        self._process.terminate()
        said, _ = self._process.communicate(timeout=30)
        self.swaps = int(said)
