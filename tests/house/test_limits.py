"""Every bound has its unit in its name and is what the documents say; those that lean on each other fit."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from wakugumi.core import subject
from wakugumi.wire import frame

ROOT = Path(__file__).parents[2]
ROOMS = sorted((ROOT / "src" / "wakugumi" / "limits").glob("*.py"))
PROTOCOL = (ROOT / "docs" / "reference" / "protocol.md").read_text(encoding="utf-8")
MODULES = [import_module(f"wakugumi.limits.{room.stem}") for room in ROOMS if room.stem != "__init__"]
LIMITS = {name: value for module in MODULES for name, value in vars(module).items() if name.isupper()}
limits = SimpleNamespace(**LIMITS)
TOLD = re.findall(r"^\| `([A-Z_]+)` \| ([\d  ]+?)( bytes| s| characters)? \|", PROTOCOL, re.MULTILINE)
PLAIN_NUMBERS = re.compile(r"_(MAX|MIN|DEFAULT|SHARE|CAP|SLOTS|OLD)$|^(CPU_CAP|KIB|MIB)$")


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_is_a_number_above_zero_with_its_unit_or_its_kind_in_its_name(name: str) -> None:
    assert LIMITS[name] > 0
    assert re.search(r"_S(_|$)|_BYTES(_|$)|_CHARS_", name) or PLAIN_NUMBERS.search(name)


def test_a_limit_stands_once() -> None:
    bodies = [ast.parse(room.read_text(encoding="utf-8")).body for room in ROOMS]
    names = [node.target.id for body in bodies for node in body if isinstance(node, ast.AnnAssign)]  # type: ignore[union-attr]
    assert len(names) == len(set(names)) == len(LIMITS)


@pytest.mark.parametrize(("name", "number", "unit"), TOLD)
def test_the_protocol_tells_the_limit_as_it_is(name: str, number: str, unit: str) -> None:
    value = LIMITS[name] if name in LIMITS else getattr(subject, name)
    assert int(re.sub(r"\s", "", number)) == value
    if "_BYTES_" in name:
        assert unit == " bytes"
    elif name.endswith("_S"):
        assert unit == " s"


def test_the_protocol_tells_what_a_peer_can_run_into() -> None:
    told = {name for name, _, _ in TOLD}
    assert told >= {"FRAME_BYTES_MAX", "FIRST_FRAME_BYTES_MAX", "CREDIT_MAX", "ATTEMPTS_MAX"}
    assert told >= {name for name in LIMITS if re.fullmatch("(JOURNAL_)?QUEUE_.*_MAX", name)}, (
        "each makes a leader full"
    )


@pytest.mark.spec("F3", "F5", "F7", "L3", "L4", "W2", "W3", "W4", "K6")
def test_the_numbers_of_the_contract_are_kept() -> None:
    assert limits.FRAME_BYTES_MAX == 4_194_304
    assert limits.CLIENT_CAP_OLD == 4
    assert limits.CREDIT_MAX == 4_096
    assert (limits.BACKOFF_FIRST_S, limits.BACKOFF_MAX_S, limits.ATTEMPTS_MAX) == (1, 60, 5)
    assert (limits.SILENCE_MAX_S, limits.ACK_MARGIN_S, limits.REATTACH_GRACE_S) == (30, 60, 2)
    assert (limits.CPU_CAP_MIN, limits.CPU_CAP, limits.CPU_CAP_MAX, limits.CREDIT_HELD_MAX_S) == (0.10, 0.75, 0.95, 2)
    assert limits.JOB_TIMEOUT_S == 15 * 60
    assert limits.DONE_TTL_S >= 10 * 60
    assert (limits.RECONNECT_FIRST_S, limits.RECONNECT_MAX_S, limits.JITTER_SHARE) == (0.5, 30, 0.2)
    assert limits.JOB_NAME_CHARS_MAX == 128


def test_what_leans_on_another_limit_fits_it() -> None:
    assert limits.FIRST_FRAME_BYTES_MAX < 1 << 24, "the fourth byte of every frame is 0: other protocols are told by it"
    assert limits.FRAME_BYTES_MAX < 1 << 24
    assert frame.payload_max("x" * subject.SUBJECT_BYTES_MAX) >= limits.PAYLOAD_BYTES_MAX
    assert limits.HEARTBEAT_S * 3 < limits.SILENCE_MAX_S, "one or two heartbeats may be late"
    assert limits.KEPT_BYTES_MAX > limits.FRAME_BYTES_MAX
    assert limits.UNDELIVERED_BYTES_PER_CLIENT_MAX > limits.FRAME_BYTES_MAX
    assert limits.LIST_ROWS_DEFAULT <= limits.LIST_ROWS_MAX
    assert limits.FULL_RETRY_FIRST_S < limits.FULL_RETRY_MAX_S
    assert 0 < limits.QUEUE_RESUME_SHARE < 1
    assert limits.FIRST_FRAME_BYTES_MAX > 63 * subject.SUBJECT_BYTES_MAX, "a worker's patterns fit its hello"
