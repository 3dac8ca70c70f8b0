"""Units of the other limits."""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
"""Bytes."""
MIB: Final = 1024 * KIB
"""Bytes."""
