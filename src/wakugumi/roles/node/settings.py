"""What can be set at a node? The settings of a worker, and its ports, inputs, answers and certificates."""

from __future__ import annotations

from typing import Annotated, Final

from wakugumi.adapters.net.address import Address
from wakugumi.core.setting import Setting, read_bytes
from wakugumi.limits.node import NODE_INPUT_BYTES_MAX, NODE_INTERRUPTED_S, NODE_KEEP_S, RECEIVE_SLOTS, RUN_RETRY_AFTER_S
from wakugumi.limits.wire import CONNECTIONS_MAX
from wakugumi.roles.runner.settings import RunnerSettings
from wakugumi.roles.settings import (
    HOST,
    AllowOpen,
    ClientCa,
    Host,
    Local,
    LocalGroup,
    TlsCert,
    TlsKey,
    read_address,
)


class NodeSettings(RunnerSettings, frozen=True, kw_only=True):
    """One node's settings."""

    program: Annotated[str, Setting("Program of jobs that name none; its argument is the path of the input.")] = ""
    command: Annotated[
        str,
        Setting("Command line in place of --program: 'pricer --fast {input}'; without {input} the path comes last."),
    ] = ""
    http: Annotated[str, Setting("[HOST:]PORT for HTTP, or off.")] = "5080"
    lines: Annotated[
        str, Setting("[HOST:]PORT for lines, or off; the word same, or the same port, is that of HTTP for both.")
    ] = "9099"
    # Not WAKU_LEADER: that is the leader of this user's commands, not the one this machine works for.
    leader: Annotated[
        Address | None, Setting("HOST:PORT of a leader to work for as well.", read=read_address, only_flag=True)
    ] = None
    patterns: Annotated[
        str, Setting("Jobs to take from the leader, as with a worker.", key="pattern", only_flag=True)
    ] = ""
    names: Annotated[
        tuple[str, ...],
        Setting(
            "Name of the node: at a leader (the first one), and for HTTP requests, which may also use IP addresses, "
            "localhost and the machine's own name. WAKU_NAME is the name at a leader alone.",
            key="host-names",
            flag="name",
            joined=" ",
        ),
    ] = ()
    name: Annotated[str, Setting("Name of the node at a leader.", no_flag=True)] = ""
    receive: Annotated[int, Setting("Inputs received at once.", least=1, most=CONNECTIONS_MAX)] = RECEIVE_SLOTS
    input_bytes: Annotated[
        int,
        Setting("Largest input, such as 2GB.", shown=f"{NODE_INPUT_BYTES_MAX // 10**9}GB", read=read_bytes),
    ] = NODE_INPUT_BYTES_MAX
    retry_after: Annotated[
        int, Setting("Seconds after which a refused caller may ask again.", least=1, most=86_400)
    ] = RUN_RETRY_AFTER_S
    # Not less than the ten minutes that W4 promises.
    done_ttl_s: Annotated[
        float,
        Setting("Days to answer for finished jobs.", key="keep-days", least=0.007, most=3_650, per=86_400),
    ] = NODE_KEEP_S
    interrupted_ttl_s: Annotated[
        float,
        Setting("Hours to keep files of interrupted jobs.", key="interrupted-hours", least=0, most=87_600, per=3_600),
    ] = NODE_INTERRUPTED_S
    tls_cert: TlsCert = ""
    tls_key: TlsKey = ""
    client_ca: ClientCa = ""
    local: Local = "admin"
    local_group: LocalGroup = ""
    host: Host = HOST
    allow_open: AllowOpen = False

    by_flag: frozenset[str] = frozenset()
    """Fields that the command line set."""
    shares_folder: bool = False


NODE: Final = NodeSettings()
"""All defaults."""
