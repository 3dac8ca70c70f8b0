"""Limits of a program on its machine, and its distance from the worker that runs it."""
