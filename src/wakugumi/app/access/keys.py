"""`waku keys …`: which keys has a leader, what may each of them, and how is one made?

A new key is a line for another machine: `waku join waku://KEY@HOST:PORT`. Only the answer to `make` has the secret.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal

from cyclopts import Parameter, validators

from wakugumi.adapters.net.address import Address, is_loopback, parse_access_line, parse_address
from wakugumi.app.admin.ask import A, ask, ask_each, show_each
from wakugumi.app.client_settings import LEADER_HERE
from wakugumi.app.flags import with_settings
from wakugumi.app.options import Asking
from wakugumi.app.show.output import ago, duration, fields_out, json_out, line_out, one, say, show, table_out
from wakugumi.core.access.identity import Identity, Role, Rules, check_key_name, checked_rules
from wakugumi.core.access.key_questions import (
    AskKey,
    AskKeys,
    AskMakeKey,
    AskRevokeKey,
    KeyRow,
    KeysAnswer,
    MadeKey,
)
from wakugumi.core.access.known_as import allowed_acts
from wakugumi.core.leader.questions import Question
from wakugumi.core.setting import read_duration, words
from wakugumi.errors import ConfigError, Refused
from wakugumi.limits.access import KEY_LIFE_S_MAX
from wakugumi.limits.leader import CLIENT_CAP_MAX, LIST_ROWS_DEFAULT
from wakugumi.roles.client.grid import LEADER_PORT
from wakugumi.wire.access_line import parse_key

_LIST: Final[dict[str, Any]] = {"negative": "", "consume_multiple": False, "show_default": False}
_MORE: Final = "with commas between, or repeated; ! in front denies"
KeyName = Annotated[str, Parameter(help="Name of a key: 1 to 32 of a-z, 0-9, '_', '.' and '-'.")]


@with_settings
def keys_make(
    name: KeyName,
    /,
    *,
    role: Annotated[Literal["client", "worker", "gateway", "reader", "admin"], Parameter(help="Rights of the key.")],
    clients: Annotated[
        tuple[str, ...],
        Parameter(
            help=f"Client ids that it may use, such as 'desk-1.*'; {_MORE}. [default: of a client and a reader its "
            "name and NAME.*, else all]",
            **_LIST,
        ),
    ] = (),
    programs: Annotated[
        tuple[str, ...],
        Parameter(help=f"Programs that its jobs may name, such as 'calc*'; {_MORE}. [default: all]", **_LIST),
    ] = (),
    subjects: Annotated[
        tuple[str, ...],
        Parameter(
            help=f"Patterns of its jobs, caches or workers, such as 'job.assign.risk.>', or groups, such as risk; "
            f"{_MORE}. [default: all]",
            **_LIST,
        ),
    ] = (),
    caches: Annotated[
        tuple[str, ...],
        Parameter(help=f"Caches that it may put, such as 'risk-*'; {_MORE}. [default: all]", **_LIST),
    ] = (),
    sees: Annotated[
        Literal["own", "all"] | None,
        Parameter(help="Jobs that it may see. [default: own for a client, else all]"),
    ] = None,
    cap: Annotated[
        int,
        Parameter(
            validator=validators.Number(gte=0, lte=CLIENT_CAP_MAX),
            show_default=False,
            help="Jobs at once of one of its connections; 0: no limit. [default: 0]",
        ),
    ] = 0,
    expires: Annotated[
        str | None, Parameter(help="Time until the key expires, such as 30d or 12h. [default: never]")
    ] = None,
    address: Annotated[
        tuple[str, ...],
        Parameter(
            help="HOST:PORT of the leader in the line, as the other machine reaches it. May be repeated. [default: "
            "--leader; of a leader on this machine its best name]",
            **_LIST,
        ),
    ] = (),
    asking: Asking,
) -> int:
    """waku keys make NAME --role client|worker|gateway|reader|admin [RULES] [--expires TIME] [--address HOST:PORT]…
    [OPTIONS]

    stdout is one line, the command for the other machine: `waku join waku://KEY@HOST:PORT`. The line holds the key's
    secret, which is shown this once: the leader keeps only its hash. Send it as you would send a password.

    A client runs jobs, a worker takes jobs, a gateway passes on jobs of others, a reader looks, and an admin may do
    everything. Rules narrow that. A name belongs to one key; a name whose key was revoked or has expired is free.

    Examples:
      waku keys make desk-1 --role client
      waku keys make rack1 --role worker --subjects risk --expires 365d
      waku keys make night --role client --programs 'calc*' --cap 64
      waku keys make boss --role admin --address grid.example:5000
    """
    dialled = _only_leader(asking)
    addresses = [parse_address(text, LEADER_PORT) for text in address]
    rules = Rules(_all(clients), _all(programs), _all(subjects), _all(caches), sees or "", cap)
    checked_rules(rules)
    life_s = 0.0 if expires is None else _life(expires)
    made = _ask_keys(AskMakeKey(check_key_name(name), Role(role), rules, life_s), MadeKey, asking)
    there = addresses or [_reached(dialled, made.hosts)]
    line = f"waku join waku://{parse_key(made.key).text}@{','.join(map(str, there))}"
    if asking.output == "json":
        json_out({"line": line, "row": made.row})
    else:
        line_out(line)
    _say_made(made.row)
    if is_loopback(there[0].host):
        say(f"{there[0]} is this machine alone: name the leader's address with --address for another one")
    return 0


@with_settings
def keys_list(
    *,
    limit: Annotated[int, Parameter(help="Number of keys to show, the newest ones.")] = LIST_ROWS_DEFAULT,
    asking: Asking,
) -> int:
    """waku keys list [--limit N] [OPTIONS]

    Examples:
      waku keys list
      waku keys list -o json
    """
    told = ask_each(AskKeys(limit), KeysAnswer, asking)
    show_each(told, asking, _show_keys, lambda answer: [row.name for row in answer.rows])
    return 0


@with_settings
def keys_show(name: KeyName, /, *, asking: Asking) -> int:
    """waku keys show NAME [OPTIONS]

    Example:
      waku keys show desk-1
    """
    _only_leader(asking)
    row = _ask_keys(AskKey(name), KeyRow, asking)
    show(asking.output, row, [row.state], lambda: _show_key(row))
    return 0


@with_settings
def keys_revoke(name: KeyName, /, *, asking: Asking) -> int:
    """waku keys revoke NAME [OPTIONS]

    Its connections are closed at once, certificates made with it are no longer valid, and its jobs go on: see `waku
    jobs cancel --client`.

    Example:
      waku keys revoke desk-1
    """
    _only_leader(asking)
    row = _ask_keys(AskRevokeKey(name), KeyRow, asking)
    show(asking.output, row, [row.name], [f"{row.name} is revoked: it opens nothing any more"])
    return 0


def _ask_keys(question: Question, kind: type[A], asking: Asking) -> A:
    try:
        return ask(question, kind, asking)
    except Refused as no:
        if no.code not in {"not-supported", "no-authority"}:
            raise
        hint = "a leader has keys with a state folder (--state DIR), and without --allow-open and --client-ca"
        raise Refused(no.code, no.message, hint) from None


def _only_leader(asking: Asking) -> Address:
    """Each leader has keys of its own. Raises ConfigError."""
    (first, _), *more = parse_access_line(asking.leader or LEADER_HERE, LEADER_PORT)
    if more:
        raise ConfigError("each leader has keys of its own, and several are named", f"name one: --leader {first}")
    return first


def _reached(dialled: Address, hosts: list[str]) -> Address:
    """Where another machine reaches the leader."""
    if not is_loopback(dialled.host):
        return dialled
    host = next((host for host in hosts if not is_loopback(host)), dialled.host)
    return Address(host, dialled.port)


def _all(said: Iterable[str]) -> tuple[str, ...]:
    return tuple(word for text in said for word in words(text, ","))


def _life(text: str) -> float:
    seconds = read_duration(text, "--expires")
    if not 0 < seconds <= KEY_LIFE_S_MAX:
        raise ConfigError(f"--expires is {text!r}, and must be more than nothing and at most ten years")
    return seconds


def _say_made(row: KeyRow) -> None:
    say(f"{row.name} is a key of the role {row.role.value}. {_may(row)}.")
    if row.expires_s is not None:
        say(f"It expires in {duration(row.expires_s)}.")
    say("The line holds its secret, which is shown this once: keep it as you keep a password.")
    say("On the other machine, `waku join -` reads the line from stdin, so that no history and no process list has it.")


def _may(row: KeyRow) -> str:
    return f"It may {'; '.join(allowed_acts(Identity(row.name, row.role, row.rules)))}"


def _show_keys(answer: KeysAnswer) -> None:
    table_out(
        ("key", "role", "state", "#connections", "#used", "#expires", "#made"),
        [
            (
                row.name,
                row.role.value,
                row.state,
                str(row.connections),
                "never" if row.used_s is None else ago(row.used_s),
                _end(row),
                ago(row.made_s),
            )
            for row in answer.rows
        ],
    )
    if answer.total > len(answer.rows):
        say(f"the newest {len(answer.rows)} of {one(answer.total, 'key')}: --limit shows more")


def _show_key(row: KeyRow) -> None:
    rules = row.rules
    lists = {"clients": rules.clients, "programs": rules.programs, "subjects": rules.subjects, "caches": rules.caches}
    rows = [
        ("key", row.name),
        ("role", row.role.value),
        ("state", row.state if row.revoked_s is None else f"revoked {ago(row.revoked_s)}"),
        ("may", "; ".join(allowed_acts(Identity(row.name, row.role, rules)))),
        *((name, ", ".join(entries)) for name, entries in lists.items() if entries),
        *([("sees", rules.sees)] if rules.sees else []),
        *([("cap", str(rules.cap))] if rules.cap else []),
        ("connections", str(row.connections)),
        ("made", ago(row.made_s)),
        ("used", "never" if row.used_s is None else ago(row.used_s)),
        ("expires", _end(row)),
    ]
    fields_out(rows)


def _end(row: KeyRow) -> str:
    if row.expires_s is None:
        return "never"
    return f"in {duration(row.expires_s)}" if row.expires_s > 0 else ago(-row.expires_s)
