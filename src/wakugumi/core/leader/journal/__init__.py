"""What a leader writes to its journal, how it reads it again, and which requests lie only there.

leaf    one numbered row of the journal: all that one step keeps
sheaf   sixteen leaves, counted together
"""
