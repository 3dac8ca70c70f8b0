"""A leader's blobs and caches, and the frames that wait for missing blobs."""
