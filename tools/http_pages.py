"""Which pages are there over HTTP? Writes docs/reference/http-pages.md from the table of pages.

.venv/bin/python -m tools.http_pages            `make docs` calls it
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from wakugumi.roles.http import page_table
from wakugumi.roles.http.page_table import Answer, PageText

PAGE = Path(__file__).absolute().parents[1] / "docs" / "reference" / "http-pages.md"
HEAD = """\
# Pages over HTTP
Made by `make docs` from `roles/http/page_table.py`; a test compares it with the source. `GET /openapi.json` of a role
has the same for machines. [Jobs over HTTP](../use/http.md) explains jobs, [Blobs over HTTP](blobs.md) /blobs,
[Security](../operate/security.md#roles-rules-and-sight) rights. A sender without a proof that the server accepts gets
401, one without the right 403.
"""


def _codes(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _content(answer: Answer) -> str:
    """Content types, each with the fields of its records."""
    fields = {kind: _codes(list(schema.get("properties", ()))) for kind, schema in answer.content.items()}
    return "; ".join(f"`{kind}` with {names}" if names else f"`{kind}`" for kind, names in fields.items())


def _table(title: str, *columns: str) -> str:
    return f"\n## {title}\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}"


def _request(page: PageText) -> str:
    return f"| `{page.request}` | {', '.join(page.roles)} |"


def _lines() -> Iterator[str]:
    pages = page_table.PAGES
    yield HEAD.rstrip()
    yield _table("Requests", "request", "roles", "right", "meaning", "parameters")
    for page in pages:
        cells = (f"`{page.need.value}`", page.text, _codes([each["name"] for each in page.parameters]))
        yield f"{_request(page)} {' | '.join(cells)} |"
    yield _table("Rights", "right", "roles of keys that have it")
    for right in dict.fromkeys(page.need for page in pages):
        able = next(page.may for page in pages if page.need is right)
        yield f"| `{right.value}` | {', '.join(able) or 'all, also strangers'} |"
    yield _table("Answers", "request", "roles", "status", "meaning", "content", "headers")
    for page in pages:
        for answer in page.answers:
            cells = (str(answer.status), answer.text, _content(answer), _codes(list(answer.headers)))
            yield f"{_request(page)} {' | '.join(cells)} |"
    yield _table("Problems", "request", "roles", "codes by status: [Errors](errors.md)")
    for page in pages:
        yield f"{_request(page)} {'; '.join(f'{status} {_codes(codes)}' for status, codes in page.problems())} |"


def http_pages() -> str:
    return "\n".join(_lines()) + "\n"


if __name__ == "__main__":
    PAGE.write_text(http_pages(), encoding="utf-8")
