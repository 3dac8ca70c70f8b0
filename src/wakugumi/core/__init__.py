"""DECIDES. Pure and synchronous: no sockets, files, clock, randomness, logging or asyncio on this floor.

Five state machines with the same four doors (`leader/machine.py`, `files/machine.py`, `runner/slots.py`,
`client/failover.py`, `gateway/machine.py`); read `step.py` first, and `flows.py` for decisions that need several
answers. The files beside the rooms hold the nouns that all of them use.

    event    a fact that a state machine is handed
    step     its answer: `keep` must be on disk before anything else happens, `do` is done then, in this order
    effect   one thing to do
    tick     the time has come that a state machine asked for
"""
