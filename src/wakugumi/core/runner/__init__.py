"""How a worker or node uses its slots: credit for leaders, places for callers, and results that are still asked for.

`slots` is the machine, driven by `roles/runner/station.py`.
"""
