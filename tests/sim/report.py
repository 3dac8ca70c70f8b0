"""What came of many worlds? A table for each kind: worlds, jobs, faults by role, and what was lost, answered twice,
leaked, or broken otherwise.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec
from tests.sim.checker import SORTS

FAULT: Final = "fault: "
MET: Final = "met: "
_OWN_ROWS: Final = frozenset({"worlds", "jobs", "virtual seconds"})
_ROLES: Final = {
    "all": "leader",
    "connection": "network",
    "peer": "network",
    "two": "network",
    "sync": "disk",
    "power": "machine",
    "job": "client",
}
"""Role of a fault by the first word of its name, where that word is no role."""


class Told(msgspec.Struct):
    """A world that broke."""

    sort: str
    what: str


class Sums(msgspec.Struct):
    """All worlds of one kind."""

    counts: dict[str, int] = {}
    cpu_s: float = 0.0
    failed: dict[int, Told] = {}

    def add(self, other: Sums) -> None:
        counts = Counter(self.counts)
        counts.update(other.counts)
        self.counts = dict(counts)
        self.cpu_s += other.cpu_s
        self.failed = self.failed | other.failed


def table(sums: dict[str, Sums], wall_s: float, processes: int) -> str:
    every = Sums()
    for one in sums.values():
        every.add(one)
    rows = [row for name, one in sums.items() for row in _rows(name, one)]
    rows += [
        ("all kinds of worlds", ""),
        *_main_rows(every),
        ("  real seconds", f"{wall_s:.1f} on {processes} process{'' if processes == 1 else 'es'}"),
        *((f"  {sort.upper()}", f"{_failed(every, sort)}") for sort in SORTS),
    ]
    return "\n".join(f"{name:<54} {value}".rstrip() for name, value in rows)


def role_of(fault: str) -> str:
    word = fault.split()[0]
    return _ROLES.get(word, word)


def _rows(name: str, one: Sums) -> list[tuple[str, str]]:
    counts = one.counts
    others = {what: count for what, count in counts.items() if not what.startswith((FAULT, MET))}
    faults = {what.removeprefix(FAULT): count for what, count in counts.items() if what.startswith(FAULT)}
    by_role: Counter[str] = Counter()
    for fault, count in faults.items():
        by_role[role_of(fault)] += count
    return [
        (f"worlds of {name}", ""),
        *_main_rows(one),
        *((f"  {what}", f"{count:,}") for what, count in others.items() if what not in _OWN_ROWS),
        *(row for role, count in by_role.most_common() for row in _fault_rows(role, count, faults, counts)),
        (f"  {', '.join(SORTS)}", ", ".join(str(_failed(one, sort)) for sort in SORTS)),
        ("", ""),
    ]


def _main_rows(one: Sums) -> list[tuple[str, str]]:
    virtual_s, cpu_s = one.counts.get("virtual seconds", 0), one.cpu_s or 1e-9
    faults = sum(count for what, count in one.counts.items() if what.startswith(FAULT))
    return [
        ("  worlds, virtual hours", f"{one.counts.get('worlds', 0):,}, {virtual_s / 3600:,.1f}"),
        ("  × real time per core", f"{virtual_s / cpu_s:,.0f}"),
        ("  jobs", f"{one.counts.get('jobs', 0):,} ({one.counts.get('jobs', 0) / cpu_s:,.0f}/s per core)"),
        ("  faults", f"{faults:,}"),
    ]


def _fault_rows(role: str, count: int, faults: dict[str, int], counts: dict[str, int]) -> list[tuple[str, str]]:
    """Of those that may meet no work, also how many met some."""
    rows = [(f"  faults: {role}", f"{count:,}")]
    for fault, times in sorted(faults.items(), key=lambda row: -row[1]):
        if role_of(fault) == role:
            met = counts.get(MET + fault)
            rows.append((f"    {fault}", f"{times:,}" if met is None else f"{times:,}, of them met work {met:,}"))
    return rows


def _failed(one: Sums, sort: str) -> int:
    return sum(told.sort == sort for told in one.failed.values())
