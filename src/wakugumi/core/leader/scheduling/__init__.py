"""Which worker gets which job next: lanes of jobs, a roster of workers, and the rules that bring them together."""
