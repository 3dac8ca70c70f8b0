"""How long does a leader look for those who hear a subject, and what does a worker's join cost?

A fleet's patterns (programs, machines by name, wildcards in each place) are stored 100 and 100 000 at a time, and asked
for subjects that were never seen before. The two trees take turns, so that a busy machine slows both alike.
"""

import random
from statistics import median
from time import perf_counter

from wakugumi.core.subject import Pattern, PatternTree, Subject, parse_pattern, parse_subject, worker_patterns

ROUNDS = 30
ASKED_PER_ROUND = 1_000
JOINS = 2_000
Fleet = tuple[PatternTree[int], list[Pattern]]


def measure() -> dict[str, float]:
    """Medians in microseconds; the first rounds warm up and do not count."""
    rng = random.Random(1)
    few, many = fleet(100, rng), fleet(100_000, rng)
    rounds = [(match_us(few, rng), match_us(many, rng)) for _ in range(ROUNDS + 5)][5:]
    return {
        "match_100k_us": median(many_us for _, many_us in rounds),
        "match_100_us": median(few_us for few_us, _ in rounds),
        "join_us": median([join_us(many[0], number) for number in range(JOINS + 200)][200:]),
    }


def fleet(size: int, rng: random.Random) -> Fleet:
    tree: PatternTree[int] = PatternTree()
    tree[parse_pattern("job.assign.common.>")] = 0
    while len(tree) < size:
        number = len(tree)
        group, machine = f"group{rng.randrange(size // 20)}", f"machine{number}"
        (shape,) = rng.choices(
            [
                f"job.assign.{group}.{machine}",
                f"job.assign.program{number}",
                f"job.assign.program{number}.>",
                f"job.assign.*.{machine}",
                f"job.assign.{group}.*.{machine}",
                f"job.assign.{group}.*",
            ],
            weights=[50, 15, 15, 10, 5, 5],
        )
        tree[parse_pattern(shape)] = number
    return tree, list(tree)


def unseen(pattern: Pattern, rng: random.Random) -> Subject:
    """A subject that the pattern matches, or for a pattern without wildcards one that goes on where it ends."""
    fresh = f"r{rng.getrandbits(64):x}"
    text = pattern.replace("*", fresh).replace(">", f"{fresh}.part")
    return parse_subject(text if text != pattern else rng.choice([text, f"{text}.{fresh}"]))


def match_us(fleet: Fleet, rng: random.Random) -> float:
    tree, patterns = fleet
    asked = [unseen(pattern, rng) for pattern in rng.choices(patterns, k=ASKED_PER_ROUND)]
    start = perf_counter()
    for subject in asked:
        tree.match(subject)
    return (perf_counter() - start) / len(asked) * 1e6


def join_us(tree: PatternTree[int], number: int) -> float:
    """From the text of a hello to patterns in the tree: two programs, one group, and a name."""
    start = perf_counter()
    patterns = worker_patterns(f"joined{number} program7 job.assign.group3.>", f"newcomer{number}")
    for pattern in patterns:
        if tree.get(pattern) is None:
            tree[pattern] = number
    return (perf_counter() - start) * 1e6


def main() -> None:
    figures = measure()
    for name, value in figures.items():
        print(f"{name:<14} {value:8.2f}")
    print(f"{'100k / 100':<14} {figures['match_100k_us'] / figures['match_100_us']:8.2f}")


if __name__ == "__main__":
    main()
