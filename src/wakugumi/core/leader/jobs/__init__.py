"""The life of a leader's jobs: accepted, run, moved, ended, kept, forgotten.

`lifecycle` changes their states, as the table in `states` allows.
"""
