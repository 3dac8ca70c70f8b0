"""A worker's files: inputs are fetched and placed, caches kept and served, large results sent."""
