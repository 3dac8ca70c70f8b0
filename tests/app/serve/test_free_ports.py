"""Which ports are free for a leader that is started again and again?"""

from __future__ import annotations

from pathlib import Path

from wakugumi.app.serve.free_ports import free_port


def test_the_leaders_port_is_none_that_a_connection_could_be_given_while_it_is_away() -> None:
    given = [int(word) for word in Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()]
    assert all(1024 <= free_port() < given[0] for _ in range(20))
