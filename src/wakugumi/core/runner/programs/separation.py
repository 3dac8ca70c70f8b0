"""How far are programs apart from the worker that runs them, may the worker start like this, and how is it said? (O1)

    programs run as     with                    a sender of jobs reaches
    another user        --run-as USER           nothing of the worker
    the worker's user   --same-user             all that this user can, also the worker's key
    root                --as-root               all of the machine

Where keys have rules, a program that reaches the worker's key gets round them. So there the operator must choose one of
the three aloud; elsewhere a worker of root only warns.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Separation(NamedTuple):
    """A worker's degree of separation."""

    said: str
    """Words for the first line of its log; empty if there is no surprise."""
    refused: str = ""
    """Why the worker may not start; empty if it may."""
    hint: str = ""


UNJUDGED: Final = Separation("")
"""Of a machine that runs programs for its own user alone."""


def separation(
    worker_uid: int, run_as: str = "", *, as_root: bool = False, same_user: bool = False, keys_have_rules: bool = False
) -> Separation:
    """`run_as` is the name of the programs' user, empty for the worker's own; the flags are the operator's choice."""
    if run_as:
        flag = "--as-root" if as_root else "--same-user" if same_user else ""
        refused = f"--run-as {run_as} and {flag} contradict each other" if flag else ""
        return Separation(f"run-as={run_as}", refused, "say one of them" if flag else "")
    if worker_uid == 0:
        said = "run-as=root: whoever may send jobs is root on this machine"
        if as_root:
            return Separation(f"{said} (--as-root)")
        return Separation(
            f"{said} (--run-as USER changes that)",
            "keys have rules here, and every sender of jobs would be root, beyond all rules" if keys_have_rules else "",
            "say --run-as USER, or --as-root if that is what you want" if keys_have_rules else "",
        )
    if same_user:
        return Separation("run-as=same-user: programs reach all that this user can (--same-user)")
    if not keys_have_rules:
        return Separation("")
    return Separation(
        "run-as=same-user: programs reach all that this user can",
        "keys have rules here, and programs of the worker's own user could use the worker's key, beyond all rules",
        "start it as root with --run-as USER, or say --same-user if that is what you want",
    )
