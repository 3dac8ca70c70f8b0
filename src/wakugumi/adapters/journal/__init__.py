"""The leader's journal on disk: SQLite with one writer thread, its reader, its reserve, and its repair."""
