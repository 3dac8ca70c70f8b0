"""What can be set at a gateway? Each field once, with its flag, variable, default, bounds and help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from wakugumi.adapters.access.dialled import take_key
from wakugumi.core.gateway.groups import GroupAt, parse_group
from wakugumi.core.setting import Setting, read_bytes
from wakugumi.errors import ConfigError
from wakugumi.limits.gateway import (
    GATEWAY_BODY_BYTES_MAX,
    GATEWAY_KEPT_BYTES,
    GATEWAY_KEPT_S,
    GATEWAY_LEASE_S,
    GATEWAY_LOOK_S,
    GATEWAY_QUEUE_BYTES,
    GATEWAY_SILENCE_S,
    GATEWAY_TRY_S,
    GROUP_ANSWER_S,
    GROUP_POLL_S,
    GROUPS_MAX,
)
from wakugumi.limits.runner import JOB_TIMEOUT_MAX_S
from wakugumi.limits.wire import HEARTBEAT_S
from wakugumi.roles.settings import (
    HOST,
    AccessPath,
    AllowOpen,
    ClientCa,
    Host,
    Local,
    LocalGroup,
    ServerNames,
    TlsCert,
    TlsKey,
    read_absolute,
)


def _groups(text: str, _where: str) -> tuple[GroupAt, ...]:
    groups = tuple(parse_group(_without_key(word)) for word in text.split())
    if len(groups) > GROUPS_MAX:
        raise ConfigError(f"{len(groups)} groups are more than {GROUPS_MAX}")
    if len({group.name for group in groups}) < len(groups):
        raise ConfigError("two groups have the same name", "give each a name of its own")
    return groups


def _without_key(text: str) -> str:
    """`NAME=URL,…`, whose key belongs to the address from now on. Raises ConfigError."""
    name, equals, rest = text.partition("=")
    url, comma, options = rest.partition(",")
    return f"{name}{equals}{take_key(url)}{comma}{options}"


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """One gateway's settings."""

    groups: Annotated[
        tuple[GroupAt, ...],
        Setting(
            "Group: NAME=URL of its leader, with ,zone=WORD and ,weight=NUMBER. A key stands before the host: "
            "https://KEY@HOST:PORT.",
            key="group",
            joined=" ",
            read=_groups,
        ),
    ] = ()
    choice: Annotated[
        Literal["least-loaded", "near", "hash"],
        Setting(
            "Choice of the group for a job: least-loaded, near (groups of --zone first), or hash (the same group for "
            "the same key or id).",
            key="group-choice",
            flag="choice",
        ),
    ] = "least-loaded"
    access: AccessPath = None
    zone: Annotated[str, Setting("Zone of this gateway, for --choice near.")] = ""
    state: Annotated[
        Path | None,
        Setting(
            "Folder for jobs and answers, the same for all gateways that are to give the same answers.",
            shown="one per port below ~/.local/state",
            read=read_absolute,
        ),
    ] = None
    kept_s: Annotated[
        float, Setting("Hours to keep an answer.", key="keep-hours", least=0, most=24 * 366, per=3600)
    ] = GATEWAY_KEPT_S
    kept_bytes: Annotated[
        int,
        Setting(
            "Size limit of all kept answers; beyond it, the oldest are removed.",
            shown=f"{GATEWAY_KEPT_BYTES // 10**9}GB",
            key="keep-bytes",
            read=read_bytes,
        ),
    ] = GATEWAY_KEPT_BYTES
    body_bytes_max: Annotated[
        int,
        Setting("Largest body.", shown=f"{GATEWAY_BODY_BYTES_MAX // 2**30}GiB", key="body-bytes", read=read_bytes),
    ] = GATEWAY_BODY_BYTES_MAX
    queue_bytes: Annotated[
        int,
        Setting(
            "Size limit of the bodies of unfinished asynchronous jobs, of all gateways on the folder.",
            shown=f"{GATEWAY_QUEUE_BYTES // 2**30}GiB",
            read=read_bytes,
        ),
    ] = GATEWAY_QUEUE_BYTES
    lease_s: Annotated[
        float,
        Setting(
            "Seconds after which other gateways take over the jobs of one that died.",
            key="lease",
            least=0.1,
            most=3600,
        ),
    ] = GATEWAY_LEASE_S
    try_s: Annotated[
        float,
        Setting(
            "Seconds that a job may wait at a group beyond its own time limit, before it is cancelled there and given "
            "to the next group.",
            key="try-timeout",
            least=0.1,
            most=JOB_TIMEOUT_MAX_S,
        ),
    ] = GATEWAY_TRY_S
    host: Host = HOST
    names: ServerNames = ()
    allow_open: AllowOpen = False
    local: Local = "admin"
    local_group: LocalGroup = ""
    tls_cert: TlsCert = ""
    tls_key: TlsKey = ""
    client_ca: ClientCa = ""

    silence_s: float = GATEWAY_SILENCE_S
    look_s: float = GATEWAY_LOOK_S
    poll_s: float = GROUP_POLL_S
    answer_s: float = GROUP_ANSWER_S
    heartbeat_s: float = HEARTBEAT_S
