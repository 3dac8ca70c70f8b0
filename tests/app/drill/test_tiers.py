"""A drill of the three tiers counts what became of every job, and why a program ran more than once."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from wakugumi.app.drill.marks import END, KILL, START, DrillMark
from wakugumi.app.drill.tiers import FAULTS, TierCount, answer_number, count_runs, struck_by
from wakugumi.app.serve.tiers import GATEWAY, GROUP, NODE, Tiers, parts_of


def tiers(groups: int = 2, nodes: int = 2) -> Tiers:
    return Tiers(groups, nodes, 4, Path("programs"), "mark", Path("state"))


def start(at: float, job: int, pid: int) -> DrillMark:
    return DrillMark(at, START, "node-1-1.1", job, str(pid))


def end(at: float, job: int, pid: int) -> DrillMark:
    return DrillMark(at, END, "node-1-1.1", job, str(pid))


def counted(*marks: DrillMark) -> TierCount:
    count = TierCount(1, faults=list(FAULTS))
    count_runs(count, marks)
    return count


def test_whoever_is_asked_is_started_before_who_asks_it() -> None:
    parts = parts_of(tiers())
    assert [part.kind for part in parts] == [NODE] * 4 + [GROUP] * 2 + [GATEWAY]
    assert len({part.url for part in parts}) == 7
    first = next(part for part in parts if part.name == "group-1")
    mine = {f"{part.url},name={part.name}" for part in parts if part.kind == NODE and part.group == 1}
    assert mine <= set(first.words)
    assert all(f"{part.name}={part.url}" in parts[-1].words for part in parts if part.kind == GROUP)


def test_a_whole_group_is_its_leader_and_its_nodes() -> None:
    parts = parts_of(tiers())
    assert [part.name for part in struck_by("node", parts)] == ["node-1-1"]
    assert [part.name for part in struck_by("leader", parts)] == ["group-1"]
    assert [part.name for part in struck_by("group", parts)] == ["node-2-1", "node-2-2", "group-2"]
    assert [part.name for part in struck_by("gateway", parts)] == ["gateway"]


def test_a_run_that_was_cut_is_run_again_by_need() -> None:
    count = counted(start(1, 7, 100), DrillMark(1.5, KILL, "node-1-1.1"), start(2, 7, 200), end(3, 7, 200))
    assert (count.runs, count.again_cut, count.again_needed, count.again_without_need) == (2, 1, 0, [])


def test_a_run_whose_end_nobody_alive_knew_is_run_again_by_need() -> None:
    count = counted(
        start(1, 7, 100), end(2, 7, 100), DrillMark(2.5, KILL, "group-1.1"), start(3, 7, 200), end(4, 7, 200)
    )
    assert (count.again_cut, count.again_needed, count.again_without_need) == (0, 1, [])


def test_the_death_of_one_who_had_nothing_to_do_with_it_is_no_need() -> None:
    runs = (start(1, 7, 100), end(2, 7, 100), start(3, 7, 200), end(4, 7, 200))
    for stranger in ("group-2.1", "node-1-2.1", "node-2-1.1"):
        assert counted(*runs, DrillMark(2.5, KILL, stranger)).again_without_need == [7]
    for witness in ("group-1.1", "node-1-1.1", "gateway.1"):
        assert counted(*runs, DrillMark(2.5, KILL, witness)).again_without_need == []


def test_a_second_run_without_any_death_is_wrong() -> None:
    count = counted(
        DrillMark(0.5, KILL, "group-1.1"), start(1, 7, 100), end(2, 7, 100), start(3, 7, 200), end(4, 7, 200)
    )
    assert count.again_without_need == [7]
    assert count.wrong == ["1 job run again without need: 7"]


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (TierCount(3, lost=[2, 3]), "2 jobs lost: 2, 3"),
        (TierCount(3, failed=[1]), "1 job answered with something else"),
        (TierCount(3, differing=[1]), "1 job answered otherwise"),
    ],
)
def test_what_must_not_be_is_said(count: TierCount, said: str) -> None:
    assert said in count.wrong[0]
    assert "it ended before these faults: node, leader, group, gateway" in count.wrong
    assert len(count.rows()) == 11


def test_an_answer_is_good_only_with_what_the_program_wrote() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("number.txt", "7\n")
    assert answer_number(packed.getvalue()) == 7
    assert answer_number(b"") is None
    assert answer_number(b'{"status":503}') is None
