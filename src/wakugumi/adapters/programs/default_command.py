"""Which command does a job without a program run? The default command of its node. (SPEC N1, N2)

    pricer                      pricer <input>
    pricer --fast {input} -v    pricer --fast <input> -v

The first word is a program of the exec directory. `{input}` stands for the path of the job's one file; without it the
path is the last argument. There is no shell: quotes group words, and no other character has a meaning.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from wakugumi.core.names import INPUT, check_exec_name
from wakugumi.errors import ConfigError, Refused


class DefaultCommand(NamedTuple):
    """A program's name, and its arguments as written."""

    exec_name: str
    args: tuple[str, ...] = (INPUT,)

    def arguments(self, more: Sequence[str], inputs: Sequence[str]) -> list[str]:
        """Arguments for a job with these own arguments and these files, of which there must be one. Raises Refused."""
        if len(inputs) != 1:
            raise Refused("bad-request", f"a job that names no program has one input file, not {len(inputs)}")
        return [word.replace(INPUT, inputs[0]) for word in [*self.args[:-1], *self._last(more)]]

    def _last(self, more: Sequence[str]) -> list[str]:
        """A job's own arguments go at the end, but before an input that is last; if they contain `{input}` themselves,
        it is not added again."""
        last = self.args[-1]
        if last != INPUT:
            return [last, *more]
        return [*more] if any(INPUT in word for word in more) else [*more, last]


def parse_command(text: str) -> DefaultCommand:
    """Read the value of `--command` or `--program`. Raises ConfigError."""
    hint = 'name a program of the exec directory, as in --command "pricer --fast {input}"'
    try:
        words = shlex.split(text)
        check_exec_name(words[0] if words else "")
    except (ValueError, Refused) as error:
        raise ConfigError(f"{text[:80]!r} is not a command: {error}", hint) from None
    if any("\0" in word for word in words):
        raise ConfigError(f"{text[:80]!r} is not a command: it has a NUL", hint)
    args = tuple(words[1:])
    return DefaultCommand(words[0], args if any(INPUT in word for word in args) else (*args, INPUT))
