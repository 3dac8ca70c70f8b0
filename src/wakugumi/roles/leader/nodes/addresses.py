"""`--node`: which nodes does a leader know by their addresses?"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from wakugumi.adapters.access.dialled import take_key
from wakugumi.core.leader.nodes.machine import NodeAt
from wakugumi.core.subject import SubjectError, worker_patterns
from wakugumi.core.visible_text import is_plain_name
from wakugumi.errors import ConfigError
from wakugumi.limits.node import NODE_WEIGHT_MAX, NODES_MAX
from wakugumi.limits.wire import WORKER_NAME_CHARS_MAX
from wakugumi.wire.access_line import hide_secrets

_HINT: Final = "write http://host:5080, then optionally ,weight=2 or ,subject=calcA or ,name=rack-1"


def read_nodes(text: str, _where: str = "") -> tuple[NodeAt, ...]:
    """`URL[,weight=N][,subject=PATTERN][,name=NAME]`, with blanks between the nodes. A key in a URL belongs to its
    address from now on. Raises ConfigError."""
    nodes = tuple(_node(word) for word in text.split())
    if len(nodes) > NODES_MAX:
        raise ConfigError(f"a leader has at most {NODES_MAX} nodes, not {len(nodes)}")
    for what, seen in (("URL", [node.url for node in nodes]), ("name", [node.name for node in nodes if node.name])):
        twice = sorted({word for word in seen if seen.count(word) > 1})
        if twice:
            raise ConfigError(f"two nodes have the {what} {twice[0]}", "leave one of them out, or give it another")
    return nodes


def _node(text: str) -> NodeAt:
    first, *words = text.split(",")
    url = _url(take_key(first.strip()))
    options: dict[str, str] = {}
    for word in words:
        key, equals, value = word.strip().partition("=")
        if not equals or key not in {"weight", "subject", "name"} or key in options:
            raise ConfigError(f"--node {hide_secrets(text[:200])}: unknown or repeated option {word[:80]!r}", _HINT)
        options[key] = value.strip()
    name = options.get("name", "")
    if len(name) > WORKER_NAME_CHARS_MAX or not is_plain_name(name):
        raise ConfigError(f"a node's name is at most {WORKER_NAME_CHARS_MAX} printable characters", _HINT)
    weight = options.get("weight", "1")
    if not (weight.isascii() and weight.isdigit() and len(weight) < 10 and 1 <= int(weight) <= NODE_WEIGHT_MAX):
        raise ConfigError(f"a node's weight is 1 to {NODE_WEIGHT_MAX}, not {weight[:80]!r}", _HINT)
    try:
        return NodeAt(url, worker_patterns(options.get("subject", ""), name), name, int(weight))
    except SubjectError as error:
        raise ConfigError(f"--node {hide_secrets(text[:200])}: {error}", _HINT) from None


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        known = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        known = known and not (parts.query or parts.fragment or parts.username)
        (parts.hostname or "").encode("idna")  # `a..b` is not a valid name.
    except ValueError:
        known = False
    if not known:
        raise ConfigError(f"--node {text[:200]!r} is not the URL of a node", _HINT)
    return text.rstrip("/")
