"""What is concluded about keys and TLS: each goal has a row, also one that nobody measured."""

from __future__ import annotations

import pytest

from access import PARTS, connections_reading, jobs_reading, judged, readings
from report import Results
from strangers import KINDS, Tls

pytestmark = pytest.mark.spec("O1")


def test_a_turn_of_jobs_is_a_rate_and_cpu_per_job() -> None:
    assert jobs_reading(20_000, 0.5, 0.2) == pytest.approx({"per_s": 40_000, "leader_cpu_us": 10})


def test_a_turn_of_connections_is_milliseconds_of_each() -> None:
    assert connections_reading(300, 0.6, 0.15) == pytest.approx({"cpu_ms": 0.5, "wall_ms": 2})


def test_a_ratio_is_of_one_round_and_its_goal_is_judged() -> None:
    results = Results()
    # The second round was slow for both: medians alone, 80 and 90, would say 0.89.
    for number, (keys, plain) in enumerate([(80.0, 110.0), (20.0, 40.0), (90.0, 90.0)]):
        results.record("keys", "jobs", number, jobs_reading(100, 100 / keys, 1.0))
        results.record("plain", "jobs", number, jobs_reading(100, 100 / plain, 1.0))
    rate, cpu = judged(results, ["jobs"])
    assert rate[1:] == ["0.73x", "0.5..1", ">= 0.8x", "NOT MET"]
    assert (cpu[1], cpu[-1]) == ("1.00x", "no goal")


@pytest.mark.parametrize(("by_uid", "by_key", "verdicts"), [(0.5, 10, ["met", "met"]), (0.6, 11, ["NOT MET"] * 2)])
def test_cpu_of_a_connection_is_judged_by_its_proof(by_uid: float, by_key: float, verdicts: list[str]) -> None:
    results = Results()
    for entry, cost_ms in (("uid", by_uid), ("keys", by_key)):
        results.record(entry, "connections", 0, connections_reading(100, 1.0, cost_ms / 10))
    assert [row[-1] for row in judged(results, ["connections"])] == verdicts


def test_a_part_without_readings_claims_nothing() -> None:
    rows = judged(Results(), list(PARTS))
    assert len(rows) == 10
    assert all(row[-1].startswith("not measured") for row in rows)


def test_readings_are_shown_as_they_were() -> None:
    results = Results()
    for number, rate in enumerate((812.5, 790.0)):
        results.record("bare", "uploads", number, {"mib_per_s": rate})
    assert readings(results) == [["curl to a bare server", "uploads", "mib_per_s", "812.5, 790"]]


def test_a_stranger_that_finishes_no_handshake_sends_a_whole_hello_of_tls() -> None:
    sent = KINDS["a handshake never finished"].first
    assert sent[:2] == b"\x16\x03"
    assert int.from_bytes(sent[3:5], "big") == len(sent) - 5


def test_a_stranger_over_tls_says_nothing_before_the_handshake_is_done() -> None:
    assert b"in clear" not in Tls(b"in clear").hear()
