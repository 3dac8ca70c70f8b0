"""How a worker or node uses its slots: credit for leaders, places for callers, and results that are still asked for.

`slots` is the machine, driven by `roles/runner/station.py`.

    borrowed    of a slot: a caller's job runs in it, although a leader was offered it as credit
    due         of a job: its leader paid for it with credit that is borrowed; it takes the next slots that come free
    held back   of credit: other programs use so much of the CPU that it is offered a little later
    sick        of a machine: it cannot start programs, and its worker rests
    owed        of a result: its leader has not confirmed it yet
"""
