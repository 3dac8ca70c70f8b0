"""Nodes of a leader that is started from the command line: which certificates they and it must have."""

from __future__ import annotations

from pathlib import Path

import pytest

from wakugumi.app.cli import call
from wakugumi.app.serve.leader_nodes import nodes_of
from wakugumi.errors import ConfigError
from wakugumi.roles.leader.leader import Leader
from wakugumi.roles.leader.nodes.addresses import read_nodes
from wakugumi.roles.leader.settings import LeaderSettings


def test_a_key_without_its_certificate_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["leader", "0", "--node-key", "key.pem"]) == 2
    assert "no certificate" in capsys.readouterr().err


@pytest.mark.spec("N5")
@pytest.mark.anyio
async def test_certificates_that_cannot_be_read_are_told_before_anything_runs(tmp_path: Path) -> None:
    leader = Leader()
    try:
        settings = LeaderSettings(nodes=read_nodes("https://a"), node_ca=str(tmp_path / "none.pem"))
        with pytest.raises(ConfigError, match=r"none\.pem"):
            async with nodes_of(leader, settings):
                pass
    finally:
        await leader.close()
