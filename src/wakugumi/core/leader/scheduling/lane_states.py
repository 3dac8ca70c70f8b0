"""Where does a lane wait? In one line at most: for its service, or for credit."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class LaneState(Enum):
    """Where a lane waits: in one line at most."""

    NOWHERE = auto()
    """It has nothing that may run, or is being served."""
    READY = auto()
    """It stands in the line of lanes to be served."""
    PARKED = auto()
    """It waits for credit with all its pools, or for a pool."""
    REFUSED = auto()
    """It is parked although there is credit: all its turns that may run stand aside."""


NOWHERE: Final = LaneState.NOWHERE
READY: Final = LaneState.READY
PARKED: Final = LaneState.PARKED
REFUSED: Final = LaneState.REFUSED
"""The same as plain names, which are found faster."""
