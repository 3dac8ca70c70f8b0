"""Does the simulator's report name worlds, jobs, faults by role, and what went wrong, for each kind of world?"""

from __future__ import annotations

from tests.sim.checker import Counts
from tests.sim.report import Sums, Told, role_of, table


def values(text: str) -> dict[str, str]:
    """By what they are the value of."""
    rows = [line.strip().partition("   ") for line in text.splitlines()]
    return {name: value.strip() for name, _, value in rows}


def test_each_kind_of_world_has_its_table_and_all_have_their_sum() -> None:
    counts = Counts(worlds=2, jobs=40, virtual_s=7200.0, faults={"leader killed": 3}, met={"leader killed": 1})
    leaders = Sums(dict(counts.told()), cpu_s=2.0)
    stores = Sums({"worlds": 1, "jobs": 2, "virtual seconds": 3600, "fault: store full": 4, "runs": 9}, cpu_s=2.0)
    stores.failed[7] = Told("leaked", "a row is left")
    told = table({"leaders": leaders, "gateways": stores}, 3.0, 2)
    first, second, every = map(values, told.split("\n\n"))
    expected = {
        "worlds of leaders": "",
        "worlds, virtual hours": "2, 2.0",
        "× real time per core": "3,600",
        "jobs": "40 (20/s per core)",
        "faults": "3",
        "faults: leader": "3",
        "leader killed": "3, of them met work 1",
        "lost, twice, leaked, broken": "0, 0, 0, 0",
    }
    assert {name: value for name, value in first.items() if value != "0"} == expected
    assert second["runs"] == "9"
    assert second["faults: store"] == "4"
    assert second["lost, twice, leaked, broken"] == "0, 0, 1, 0"
    assert every["worlds, virtual hours"] == "3, 3.0"
    assert every["jobs"] == "42 (10/s per core)"
    assert every["real seconds"] == "3.0 on 2 processes"
    assert (every["LOST"], every["LEAKED"]) == ("0", "1")


def test_the_role_of_a_fault_is_its_first_word_or_the_usual_name_of_it() -> None:
    assert role_of("gateway killed") == "gateway"
    assert role_of("all leaders killed") == "leader"
    assert role_of("two parted") == "network"
