"""Running jobs, in a worker and in a node: `station` drives `core/runner/slots.py`, `runner` runs one job."""
