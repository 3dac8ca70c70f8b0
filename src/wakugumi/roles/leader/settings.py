"""What can be set at a leader? Each field once, with its flag, variable, default, bounds and help."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from wakugumi.core.backoff import EVERYWHERE, Policies, parse_policies
from wakugumi.core.leader.nodes.machine import NodeAt
from wakugumi.core.memory_budget import Budget
from wakugumi.core.names import check_exec_name
from wakugumi.core.setting import Setting, read_bytes
from wakugumi.errors import ConfigError, Refused
from wakugumi.limits.files import BLOB_STORE_BYTES
from wakugumi.limits.http import HTTP_CLIENT_CAP, HTTP_RECEIVED_MAX
from wakugumi.limits.leader import CLIENT_CAP_MAX
from wakugumi.limits.wire import HELLO_DEADLINE_S
from wakugumi.roles.leader.nodes.addresses import read_nodes
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
)

WHOLE: Final = Budget()
"""No memory limit."""


def _policies(text: str, _where: str) -> Policies:
    return parse_policies(text)


def _blobs(url: str, where: str) -> str:
    if url.startswith(("http:", "https:")):
        raise ConfigError(f"{where} {url} is another leader's", "name a file:// folder or an s3:// bucket, or nothing")
    return url


def _program(name: str, where: str) -> str:
    try:
        return check_exec_name(name)
    except Refused as no:
        raise ConfigError(f"{where}: {no.message}", "name one of the workers' programs, as in their folder") from None


class LeaderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One leader's settings."""

    state: Annotated[
        str, Setting("Folder for the journal.", shown="one per port below ~/.local/state; none for port 0")
    ] = ""
    memory: Annotated[
        bool, Setting("Keep no journal: faster for very short jobs, but queued jobs are lost when the leader ends.")
    ] = False
    blobs: Annotated[
        str,
        Setting(
            "Place for files that do not fit a frame: file:///shared/folder or s3://bucket/prefix, which clients and "
            "workers must reach too.",
            shown="beside the journal",
            read=_blobs,
        ),
    ] = ""
    blob_bytes: Annotated[
        int,
        Setting(
            "Size limit of these files, such as 500GB; beyond it, files that no job names are removed.",
            shown=f"{BLOB_STORE_BYTES // 10**9}GB",
            read=read_bytes,
        ),
    ] = BLOB_STORE_BYTES
    workers_at: Annotated[
        tuple[str, ...],
        Setting(
            "Host that workers may name with --advertise, such as 10.1.*.* or *.example; the address of a worker's own "
            "connection is always allowed.",
            joined=" ",
        ),
    ] = ()
    policies: Annotated[
        Policies,
        Setting(
            "Choice of the worker for a job: most-credit, round-robin, sticky or score; PATTERN=NAME is for the "
            "subjects that match.",
            shown="most-credit",
            key="policy",
            joined=",",
            read=_policies,
        ),
    ] = EVERYWHERE
    nodes: Annotated[
        tuple[NodeAt, ...],
        Setting(
            "Node to run jobs on: URL[,weight=N][,subject=PATTERN][,name=NAME].",
            flag="node",
            joined=" ",
            read=read_nodes,
        ),
    ] = ()
    node_ca: Annotated[
        str,
        Setting("PEM file with the authorities that sign certificates of https nodes.", shown="those of the system"),
    ] = ""
    node_cert: Annotated[str, Setting("PEM file with the certificate for nodes that ask for one.")] = ""
    node_key: Annotated[str, Setting("PEM file with the key of that certificate.")] = ""
    program: Annotated[
        str, Setting("Program of HTTP jobs that name none.", shown="the runner's own", read=_program)
    ] = ""
    http_cap: Annotated[int, Setting("Unfinished HTTP jobs of one client id.", least=1, most=CLIENT_CAP_MAX)] = (
        HTTP_CLIENT_CAP
    )
    access: AccessPath = None
    host: Host = HOST
    names: ServerNames = ()
    allow_open: AllowOpen = False
    local: Local = "admin"
    local_group: LocalGroup = ""
    tls_cert: TlsCert = ""
    tls_key: TlsKey = ""
    client_ca: ClientCa = ""

    by_flag: frozenset[str] = frozenset()
    """Fields that the command line set."""
    budget: Budget = WHOLE
    """Limits of what is held in memory."""
    queue_jobs_max: int | None = None
    queue_bytes_max: int | None = None
    payload_memory_bytes: int | None = None
    """`queue_jobs_max`, `queue_bytes_max` and `payload_memory_bytes`: None means the budget's value."""
    hello_deadline_s: float = HELLO_DEADLINE_S
    http_received_max: int = HTTP_RECEIVED_MAX
    """Most bodies of HTTP jobs received at once."""


LEADER: Final = LeaderSettings()
"""All defaults."""
