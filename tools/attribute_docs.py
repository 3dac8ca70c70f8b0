"""What is written under an attribute? Reads the docstrings below assignments; the reference is made of them."""

from __future__ import annotations

import ast
from pathlib import Path


def attribute_docs(file: Path) -> dict[str, str]:
    """The docstring of every annotated name of a module, in the order of the file; empty where there is none."""
    body = ast.parse(file.read_text(encoding="utf-8")).body
    found: dict[str, str] = {}
    for node, below in zip(body, [*body[1:], None]):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            told = below.value if isinstance(below, ast.Expr) else None
            text = told.value if isinstance(told, ast.Constant) and isinstance(told.value, str) else ""
            found[node.target.id] = " ".join(text.split())
    return found
