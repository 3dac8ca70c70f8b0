"""A worker's folder of jobs: one directory per job, the kept results, and the process that owns the folder."""
