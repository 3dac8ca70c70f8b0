"""Where does a worker started from the command line keep contents and caches, and who may fetch them from it?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from cyclopts import Parameter

from wakugumi.adapters.net.link import Address, is_loopback, parse_address
from wakugumi.app import settings
from wakugumi.app.serve.leader_blobs import parse_bytes
from wakugumi.errors import ConfigError
from wakugumi.roles.runner.files.serve import where_to_serve

DEFAULT: Final = "/opt/grid/cache"
"""The contract's (C2)."""

CacheDir = Annotated[
    str | None,
    Parameter(
        name="--cache",
        help="The folder for caches and large inputs; /opt/grid/cache, or one below that of the jobs if that cannot be "
        "made. [WAKU_CACHE]",
    ),
]
CacheBytes = Annotated[
    str | None,
    Parameter(
        name="--cache-bytes",
        help="What they may take, such as 200GB, before what was not used for longest is removed; a quarter of the "
        "disk. [WAKU_CACHE_BYTES]",
    ),
]
ServeAt = Annotated[
    str | None,
    Parameter(
        name="--serve",
        help="[HOST:]PORT at which other workers may fetch contents from this one, each with a token of the leader's; "
        "nothing can be written or run there. With a leader on this machine it serves 127.0.0.1 by itself; wider needs "
        "--allow-open. "
        "[WAKU_SERVE]",
    ),
]
Advertise = Annotated[
    str | None,
    Parameter(
        name="--advertise",
        help="HOST:PORT at which other workers find what --serve offers, if that is another. [WAKU_ADVERTISE]",
    ),
]
MetricsAt = Annotated[
    str | None,
    Parameter(
        name="--metrics",
        help="[HOST:]PORT at which Prometheus finds /metrics, and others /health and /capacity; on 127.0.0.1 if no "
        "host is said; wider needs --allow-open. Nothing can be run or changed there. [WAKU_METRICS]",
    ),
]


class Keeping(NamedTuple):
    """What was said about it."""

    folder: Path | None
    bytes_max: int
    serve: Address | None
    advertise: Address | None


def keeping(
    cache: str | None,
    cache_bytes: str | None,
    serve: str | None = None,
    advertise: str | None = None,
    *,
    allow_open: bool = False,
) -> Keeping:
    """What holds of the flags and of wherever else it is said. Raises ConfigError."""
    size = settings.CACHE_BYTES.value(cache_bytes)
    where, found_at = settings.SERVE.value(serve), settings.ADVERTISE.value(advertise)
    place = Keeping(
        _folder(settings.CACHE.value(cache)),
        parse_bytes(size, "--cache-bytes") if size else 0,
        _serve(where, allow_open=allow_open) if where else None,
        parse_address(found_at) if found_at else None,
    )
    where_to_serve(None, place.serve, place.advertise)
    return place


def metrics_at(said: str | None, *, allow_open: bool = False) -> Address | None:
    """Where a worker tells its metrics, if anywhere. Raises ConfigError."""
    text = settings.METRICS.value(said)
    if not text:
        return None
    if text.isascii() and text.isdigit():
        text = f"127.0.0.1:{text}"
    return _open_to(parse_address(text), "--metrics", "read what this worker counts", allow_open=allow_open)


def _folder(said: str) -> Path | None:
    """None: below that of the jobs."""
    if said:
        return Path(said).absolute()
    try:
        os.makedirs(DEFAULT, 0o700, exist_ok=True)
    except OSError:
        return None
    return (
        Path(DEFAULT)
        if os.access(DEFAULT, os.W_OK | os.X_OK) and os.stat(DEFAULT).st_uid in {0, os.geteuid()}
        else None
    )


def _open_to(where: Address, option: str, what: str, *, allow_open: bool) -> Address:
    """Safe by default (SPEC O1): wider than loopback needs a word. Raises ConfigError."""
    if allow_open or is_loopback(where.host):
        return where
    raise ConfigError(
        f"{option} {where} would let anyone who reaches this machine {what}",
        f"say {option} 127.0.0.1:{where.port}, or --allow-open if the network is closed to strangers",
    )


def _serve(text: str, *, allow_open: bool) -> Address:
    if text.isascii() and text.isdigit():
        text = f"0.0.0.0:{text}"
    where = parse_address(text)
    if not 0 <= where.port <= 65535:
        raise ConfigError(f"--serve {text} has no port", "write HOST:PORT or PORT")
    return _open_to(where, "--serve", "connect to it (and to read with a token alone)", allow_open=allow_open)
