#!/usr/bin/env python3
"""Which options are to be priced? 240 of them: calls and puts over a grid of strikes, maturities and volatilities.

make_inputs.py FOLDER       writes one small file per option; the same files every time
"""

import json
import os
import sys

SPOT = 100.0
RATE = 0.03
STRIKES = (80, 85, 90, 95, 100, 105, 110, 115, 120, 125)
MATURITIES = (0.25, 0.5, 1.0, 2.0)
VOLATILITIES = (0.15, 0.25, 0.40)
PATHS = 20_000


def write_inputs(folder):
    """Write them all, and tell how many there are. Each has a seed of its own, so that their errors are independent."""
    os.makedirs(folder, exist_ok=True)
    seed = 0
    for kind in ("call", "put"):
        for strike in STRIKES:
            for maturity in MATURITIES:
                for volatility in VOLATILITIES:
                    seed += 1
                    option = {
                        "kind": kind,
                        "spot": SPOT,
                        "strike": float(strike),
                        "rate": RATE,
                        "volatility": volatility,
                        "maturity": maturity,
                        "paths": PATHS,
                        "seed": seed,
                    }
                    name = f"{kind}-{strike:03d}-{maturity * 12:02.0f}m-{volatility * 100:02.0f}v.json"
                    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                        json.dump(option, file, indent=2)
                        file.write("\n")
    return seed


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: make_inputs.py FOLDER")
    print(f"{write_inputs(sys.argv[1])} inputs in {sys.argv[1]}")
