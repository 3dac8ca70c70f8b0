"""RUNS. A state machine and its adapters make a process: leader, worker, client."""
