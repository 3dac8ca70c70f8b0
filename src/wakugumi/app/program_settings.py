"""What do programs get of a worker, and as whom do they run? The options of all commands that run them for others."""

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
    """What programs get of the process that starts them."""

    run_as: Annotated[
        str,
        Setting("User to run programs as, for a root runner: a name, a number, or UID:GID.", shown="the runner's own"),
    ] = ""
    clean_env: Annotated[
        bool,
        Setting("Give programs only PATH, HOME, LANG, LC_*, TZ and TMPDIR of the environment, and --pass-env."),
    ] = False
    pass_env: Annotated[
        tuple[str, ...],
        Setting(
            "Variable, or pattern such as AWS_*, that programs get although its name looks like a secret.",
            joined=",",
            read=_patterns,
        ),
    ] = ()
    hold_env: Annotated[
        tuple[str, ...],
        Setting(
            "Variable, or pattern such as SITE_*, that programs do not get; those that look like secrets (*_TOKEN, "
            "*PASSWORD*, AWS_* …) are held back anyway.",
            joined=",",
            read=_patterns,
        ),
    ] = ()
    job_env: Annotated[
        tuple[str, ...],
        Setting(
            "Variable, or pattern, that jobs may set (--env of `waku run`), and no others; none: none at all.",
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
