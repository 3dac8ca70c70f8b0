"""How many groups and nodes may a try-out have?"""

from __future__ import annotations

from pathlib import Path

import pytest

from wakugumi.app.serve.tiers import GROUPS_MAX, NODES_MAX, Tiers
from wakugumi.app.serve.up_tiers import up_tiers
from wakugumi.errors import ConfigError


@pytest.mark.parametrize(
    ("groups", "nodes", "told"),
    [
        (0, 1, f"--groups is 1 to {GROUPS_MAX}, not 0"),
        (GROUPS_MAX + 1, 1, "--groups"),
        (1, 0, f"--nodes is 1 to {NODES_MAX}, not 0"),
        (1, NODES_MAX + 1, "--nodes"),
    ],
)
def test_a_number_out_of_bounds_is_refused_before_a_process_is_started(
    tmp_path: Path, groups: int, nodes: int, told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        up_tiers(Tiers(groups, nodes, 1, tmp_path, "", tmp_path / "state"), 0, "error")
    assert not (tmp_path / "state").exists()
