"""How many bytes of files does a command write at most?"""

from __future__ import annotations

import pytest

from wakugumi.app.options import UNPACKING, Unpacking
from wakugumi.errors import ConfigError


@pytest.mark.parametrize(
    ("unpacking", "bytes_max"), [(UNPACKING, None), (Unpacking("500MB"), 500 * 10**6), (Unpacking("7"), 7)]
)
def test_a_size_is_read_and_no_size_leaves_it_to_the_worker(unpacking: Unpacking, bytes_max: int | None) -> None:
    assert unpacking.bytes_max() == bytes_max


@pytest.mark.parametrize("text", ["", "much", "-1", "1.5.5GB"])
def test_a_text_that_is_no_size_is_refused_by_the_name_of_its_flag(text: str) -> None:
    with pytest.raises(ConfigError, match="--max-bytes"):
        Unpacking(text).bytes_max()
