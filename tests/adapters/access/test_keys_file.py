"""Keys on the disk: whole, without secrets, and refused if a line of them cannot be read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakugumi.adapters.access.keys_file import KeysFile, read_keys, write_keys
from wakugumi.core.access.identity import Role, Rules
from wakugumi.core.access.key_events import KeyForgotten, KeyKept
from wakugumi.errors import ConfigError

pytestmark = pytest.mark.spec("O1")
PATH = Path("keys.toml")
KEY = KeyKept("desk-1", Role.CLIENT, b"h" * 32, 1_800_000_000.25, Rules(subjects=("job.assign.risk.>",), cap=64))

moments = st.integers(10**6, 4 * 10**15).map(lambda micros: micros / 1e6)
entries = st.lists(st.from_regex(r"!?[a-z0-9*?.@\"'\\#=-]{1,12}", fullmatch=True), max_size=3).map(tuple)
rules = st.builds(
    Rules,
    clients=entries,
    programs=entries,
    subjects=st.lists(
        st.sampled_from(["job.assign.>", "!job.assign.hr.*", "job.assign.a.b"]), max_size=3, unique=True
    ).map(tuple),
    caches=entries,
    sees=st.sampled_from(["", "own", "all"]),
    cap=st.integers(0, 1000),
)
kept = st.builds(
    KeyKept,
    name=st.from_regex(r"[a-z0-9][a-z0-9_.-]{0,31}", fullmatch=True),
    role=st.sampled_from(Role),
    secret_hash=st.binary(min_size=32, max_size=32),
    made_at=moments,
    rules=rules,
    expires_at=st.one_of(st.just(0.0), moments),
    revoked_at=st.one_of(st.just(0.0), moments),
    last_used=st.one_of(st.just(0.0), moments),
)


@given(st.lists(kept, unique_by=lambda key: key.name, max_size=4))
def test_keys_are_read_as_they_were_written(keys: list[KeyKept]) -> None:
    read = read_keys(write_keys(keys), PATH)
    assert [(one.name, one.role, one.secret_hash, one.rules) for one in read] == [
        (one.name, one.role, one.secret_hash, one.rules) for one in keys
    ]
    for one, other in zip(read, keys):
        for at in ("made_at", "expires_at", "revoked_at", "last_used"):
            assert getattr(one, at) == pytest.approx(getattr(other, at), abs=2e-6)
    assert read_keys(write_keys(read), PATH) == read


def test_a_key_is_kept_and_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    file = KeysFile(path)
    assert (file.is_new, file.keys) == (True, [])
    other = KeyKept("rack-7", Role.WORKER, b"w" * 32, 1.0)
    file.keep([KEY, other])
    assert (file.is_new, file.keys) == (False, [KEY, other])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert KeysFile(path).keys == [KEY, other]
    file.keep([KeyForgotten("rack-7"), KeyForgotten("unknown")])
    assert KeysFile(path).keys == [KEY]
    file.keep([KeyForgotten("desk-1")])
    again = KeysFile(path)
    assert (again.is_new, again.keys) == (False, [])  # A file without keys is not a new one: no first keys are made.


def test_a_write_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = KeysFile(tmp_path / "keys.toml")
    file.keep([KEY])

    def full(_file: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(ConfigError, match="No space left"):
            file.keep([KeyForgotten("desk-1")])
    assert file.keys == KeysFile(file.path).keys == [KEY]


GOOD = write_keys([KEY]).decode()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (GOOD.replace("client", "king"), "role"),
        (GOOD.replace("name = ", "nam = "), "nam`"),
        (GOOD.replace("desk-1", "Desk 1"), "cannot name a key"),
        (GOOD.replace("6868", "686", 1), "secret_sha256"),
        (GOOD.replace("6868", "zz68", 1), "secret_sha256"),
        (GOOD.replace(".250000Z", ""), "made"),
        (GOOD.replace("cap = 64", "cap = -1"), "cap"),
        (GOOD.replace("cap = 64", 'deny = ["x"]'), "deny"),
        (GOOD.replace("job.assign.risk.>", "a..b"), "key 1"),
        (GOOD + GOOD, "twice"),
        (GOOD[:-20], "cannot be read"),
    ],
)
def test_a_file_with_a_fault_is_refused_as_a_whole(text: str, why: str) -> None:
    assert text != GOOD
    with pytest.raises(ConfigError, match=why) as caught:
        read_keys(text.encode(), PATH)
    assert "keys.toml" in str(caught.value)
