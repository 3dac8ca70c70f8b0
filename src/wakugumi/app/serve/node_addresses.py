"""`--node`: which nodes does a leader know by their addresses, and whom of them does it believe?"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple
from urllib.parse import urlsplit

from cyclopts import Parameter

from wakugumi.app import settings as config
from wakugumi.core.subject import SubjectError, worker_patterns
from wakugumi.core.visible_text import is_plain_name
from wakugumi.errors import ConfigError
from wakugumi.limits.node import NODE_WEIGHT_MAX, NODES_MAX
from wakugumi.limits.wire import WORKER_NAME_CHARS_MAX

if TYPE_CHECKING:
    import ssl

    from wakugumi.roles.leader.leader import Leader

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
NodeCa = Annotated[
    str | None,
    Parameter(
        name="--node-ca",
        help="A PEM file with those who sign the certificates of https nodes; those that the system knows if nothing "
        "is said. [WAKU_NODE_CA]",
    ),
]
NodeCert = Annotated[
    str | None,
    Parameter(name="--node-cert", help="A PEM file: what is shown to nodes that ask for one. [WAKU_NODE_CERT]"),
]
NodeKey = Annotated[str | None, Parameter(name="--node-key", help="The key of that certificate. [WAKU_NODE_KEY]")]
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
        if len(self.name) > WORKER_NAME_CHARS_MAX or not is_plain_name(self.name):
            raise ConfigError(f"a node's name is at most {WORKER_NAME_CHARS_MAX} printable characters", _HINT)
        weight = said.get("weight", "1")
        if not (weight.isascii() and weight.isdigit() and len(weight) < 10 and 1 <= int(weight) <= NODE_WEIGHT_MAX):
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


class NodeSettings(NamedTuple):
    """What was said of nodes."""

    nodes: Sequence[NodeWords] = ()
    ca: str = ""
    cert: str = ""
    key: str = ""


NO_NODES: Final = NodeSettings()


def node_settings(flags: tuple[str, ...], ca: str | None, cert: str | None, key: str | None) -> NodeSettings:
    """Of the flags, or of wherever else it is said. Raises ConfigError."""
    said = NodeSettings(
        node_words(flags), config.NODE_CA.value(ca), config.NODE_CERT.value(cert), config.NODE_KEY.value(key)
    )
    if said.key and not said.cert:
        raise ConfigError("--node-key is the key of no certificate", "name that with --node-cert")
    return said


@asynccontextmanager
async def nodes_of(leader: Leader, settings: NodeSettings) -> AsyncIterator[None]:
    """The nodes that this leader knows by address, while it lives. Raises ConfigError."""
    if not settings.nodes:
        yield
        return
    from wakugumi.roles.leader.nodes.remote_node import NodeAt, Outposts

    nodes = [NodeAt(node.url, node.patterns, node.name, node.weight) for node in settings.nodes]
    outposts = Outposts(leader, nodes, _tls(settings))
    try:
        yield
    finally:
        await outposts.close()


def _tls(settings: NodeSettings) -> ssl.SSLContext | None:
    if not any(node.url.startswith("https:") for node in settings.nodes):
        return None
    from wakugumi.adapters.net.tls import client_context

    ca, cert, key = (Path(word) if word else None for word in (settings.ca, settings.cert, settings.key))
    return client_context(ca, cert, key)


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        known = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        known = known and not (parts.query or parts.fragment or parts.username)
        (parts.hostname or "").encode("idna")  # A name such as `a..b` is none.
    except ValueError:
        known = False
    if not known:
        raise ConfigError(f"--node {text[:200]!r} is no URL of a node", _HINT)
    return text.rstrip("/")
