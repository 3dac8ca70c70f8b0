"""Where does a worker started from the command line keep contents and caches, and who may fetch them from it?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from wakugumi.adapters.net.address import Address, is_loopback
from wakugumi.errors import ConfigError
from wakugumi.roles.runner.files.serve import where_to_serve
from wakugumi.roles.runner.settings import WorkerSettings

DEFAULT: Final = "/opt/grid/cache"
"""The contract's (C2)."""


def cache_folder() -> Path | None:
    """The folder of a worker that is told none. None: below that of the jobs."""
    try:
        os.makedirs(DEFAULT, 0o700, exist_ok=True)
    except OSError:
        return None
    ours = os.access(DEFAULT, os.W_OK | os.X_OK) and os.stat(DEFAULT).st_uid in {0, os.geteuid()}
    return Path(DEFAULT) if ours else None


def check_ports(settings: WorkerSettings) -> None:
    """Safe by default (SPEC O1): wider than loopback needs a word. Raises ConfigError."""
    if settings.serve is not None:
        _open_to(settings.serve, "--serve", "connect to it (and to read with a token alone)", settings)
    if settings.metrics is not None:
        _open_to(settings.metrics, "--metrics", "read what this worker counts", settings)
    where_to_serve(None, settings.serve, settings.advertise)


def _open_to(where: Address, option: str, what: str, settings: WorkerSettings) -> None:
    if not settings.allow_open and not is_loopback(where.host):
        raise ConfigError(
            f"{option} {where} would let anyone who reaches this machine {what}",
            f"say {option} 127.0.0.1:{where.port}, or --allow-open if the network is closed to strangers",
        )
