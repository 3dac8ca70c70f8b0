"""Resources of this machine: CPUs, their use, memory, and whether a program can be started."""
