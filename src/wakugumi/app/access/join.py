"""`waku join`: how does this user get to reach a grid, and forget it again?"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter

from wakugumi.adapters.access.access_file import AccessFile
from wakugumi.adapters.access.dialled import access_path
from wakugumi.adapters.net.address import parse_address
from wakugumi.app.client_settings import ClientSettings
from wakugumi.app.flags import Only, with_settings
from wakugumi.app.show.output import duration, fields_out, say, show
from wakugumi.app.stoppable import run
from wakugumi.core.access.known_as import KnownAs
from wakugumi.errors import EXIT_NOT_FOUND, ConfigError
from wakugumi.roles.access.join import Joined, forget, read_line
from wakugumi.roles.access.join import join as join_grid
from wakugumi.roles.client.grid import LEADER_PORT

_STDIN = "-"


class JoinedGrid(msgspec.Struct, frozen=True):
    """The outcome, without the secret."""

    leaders: list[str]
    file: str
    me: KnownAs
    certificate: str = ""
    certificate_until_s: float | None = None
    """Time until the certificate ends."""


@with_settings
def join(
    line: Annotated[
        str,
        Parameter(
            allow_leading_hyphen=True,
            show_default=False,
            help="waku://KEY@HOST:PORT, as `waku keys make` prints it; - reads it from stdin.",
        ),
    ] = "",
    /,
    *,
    to: Annotated[
        Literal["leader", "gateway", "node"] | None,
        Parameter(help="Role of the server, which its certificate must prove. [default: that of the line, or leader]"),
    ] = None,
    forgets: Annotated[
        str | None,
        Parameter(name="--forget", help="HOST:PORT: remove its key from the file instead."),
    ] = None,
    settings: Annotated[ClientSettings, Only("access output log_level log_json")],
) -> int:
    """waku join LINE [--access FILE] [--to leader|gateway|node] [-o table|json|quiet] | waku join --forget HOST:PORT

    The line names the grid's authority. It is compared with that of the server before the key is sent, so that no other
    machine gets it. The key goes to the access file, which only you can read, and every later command finds it there by
    the address. For a worker or a gateway a certificate is made, too. Joining again renews all of it.

    Arguments of a process can be seen by all users of the machine: `waku join -` reads the line from stdin, so that
    neither the list of processes nor the history of the shell has the key. A pasted line may begin with `waku join`.

    Examples:
      waku join -                                                      then paste the line
      waku keys make rack1 --role worker | ssh rack1 waku join -
      waku join --forget 10.0.0.5:5000
    """
    file = AccessFile(access_path(settings.access))
    if forgets is not None:
        if line:
            raise ConfigError("--forget and a line exclude each other", "leave one of them out")
        return _forget(forgets, file)
    if line.startswith("-") and line != _STDIN:
        raise ConfigError(f"waku join does not take {line!r}", "see `waku join --help`")
    if not line:
        raise ConfigError("no line is given", "paste the line of `waku keys make` after `waku join -` and Enter")
    found = read_line(_from_stdin() if line == _STDIN else line, LEADER_PORT)
    if line != _STDIN:
        say("the history of your shell may hold the key now: `waku join -` reads the line from stdin")
    done = run(join_grid(found if to is None else found._replace(role=to), file))
    me, left_s = done.known, None if done.certificate_until is None else done.certificate_until - time.time()
    certificate = "" if done.entry.certificate is None else str(done.entry.certificate)
    record = JoinedGrid([str(address) for address in found.addresses], str(file.path), me, certificate, left_s)
    show(settings.output, record, [me.name], lambda: _show_joined(done, file.path, left_s))
    return 0


def _forget(text: str, file: AccessFile) -> int:
    address = parse_address(text, LEADER_PORT)
    if not forget(address, file):
        say(f"{file.path} has no key for {address}")
        return EXIT_NOT_FOUND
    say(f"the key for {address} is removed from {file.path}; it stays valid: `waku keys revoke` ends it")
    return 0


def _from_stdin() -> str:
    if sys.stdin is None:
        raise ConfigError("there is no stdin to read the line from")
    if sys.stdin.isatty():
        say("paste the line of `waku keys make`, then Enter:")
    return sys.stdin.readline()


def _show_joined(done: Joined, path: Path, left_s: float | None) -> None:
    me = done.known
    rows = [
        ("leader" if done.entry.role == "leader" else done.entry.role, ", ".join(map(str, done.entry.leaders))),
        ("known as", f"{me.name}, with the role {me.role}"),
        ("may", "; ".join(me.may)),
        ("access", me.degree),
        ("key in", str(path)),
    ]
    if left_s is not None:
        rows.append(("certificate in", f"{done.entry.certificate}, for {duration(left_s)}"))
    fields_out(rows)
