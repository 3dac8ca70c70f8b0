"""Where does a job go, and which workers receive it?

A subject is a name of dot-separated tokens; a pattern is a subject in which `*` stands for one token and a last `>` for
one or more. The rules are NATS's, with these differences: ASCII case does not matter, and some text that NATS's server
takes is refused: `foo*` as a name, `/`, whitespace and control characters of all Unicode, and characters that cannot be
seen (bidirectional marks, no width), as in client ids and names. So a valid subject is valid for NATS as well.

Text becomes a `Subject` or a `Pattern` once, at the edge, and is valid and lower-cased from then on. Functions that
take plain `str` check it themselves; everything else trusts the type. An earlier version took invisible characters, and
its kept patterns are still matched (`kept_pattern`); new text with them is refused.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Generic, NewType, NoReturn, TypeVar

import msgspec

from wakugumi.core.visible_text import UNSEEN

# A pattern costs the tree up to one node per token, and the deepest subject in the conformance data has 101.
SUBJECT_TOKENS_MAX = 128
# In UTF-8. The longest in the conformance data has 403, and 63 of the longest allowed fit the 65 535 of one hello.
SUBJECT_BYTES_MAX = 1024
# A named worker takes three for each bare word, so this is 85 programs by name; a worker with more can use `>`.
PATTERNS_PER_WORKER_MAX = 256
# All patterns of a worker, plus one for every 32 characters. A token costs a leader some 350 bytes: 0.7 MiB in all, and
# eight tokens for each of the most patterns.
PATTERN_TOKENS_PER_WORKER_MAX = 2_048

Pattern = NewType("Pattern", str)
# Every subject is also a pattern: the one that matches itself alone.
Subject = NewType("Subject", Pattern)

V = TypeVar("V")


class SubjectError(ValueError):
    """The text is no subject or pattern; the message names the fault and its place."""


def parse_subject(text: str) -> Subject:
    """The subject of this text. Raises SubjectError."""
    if not is_valid_subject(text):
        _refuse("subject", text)
    return Subject(Pattern(_fold(text)))


def parse_pattern(text: str) -> Pattern:
    """The pattern of this text. Raises SubjectError."""
    if not is_valid_pattern(text):
        _refuse("pattern", text)
    return Pattern(_fold(text))


def kept_pattern(text: str) -> Pattern:
    """A pattern that an earlier version took and kept. Raises SubjectError."""
    if not _is_pattern(text):
        _refuse("pattern", text)
    return Pattern(_fold(text))


def is_valid_subject(text: str) -> bool:
    return _is_subject(text) and (text.isascii() or _UNSEEN.search(text) is None)


def is_valid_pattern(text: str) -> bool:
    return _is_pattern(text) and (text.isascii() or _UNSEEN.search(text) is None)


def matches(pattern: str, subject: str) -> bool:
    """Does the pattern match the subject? Invalid text never matches."""
    return _is_subject(subject) and overlaps(pattern, subject)


def overlaps(a: str, b: str) -> bool:
    """Is there a subject, of any length, that both patterns match? Invalid text overlaps no pattern."""
    if not (_is_pattern(a) and _is_pattern(b)):
        return False
    tokens_a, tokens_b = _fold(a).split("."), _fold(b).split(".")
    for one, other in zip(tokens_a, tokens_b):
        if one == ">" or other == ">":
            return True  # the other side has this token at least, and `>` takes whatever follows
        if one != other and one != "*" and other != "*":
            return False
    return len(tokens_a) == len(tokens_b)


def covers(allowed: str | Iterable[str], pattern: str) -> bool:
    """Is every subject of the pattern one of these allowed patterns' subjects? Invalid text covers no pattern.

    Exact: an empty token stands for each that no allowed pattern names. Only a wildcard matches it, and so matches all.
    Beyond the longest allowed pattern all lengths of a `>` are alike; `*` and `*.>` cover it together.
    """
    if not _is_pattern(pattern):
        return False
    sets = [_fold(one).split(".") for one in ([allowed] if isinstance(allowed, str) else allowed) if _is_pattern(one)]
    tokens = ["" if token in ("*", ">") else token for token in _fold(pattern).split(".")]
    longest = max(map(len, sets), default=0) if pattern.endswith(">") else 0
    while any(_takes(one, tokens) for one in sets):
        if len(tokens) > longest:
            return True
        tokens.append("")
    return False


def hears(patterns: Iterable[Pattern], subject: Subject) -> bool:
    """Does one of these patterns match the subject? For a few patterns, each compared once; a tree is for many."""
    tokens = subject.split(".")
    return any(pattern == subject or _takes(pattern.split("."), tokens) for pattern in patterns)


def route(asked: str, exec_name: str) -> Subject:
    """The queue of a submitted job (F8): always a subject under `job.assign`."""
    if not asked:
        return Subject(_under_assign(_as_token(exec_name) or "default"))
    subject = parse_subject(asked)
    if subject.startswith("job.assign."):
        return subject
    if subject in ("job.submit", "job.assign"):
        raise SubjectError(f"bad subject {_quote(asked)}: a token must follow, as in {subject}.calcA")
    return Subject(_under_assign(subject.removeprefix("job.submit.")))


def submit_subject(exec_name: str) -> str:
    """The subject that clients of the founding documents send for a program. A leader that knows F8 takes it like an
    empty one."""
    return f"job.submit.{_NOT_IN_A_NAME.sub('_', exec_name)}"


def worker_patterns(text: str, name: str = "") -> tuple[Pattern, ...]:
    """Patterns of a worker: the patterns of its hello (F5), then its own addresses if it has a name (S4).

    Each group of these patterns gives the worker the address `job.assign.<group>.<name>`. A pattern names a group by
    the token after `job.assign`; a wildcard in that place, or a `>` before it, names them all: `job.assign.*.<name>`.
    The address is listed even where a wider pattern covers it: a leader tells the addressed worker from others that
    match.
    """
    words = [word for word in text.replace(",", " ").split(" ") if word] or ["job.assign.>"]
    # Checked before parsing, for a hello has room for 32 000 words, and again without duplicates.
    _refuse_too_many(len(words))
    asked = [pattern for word in words for pattern in word_patterns(parse_pattern(word))]
    own = _as_token(name)
    addresses = [_under_assign(f"{group}.{own}") for group in map(group_of, asked) if group and own]
    patterns = tuple(dict.fromkeys(asked + addresses))
    _refuse_too_many(len(patterns))
    if (tokens := sum(map(tokens_of, patterns))) > PATTERN_TOKENS_PER_WORKER_MAX:
        raise SubjectError(
            f"{len(patterns)} patterns of {tokens} tokens: a worker may have {PATTERN_TOKENS_PER_WORKER_MAX} in all, "
            "where 32 characters count as one more"
        )
    return patterns


def tokens_of(pattern: Pattern) -> int:
    """Cost in a tree: the tokens, and one for every 32 characters."""
    return pattern.count(".") + 1 + len(pattern) // 32


def is_address(pattern: Pattern, name: str) -> bool:
    """Is the pattern the worker's own address `job.assign.<group>.<name>`?"""
    own = _as_token(name)
    tokens = pattern.split(".")
    return bool(own) and len(tokens) == 4 and tokens[:2] == ["job", "assign"] and tokens[3] == own.lower()


def group_of(pattern: Pattern) -> str:
    """The group that a worker with this pattern belongs to: `*` for all of them, empty for none. A subject is a pattern
    without wildcards, and names the group of its jobs."""
    match pattern.split("."):
        case [">"] | ["job" | "*", ">"] | ["job" | "*", "assign" | "*", ">"]:
            return "*"
        case ["job" | "*", "assign" | "*", group, *_]:
            return group
    return ""


class PatternTree(Generic[V]):
    """A value for each pattern, found by the subjects that it matches (S3).

    One node per token: a match visits only nodes that agree with the subject so far, and no node twice. Other patterns
    cost no time. Each lookup walks level by level, never by recursion.
    """

    __slots__ = ("_count", "_root", "tokens")

    def __init__(self) -> None:
        self._root: _Node[V] = _Node()
        self._count = 0
        self.tokens = 0
        """Tokens of all patterns, counted by `tokens_of`."""

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Pattern]:
        trail = [("", self._root)]
        while trail:
            prefix, node = trail.pop()
            for token in node.ends:
                yield Pattern(prefix + token)
            trail += [(f"{prefix}{token}.", child) for token, child in node.below.items()]

    def __contains__(self, pattern: Pattern) -> bool:
        stem, last = _split(pattern)
        node = self._node(stem)
        return node is not None and last in node.ends

    def __getitem__(self, pattern: Pattern) -> V:
        stem, last = _split(pattern)
        node = self._node(stem)
        if node is None:
            raise KeyError(pattern)
        return node.ends[last]

    def get(self, pattern: Pattern) -> V | None:
        stem, last = _split(pattern)
        node = self._node(stem)
        return None if node is None else node.ends.get(last)

    def __setitem__(self, pattern: Pattern, value: V) -> None:
        stem, last = _split(pattern)
        node = self._root
        for token in stem:
            child = node.below.get(token)
            if child is None:
                child = node.below[token] = _Node()
            node = child
        if last not in node.ends:
            self._count += 1
            self.tokens += tokens_of(pattern)
        node.ends[last] = value

    def __delitem__(self, pattern: Pattern) -> None:
        stem, last = _split(pattern)
        path = [self._root]
        for token in stem:
            child = path[-1].below.get(token)
            if child is None:
                raise KeyError(pattern)
            path.append(child)
        del path[-1].ends[last]
        self._count -= 1
        self.tokens -= tokens_of(pattern)
        while stem and not path[-1].ends and not path[-1].below:
            path.pop()
            del path[-1].below[stem.pop()]

    def match(self, subject: Subject) -> list[V]:
        """The values of all patterns that match; the order depends on the patterns alone, not on the order of
        insertion."""
        stem, last = _split(subject)
        found: list[V] = []
        level = [self._root]
        for token in stem:
            deeper = []
            for node in level:
                below, ends = node.below, node.ends
                if ends and ">" in ends:
                    found.append(ends[">"])
                if token in below:
                    deeper.append(below[token])
                if "*" in below:
                    deeper.append(below["*"])
            if not deeper:
                return found
            level = deeper
        for node in level:
            ends = node.ends
            if last in ends:
                found.append(ends[last])
            if "*" in ends:
                found.append(ends["*"])
            if ">" in ends:
                found.append(ends[">"])
        return found

    def overlapping(self, pattern: Pattern) -> list[V]:
        """The values of all patterns that share a subject with this one. With subjects as keys: the subjects it
        matches."""
        stem, last = _split(pattern)
        found: list[V] = []
        level = [self._root]
        for token in stem:
            deeper: list[_Node[V]] = []
            for node in level:
                if ">" in node.ends:
                    found.append(node.ends[">"])
                deeper += _agreeing(node.below, token)
            level = deeper
        if last != ">":
            for node in level:
                found += _agreeing(node.ends, last)
            return found
        while level:
            deeper = []
            for node in level:
                found += node.ends.values()
                deeper += node.below.values()
            level = deeper
        return found

    def check(self) -> None:
        """Asserts the invariants: the count is true, every branch bears a pattern, `>` is never inside."""
        assert self._count == sum(1 for _ in self)
        assert self.tokens == sum(map(tokens_of, self))
        level = [self._root]
        while level:
            deeper = [child for node in level for child in node.below.values()]
            assert all(node.ends or node.below for node in deeper)
            assert all(">" not in node.below for node in level)
            level = deeper

    def _node(self, stem: list[str]) -> "_Node[V] | None":
        node: _Node[V] | None = self._root
        for token in stem:
            if node is None:
                return None
            node = node.below.get(token)
        return node


class _Node(msgspec.Struct, Generic[V], gc=False):
    """Tokens that follow a prefix: more tokens below, and the last tokens of patterns that end.

    Last tokens need no node of their own, which spares most of the memory. Nodes form no cycle and are untracked, so
    they cost the garbage collector no time; a value must therefore not refer back to the tree.
    """

    below: "dict[str, _Node[V]]" = msgspec.field(default_factory=dict)
    ends: dict[str, V] = msgspec.field(default_factory=dict)


T = TypeVar("T")

# Characters that no token may hold: whitespace and control characters (they could split a log line or a header), halves
# of surrogate pairs (no UTF-8), and `/`, which NATS's server takes but NATS Streaming refuses, and which would cut a
# URL.
_REFUSED = r"\s\x00-\x1f\x7f-\x9f\ud800-\udfff/"
_TOKEN = rf"[^.*>{_REFUSED}]++"
_SUBJECT = re.compile(rf"{_TOKEN}(?:\.{_TOKEN})*+")
_PATTERN = re.compile(rf"(?:(?:\*|{_TOKEN})\.)*+(?:\*|>|{_TOKEN})")
# Invisible characters: two subjects would look like one, and a line could read other than it is.
_UNSEEN = re.compile(f"[{UNSEEN}]")
_REFUSED_CHARACTER = re.compile(rf"[{_REFUSED}{UNSEEN}]")
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")
_ASCII_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def _is_subject(text: str) -> bool:
    return _fits(text) and _SUBJECT.fullmatch(text) is not None


def _is_pattern(text: str) -> bool:
    return _fits(text) and _PATTERN.fullmatch(text) is not None


def _fits(text: str) -> bool:
    # Characters are counted first: text of any size is refused before it is read, and only text beyond ASCII is
    # encoded.
    return (
        len(text) <= SUBJECT_BYTES_MAX
        and text.count(".") < SUBJECT_TOKENS_MAX
        and (text.isascii() or _size(text) <= SUBJECT_BYTES_MAX)
    )


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _fold(text: str) -> str:
    # str.lower() alone would also fold the Kelvin sign to `k`, and with it names that are not the same.
    return text.lower() if text.isascii() else text.translate(_ASCII_LOWER)


def _split(pattern: Pattern) -> tuple[list[str], str]:
    stem = pattern.split(".")
    return stem, stem.pop()


def _agreeing(choices: dict[str, T], wanted: str) -> list[T]:
    if wanted == "*":
        return list(choices.values())
    return [choices[token] for token in (wanted, "*", ">") if token in choices]


def _takes(pattern: list[str], tokens: list[str]) -> bool:
    """Does the pattern match these tokens, of which an empty one equals no token of a pattern?"""
    is_open = pattern[-1] == ">"
    stem = pattern[:-1] if is_open else pattern
    fits = len(tokens) > len(stem) if is_open else len(tokens) == len(stem)
    return fits and all(one in ("*", other) for one, other in zip(stem, tokens))


def _as_token(name: str) -> str:
    return _NOT_IN_A_NAME.sub("_", name).lower()


def _under_assign(tokens: str) -> Pattern:
    """For valid and folded tokens: only the length of the whole is checked."""
    text = f"job.assign.{tokens}"
    if not _fits(text):
        _refuse("subject", text)
    return Pattern(text)


def word_patterns(pattern: Pattern) -> tuple[Pattern, ...]:
    """A bare word is a group: the group itself and all below it. Other patterns stay as they are."""
    if "." in pattern or pattern in ("*", ">"):
        return (pattern,)
    return _under_assign(pattern), _under_assign(f"{pattern}.>")


def _refuse_too_many(count: int) -> None:
    if count > PATTERNS_PER_WORKER_MAX:
        raise SubjectError(f"{count} patterns: a worker may have {PATTERNS_PER_WORKER_MAX}, its own addresses included")


def _refuse(kind: str, text: str) -> NoReturn:
    raise SubjectError(f"bad {kind} {_quote(text)}: {_fault(kind, text)}")


def _quote(text: str) -> str:
    return repr(text) if len(text) <= 80 else f"{text[:80]!r}…"


def _fault(kind: str, text: str) -> str:
    if not text:
        return "it is empty"
    if _size(text) > SUBJECT_BYTES_MAX:
        return f"{_size(text)} bytes, at most {SUBJECT_BYTES_MAX} are allowed"
    tokens = text.split(".")
    if len(tokens) > SUBJECT_TOKENS_MAX:
        return f"{len(tokens)} tokens, at most {SUBJECT_TOKENS_MAX} are allowed"
    for place, token in enumerate(tokens, 1):
        if not token:
            return f"token {place} is empty"
        if character := _REFUSED_CHARACTER.search(token):
            return f"token {place} holds the character U+{ord(character[0]):04X}, which is not allowed"
        if token in ("*", ">") and kind == "subject":
            return f"token {place} is the wildcard {token}, which only a pattern may hold"
        if len(token) > 1 and ("*" in token or ">" in token):
            return f"token {place} holds a wildcard, which must be a whole token"
        if ">" in token and place < len(tokens):
            return f"token {place} is >, which may only come last"
    raise AssertionError(f"{text!r} was refused without a fault")
