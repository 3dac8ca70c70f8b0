"""Are the demo's prices checked against the right formula?"""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakugumi.app.work.demo import DemoOption, Priced, black_scholes

TINY = 1e-9
"""More than rounding adds."""
OPTIONS = st.builds(
    DemoOption,
    kind=st.just("call"),
    spot=st.floats(50, 150),
    strike=st.floats(50, 150),
    rate=st.floats(0, 0.1),
    volatility=st.floats(0.05, 0.6),
    maturity=st.floats(0.1, 5),
)


def put_of(call: DemoOption) -> DemoOption:
    return DemoOption("put", call.spot, call.strike, call.rate, call.volatility, call.maturity)


@pytest.mark.parametrize(("kind", "price"), [("call", 10.450584), ("put", 5.573526)])
def test_a_price_is_that_of_the_textbook(kind: str, price: float) -> None:
    assert black_scholes(DemoOption(kind, 100, 100, 0.05, 0.2, 1)) == pytest.approx(price, abs=1e-6)


@given(OPTIONS)
def test_a_call_less_its_put_is_the_forward(call: DemoOption) -> None:
    forward = call.spot - call.strike * math.exp(-call.rate * call.maturity)
    assert black_scholes(call) - black_scholes(put_of(call)) == pytest.approx(forward, abs=1e-9)


@given(OPTIONS, st.floats(1, 20))
def test_a_call_is_worth_less_at_a_higher_strike_and_never_more_than_its_share(call: DemoOption, more: float) -> None:
    higher = DemoOption("call", call.spot, call.strike + more, call.rate, call.volatility, call.maturity)
    assert -TINY <= black_scholes(higher) <= black_scholes(call) + TINY
    assert black_scholes(call) <= call.spot + TINY


def test_a_deviation_is_counted_in_standard_errors() -> None:
    option = DemoOption("call", 100, 100, 0.05, 0.2, 1)
    assert Priced(option, black_scholes(option) - 0.5, 0.25).deviation == pytest.approx(-2)
