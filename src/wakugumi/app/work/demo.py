"""`waku demo`: does all this work here? 240 options are priced by Monte Carlo, and checked against Black-Scholes.

The steps are a user's: write inputs, map a program over them on the embedded grid, read the results. The program is
`examples/pricer`, which needs nothing of Wakugumi.
"""

from __future__ import annotations

import math
import os
import runpy
import shutil
import sys
from contextlib import closing
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated, Final

import msgspec
from cyclopts import Parameter

from wakugumi.app.client_settings import ClientSettings
from wakugumi.app.flags import Only, with_settings
from wakugumi.app.show.output import colour, say, table_out
from wakugumi.app.work.map.inputs import Inputs
from wakugumi.app.work.map.output import OutFolder
from wakugumi.app.work.map.run import Map
from wakugumi.app.work.target import choose
from wakugumi.errors import EXIT_JOB_FAILED, ConfigError
from wakugumi.wire.untrusted_json import JsonReader

OUT: Final = "demo-out"
STANDARD_ERRORS: Final = 4.0
"""A larger deviation is an error: by chance, one in 70 sets of 240 right prices would have one; this set has none."""
_SHOWN: Final = 8


class DemoOption(msgspec.Struct, frozen=True):
    kind: str
    spot: float
    strike: float
    rate: float
    volatility: float
    maturity: float


class Priced(msgspec.Struct, frozen=True):
    """The pricer's result.json."""

    option: DemoOption
    price: float
    standard_error: float

    @property
    def deviation(self) -> float:
        """From the exact price, in standard errors."""
        return (self.price - black_scholes(self.option)) / self.standard_error


Client = Annotated[ClientSettings, Only("slots log_level log_json", without_flag="timeout_s client_id")]


@with_settings
def demo(
    *,
    out: Annotated[str, Parameter(help="Folder for inputs and results.")] = OUT,
    client: Client,
) -> int:
    """waku demo [--out DIR]

    Writes inputs and results to demo-out/. A second run finds all results there and runs no job.

    Example:
      waku demo
    """
    place = Path(out)
    program, count = _set_up(place)
    say(f"{count} options in {place / 'inputs'}; the program is {program}")
    say(f"$ waku map {program} {place / 'inputs'} --out {place / 'prices'}")
    here = choose(os.fspath(program), client)
    with closing(Inputs()) as inputs, closing(OutFolder(os.fspath(place / "prices"))) as folder:
        inputs.add(os.fspath(place / "inputs"))
        inputs.settle()
        code = Map(here, inputs, folder, (), {"timeout_s": client.timeout_s}).run()
    return code or _check(place / "prices")


def black_scholes(option: DemoOption) -> float:
    """The exact price of a European option."""
    width = option.volatility * math.sqrt(option.maturity)
    drift = (option.rate + option.volatility**2 / 2) * option.maturity
    above = (math.log(option.spot / option.strike) + drift) / width
    later = option.strike * math.exp(-option.rate * option.maturity)
    sign = 1.0 if option.kind == "call" else -1.0
    return sign * (option.spot * _normal(sign * above) - later * _normal(sign * (above - width)))


def _normal(x: float) -> float:
    """The share of a normal distribution below x."""
    return math.erfc(-x / math.sqrt(2.0)) / 2.0


def _set_up(place: Path) -> tuple[Path, int]:
    """Copy the program and write its inputs. Raises ConfigError."""
    # The pricer's first line names `python3`: PATH must find the Python that runs us.
    os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    program = place / "price.py"
    try:
        place.mkdir(parents=True, exist_ok=True)
        with as_file(_example()) as example:
            shutil.copyfile(example / "price.py", program)
            program.chmod(0o755)
            count: int = runpy.run_path(os.fspath(example / "make_inputs.py"))["write_inputs"](place / "inputs")
    except OSError as error:
        raise ConfigError(
            f"the demo cannot be set up in {place}: {error.strerror}", "choose a folder with --out"
        ) from None
    return program, count


def _example() -> Path:
    """In an installed package below it, in a checkout at the top."""
    installed = files("wakugumi") / "examples" / "pricer"
    if installed.is_dir():
        return installed  # type: ignore[return-value]
    return Path(__file__).parents[4] / "examples" / "pricer"


def _check(prices: Path) -> int:
    priced_in = JsonReader(Priced)
    priced = [priced_in.read(path.read_bytes()) for path in sorted(prices.glob("*/result.json"))]
    wrong = [one for one in priced if abs(one.deviation) > STANDARD_ERRORS]
    # Prime to the sizes of the grid, so that the shown options differ in all columns.
    step = len(priced) // _SHOWN + 1
    say()
    table_out(
        ("option", "#strike", "#years", "#volatility", "#price", "#Black-Scholes", "#standard error", "#off by"),
        [_row(one) for one in priced[step // 2 :: step]],
    )
    worst = max(abs(one.deviation) for one in priced)
    say()
    if wrong:
        say(colour("wrong:", "red"), f"{len(wrong)} of {len(priced)} prices are off by more than 4 standard errors")
        return EXIT_JOB_FAILED
    say(f"all {len(priced)} prices are within 4 standard errors of Black-Scholes; the farthest is off by {worst:.1f}")
    return 0


def _row(one: Priced) -> tuple[str, ...]:
    option = one.option
    return (
        option.kind,
        f"{option.strike:g}",
        f"{option.maturity:g}",
        f"{option.volatility:.0%}",
        f"{one.price:.4f}",
        f"{black_scholes(option):.4f}",
        f"{one.standard_error:.4f}",
        f"{one.deviation:+.1f}",
    )
