"""DECIDES. Pure and synchronous: no sockets, files, clock, randomness, logging or asyncio on this floor.

Every state machine here (`dispatch`, `slots`, `failover`) has the same four doors; read `events` first.
"""
