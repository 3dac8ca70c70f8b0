"""A node: jobs by HTTP or lines, one machine, no leader. Runs them as a worker does (`roles/runner`)."""
