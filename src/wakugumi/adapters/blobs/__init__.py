"""Content by its hash: where it lies (folder, HTTP, S3), how it is served, cached and lent to jobs."""
