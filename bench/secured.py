"""A leader with keys over TLS, as the benchmarks need it: on every address, with access files for its first keys.

Whoever uses this sets HOME to a folder of its own first (`at_home`): a leader writes its keys and an access file there.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from contestant import free_port
from processes import Keeping, end, start_leader
from wakugumi.adapters.access.access_file import AccessFile
from wakugumi.adapters.access.entry import AccessEntry
from wakugumi.adapters.net.address import Address, parse_access_line
from wakugumi.app.settings import state_folder


class Secured(NamedTuple):
    pid: int
    address: Address
    """On loopback."""
    client: Path
    """Access file with the leader's client key."""
    worker: Path

    def entry(self) -> AccessEntry:
        """Of the client."""
        found = AccessFile(self.client).find(self.address)
        assert found is not None
        return found


def at_home(folder: Path) -> None:
    """This process and all that it starts have their settings, keys and journals in the folder."""
    for name in [name for name in os.environ if name.startswith(("WAKU_", "XDG_"))]:
        del os.environ[name]
    os.environ["HOME"] = str(folder)


@contextmanager
def leading_secured(keeping: Keeping) -> Iterator[Secured]:
    """A leader on every address."""
    port = free_port()
    memory = ("--memory",) if keeping == "memory" else ()
    leader, _ = start_leader(str(port), *memory, "--host", "0.0.0.0", "--log-level", "warning")
    try:
        folder = state_folder(port) / "access"
        address = Address("127.0.0.1", port)
        files = []
        for name in ("client", "worker"):
            (_, key), *_ = parse_access_line((folder / f"{name}.key").read_text().split()[-1])
            files.append(Path("access", name, "access.toml").absolute())
            files[-1].parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            AccessFile(files[-1]).add(AccessEntry((address,), (folder / "ca.pem").read_text(), key))
        yield Secured(leader.pid, address, *files)
    finally:
        end(leader)
