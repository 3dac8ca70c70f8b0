"""The leader as a process.

`leader` drives `core/leader/machine.py`, `connection` reads frames of a peer, `effects` sends frames to it.
"""
