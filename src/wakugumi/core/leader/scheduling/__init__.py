"""Which worker gets which job next? Lanes of jobs, a roster of workers, and the rules that match them.

lane       the queue of one subject; lanes take turns
turn       one client's jobs in one lane; the clients of a lane take turns
pool       the workers that share one pattern
ranking    the rule that says which worker takes the next job
parked     out of the way until something changes: a lane without credit, a client at its cap
aside      a turn that can use none of the credit there is: its jobs wait for a home, or for room
large      of a job: it takes several slots at once
kept free  of a worker: it gets nothing but one large job, once it has room for it
"""
