"""`--node`: which nodes does a leader know by their addresses?"""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import urlsplit

from cyclopts import Parameter

from wakugumi.app import config
from wakugumi.core.subject import SubjectError, worker_patterns
from wakugumi.errors import ConfigError
from wakugumi.limits import NODE_WEIGHT_MAX, NODES_MAX, WORKER_NAME_CHARS_MAX

NodeUrls = Annotated[
    tuple[str, ...],
    Parameter(
        name="--node",
        negative="",
        consume_multiple=False,
        show_default=False,
        help="A node that is asked to run jobs: URL[,weight=N][,subject=PATTERN][,name=NAME]. May be repeated. "
        "[WAKU_NODES, with blanks]",
    ),
]
_HINT: Final = "write http://host:5080, and behind it ,weight=2 or ,subject=calcA or ,name=rack-1"


class NodeWords:
    """One `--node`, read."""

    def __init__(self, text: str) -> None:
        """Raises ConfigError."""
        url, *words = text.split(",")
        self.url = _url(url.strip())
        said: dict[str, str] = {}
        for word in words:
            key, equals, value = word.strip().partition("=")
            if not equals or key not in {"weight", "subject", "name"} or key in said:
                raise ConfigError(f"--node {text[:200]}: {word[:80]!r} says nothing about a node", _HINT)
            said[key] = value.strip()
        self.name = said.get("name", "")
        if len(self.name) > WORKER_NAME_CHARS_MAX or not self.name.isprintable():
            raise ConfigError(f"a node's name is at most {WORKER_NAME_CHARS_MAX} printable characters", _HINT)
        weight = said.get("weight", "1")
        if not (weight.isascii() and weight.isdigit() and 1 <= int(weight[:9]) <= NODE_WEIGHT_MAX):
            raise ConfigError(f"a node's weight is 1 to {NODE_WEIGHT_MAX}, not {weight[:80]!r}", _HINT)
        self.weight = int(weight)
        try:
            self.patterns = worker_patterns(said.get("subject", ""), self.name)
        except SubjectError as error:
            raise ConfigError(f"--node {text[:200]}: {error}", _HINT) from None


def node_words(flags: tuple[str, ...]) -> list[NodeWords]:
    """Those of the flags, or of wherever else it is said. Raises ConfigError."""
    said = config.NODES.value(" ".join(flags) if flags else None)
    nodes = [NodeWords(word) for word in said.split()]
    if len(nodes) > NODES_MAX:
        raise ConfigError(f"a leader has at most {NODES_MAX} nodes, not {len(nodes)}")
    for what, seen in (("URL", [node.url for node in nodes]), ("name", [node.name for node in nodes if node.name])):
        twice = sorted({word for word in seen if seen.count(word) > 1})
        if twice:
            raise ConfigError(f"two nodes have the {what} {twice[0]}", "leave one of them out, or give it another")
    return nodes


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        known = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        known = known and not (parts.query or parts.fragment or parts.username)
    except ValueError:
        known = False
    if not known:
        raise ConfigError(f"--node {text[:200]!r} is no URL of a node", _HINT)
    return text.rstrip("/")
