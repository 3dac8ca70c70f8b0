"""The output of commands: tables, progress, `top`."""
