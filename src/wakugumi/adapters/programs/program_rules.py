"""Which variables of this process's environment do programs get, and as which user do they run? (SPEC O1, U8)"""

from __future__ import annotations

import logging
import os
from typing import Final, NamedTuple

from wakugumi.adapters.machine.cgroups import JobCgroups
from wakugumi.adapters.programs.marks import MARK_VARIABLE
from wakugumi.adapters.programs.process_tree import JOB_VARIABLE
from wakugumi.adapters.programs.run_as import User, users_environment
from wakugumi.core.environment import EnvRules, held_back, is_passed_by_name
from wakugumi.core.runner.programs.job_limits import NO_LIMITS, OperatorLimits

log = logging.getLogger("wakugumi.process")


class ProgramRules(NamedTuple):
    """Environment and user of programs."""

    env: EnvRules = EnvRules()
    user: User | None = None
    """None: the user of this process."""
    limits: OperatorLimits = NO_LIMITS
    """Limits of every job here, beside those that a job asks for."""
    cgroups: JobCgroups | None = None
    """Cgroups of jobs with limits; None where the machine has none for us."""

    @property
    def runs_as_root(self) -> bool:
        """Whether programs of others have root's rights here. The programs of root's own grid are not others'."""
        return self.user is None and os.geteuid() == 0 and not self.env.whole


RULES: Final = ProgramRules()
"""All defaults."""


def environment_for(rules: ProgramRules) -> dict[bytes, bytes]:
    """Variables of this process for programs. The names of withheld ones are logged."""
    held = held_back(os.environ, rules.env)
    if held:
        log.info("variables withheld from programs names=%s", ",".join(held))
    ours = {JOB_VARIABLE, MARK_VARIABLE}  # Set if a job started this process.
    left_out = {os.fsencode(name) for name in ours.union(held)}
    passed = {name: value for name, value in os.environb.items() if name not in left_out}
    if rules.user is None:
        return passed
    named = frozenset(name for name in passed if is_passed_by_name(os.fsdecode(name), rules.env))
    return users_environment(rules.user, passed, named)
