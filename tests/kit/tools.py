"""Where are the tools that are no Python packages? A test that misses one is skipped, and the summary counts it."""

from __future__ import annotations

import shutil

import pytest

MISSING = "missing tool"
"""How the reason of such a skip begins: `conftest.py` counts them."""


def tool(name: str) -> str:
    """Its path."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{MISSING}: {name}; `make tools` installs it")
    return found
