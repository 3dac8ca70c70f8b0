"""Programs as processes: started, limited, watched and ended, with their output in files.

guardian   the small process above a worker that ends all processes that a job leaves behind
mark       a variable that every program of a jobs folder carries: the next worker there ends the processes with it
"""
