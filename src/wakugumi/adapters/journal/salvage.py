"""What can still be read of a damaged journal? Every leaf that is what was written, and a word about each other one.

It goes along the table as SQLite has it, and where that is broken asks for each leaf by its number. Nothing is believed
that does not fit its checksum, the numbers at both ends least of all.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from wakugumi.adapters.journal.file import SQL_ERRORS, Damaged, Leaf, decode_anyway, decode_leaf
from wakugumi.core.leader.journal.entries import LeaderKeep

_LOST_IN_A_ROW_MAX: Final = 10_000
"""Leaves that are looked for beyond the last that was found, where the file does not say how many there are."""
_SELECT: Final = "SELECT number, written_at, crc, records FROM log"


class LostLeaf(NamedTuple):
    number: int
    why: str
    records: list[LeaderKeep]
    """What can still be made out of it; not to be trusted."""


def salvage(base: sqlite3.Connection, path: Path) -> Iterator[Leaf | LostLeaf]:
    """Every leaf between the first and the last that can be found, readable or not, in order."""
    first, last = _ends(base, path)
    number = first
    while number <= last:
        try:
            for row in base.execute(f"{_SELECT} WHERE number BETWEEN ? AND ? ORDER BY number", (number, last)):
                leaf = _read(path, row)
                if leaf.number < number or (leaf.number > number and isinstance(leaf, LostLeaf)):
                    break  # a number that cannot be believed
                for skipped in range(number, leaf.number):
                    yield _read_one(base, path, skipped)
                number = leaf.number + 1
                yield leaf
            else:
                for missing in range(number, last + 1):
                    yield LostLeaf(missing, f"leaf {missing} is missing", [])
                return
        except SQL_ERRORS:
            pass
        yield _read_one(base, path, number)
        number += 1


def _ends(base: sqlite3.Connection, path: Path) -> tuple[int, int]:
    """The first and the last leaf; (1, 0) if none can be found."""
    first, last = _end(base, path, "ASC"), _end(base, path, "DESC")
    if not first and not last:
        return 1, 0
    return first or _feel(base, path, last, -1), last or _feel(base, path, first, 1)


def _end(base: sqlite3.Connection, path: Path, order: str) -> int:
    """The number of the outermost leaf; 0 if none is sound, or the way there is damaged.

    A damaged one's own number is not believed: it is told by how many lie between it and the first that is sound.
    """
    outwards = -1 if order == "ASC" else 1
    with contextlib.suppress(*SQL_ERRORS):
        for damaged, row in enumerate(base.execute(f"{_SELECT} ORDER BY number {order}")):
            leaf = _read(path, row)
            if isinstance(leaf, Leaf):
                return max(1, leaf.number + outwards * damaged)
    return 0


def _feel(base: sqlite3.Connection, path: Path, number: int, step: int) -> int:
    """Go on from a leaf that is there, one by one, to the last that is."""
    found = number
    while number > 0 and abs(number - found) < _LOST_IN_A_ROW_MAX:
        if isinstance(_read_one(base, path, number), Leaf):
            found = number
        number += step
    return found


def _read_one(base: sqlite3.Connection, path: Path, number: int) -> Leaf | LostLeaf:
    try:
        rows = base.execute(f"{_SELECT} WHERE number = ?", (number,)).fetchall()
    except SQL_ERRORS as error:
        return LostLeaf(number, f"leaf {number} cannot be read: {error}", [])
    return _read(path, rows[0]) if rows else LostLeaf(number, f"leaf {number} is missing", [])


def _read(path: Path, row: tuple[object, object, object, object]) -> Leaf | LostLeaf:
    try:
        return decode_leaf(path, row)
    except Damaged as damaged:
        return LostLeaf(damaged.leaf, damaged.what, decode_anyway(row[3]))
