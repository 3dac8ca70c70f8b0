"""`waku gateway`: how does a gateway become a process? Several of them, on one state folder, are one to their clients.

stdout gets one line, where it listens. The first SIGTERM or Ctrl-C lets those who wait have their answers, the second
ends it at once; asynchronous jobs go on with whoever has the folder next.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Annotated, Final, Literal

from cyclopts import Parameter

from wakugumi.adapters.journal.file import sync_folder
from wakugumi.adapters.loop.event_loop import run
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.net.link import Address
from wakugumi.adapters.programs.linux import hide_from_programs, raise_open_files
from wakugumi.app import logs
from wakugumi.app import settings as config
from wakugumi.app.options import LOGGING, Logging
from wakugumi.app.serve.leader import AllowOpen, Host, ServerNames, Stops, binding, names_for
from wakugumi.app.serve.leader_blobs import parse_bytes
from wakugumi.app.show.output import line_out
from wakugumi.core.gateway.groups import NEAR, GroupAt, parse_group
from wakugumi.errors import ConfigError
from wakugumi.limits.gateway import GROUPS_MAX
from wakugumi.limits.wire import DRAIN_DEADLINE_S
from wakugumi.roles.gateway.server import GatewayServer, GatewaySettings

log = logging.getLogger("wakugumi.app")

PORT: Final = 5000

GroupNames = Annotated[
    tuple[str, ...],
    Parameter(
        name="--group",
        negative="",
        consume_multiple=False,
        show_default=False,
        help="A group: NAME=URL of its leader, with ,zone=WORD and ,weight=NUMBER. May be repeated. [WAKU_GROUP, with "
        "blanks between them]",
    ),
]
Zone = Annotated[str | None, Parameter(help="Where this gateway is, for --choice near. [WAKU_ZONE]")]
GroupChoice = Annotated[
    Literal["least-loaded", "near", "hash"] | None,
    Parameter(
        name="--choice",
        help="Which group gets a job: least-loaded (if nothing is said), near (of --zone first), or hash (the same key "
        "or id, the same group). [WAKU_GROUP_CHOICE]",
    ),
]
GatewayState = Annotated[
    str | None,
    Parameter(
        name="--state",
        help="The folder for jobs and answers, the same for all gateways that are to give the same answers; one per "
        "port below ~/.local/state. [WAKU_STATE]",
    ),
]
KeepHours = Annotated[
    float | None,
    Parameter(name="--keep-hours", help="How long an answer is kept; 24 if nothing is said. [WAKU_KEEP_HOURS]"),
]
KeepBytes = Annotated[
    str | None,
    Parameter(name="--keep-bytes", help="What all answers may take before the oldest go; 20GB. [WAKU_KEEP_BYTES]"),
]
Lease = Annotated[
    float | None,
    Parameter(
        name="--lease",
        help="Seconds after which the others take over the jobs of a gateway that died; 10. [WAKU_LEASE]",
    ),
]
TryTimeout = Annotated[
    float | None,
    Parameter(
        name="--try-timeout",
        help="Seconds that a job may wait at a group beyond its own timeout, before it is cancelled there and the next "
        "group gets it; 3600. [WAKU_TRY_TIMEOUT]",
    ),
]
BodyBytes = Annotated[
    str | None,
    Parameter(name="--body-bytes", help="The largest body that is taken; 64GiB. [WAKU_BODY_BYTES]"),
]

QueueBytes = Annotated[
    str | None,
    Parameter(
        name="--queue-bytes",
        help="What the bodies of asynchronous jobs may take until these have ended, of all gateways on the folder; "
        "64GiB. [WAKU_QUEUE_BYTES]",
    ),
]


def gateway(
    port: int = PORT,
    /,
    *,
    group: GroupNames = (),
    choice: GroupChoice = None,
    zone: Zone = None,
    state: GatewayState = None,
    keep_hours: KeepHours = None,
    keep_bytes: KeepBytes = None,
    body_bytes: BodyBytes = None,
    queue_bytes: QueueBytes = None,
    lease: Lease = None,
    try_timeout: TryTimeout = None,
    host: Host = None,
    name: ServerNames = (),
    allow_open: AllowOpen = False,
    logged: Logging = LOGGING,
) -> int:
    logs.start(logged.log_level, logged.log_json)
    hide_from_programs()
    where, names = binding(host, port, allow_open), names_for(name, host)
    how, at_home = config.GROUP_CHOICE.value(choice), config.ZONE.value(zone)
    groups = _groups(config.GROUP.value(" ".join(group) or None))
    if how == NEAR and not any(one.zone == at_home for one in groups if at_home):
        why = f"no group is in the zone {at_home}" if at_home else "nobody said where this gateway is"
        raise ConfigError(f"--choice near has nothing to go by: {why}", "say --zone WORD, and ,zone=WORD of groups")
    with _folder(config.STATE.value(state), port) as folder:
        settings = GatewaySettings(
            groups=groups,
            state=folder,
            choice=how,
            zone=at_home,
            body_bytes_max=parse_bytes(config.BODY_BYTES.value(body_bytes), "--body-bytes"),
            queue_bytes=parse_bytes(config.QUEUE_BYTES.value(queue_bytes), "--queue-bytes"),
            kept_s=3600 * config.KEEP_HOURS.value(keep_hours),
            kept_bytes=parse_bytes(config.KEEP_BYTES.value(keep_bytes), "--keep-bytes"),
            lease_s=config.LEASE_S.value(lease),
            try_s=config.TRY_TIMEOUT_S.value(try_timeout),
        )
        raise_open_files()
        return run(_serve(where, names, settings))


async def _serve(where: Address, names: frozenset[str], settings: GatewaySettings) -> int:
    stops = Stops()
    tasks = Tasks()
    async with GatewayServer(settings) as server:
        there = Address(where.host, await server.listen(where.host, where.port, names))
        groups = ", ".join(f"{group.name} at {group.url}" for group in settings.groups)
        log.info("gateway ready at %s, with the groups %s; state in %s", there, groups, settings.state)
        line_out(f"http://{there}", flush=True)
        await stops.wait(1)
        log.info("draining: those who wait may have their answers; ask again to stop at once")
        draining: asyncio.Task[bool] = tasks.start(server.drain(DRAIN_DEADLINE_S), name="drain")
        await stops.wait(2, draining)
        await tasks.close()
    log.info("gateway stopped")
    return 0


def _groups(text: str) -> list[GroupAt]:
    """Raises ConfigError."""
    groups = [parse_group(word) for word in text.split()]
    if not groups:
        raise ConfigError("a gateway needs a group", "name one: --group one=http://127.0.0.1:5081")
    if len(groups) > GROUPS_MAX:
        raise ConfigError(f"{len(groups)} groups are more than {GROUPS_MAX}")
    if len({group.name for group in groups}) < len(groups):
        raise ConfigError("two groups have the same name", "give each a name of its own")
    return groups


@contextmanager
def _folder(said: str, port: int) -> Iterator[Path]:
    """Where it keeps what it knows. A gateway on any port, with no folder, keeps it for as long as it lives."""
    if said:
        yield _usable(Path(said).absolute())
    elif port:
        yield _usable(config.state_folder(port, "gateway"))
    else:
        folder = Path(mkdtemp(prefix="waku-gateway-"))
        try:
            yield folder
        finally:
            rmtree(folder, ignore_errors=True)


def _usable(folder: Path) -> Path:
    """Made, for this user alone, if need be. Raises ConfigError."""
    hint = "name a folder of its own with --state DIR"
    try:
        if not folder.is_dir():
            folder.mkdir(mode=0o700, parents=True)
            sync_folder(folder.parent)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be used for the gateway's state: {error.strerror}", hint) from None
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigError(f"this user may not read and write {folder}", hint)
    return folder
