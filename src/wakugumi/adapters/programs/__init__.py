"""Programs as processes: started, limited, watched and ended, with their output in files.

guardian   the small process above a worker that ends all processes left by jobs
mark       a variable of every program of a jobs folder: the next worker there ends the processes that have it
"""
