"""`waku up`: what a try-out refuses, and what its parts are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from wakugumi.app.serve.up import up
from wakugumi.errors import ConfigError


def test_what_cannot_be_tried_out_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="for --groups"):
        up(0, nodes=2)
    with pytest.raises(ConfigError, match="--groups is 1 to"):
        up(0, groups=0, programs=str(tmp_path), state=str(tmp_path))
    with pytest.raises(ConfigError, match="no program 'nosuch'"):
        up(0, groups=2, program="nosuch", programs=str(tmp_path))
    with pytest.raises(ConfigError, match="no folder of its own"):
        up(0, groups=2, programs=str(tmp_path))
    with pytest.raises(ConfigError, match="stays on this machine"):
        up(0, groups=2, programs=str(tmp_path), host="0.0.0.0", allow_open=True)
