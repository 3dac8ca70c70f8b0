"""What does a job by HTTP cost on its way through a gateway, a leader and a node? Forms, base64 and ZIPs are counted.

All roles are real, in one process; the functions that parse, encode and write are counted wherever they are used.
"""

from __future__ import annotations

import base64
import sys
from collections import Counter
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import BuiltinMethodType
from typing import Any

import msgspec
import pytest
from tests.kit.a_group import a_group
from tests.kit.a_node import a_node, unzipped
from tests.kit.fake_group import submit, submit_until_taken

from wakugumi.adapters.zip.records import end_of
from wakugumi.core.gateway.groups import GroupAt
from wakugumi.core.leader.nodes.machine import NodeAt
from wakugumi.core.subject import worker_patterns
from wakugumi.roles.gateway.server import GatewayServer
from wakugumi.roles.gateway.settings import GatewaySettings
from wakugumi.roles.leader.nodes.remote_node import RemoteNodes
from wakugumi.wire.form import Multipart

pytestmark = pytest.mark.anyio

FORM, BASE64, ZIP = "forms parsed", "base64 rounds", "ZIPs written"


class Counted:
    """Functions of all modules, counted while they work as before."""

    def __init__(self, patch: pytest.MonkeyPatch, content: bytes) -> None:
        self._patch = patch
        self._content = content
        self.counts: Counter[str] = Counter()
        patch.setattr(Multipart, "__init__", self._calls(FORM, Multipart.__init__))
        for module in [module for name, module in sys.modules.items() if name.startswith("wakugumi")]:
            for name, value in list(vars(module).items()):
                if value is end_of:
                    patch.setattr(module, name, self._calls(ZIP, value))
                elif isinstance(value, BuiltinMethodType) and isinstance(value.__self__, msgspec.json.Encoder):
                    patch.setattr(module, name, self._encodes(value))

    def _calls(self, what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **more: Any) -> Any:
            self.counts[what] += 1
            return function(*args, **more)

        return call

    def _encodes(self, function: Callable[..., bytes]) -> Callable[..., bytes]:
        """Counts records with a file or an archive inside, be it ours or the node's."""

        def encode(*args: Any) -> bytes:
            encoded = function(*args)
            begins = base64.b64encode(self._content[:30]), base64.b64encode(b"PK\3")
            self.counts[BASE64] += any(begin in encoded for begin in begins)
            return encoded

        return encode


@pytest.mark.spec("G2")
@pytest.mark.parametrize("size", [100, 100_000])
async def test_bytes_go_one_way_through_three_tiers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    content = bytes(range(100)) * (size // 100)
    for name in ("node", "leader"):
        (tmp_path / name).mkdir()
    async with a_node(tmp_path / "node") as node, a_group(tmp_path / "leader") as leader:
        at = NodeAt(f"http://127.0.0.1:{node.http}", worker_patterns(""))
        nodes = RemoteNodes(leader.leader.hub, leader.leader.blobs, [at])
        groups = (GroupAt("a", f"http://127.0.0.1:{leader.port}"),)
        settings = GatewaySettings(groups=groups, state=tmp_path / "gateway", poll_s=0.03)
        try:
            async with GatewayServer(settings) as server:
                port = await server.listen("127.0.0.1", 0)
                first = await submit_until_taken(port, "first")
                assert first.status == 200, first  # All tiers have found each other, and imported what they need.
                with monkeypatch.context() as patch:
                    counted = Counted(patch, content)
                    heard = await submit(port, "second", content)
                assert heard.status == 200
                assert unzipped(heard.body) == {
                    "copied": content,
                    "stdout.txt": f"{len(content)}\n".encode(),
                    "stderr.txt": b"warned\n",
                }
        finally:
            await nodes.close()
    assert counted.counts == {FORM: 1, BASE64: 0, ZIP: 1 + 0}
