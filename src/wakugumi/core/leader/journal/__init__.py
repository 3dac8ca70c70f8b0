"""The leader's journal: what is written, how is it read again, and which requests are only there?

leaf    one numbered row of the journal: all that one step keeps
sheaf   sixteen leaves, counted together
"""
