"""How long does a leader have to greet, and what if it does not? The same for a worker and a client."""

from __future__ import annotations

from typing import Final

WELCOME_WITHIN_S: Final = 1.0
"""A leader of our own greets at once. One that has not by then is an old one, if it may be one: it gets the nine types
and nothing else."""
WELCOME_AGAIN_WITHIN_S: Final = 5.0
SILENT_LEFT: Final = 3
"""Where an own leader was, one that says nothing is rather dead than old: after this long it is left and dialled again,
so often. The death of an old one is noticed by the system alone, late."""
