"""Which worker gets which job next? Lanes of jobs, a roster of workers, and the rules that match them.

lane       the queue of one subject; lanes take turns
turn       one client's jobs in one lane; the clients of a lane take turns
pool       the workers that share one pattern
ranking    the rule that decides which worker takes the next job
parked     waiting until something changes: a lane without credit, a client at its cap
aside      a turn that can use none of the available credit: its jobs wait for a home, or for room
large      a job that takes several slots at once
kept free  a worker that gets one large job next and no other, once it has room
"""
