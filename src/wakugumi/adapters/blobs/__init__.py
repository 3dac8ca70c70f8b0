"""Content by its hash: where it is stored (folder, HTTP, S3), and how it is served, cached and lent to jobs."""
