"""How finely are times told apart in counts of jobs, and how is the rest called?"""

from __future__ import annotations

from typing import Final

BUCKETS_PER_DOUBLING: Final = 4
SHORTEST_S: Final = 0.0001
"""Shorter times share one bucket: a turn of the loop takes as long."""
BOUNDS_S: Final = [SHORTEST_S * 2 ** (number / BUCKETS_PER_DOUBLING) for number in range(131)]
"""A bucket holds values below its bound and not below the one before. The last bound is just above a week; one more
bucket holds longer values."""
OTHERS: Final = "(others)"
"""Subject or group of values beyond the bound of distinct ones."""
