"""A guard that writes down which keys were shown."""

from __future__ import annotations

from tests.kit.guards import ScriptedGuard

from wakugumi.core.access.identity import Identity, anybody
from wakugumi.wire.access_line import Key


class ShownKeys(ScriptedGuard):
    """Lets everybody in."""

    def __init__(self) -> None:
        super().__init__(self._note)
        self.keys: list[Key | None] = []

    def _note(self, key: Key | None, _forwarded: bool) -> Identity:
        self.keys.append(key)
        return anybody()
