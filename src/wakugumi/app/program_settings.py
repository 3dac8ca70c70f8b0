"""Which environment and which user do programs get? Settings of all commands that run programs for others."""

from __future__ import annotations

from typing import Annotated

import msgspec

from wakugumi.adapters.programs.program_rules import ProgramRules
from wakugumi.adapters.programs.run_as import user_named
from wakugumi.core.environment import EnvRules, check_pattern
from wakugumi.core.setting import Setting, words
from wakugumi.errors import ConfigError, Refused


def _patterns(text: str, where: str) -> tuple[str, ...]:
    try:
        return tuple(check_pattern(word) for word in words(text, ","))
    except Refused as no:
        raise ConfigError(f"{where}: {no.message}", f"write {where} 'MY_*'") from None


class ProgramSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The environment and the user of programs."""

    run_as: Annotated[
        str,
        Setting("User that programs run as, if the runner is root: name, number or UID:GID.", shown="the runner's own"),
    ] = ""
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
        return ProgramRules(env, user_named(self.run_as) if self.run_as else None)

    def words(self) -> tuple[str, ...]:
        """The same as flags for another process."""
        lists = {"--pass-env": self.pass_env, "--hold-env": self.hold_env, "--job-env": self.job_env}
        said = [word for flag, values in lists.items() for value in values for word in (flag, value)]
        as_user = ("--run-as", self.run_as) if self.run_as else ()
        return (*as_user, *said, *(["--clean-env"] if self.clean_env else []))
