"""A worker's files: fetched and placed inputs, kept and served caches, uploaded results."""
