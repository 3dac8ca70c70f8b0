"""The three tiers run as their page says: every block fenced as `sh`, in order, in one empty folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.kit.page_commands import TOP, blocks, run
from tests.kit.tools import tool

from wakugumi.app.serve.free_ports import free_ports

_PORTS = ("5000", "5081", "5082", "5091", "5092", "5093", "5094")


@pytest.mark.spec("N1", "N2", "N6", "G1", "G2", "G3")
def test_the_commands_of_the_three_tiers_run(home: Path) -> None:
    for name in ("curl", "unzip"):
        tool(name)
    script = "\n".join(blocks(TOP / "docs" / "operate" / "deploying.md"))
    assert script.count("waku ") >= 5
    # The page's ports may be taken where this runs.
    ports = dict(zip(_PORTS, map(str, free_ports(len(_PORTS)))))
    script = script.replace('"509$n"', '"$(eval echo \\$port_$n)"')
    named = "\n".join(f"port_{n}={ports[f'509{n}']}" for n in (1, 2, 3, 4))
    script = re.sub(r"\b(50\d\d)\b", lambda found: ports[found[1]], script)
    run(f"trap 'kill $(jobs -p) 2>/dev/null || :' EXIT\n{named}\n{script}", home)
    for n in range(1, 9):
        assert (home / f"part-{n}.zip").stat().st_size
    assert (home / "later.zip").read_bytes()
