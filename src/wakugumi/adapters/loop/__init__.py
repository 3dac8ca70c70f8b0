"""The event loop and everything that runs on it: the driver of state machines, tasks, threads, signals."""
