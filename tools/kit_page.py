"""Where is which test, and what does the kit offer? Writes tests/README.md from the docstrings of tests/kit.

.venv/bin/python -m tools.kit_page            `make docs` calls it
"""

from __future__ import annotations

from tools.module_map import TOP, first_paragraph

PAGE = TOP / "tests" / "README.md"
KIT = TOP / "tests" / "kit"
HEAD = """\
# Tests
Made by `make docs`; a test compares this page with the source.

| folder | tests |
|---|---|
| `core`, `wire`, `adapters`, `roles`, `app` | one module each: `core/ids.py` has `core/test_ids.py` |
| `whole` | commands as users type them, in processes of their own |
| `sim` | leaders, workers and clients in simulated worlds full of faults: `make sim` |
| `conformance` | old peers, recorded frames, and every kind of gateway store |
| `house` | rules of the source itself: imports, words, documents, tests |
| `bench` | the benchmarks' own arithmetic |
| `kit` | what tests share; no test imports from a `test_*.py` |

`house/private_looks.txt` and `house/modules_without_tests.txt` list what is not yet right. They only shrink:
`python -m tools.test_lists` writes them.

## The kit
| module | what it offers |
|---|---|
"""


def kit_page() -> str:
    return HEAD + "".join(f"| `{file.stem}` | {first_paragraph(file)} |\n" for file in sorted(KIT.glob("*.py")))


if __name__ == "__main__":
    PAGE.write_text(kit_page(), encoding="utf-8")
