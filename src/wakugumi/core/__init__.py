"""DECIDES. Pure and synchronous: no sockets, files, clock, randomness, logging or asyncio on this floor.

Four state machines with the same four doors (`leader/machine.py`, `files/machine.py`, `runner/slots.py`,
`client/failover.py`); read `step.py` first. The files beside the rooms hold the nouns that all of them use.
"""
