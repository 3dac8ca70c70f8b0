"""A grid inside the user's own program: leader and worker in a child process behind a socketpair."""
