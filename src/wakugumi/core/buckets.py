"""How finely are times told apart in counts of jobs, and how is the rest called?"""

from __future__ import annotations

from typing import Final

BUCKETS_PER_DOUBLING: Final = 4
SHORTEST_S: Final = 0.0001
"""What is shorter is not told apart: a turn of the loop takes as long."""
BOUNDS_S: Final = [SHORTEST_S * 2 ** (number / BUCKETS_PER_DOUBLING) for number in range(131)]
"""A bucket holds what is below its bound and not below the one before. The last is just above a week; one more bucket
holds what is longer."""
OTHERS: Final = "(others)"
"""The subject, or the group, of what is no longer told apart."""
