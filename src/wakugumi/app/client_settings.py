"""Which settings have commands that use a leader or run jobs on this machine? And the log of every command?

Each field once, with its flag, variable, default, bounds and help; a command names the fields it takes (`flags.Only`).
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from wakugumi.adapters.machine.usable_cpus import usable_cpus
from wakugumi.core.setting import Setting
from wakugumi.limits.client import ADOPT_GRACE_MAX_S, ADOPT_GRACE_S
from wakugumi.limits.leader import CLIENT_CAP_DEFAULT, CLIENT_CAP_MAX, CLIENT_CAP_OLD
from wakugumi.limits.runner import JOB_TIMEOUT_MAX_S, JOB_TIMEOUT_S
from wakugumi.limits.scheduling import CREDIT_MAX
from wakugumi.roles.settings import AccessPath
from wakugumi.wire.job_options import OPTIONS

LEADER_HERE: Final = "127.0.0.1:5000"
"""The default leader of administration commands: `waku up` and `waku leader` listen there."""
CONNECTION: Final = "leader access old_leader client_id cap choice grace_s patience_s"
"""Fields that a connection to a leader needs."""


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The log of a command."""

    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None,
        Setting("Least severe level to log on stderr.", shown="info for servers, else warning"),
    ] = None
    log_json: Annotated[bool, Setting("Log JSON, one object per line.")] = False


class ClientSettings(LogSettings, frozen=True, kw_only=True):
    """Settings of commands that use a leader or run jobs on this machine."""

    leader: Annotated[
        str,
        Setting(
            "Address of the leader, HOST:PORT or waku://KEY@HOST:PORT; several with commas between them.",
            shown=f"none for run and map, else {LEADER_HERE}",
        ),
    ] = ""
    access: AccessPath = None
    old_leader: Annotated[
        bool,
        Setting("Send jobs also to a leader that sends no greeting, as leaders of the first version do."),
    ] = False
    client_id: Annotated[str, Setting("Name of this client at the leader.", shown="user@host")] = ""
    cap: Annotated[
        int, Setting("Jobs that the leader may run for this client at once.", least=1, most=CLIENT_CAP_MAX)
    ] = CLIENT_CAP_DEFAULT
    slots: Annotated[
        int, Setting("Jobs at once on this machine, without a leader.", shown="one per CPU", least=1, most=CREDIT_MAX)
    ] = msgspec.field(default_factory=usable_cpus)
    patience_s: Annotated[
        float,
        Setting(
            "Seconds without any leader after which unfinished jobs are given up; 0: never.",
            shown="0",
            key="patience",
            least=0,
            most=JOB_TIMEOUT_MAX_S,
        ),
    ] = 0.0
    choice: Annotated[
        Literal["least", "round-robin"],
        Setting("With several leaders: which one gets the next job.", no_flag=True),
    ] = "least"
    grace_s: Annotated[
        float,
        Setting(
            "With several leaders: seconds until the jobs of a lost leader go to others.",
            key="grace",
            no_flag=True,
            least=0.001,
            most=ADOPT_GRACE_MAX_S,
        ),
    ] = ADOPT_GRACE_S
    timeout_s: Annotated[
        float,
        Setting(
            OPTIONS["timeout_s"].help,
            key="timeout",
            least=0.001,
            most=JOB_TIMEOUT_MAX_S,
        ),
    ] = JOB_TIMEOUT_S
    desired: Annotated[
        int,
        Setting(
            "Jobs at once of `waku client` and `waku clientx`.",
            also=("CLIENT_DESIRED_PAR",),
            no_flag=True,
            least=1,
            most=CLIENT_CAP_MAX,
        ),
    ] = CLIENT_CAP_OLD
    output: Annotated[Literal["table", "json", "quiet"], Setting("Form of the output.", short="-o")] = "table"
    state: Annotated[
        str, Setting("State folder of a leader, as `waku leader` names it.", shown="that of port 5000")
    ] = ""

    by_flag: frozenset[str] = frozenset()
    """Fields that the command line set."""
