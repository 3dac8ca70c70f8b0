"""Keys as operators and other machines use them: made, joined, used and revoked, by real processes over TLS."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.kit.eventually import eventually_blocking
from tests.whole.conftest import Running, Waku

from wakugumi.app.serve.free_ports import free_ports
from wakugumi.errors import EXIT_DENIED, EXIT_USAGE
from wakugumi.wire.access_line import Key, parse_key

pytestmark = pytest.mark.spec("O1")


class SecureGrid:
    """A leader for other machines, and users that have an access file each."""

    def __init__(self, start: Callable[..., Running], waku: Waku, folder: Path) -> None:
        self._waku = waku
        self._folder = folder
        (port,) = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        self.port = str(port)
        self.state = folder / "grid"
        self.leader = start("leader", self.port, "--host", "0.0.0.0", "--state", self.state, env=self.env("leader"))
        self.leader.line()

    def env(self, user: str) -> dict[str, str]:
        return {**os.environ, "WAKU_ACCESS": str(self._folder / user / "access.toml"), "WAKU_LEADER": self.address}

    def admin(self, *words: str) -> str:
        """A command of the leader's own user, without a key."""
        done = self._waku(*words, env={**os.environ, "WAKU_LEADER": self.address, "HOME": str(self._folder / "nobody")})
        assert done.returncode == 0, done.stderr
        return done.stdout

    def line(self, name: str, role: str, *rules: str) -> str:
        return self.admin("keys", "make", name, "--role", role, *rules, "--address", self.address)

    def join(self, line: str) -> Key:
        """A user of the key's name joins."""
        key = parse_key(line.partition("waku://")[2].partition("@")[0])
        done = self._waku("join", "-", env=self.env(key.name), stdin=line)
        assert done.returncode == 0, done.stderr
        assert key.secret not in done.stdout + done.stderr
        return key


@pytest.fixture
def grid(start: Callable[..., Running], waku: Waku, tmp_path: Path) -> SecureGrid:
    return SecureGrid(start, waku, tmp_path)


def test_a_key_is_made_joined_used_and_revoked(
    grid: SecureGrid, start: Callable[..., Running], waku: Waku, programs: Path, tmp_path: Path
) -> None:
    rack = grid.join(grid.line("rack1", "worker"))
    desk = grid.join(grid.line("desk-1", "client", "--programs", "calc*", "--cap", "7"))
    folders = ["--programs", programs, "--jobs", tmp_path / "jobs", "--cpu-cap", "off"]
    own = "--as-root" if os.geteuid() == 0 else "--same-user"
    worker = start("worker", "127.0.0.1", grid.port, *folders, own, env=grid.env("rack1"))
    log = worker.until(lambda text: "the leader speaks version" in text)
    assert "access='keys over TLS'" in log.splitlines()[0]

    me = json.loads(waku("status", "-o", "json", env=grid.env("desk-1")).stdout)["me"]
    assert (me["name"], me["role"], me["proof"], me["degree"]) == ("desk-1", "client", "key", "keys over TLS")
    assert waku("run", "calcA", "--", "7", env=grid.env("desk-1")).stdout == "calcA 7\n"
    denied = waku("run", "fail", env=grid.env("desk-1"))
    assert denied.returncode == EXIT_DENIED, denied
    assert "desk-1 may run calc*, not fail" in denied.stderr
    no = waku("keys", "list", env=grid.env("desk-1"))
    assert no.returncode == EXIT_DENIED
    assert "desk-1 has the role client" in no.stderr

    rows = {row["name"]: row for row in json.loads(grid.admin("keys", "list", "-o", "json"))["rows"]}
    assert rows["rack1"]["connections"] >= 1
    assert rows["desk-1"]["used_s"] is not None
    assert "calc*" in grid.admin("keys", "show", "desk-1")

    grid.admin("keys", "revoke", "rack1")
    worker.until(lambda text: "the key is not valid here" in text or "the key was revoked" in text)
    grid.admin("keys", "revoke", "desk-1")
    gone = waku("status", env=grid.env("desk-1"))
    assert gone.returncode == EXIT_DENIED
    assert "the key is not valid here" in gone.stderr

    again = waku("join", "-", env=grid.env("desk-1"), stdin=f"waku://{desk.text}@{grid.address}")
    assert again.returncode == EXIT_DENIED
    grid.leader.signal()
    grid.leader.signal()
    _, out, err = grid.leader.end()
    for secret in (rack.secret, desk.secret):
        assert secret not in out + err
        assert all(secret.encode() not in file.read_bytes() for file in grid.state.rglob("*") if file.is_file())


def test_the_first_keys_are_lines_in_files_and_never_printed(grid: SecureGrid, waku: Waku) -> None:
    for name in ("admin", "client", "worker"):
        path = grid.state / "access" / f"{name}.key"
        assert path.stat().st_mode & 0o077 == 0
        key = grid.join(path.read_text().replace(path.read_text().rpartition("@")[2], f"{grid.address}\n"))
        assert key.name == name
    status = waku("status", env=grid.env("admin"))
    assert "you are admin, by a key, with the role admin" in status.stdout
    assert "you may do everything" in status.stdout


def test_a_key_that_expires_ends_by_itself(grid: SecureGrid, waku: Waku) -> None:
    grid.join(grid.line("brief", "reader", "--expires", "2s"))
    eventually_blocking(lambda: "expired" in grid.admin("keys", "show", "brief"))
    assert waku("jobs", "list", env=grid.env("brief")).returncode == EXIT_DENIED


@pytest.mark.parametrize("role", ["node", "gateway"])
def test_a_line_of_a_node_or_gateway_joins_that_role(
    role: str, start: Callable[..., Running], waku: Waku, programs: Path, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    env = {**os.environ, "WAKU_ACCESS": str(tmp_path / "server" / "access.toml")}
    own = "--as-root" if os.geteuid() == 0 else "--same-user"
    words = {
        "node": ["--http", str(port), "--lines", "off", "--programs", programs, "--jobs", tmp_path / "jobs", own],
        "gateway": [str(port), "--group", "one=http://127.0.0.1:1"],
    }
    start(role, *words[role], "--host", "0.0.0.0", env=env).line()
    line = (tmp_path / f"state/wakugumi/{role}-{port}/access/client.key").read_text()
    assert line.startswith(f"waku join --to {role} waku://client:")
    line = f"{line.rpartition('@')[0]}@127.0.0.1:{port}\n"
    user = {**os.environ, "WAKU_ACCESS": str(tmp_path / "user" / "access.toml")}
    joined = waku("join", "-", "-o", "json", env=user, stdin=line)
    assert joined.returncode == 0, joined.stderr
    assert json.loads(joined.stdout)["me"]["name"] == "client"
    wrong = waku("join", "-", "--to", "leader", env=user, stdin=line)
    assert wrong.returncode == EXIT_USAGE
    assert "is no leader of the grid" in wrong.stderr


def test_where_keys_have_rules_a_worker_and_a_node_say_how_far_programs_are_apart(
    grid: SecureGrid, start: Callable[..., Running], waku: Waku, programs: Path, tmp_path: Path
) -> None:
    own = "--as-root" if os.geteuid() == 0 else "--same-user"
    grid.join(grid.line("rack1", "worker"))
    words = ["worker", "127.0.0.1", grid.port, "--programs", programs, "--jobs", tmp_path / "jobs", "--cpu-cap", "off"]
    first = start(*words, env=grid.env("rack1"))
    first.until(lambda text: "the leader speaks version" in text)
    first.signal()
    assert first.end()[0] == 0, "the first keys have no rules"

    grid.join(grid.line("desk-1", "client"))
    code, _, err = start(*words, env=grid.env("rack1")).end()
    assert code == EXIT_USAGE, err
    assert err.count("keys have rules here") == 1
    assert f"or {own} if that is what you want" in err or f"or say {own} if that is what you want" in err
    start(*words, own, env=grid.env("rack1")).until(lambda text: "the leader speaks version" in text)
    assert waku("run", "calcA", "--", "7", env=grid.env("desk-1")).stdout == "calcA 7\n"

    (port,) = free_ports(1)
    shutil.copytree(grid.state / "access", tmp_path / f"state/wakugumi/node-{port}/access")
    node = ["node", "--http", str(port), "--lines", "off", "--programs", programs, "--jobs", tmp_path / "of-node"]
    code, _, err = start(*node, env=grid.env("node")).end()
    assert code == EXIT_USAGE, err
    assert err.count("keys have rules here") == 1
