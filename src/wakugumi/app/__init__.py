"""SHOWS. The command line, settings and everything a person looks at."""

EXIT_INTERRUPTED = 130
"""128 + SIGINT, as shells report a command that Ctrl-C ended."""
