"""A leader's blobs and caches, and the jobs that wait for blobs that are still to come."""
