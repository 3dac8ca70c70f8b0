"""Where does a setting come from? Flag > environment > `waku.toml` > default, and every error names the place.

`waku.toml` lies in the current folder, or where WAKU_CONFIG says, and calls a setting what its flag is called:

    leader = "grid.example:5000,grid2.example:5000"
    slots = 8

In a stranger's folder this file is a stranger's word: a command that takes a value from it says so.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, cast

from wakugumi.adapters.machine.usable_cpus import usable_cpus
from wakugumi.core.gateway.groups import CHOICES, LEAST_LOADED
from wakugumi.errors import ConfigError
from wakugumi.limits.client import ADOPT_GRACE_MAX_S, ADOPT_GRACE_S
from wakugumi.limits.files import BLOB_STORE_BYTES
from wakugumi.limits.gateway import (
    GATEWAY_BODY_BYTES_MAX,
    GATEWAY_KEPT_BYTES,
    GATEWAY_KEPT_S,
    GATEWAY_LEASE_S,
    GATEWAY_QUEUE_BYTES,
    GATEWAY_TRY_S,
)
from wakugumi.limits.http import HTTP_CLIENT_CAP
from wakugumi.limits.leader import CLIENT_CAP_DEFAULT, CLIENT_CAP_MAX, CLIENT_CAP_OLD
from wakugumi.limits.node import NODE_INPUT_BYTES_MAX, NODE_INTERRUPTED_S, NODE_KEEP_S, RECEIVE_SLOTS, RUN_RETRY_AFTER_S
from wakugumi.limits.runner import CPU_CAP, CPU_CAP_MAX, CPU_CAP_MIN, JOB_TIMEOUT_MAX_S, JOB_TIMEOUT_S
from wakugumi.limits.scheduling import CREDIT_MAX
from wakugumi.limits.wire import CONNECTIONS_MAX

OFF: Final = "off"

T = TypeVar("T")

FILE_NAME: Final = "waku.toml"
_TOLD_CHARS_MAX: Final = 500
"""Of what is in it."""
LEADER_HERE: Final = "127.0.0.1:5000"
"""Whom administration asks if nothing else is said: `waku up` and `waku leader` listen there."""


class Setting(Generic[T]):
    """One setting: its name, where else it may stand, what it may be, and what it is if nobody says."""

    def __init__(
        self,
        name: str,
        default: T,
        *also: str,
        least: float = -math.inf,
        most: float = math.inf,
        choices: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.env = (f"WAKU_{name.upper().replace('-', '_')}", *also)
        self.default = default
        self._least = least
        self._most = most
        self._choices = choices

    def value(self, flag: T | None = None) -> T:
        """What holds now. Raises ConfigError if what was said cannot be."""
        return self.said(flag) if self.is_said(flag) else self.default

    def is_said(self, flag: T | None = None) -> bool:
        """Has anybody said anything about it?"""
        return flag is not None or any(os.environ.get(name) for name in self.env) or self.name in _file()[1]

    def said(self, flag: T | None = None) -> T:
        """What was said, by whoever has precedence."""
        if flag is not None:
            return self._checked(flag, f"--{self.name}")
        for name in self.env:
            if text := os.environ.get(name):
                return self._checked(self._read(text, name), name)
        path, table = _file()
        _note(path, table)
        where = f"{self.name} in {path}"
        return self._checked(self._of_file(table[self.name], where), where)

    def _of_file(self, found: object, where: str) -> T:
        kind = type(self.default)
        if kind is float and type(found) is int:
            found = float(found)
        if type(found) is not kind:
            raise ConfigError(f"{where} is {found!r}, which is not {_KINDS[kind]}")
        return found

    def _read(self, text: str, where: str) -> T:
        kind: Any = type(self.default)
        try:
            return cast(T, _TRUTH[text.lower()] if kind is bool else kind(text))
        except (KeyError, ValueError):
            raise ConfigError(f"{where} is {text!r}, which is not {_KINDS[kind]}") from None

    def _checked(self, value: T, where: str) -> T:
        if isinstance(value, str):
            if self._choices and value not in self._choices:
                raise ConfigError(f"{where} is {value!r}, and must be one of {', '.join(self._choices)}")
        elif isinstance(value, int | float) and not self._least <= value <= self._most:
            raise ConfigError(f"{where} is {value:g}, and must be {self._least:g} to {self._most:g}")
        return value


class ShareOrOff(Setting[float]):
    """A share of something, or `off`: no limit at all."""

    def share(self, flag: str | None = None) -> float | None:
        """None if it is off."""
        value = self.value(None if flag is None else self._read(flag, f"--{self.name}"))
        return None if value == math.inf else value

    def _read(self, text: str, where: str) -> float:
        if text.lower() == OFF:
            return math.inf
        try:
            return float(text)
        except ValueError:
            raise ConfigError(f"{where} is {text!r}, which is neither a number nor {OFF}") from None

    def _of_file(self, found: object, where: str) -> float:
        return math.inf if found == OFF else super()._of_file(found, where)

    def _checked(self, value: float, where: str) -> float:
        if value == math.inf or self._least <= value <= self._most:
            return value
        raise ConfigError(f"{where} is {value:g}, and must be {self._least:g} to {self._most:g}, or {OFF}")


def state_folder(port: int, role: str = "leader") -> Path:
    """Where a leader on this port keeps its journal, or a gateway what it knows, if nobody says otherwise: beside what
    other programs keep.

    Port 0 is any port, and stands for no leader in particular: it has no such folder.
    """
    assert port > 0
    beside = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
    return beside / "wakugumi" / f"{role}-{port}"


LEADER: Final = Setting("leader", "")
OLD_LEADER: Final = Setting("old-leader", False)
SLOTS: Final = Setting("slots", usable_cpus(), "WORKER_MAX_PAR", least=1, most=CREDIT_MAX)
LOCAL_SLOTS: Final = Setting("slots", usable_cpus(), least=1, most=CREDIT_MAX)
"""The embedded grid is alone with its user: it takes all CPUs, where a worker on a shared machine takes four."""
CPU_CAP_SHARE: Final = ShareOrOff("cpu-cap", CPU_CAP, "WORKER_CPU_CAP", least=CPU_CAP_MIN, most=CPU_CAP_MAX)
CAP: Final = Setting("cap", CLIENT_CAP_DEFAULT, least=1, most=CLIENT_CAP_MAX)
GRACE_S: Final = Setting("grace", ADOPT_GRACE_S, least=0.001, most=ADOPT_GRACE_MAX_S)
"""With several leaders: how long what a lost one has waits for it."""
PATIENCE_S: Final = Setting("patience", 0.0, least=0.0, most=JOB_TIMEOUT_MAX_S)
"""How long jobs wait while no leader serves; 0: for ever."""
CHOICE: Final = Setting("choice", "least", choices=("least", "round-robin"))
"""With several leaders: who gets the next job."""
DESIRED: Final = Setting("desired", CLIENT_CAP_OLD, "CLIENT_DESIRED_PAR", least=1, most=CLIENT_CAP_MAX)
TIMEOUT_S: Final = Setting("timeout", JOB_TIMEOUT_S, least=0.001, most=JOB_TIMEOUT_MAX_S)
PROGRAMS: Final = Setting("programs", "/opt/grid/exe")
JOBS: Final = Setting("jobs", "/tmp/jobs")  # noqa: S108 -- the contract's default (W1)
CACHE: Final = Setting("cache", "")
"""Empty: the contract's folder, if it can be made."""
CACHE_BYTES: Final = Setting("cache-bytes", "")
"""Empty: a share of the disk."""
SERVE: Final = Setting("serve", "")
ADVERTISE: Final = Setting("advertise", "")
METRICS: Final = Setting("metrics", "")
STATE: Final = Setting("state", "")
"""Empty: a folder of the user's, named after the port; with port 0, none."""
MEMORY: Final = Setting("memory", False)
BLOBS: Final = Setting("blobs", "")
"""Empty: the leader itself has them, beside its journal."""
BLOB_BYTES: Final = Setting("blob-bytes", f"{BLOB_STORE_BYTES // 10**9}GB")
POLICY: Final = Setting("policy", "")
"""Empty: most credit, for all subjects."""
WORKERS_AT: Final = Setting("workers-at", "")
"""Where workers may say that others fetch from them, with blanks between the hosts."""
NODES: Final = Setting("nodes", "")
"""Nodes that a leader knows by their addresses, with blanks between them."""
NODE_CA: Final = Setting("node-ca", "")
NODE_CERT: Final = Setting("node-cert", "")
NODE_KEY: Final = Setting("node-key", "")
"""Whom it believes of them, and what it shows to them."""
GROUP: Final = Setting("group", "")
"""A gateway's groups, with blanks between them."""
GROUP_CHOICE: Final = Setting("group-choice", LEAST_LOADED, choices=CHOICES)
ZONE: Final = Setting("zone", "")
KEEP_HOURS: Final = Setting("keep-hours", GATEWAY_KEPT_S / 3600, least=0.0, most=24 * 366)
KEEP_BYTES: Final = Setting("keep-bytes", f"{GATEWAY_KEPT_BYTES // 10**9}GB")
QUEUE_BYTES: Final = Setting("queue-bytes", f"{GATEWAY_QUEUE_BYTES // 2**30}GiB")
BODY_BYTES: Final = Setting("body-bytes", f"{GATEWAY_BODY_BYTES_MAX // 2**30}GiB")
LEASE_S: Final = Setting("lease", GATEWAY_LEASE_S, least=0.1, most=3600.0)
TRY_TIMEOUT_S: Final = Setting("try-timeout", GATEWAY_TRY_S, least=0.1, most=JOB_TIMEOUT_MAX_S)
"""What a job may take at a group beyond its own time."""
NAME: Final = Setting("name", "")
"""A worker's or node's, at its leader."""
HOST_NAMES: Final = Setting("host-names", "")
"""What HTTP requests may call a server, with blanks between them. On the command line `--name`, once for each."""
HOST: Final = Setting("host", "127.0.0.1")
HTTP: Final = Setting("http", "5080")
LINES: Final = Setting("lines", "9099")
"""Where a node is reached."""
PROGRAM: Final = Setting("program", "")
COMMAND: Final = Setting("command", "")
"""What a node runs for jobs that name no program; PROGRAM also for a leader's jobs by HTTP."""
RECEIVE: Final = Setting("receive", RECEIVE_SLOTS, least=1, most=CONNECTIONS_MAX)
INPUT_BYTES: Final = Setting("input-bytes", f"{NODE_INPUT_BYTES_MAX // 10**9}GB")
RETRY_AFTER_S: Final = Setting("retry-after", RUN_RETRY_AFTER_S, least=1, most=86_400)
KEEP_DAYS: Final = Setting("keep-days", NODE_KEEP_S / 86_400.0, least=0.007, most=3_650.0)
"""Not less than the ten minutes that W4 promises."""
INTERRUPTED_HOURS: Final = Setting("interrupted-hours", NODE_INTERRUPTED_S / 3_600.0, least=0.0, most=87_600.0)
TLS_CERT: Final = Setting("tls-cert", "")
TLS_KEY: Final = Setting("tls-key", "")
CLIENT_CA: Final = Setting("client-ca", "")
RUN_AS: Final = Setting("run-as", "")
"""Empty: as the worker itself."""
JOB_ENV: Final = Setting("job-env", "")
"""Empty: jobs may set all but what makes programs run other code."""
CLEAN_ENV: Final = Setting("clean-env", False)
PASS_ENV: Final = Setting("pass-env", "")
HOLD_ENV: Final = Setting("hold-env", "")
"""Patterns of variables, with commas between them."""
CLIENT_ID: Final = Setting("client-id", "")
"""Empty: user and host, which are the same in every run, so that a run can go on where an earlier one stopped."""
OUTPUT: Final = Setting("output", "table", choices=("table", "json", "quiet"))
LOG_LEVEL: Final = Setting("log-level", "info", choices=("debug", "info", "warning", "error"))
LOG_JSON: Final = Setting("log-json", False)
HTTP_CAP: Final = Setting("http-cap", HTTP_CLIENT_CAP, least=1, most=CLIENT_CAP_MAX)

ALL: Final[tuple[Setting[Any], ...]] = (
    LEADER,
    OLD_LEADER,
    SLOTS,
    LOCAL_SLOTS,
    CPU_CAP_SHARE,
    CAP,
    GRACE_S,
    PATIENCE_S,
    CHOICE,
    DESIRED,
    TIMEOUT_S,
    PROGRAMS,
    JOBS,
    CACHE,
    CACHE_BYTES,
    SERVE,
    ADVERTISE,
    METRICS,
    STATE,
    MEMORY,
    BLOBS,
    BLOB_BYTES,
    POLICY,
    WORKERS_AT,
    NODES,
    NODE_CA,
    NODE_CERT,
    NODE_KEY,
    GROUP,
    GROUP_CHOICE,
    ZONE,
    KEEP_HOURS,
    KEEP_BYTES,
    QUEUE_BYTES,
    BODY_BYTES,
    LEASE_S,
    TRY_TIMEOUT_S,
    NAME,
    HOST_NAMES,
    HOST,
    HTTP,
    LINES,
    PROGRAM,
    COMMAND,
    RECEIVE,
    INPUT_BYTES,
    RETRY_AFTER_S,
    KEEP_DAYS,
    INTERRUPTED_HOURS,
    TLS_CERT,
    TLS_KEY,
    CLIENT_CA,
    RUN_AS,
    JOB_ENV,
    CLEAN_ENV,
    PASS_ENV,
    HOLD_ENV,
    CLIENT_ID,
    OUTPUT,
    LOG_LEVEL,
    LOG_JSON,
    HTTP_CAP,
)

_KINDS: Final = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
_TRUTH: Final = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


_noted: Final[set[str]] = set()
"""Files of which was told that they are used."""
_untold: Final[list[str]] = []
_tellers: Final[list[Callable[[str], None]]] = []
"""Whoever tells it; none before a command has begun."""


def tell_used_by(tell: Callable[[str], None]) -> None:
    """Say which file of the current folder settings are taken from: what is known already, and later ones."""
    _tellers[:] = [tell]
    while _untold:
        tell(_untold.pop(0))


def _note(path: str, table: dict[str, Any]) -> None:
    """Once for each file. One that WAKU_CONFIG names is the user's own choice."""
    there = os.path.abspath(path)
    if os.environ.get("WAKU_CONFIG") or there in _noted:
        return
    _noted.add(there)
    values = ", ".join(f"{name} = {value!r}" for name, value in table.items())
    _untold.append(
        f"settings of {there}: {values if len(values) <= _TOLD_CHARS_MAX else values[:_TOLD_CHARS_MAX] + '…'}"
    )
    if _tellers:
        tell_used_by(_tellers[0])


@cache
def _file() -> tuple[str, dict[str, Any]]:
    """The settings file, read once. Without one there are no settings in it."""
    path = os.environ.get("WAKU_CONFIG") or FILE_NAME
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        if "WAKU_CONFIG" in os.environ and path != FILE_NAME:
            raise ConfigError(f"WAKU_CONFIG names {path}, which cannot be read: {error.strerror}") from None
        return path, {}
    import tomllib  # Most runs have no such file.

    try:
        table = tomllib.loads(data.decode())
    except ValueError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    known = sorted({setting.name for setting in ALL})
    for name in table:
        if name not in known:
            raise ConfigError(f"{path} has {name!r}, which is no setting", f"settings are {', '.join(known)}")
    return path, table
