"""The leader as a process.

`leader` drives `core/leader/machine.py`, `connection` hears a peer, `effects` answers it.
"""
