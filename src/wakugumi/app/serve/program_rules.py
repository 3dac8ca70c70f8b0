"""What do programs get of a worker, and as whom do they run? The options of all commands that run them for others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from cyclopts import Parameter

from wakugumi.adapters.programs.processes import ProgramRules
from wakugumi.adapters.programs.run_as import user_named
from wakugumi.app import settings
from wakugumi.core.environment import EnvRules, check_pattern
from wakugumi.errors import ConfigError, Refused


@Parameter(name="*")
@dataclass(frozen=True)
class ProgramOptions:
    """As they were said."""

    run_as: Annotated[
        str | None,
        Parameter(
            help="Root runs programs as this user: a name, a number, or UID:GID. As the worker itself if nothing is "
            "said. [WAKU_RUN_AS]",
        ),
    ] = None
    clean_env: Annotated[
        bool | None,
        Parameter(
            negative="",
            show_default=False,
            help="Programs get only PATH, HOME, LANG, LC_*, TZ and TMPDIR of the environment, and what --pass-env "
            "names. [WAKU_CLEAN_ENV]",
        ),
    ] = None
    pass_env: Annotated[
        tuple[str, ...],
        Parameter(
            negative="",
            consume_multiple=False,
            show_default=False,
            help="A variable, or a pattern such as AWS_*, that programs get although its name looks like a secret. May "
            "be repeated. [WAKU_PASS_ENV, with commas]",
        ),
    ] = ()
    hold_env: Annotated[
        tuple[str, ...],
        Parameter(
            negative="",
            consume_multiple=False,
            show_default=False,
            help="A variable, or a pattern such as SITE_*, that programs do not get; those that look like secrets "
            "(*_TOKEN, *PASSWORD*, AWS_* …) they never get. May be repeated. [WAKU_HOLD_ENV, with commas]",
        ),
    ] = ()

    job_env: Annotated[
        tuple[str, ...],
        Parameter(
            negative="",
            consume_multiple=False,
            show_default=False,
            help="A variable, or a pattern, that jobs may set (--env of `waku run`), and no others; `none`: none at "
            "all. If nothing is said, all but those by which a program would run other code (PATH, LD_*, PYTHONPATH "
            "…). May be repeated. [WAKU_JOB_ENV, with commas]",
        ),
    ] = ()

    def rules(self) -> ProgramRules:
        """What holds of the flags and of wherever else it is said. Raises ConfigError."""
        settable = _patterns(settings.JOB_ENV, self.job_env)
        env = EnvRules(
            hold=_patterns(settings.HOLD_ENV, self.hold_env),
            pass_on=_patterns(settings.PASS_ENV, self.pass_env),
            clean=settings.CLEAN_ENV.value(self.clean_env),
            settable=None if not settable else () if settable == (_NONE,) else settable,
        )
        name = settings.RUN_AS.value(self.run_as)
        return ProgramRules(env, user_named(name) if name else None)

    def words(self) -> tuple[str, ...]:
        """The same flags for another process."""
        lists = {"--pass-env": self.pass_env, "--hold-env": self.hold_env, "--job-env": self.job_env}
        said = [word for flag, values in lists.items() for value in values for word in (flag, value)]
        as_user = ("--run-as", self.run_as) if self.run_as is not None else ()
        return (*as_user, *said, *(["--clean-env"] if self.clean_env else []))


_NONE: Final = "none"
OPTIONS: Final = ProgramOptions()
"""Nothing was said."""


def _patterns(setting: settings.Setting[str], said: tuple[str, ...]) -> tuple[str, ...]:
    text = setting.value(",".join(said) if said else None)
    try:
        return tuple(check_pattern(word) for part in text.split(",") if (word := part.strip()))
    except Refused as no:
        raise ConfigError(f"--{setting.name}: {no.message}", f"write --{setting.name} 'MY_*'") from None
