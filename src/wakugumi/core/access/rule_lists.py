"""Does a list of a rule allow a name or a pattern?

An entry that begins with `!` denies, and wins. Names are compared with globs (`*`, `?`), subjects with patterns. A list
without an allowing entry has the default beside its denials.
"""

from __future__ import annotations

import functools
import re

from wakugumi.core.subject import SubjectError, covers, overlaps, parse_pattern, word_patterns
from wakugumi.core.visible_text import is_plain_name
from wakugumi.errors import Refused, bad_request
from wakugumi.limits.access import RULE_ENTRIES_MAX, RULE_ENTRY_CHARS_MAX

Entries = tuple[str, ...]


def with_default(entries: Entries, default: Entries) -> Entries:
    """The list with its default, if it only denies."""
    return entries if any(entry[:1] != "!" for entry in entries) else (*default, *entries)


def allows_name(entries: Entries, name: str) -> bool:
    allowed, denied = _globs(entries)
    return allowed.fullmatch(name) is not None and (denied is None or denied.fullmatch(name) is None)


def denies_name(entries: Entries, name: str) -> bool:
    """Does an entry deny the name, whatever others allow?"""
    denied = _globs(entries)[1]
    return denied is not None and denied.fullmatch(name) is not None


def allows_pattern(entries: Entries, pattern: str) -> bool:
    """Is every subject of the pattern allowed, and none denied?"""
    if any(entry[0] == "!" and overlaps(entry[1:], pattern) for entry in entries):
        return False
    return covers([entry for entry in entries if entry[0] != "!"], pattern)


def allows_all_names(entries: Entries) -> bool:
    return "*" in entries and not any(entry[0] == "!" for entry in entries)


def shown(entries: Entries) -> str:
    """The list for a sentence: `job.assign.risk.> but not job.assign.risk.x`."""
    allowed = [entry for entry in entries if entry[0] != "!"]
    denied = [entry[1:] for entry in entries if entry[0] == "!"]
    text = ", ".join(_few(allowed)) or "nothing"
    return f"{text} but not {', '.join(_few(denied))}" if denied else text


def name_entries(what: str, entries: Entries) -> Entries:
    """The entries, checked. Raises Refused."""
    _check_count(what, entries)
    for entry in entries:
        if not entry.removeprefix("!") or len(entry) > RULE_ENTRY_CHARS_MAX or not is_plain_name(entry):
            raise bad_request(
                f"{entry[:80]!r} of {what} is no name: it takes 1 to {RULE_ENTRY_CHARS_MAX} visible characters",
                "* stands for any characters and ? for one; ! in front denies",
            )
    return entries


def pattern_entries(what: str, entries: Entries) -> Entries:
    """The entries as patterns: a bare word is a group, as in a worker's list. Raises Refused."""
    _check_count(what, entries)
    found: list[str] = []
    for entry in entries:
        sign = "!" if entry.startswith("!") else ""
        try:
            found += [sign + pattern for pattern in word_patterns(parse_pattern(entry.removeprefix("!")))]
        except SubjectError as error:
            raise Refused("bad-subject", f"{what}: {error}") from None
    return tuple(dict.fromkeys(found))


@functools.lru_cache(maxsize=1024)
def _globs(entries: Entries) -> tuple[re.Pattern[str], re.Pattern[str] | None]:
    allowed = [_expression(entry) for entry in entries if entry[0] != "!"]
    denied = [_expression(entry[1:]) for entry in entries if entry[0] == "!"]
    return re.compile("|".join(allowed) or "(?!)"), re.compile("|".join(denied)) if denied else None


def _expression(glob: str) -> str:
    """The glob as a regular expression that never looks back: each `*` but the last ends at the first place where the
    text behind it fits."""
    first, *others = [re.escape(part).replace(r"\?", ".") for part in glob.split("*")]
    if not others:
        return f"(?s:{first})"
    *inner, last = others
    return f"(?s:{first}{''.join(f'(?>.*?{part})' for part in inner if part)}.*{last})"


def _few(entries: list[str]) -> list[str]:
    """At most eight: a sentence must stay one."""
    return entries if len(entries) <= 8 else [*entries[:7], f"{len(entries) - 7} more"]


def _check_count(what: str, entries: Entries) -> None:
    if len(entries) > RULE_ENTRIES_MAX:
        raise bad_request(f"{len(entries)} entries of {what}: a key has at most {RULE_ENTRIES_MAX}")
