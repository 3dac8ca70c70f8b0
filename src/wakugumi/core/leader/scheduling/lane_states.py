"""Where does a lane wait? In one line at most."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class LaneState(Enum):
    NOWHERE = auto()
    """The lane has nothing that may run, or is being served."""
    READY = auto()
    """The lane is in the line of lanes to be served."""
    PARKED = auto()
    """The lane waits for credit of all its pools, or for a pool."""
    REFUSED = auto()
    """The lane is parked although there is credit: all its turns that may run are aside."""


NOWHERE: Final = LaneState.NOWHERE
READY: Final = LaneState.READY
PARKED: Final = LaneState.PARKED
REFUSED: Final = LaneState.REFUSED
"""Members of LaneState as module names, which are found faster."""
