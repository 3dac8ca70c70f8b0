"""What do programs get of this process's environment, and as whom do they run? (SPEC O1, U8)"""

from __future__ import annotations

import logging
import os
from typing import Final, NamedTuple

from wakugumi.adapters.programs.marks import MARK_VARIABLE
from wakugumi.adapters.programs.process_tree import JOB_VARIABLE
from wakugumi.adapters.programs.run_as import User, users_environment
from wakugumi.core.environment import EnvRules, held_back, is_passed_by_name

log = logging.getLogger("wakugumi.process")


class ProgramRules(NamedTuple):
    """What programs get of us, and as whom they run."""

    env: EnvRules = EnvRules()
    user: User | None = None
    """None: as we do."""

    @property
    def runs_as_root(self) -> bool:
        """Programs of others have the rights of root here. Those of a grid that is root's own are not others'."""
        return self.user is None and os.geteuid() == 0 and not self.env.whole


RULES: Final = ProgramRules()
"""Nothing was said."""


def environment_for(rules: ProgramRules) -> dict[bytes, bytes]:
    """What programs get of our own. What they do not get is logged, by name."""
    held = held_back(os.environ, rules.env)
    if held:
        log.info("programs do not get these variables of the environment: %s", ", ".join(held))
    ours = {JOB_VARIABLE, MARK_VARIABLE}  # Of a job that started us, if one did.
    left_out = {os.fsencode(name) for name in ours.union(held)}
    passed = {name: value for name, value in os.environb.items() if name not in left_out}
    if rules.user is None:
        return passed
    said = frozenset(name for name in passed if is_passed_by_name(os.fsdecode(name), rules.env))
    return users_environment(rules.user, passed, said)
