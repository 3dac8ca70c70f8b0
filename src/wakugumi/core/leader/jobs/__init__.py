"""The life of a leader's jobs: accepted, run, moved, ended, kept, forgotten.

`lifecycle` makes every change of state.
"""
