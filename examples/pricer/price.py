#!/usr/bin/env python3
"""What is a European option worth? Monte Carlo over the price at maturity, with antithetic variates.

    price.py OPTION.json        prints the price and its standard error, and writes them to result.json

This program knows nothing of Wakugumi: it reads one file, writes another, and prints a line. It needs Python's
standard library and nothing else.
"""

import json
import math
import random
import sys

POSITIVE = ("spot", "strike", "volatility", "maturity")


def price(option):
    """The option's price and its standard error.

    Each draw is used with both signs. The two halves of a pair lean to opposite sides, so their mean varies less than
    two independent draws would; the standard error is that of the pairs' means.
    """
    drift = (option["rate"] - option["volatility"] ** 2 / 2) * option["maturity"]
    width = option["volatility"] * math.sqrt(option["maturity"])
    discount = math.exp(-option["rate"] * option["maturity"])
    sign = 1.0 if option["kind"] == "call" else -1.0
    forward, strike = option["spot"] * math.exp(drift), option["strike"]
    draw, exp = random.Random(option["seed"]).gauss, math.exp
    pairs = option["paths"] // 2
    total = squares = 0.0
    for _ in range(pairs):
        step = exp(width * draw(0.0, 1.0))
        up, down = sign * (forward * step - strike), sign * (forward / step - strike)
        payoff = max(up, 0.0) + max(down, 0.0)
        total += payoff
        squares += payoff * payoff
    mean = total / pairs
    variance = max(squares / pairs - mean * mean, 0.0) * pairs / (pairs - 1)
    return discount * mean / 2, discount * math.sqrt(variance / pairs) / 2


def read_option(path):
    """The option in this file. Raises ValueError with a sentence about what is wrong in it."""
    with open(path, encoding="utf-8") as file:
        option = json.load(file)
    missing = {*POSITIVE, "rate", "kind", "paths", "seed"} - option.keys()
    if missing:
        raise ValueError(f"{', '.join(sorted(missing))} is missing")
    for name in POSITIVE:
        if not option[name] > 0:
            raise ValueError(f"{name} is {option[name]}, and must be more than 0")
    if option["kind"] not in ("call", "put"):
        raise ValueError(f"kind is {option['kind']!r}, and must be call or put")
    if option["paths"] < 4:
        raise ValueError(f"paths is {option['paths']}: a standard error needs 4 or more")
    return option


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: price.py OPTION.json")
    try:
        option = read_option(sys.argv[1])
    except (OSError, TypeError, ValueError) as error:
        sys.exit(f"{sys.argv[1]}: {error}")
    value, error = price(option)
    with open("result.json", "w", encoding="utf-8") as file:
        json.dump({"option": option, "price": value, "standard_error": error}, file, indent=2)
    print(f"{option['kind']} {option['strike']:g} in {option['maturity']:g} years: {value:.4f} +- {error:.4f}")


if __name__ == "__main__":
    main()
