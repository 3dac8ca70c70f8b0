"""Which file does a user mean by a program, and what is it called in a job?"""

from __future__ import annotations

import os
import re

from wakugumi.core.names import check_exec_name
from wakugumi.errors import ConfigError, Refused


def find(program: str) -> str:
    """The file that a path, or a name on PATH, means. Raises ConfigError."""
    # `shutil.which` would load all archive formats first.
    paths = [program] if "/" in program else [os.path.join(folder, program) for folder in os.get_exec_path()]
    for path in paths:
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return os.path.abspath(path)
    if os.path.isdir(program):
        raise ConfigError(f"{program} is a folder, not a program")
    if os.path.exists(program):
        if "/" in program:
            raise ConfigError(f"{program} cannot be executed", f"give it its run bit: chmod +x {program}")
        raise ConfigError(f"no program {program} on PATH", f"for the file here, write ./{program}")
    if "/" in program:
        raise ConfigError(f"the program {program} does not exist")
    raise ConfigError(f"no program {program} on PATH", "write a path for one that is not there, such as ./price.py")


def exec_name(path: str) -> str:
    """The name of a program in jobs: its file's name, with characters replaced that no exec name may have."""
    name = os.path.basename(path)
    try:
        return check_exec_name(name)
    except Refused:
        return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64].strip("_") or "program"
