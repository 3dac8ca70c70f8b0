"""Which metrics are there? Writes docs/reference/metrics.md from `core/metric_table.py`.

.venv/bin/python -m tools.metrics_page            `make docs` calls it
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from wakugumi.core import metric_table
from wakugumi.core.metrics import Family

PAGE = Path(__file__).absolute().parents[1] / "docs" / "reference" / "metrics.md"
HEAD = """\
# Metrics
Made by `make docs` from `core/metric_table.py`; a test compares it with the source.

Every role publishes its metrics at `GET /metrics`, and the metrics of its process (`process_…`);
[Monitoring](../operate/monitoring.md) says how to use them.
"""
CHAPTERS = {"leader": "Leader", "run": "Node and worker", "node": "Node", "gateway": "Gateway"}


def families() -> list[Family]:
    return [value for value in vars(metric_table).values() if isinstance(value, Family)]


def _lines() -> Iterator[str]:
    yield HEAD
    for room, title in CHAPTERS.items():
        yield f"## {title}"
        yield "| metric | kind | labels | meaning |"
        yield "|---|---|---|---|"
        for name, text, kind, labels, *_ in families():
            if name.startswith(f"wakugumi_{room}_"):
                shown = ", ".join(f"`{label}`" for label in labels) or "—"
                yield f"| `{name}` | {kind.value} | {shown} | {text.removesuffix('.')} |"
        yield ""


def metrics_page() -> str:
    return "\n".join(_lines()).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(metrics_page(), encoding="utf-8")
