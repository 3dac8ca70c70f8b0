"""How a worker or node uses its slots: credit for leaders, places for callers, and unconfirmed results.

`slots` is the machine, driven by `roles/runner/station.py`.

    borrowed    slot in which a caller's job runs although it was offered to a leader as credit
    due         job assigned for borrowed credit; takes the next slots that come free
    held back   credit that is offered later because other programs use the CPU
    sick        machine that cannot start programs; its worker rests
    owed        result that the leader has not confirmed yet
"""
