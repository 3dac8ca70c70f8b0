"""SHOWS. The command line, settings and everything a person looks at."""

EXIT_INTERRUPTED = 130
"""128 + SIGINT: what a shell says about a command that Ctrl-C ended."""
