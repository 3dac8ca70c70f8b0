"""How is the command line of `waku` run? It is parsed, one command is called, and every error is shown here.

A user's mistake is one sentence, a hint, and the exit code of the error table; never a traceback. Words after `--` are
cut off first: they belong to the program. An embedded grid starts before heavy imports, while the command line is read.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

from wakugumi.app import EXIT_INTERRUPTED
from wakugumi.app.show.output import say, say_error
from wakugumi.app.work import early
from wakugumi.errors import EXIT_JOB_FAILED, EXIT_USAGE, WakugumiError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cyclopts import App, CycloptsError


def main() -> None:
    """The command `waku`, also called `wakugumi`."""
    # A closed standard stream would let one of our sockets take its number.
    while (file := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(file)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # A terminal that knows no "…" shows "?" instead.
    sys.exit(call(sys.argv[1:]))


def call(words: Sequence[str]) -> int:
    """Runs a command line and returns the exit code."""
    ours, for_program = _cut(words)
    try:
        _hide_keys(ours)
        early.start(ours)
        code = _run_plainly(ours[1], for_program) if _is_plain_run(ours) else _dispatch(ours, for_program)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except WakugumiError as error:
        say_error(str(error), error.hint)
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _give_up_stdout()  # The reader has closed the pipe, as `head` does: no error.
        return 0
    except OSError as error:
        _give_up_stdout()
        say_error(f"operating system error: {error}")
        return EXIT_JOB_FAILED
    finally:
        early.drop()


def _hide_keys(words: Sequence[str]) -> None:
    """Other users of the machine see our arguments: a key among them is overwritten, and the user is warned."""
    suspects = [word for word in words if "@" in word]
    if not suspects:
        return
    from wakugumi.adapters.programs.linux import hide_keys_in_arguments
    from wakugumi.wire.access_line import has_key

    if not any(map(has_key, suspects)):
        return
    hide_keys_in_arguments()
    if words[0] != "join":
        say(
            "warning: other users of this machine could see the key among the arguments; name the leader with its key "
            "in WAKU_LEADER, or join it once (`waku join -`) and leave the key out"
        )


def build(words: Sequence[str] = ()) -> App:
    """All commands. Only a command whose help is requested is imported."""
    from cyclopts import App, Group

    from wakugumi import __version__
    from wakugumi.app.commands import ABOUT, COMMANDS, EXAMPLES, FAMILIES, help_page

    app = App(
        name="waku",
        version=__version__,
        help=ABOUT,
        usage="Usage: waku COMMAND …",
        help_epilogue=EXAMPLES,
        help_format="plaintext",
        group_commands=Group("Other", sort_key=9),
        print_error=False,
        exit_on_error=False,
    )
    families: dict[str, App] = {}
    inside = Group("Commands")
    for at, (title, commands) in enumerate(COMMANDS.items()):
        group = Group(title, sort_key=at)
        for command in commands:
            family, _, name = command.name.rpartition(" ")
            if family and family not in families:
                about, examples = FAMILIES[family]
                usage = f"Usage: waku {family} COMMAND …"
                families[family] = App(name=family, help=about, group=group, usage=usage, help_epilogue=examples)
                app.command(families[family])
            page = help_page(command) if _asks_help(words, command.name) else None
            (families[family] if family else app).command(
                command.function,
                name=name,
                group=inside if family else group,
                help=page.about if page else command.summary,
                usage=page and page.usage,
                help_epilogue=page and page.examples,
                sort_key=commands.index(command),
            )
    return app


def _cut(words: Sequence[str]) -> tuple[list[str], tuple[str, ...] | None]:
    """Words before and after `--`; None if there is no `--`."""
    if "--" not in words:
        return list(words), None
    at = list(words).index("--")
    return list(words[:at]), tuple(words[at + 1 :])


def _asks_help(words: Sequence[str], name: str) -> bool:
    called = [word for word in words if word not in {"--help", "-h"}]
    return len(called) < len(words) and called[: name.count(" ") + 1] == name.split()


def _is_plain_run(words: Sequence[str]) -> bool:
    return len(words) == 2 and words[0] == "run" and not words[1].startswith("-")


def _run_plainly(program: str, args: tuple[str, ...] | None) -> int:
    """`waku run PROGRAM` without flags needs no parser."""
    from wakugumi.app import logs
    from wakugumi.app.client_settings import CONNECTION, ClientSettings
    from wakugumi.app.settings import load
    from wakugumi.app.work.one_job import run_one
    from wakugumi.app.work.target import choose

    client = load(ClientSettings, fields=f"timeout_s log_level log_json {CONNECTION}".split())
    logs.start(client, quiet=True)
    return run_one(choose(program, client, slots=1), {"args": args or (), "timeout_s": client.timeout_s})


def _dispatch(words: list[str], for_program: tuple[str, ...] | None) -> int:
    from cyclopts import CycloptsError

    app = build(words)
    try:
        function, bound, ignored = app.parse_args(words)
    except CycloptsError as error:
        return _usage(error)
    extra: dict[str, tuple[str, ...]] = {}
    if "program_args" in ignored:
        extra["program_args"] = for_program or ()
    elif for_program is not None and function not in {app.help_print, app.version_print}:
        say_error("this command runs no program and takes no words after --", "leave out -- and the words after it")
        return EXIT_USAGE
    result = function(*bound.args, **bound.kwargs, **extra)
    return result if isinstance(result, int) else 0


def _usage(error: CycloptsError) -> int:
    from cyclopts import UnusedCliTokensError

    command = " ".join(error.command_chain or ())
    help_page = f"waku {command} --help" if command else "waku --help"
    if isinstance(error, UnusedCliTokensError):
        unused = " ".join(error.unused_tokens or ())
        text = f"waku {command} does not take {unused!r}" if command else f"there is no command {unused!r}"
        hint = f"put words for the program after --; see `{help_page}`" if command else f"see `{help_page}`"
    else:
        text, hint = str(error), f"see `{help_page}`"
    say_error(text[:1].lower() + text[1:] if not text[:2].isupper() else text, hint)
    return EXIT_USAGE


def _give_up_stdout() -> None:
    """Further output goes to /dev/null, also the buffered rest that Python writes at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
