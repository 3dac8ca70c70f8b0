"""Which environment, user and limits do programs get? Settings of all commands that run programs for others."""

from __future__ import annotations

import os
from typing import Annotated

import msgspec

from wakugumi.adapters.programs.program_rules import ProgramRules
from wakugumi.adapters.programs.run_as import user_named
from wakugumi.core.environment import EnvRules, check_pattern
from wakugumi.core.runner.programs.job_limits import OperatorLimits
from wakugumi.core.runner.programs.separation import Separation, separation
from wakugumi.core.setting import Setting, read_bytes, words
from wakugumi.errors import ConfigError, Refused


def _patterns(text: str, where: str) -> tuple[str, ...]:
    try:
        return tuple(check_pattern(word) for word in words(text, ","))
    except Refused as no:
        raise ConfigError(f"{where}: {no.message}", f"write {where} 'MY_*'") from None


def _memory(text: str, where: str) -> int:
    found = read_bytes(text, where)
    if not 0 < found < 2**62:
        raise ConfigError(f"{where} is {text!r}, and must be more than nothing", f"write {where} 4GB")
    return found


class ProgramSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The environment, the user and the limits of programs."""

    run_as: Annotated[
        str,
        Setting("User that programs run as, if the runner is root: name, number or UID:GID.", shown="the runner's own"),
    ] = ""
    as_root: Annotated[
        bool, Setting("Programs may run as root, if the runner is root: every sender of jobs is.", only_flag=True)
    ] = False
    same_user: Annotated[
        bool,
        Setting("Programs may run as the runner's own user, and reach all that this user can.", only_flag=True),
    ] = False
    job_memory: Annotated[
        int | None,
        Setting(
            "Memory limit of every job, such as 4GB. If the job asks for a limit, too, the lower one counts.",
            shown="no limit",
            read=_memory,
        ),
    ] = None
    job_processes: Annotated[
        int | None, Setting("Limit of processes of every job, as --job-memory.", shown="no limit", least=1, most=2**22)
    ] = None
    job_cpu: Annotated[
        float | None,
        Setting("Limit of CPU seconds of every job, as --job-memory.", shown="no limit", least=0.1, most=10**9),
    ] = None
    clean_env: Annotated[
        bool,
        Setting("Pass only PATH, HOME, LANG, LC_*, TZ, TMPDIR and --pass-env of the environment to programs."),
    ] = False
    pass_env: Annotated[
        tuple[str, ...],
        Setting(
            "Variable, or pattern such as AWS_*, that is passed to programs although its name looks like a secret.",
            joined=",",
            read=_patterns,
        ),
    ] = ()
    hold_env: Annotated[
        tuple[str, ...],
        Setting(
            "Variable, or pattern such as SITE_*, that is not passed to programs; names that look like secrets "
            "(*_TOKEN, *PASSWORD*, AWS_* …) need --pass-env.",
            joined=",",
            read=_patterns,
        ),
    ] = ()
    job_env: Annotated[
        tuple[str, ...],
        Setting(
            "Variable, or pattern, that jobs may set (--env of `waku run`), and no other; `none` forbids all.",
            shown="all but those that make a program run other code, such as PATH, LD_*, PYTHONPATH",
            joined=",",
            read=_patterns,
        ),
    ] = ()

    def rules(self) -> ProgramRules:
        """Raises ConfigError."""
        settable = None if not self.job_env else () if self.job_env == ("none",) else self.job_env
        env = EnvRules(hold=self.hold_env, pass_on=self.pass_env, clean=self.clean_env, settable=settable)
        limits = OperatorLimits(self.job_memory, self.job_processes, self.job_cpu)
        return ProgramRules(env, user_named(self.run_as) if self.run_as else None, limits)

    def separation(self, rules: ProgramRules, *, keys_have_rules: bool = False) -> Separation:
        """How far programs are apart from this process. Raises ConfigError if it may not run them like this."""
        found = self.judged(rules, keys_have_rules=keys_have_rules)
        if found.refused:
            raise ConfigError(found.refused, found.hint)
        return found

    def judged(self, rules: ProgramRules, *, keys_have_rules: bool) -> Separation:
        """The same, with a refusal as a part of the answer."""
        run_as = "" if rules.user is None else rules.user.name
        return separation(
            os.geteuid(), run_as, as_root=self.as_root, same_user=self.same_user, keys_have_rules=keys_have_rules
        )

    def words(self) -> tuple[str, ...]:
        """The same as flags for another process."""
        values = {
            "--run-as": (self.run_as,) if self.run_as else (),
            "--pass-env": self.pass_env,
            "--hold-env": self.hold_env,
            "--job-env": self.job_env,
            "--job-memory": _one(self.job_memory),
            "--job-processes": _one(self.job_processes),
            "--job-cpu": _one(self.job_cpu),
        }
        said = [word for flag, texts in values.items() for text in texts for word in (flag, text)]
        flags = {"--clean-env": self.clean_env, "--as-root": self.as_root, "--same-user": self.same_user}
        return (*said, *[flag for flag, is_said in flags.items() if is_said])


def _one(value: float | None) -> tuple[str, ...]:
    return () if value is None else (str(value),)
