"""Which leaves of a damaged journal can still be read? All whose checksum is right; others are reported.

The leaves are read in the order of SQLite's table and, where that is broken, one by one by their numbers. Content
without the right checksum is not trusted, least of all the numbers at both ends.
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
"""Leaves that are tried beyond the last one found, if the file does not tell how many there are."""
_SELECT: Final = "SELECT number, written_at, crc, records FROM log"


class LostLeaf(NamedTuple):
    number: int
    why: str
    records: list[LeaderKeep]
    """Readable records; not to be trusted."""


def salvage(base: sqlite3.Connection, path: Path) -> Iterator[Leaf | LostLeaf]:
    """Every leaf between the first and the last one found, readable or not, in order."""
    first, last = _ends(base, path)
    number = first
    while number <= last:
        try:
            for row in base.execute(f"{_SELECT} WHERE number BETWEEN ? AND ? ORDER BY number", (number, last)):
                leaf = _read(path, row)
                if leaf.number < number or (leaf.number > number and isinstance(leaf, LostLeaf)):
                    break  # A number that cannot be trusted.
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
    """Numbers of the first and the last leaf; (1, 0) if none is found."""
    first, last = _end(base, path, "ASC"), _end(base, path, "DESC")
    if not first and not last:
        return 1, 0
    return first or _try_on(base, path, last, -1), last or _try_on(base, path, first, 1)


def _end(base: sqlite3.Connection, path: Path, order: str) -> int:
    """The number of the outermost leaf; 0 if no leaf is intact, or the table is damaged before one.

    The number of a damaged leaf is not trusted: it follows from its distance to the first intact one.
    """
    outwards = -1 if order == "ASC" else 1
    with contextlib.suppress(*SQL_ERRORS):
        for damaged, row in enumerate(base.execute(f"{_SELECT} ORDER BY number {order}")):
            leaf = _read(path, row)
            if isinstance(leaf, Leaf):
                return max(1, leaf.number + outwards * damaged)
    return 0


def _try_on(base: sqlite3.Connection, path: Path, number: int, step: int) -> int:
    """From a leaf that exists, try one number after the other; returns the last one found."""
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
