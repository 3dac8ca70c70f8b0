"""What this machine has: CPUs, their use, memory, and whether a program can be started."""
