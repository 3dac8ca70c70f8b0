"""Inputs that a leader receives at once."""

from __future__ import annotations

import pytest

from wakugumi.core.connections.received_inputs import ReceivedInputs
from wakugumi.errors import Refused


def test_one_too_many_is_refused_until_another_has_ended() -> None:
    inputs = ReceivedInputs(2)
    inputs.begin()
    inputs.begin()
    with pytest.raises(Refused, match="2 inputs are being received") as caught:
        inputs.begin()
    assert (caught.value.code, inputs.count) == ("busy", 2)
    inputs.end()
    inputs.begin()
