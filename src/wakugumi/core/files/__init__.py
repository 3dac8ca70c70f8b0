"""Which worker fetches which content from which source, and which caches are where?

`machine` is the machine that the leader drives beside its own (`roles/leader/files/caches.py`); the other files are its
parts: `catalogue` (caches), `placement` (puts), `sources` (transfers).
"""
