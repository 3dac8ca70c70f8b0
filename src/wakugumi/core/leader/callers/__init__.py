"""Callers by HTTP as clients of the leader's machine: which of them wait for which job, and what they are answered."""
