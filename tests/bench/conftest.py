"""Lets the tests import the benchmark's files, which are scripts side by side and no installed package."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
