"""`waku drill`: a fleet of real processes, killed on purpose, and a count of what was lost."""
