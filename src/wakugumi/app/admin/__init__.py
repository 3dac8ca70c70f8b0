"""Commands that ask or change a running grid: status, jobs, workers, dead letters, caches, the journal, top."""
