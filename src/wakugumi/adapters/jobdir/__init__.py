"""A worker's folder of jobs: one directory per job, which results are kept, and which process owns it."""
