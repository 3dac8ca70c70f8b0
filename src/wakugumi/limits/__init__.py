"""Every bound and every default, with its unit in the name and its reason beside it. One file per room.

A bound that a peer, a client or a user can run into stands here. A bound of one file alone, such as the size of its own
table, stands at the top of that file.
"""
