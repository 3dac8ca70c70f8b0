"""Commands that do work: run, map, submit, broadcast, send, demo."""
