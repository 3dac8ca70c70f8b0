"""The documents describe what is: every file, function and command that they name exists, and the other way round."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from tools.attribute_docs import attribute_docs
from tools.commands_page import commands_page
from tools.errors_page import errors_page
from tools.http_pages import http_pages
from tools.limits_page import limits_page
from tools.metrics_page import families, metrics_page
from tools.module_map import PAGES as MODULE_PAGES
from tools.module_map import first_paragraph, module_pages
from tools.settings_page import SECTIONS, settings_page

from wakugumi.app.commands import COMMANDS
from wakugumi.app.settings import all_options
from wakugumi.core.setting import options_of
from wakugumi.roles.http.job_request import PARAMETERS
from wakugumi.roles.http.openapi_schemas import KEPT_HEADERS
from wakugumi.roles.http.page_table import PAGES as PAGES_OVER_HTTP

TOP = Path(__file__).parents[2]
SOURCE = TOP / "src" / "wakugumi"
PAGES = [TOP / "README.md", TOP / "CONTRIBUTING.md", TOP / "CHANGELOG.md", *sorted((TOP / "docs").rglob("*.md"))]
ARCHITECTURE = (TOP / "docs" / "internals" / "architecture.md").read_text()

FILE = r"`((?:limits|core|wire|adapters|roles|app)/[\w/]+\.py)`"
FILE_AND_NAME = FILE + r"\s+`([\w.]+)`"


def names_in(file: Path) -> set[str]:
    """Everything a file defines at its top, and the methods of its classes as `Class.method`."""
    found: set[str] = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ClassDef):
            found.add(node.name)
            found |= {
                f"{node.name}.{member.name}"
                for member in node.body
                if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef)
            }
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_document_names_is_there(page: Path) -> None:
    missing = [name for name in re.findall(FILE, page.read_text()) if not (SOURCE / name).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_between_documents_leads_somewhere(page: Path) -> None:
    targets = [target for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()) if "://" not in target]
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert missing == []


def anchors_of(page: Path) -> set[str]:
    """Names of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_heading_leads_to_one(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text())
    missing = [
        f"{target}#{anchor}"
        for target, anchor in links
        if anchor not in anchors_of(page.parent / target if target else page)
    ]
    assert missing == []


def test_the_life_of_a_job_names_functions_that_are_there() -> None:
    steps = re.findall(FILE_AND_NAME, ARCHITECTURE)
    assert len(steps) >= 20
    missing = [(file, name) for file, name in steps if name not in names_in(SOURCE / file)]
    assert missing == []


def test_the_map_of_modules_is_made_of_the_source_as_it_is() -> None:
    pages = module_pages()
    assert [page.name for page, text in pages.items() if page.read_text() != text] == [], "hint: make docs"
    assert set(MODULE_PAGES.iterdir()) <= set(pages)


def test_the_index_of_modules_is_short_and_a_floor_page_has_each_module() -> None:
    index, *floors = module_pages().values()
    assert len(index) < 16_000
    named = re.findall(r"^\| `([\w/]+\.py)` \|", "\n".join([index, *floors]), re.MULTILINE)
    source = [file.relative_to(SOURCE).as_posix() for file in SOURCE.rglob("*.py") if file.name != "__init__.py"]
    assert sorted(named) == sorted(source)


def test_the_page_of_settings_is_made_of_the_source_as_it_is() -> None:
    assert (TOP / "docs" / "reference" / "settings.md").read_text() == settings_page(), "hint: make docs"


def test_the_page_of_commands_is_made_of_the_source_as_it_is() -> None:
    assert (TOP / "docs" / "use" / "commands.md").read_text() == commands_page(), "hint: make docs"


def test_the_page_of_errors_is_made_of_the_source_as_it_is() -> None:
    assert (TOP / "docs" / "reference" / "errors.md").read_text() == errors_page(), "hint: make docs"


def test_the_page_of_limits_is_made_of_the_source_as_it_is() -> None:
    assert (TOP / "docs" / "reference" / "limits.md").read_text() == limits_page(), "hint: make docs"


def test_the_page_of_metrics_is_made_of_the_source_as_it_is() -> None:
    assert (TOP / "docs" / "reference" / "metrics.md").read_text() == metrics_page(), "hint: make docs"


def test_the_page_of_pages_over_http_is_made_of_the_source_as_it_is() -> None:
    assert (TOP / "docs" / "reference" / "http-pages.md").read_text() == http_pages(), "hint: make docs"


def test_every_metric_has_a_meaning_and_a_chapter() -> None:
    page = metrics_page()
    assert [family.name for family in families() if page.count(f"`{family.name}`") != 1] == []
    assert [family.name for family in families() if not family.help.endswith(".")] == []


def test_every_limit_has_a_docstring_of_its_own() -> None:
    files = (SOURCE / "limits").glob("*.py")
    assert [name for file in files for name, text in attribute_docs(file).items() if len(text) < 5] == []


def test_the_page_of_settings_has_all_of_them() -> None:
    shown = {option.key for role, _ in SECTIONS.values() for option in options_of(role).values() if option.env}
    assert shown == {option.key for option in all_options()}


def test_help_of_a_setting_is_a_phrase_in_plain_words() -> None:
    for role, _ in SECTIONS.values():
        for option in options_of(role).values():
            about = option.setting.about
            assert about.endswith("."), about
            assert not re.match(r"(The|A|An|It|What|Who|Whom|Whoever|Where|Which|How) ", about), about
            assert "nothing is said" not in about, about


def test_every_request_that_jobs_over_http_names_is_in_the_table_of_pages() -> None:
    page = (TOP / "docs" / "use" / "http.md").read_text()
    named = set(re.findall(r"`([A-Z]+ /[^`]+)`", page))
    assert named
    assert named <= {page.request for page in PAGES_OVER_HTTP}


def test_jobs_over_http_has_every_parameter_and_every_header() -> None:
    page = (TOP / "docs" / "use" / "http.md").read_text()
    named = {
        name for cell in re.findall(r"^\| (`[^|]+) \|", page, re.MULTILINE) for name in re.findall(r"`([\w-]+)`", cell)
    }
    assert {*PARAMETERS, "async", *KEPT_HEADERS} <= named


def test_every_module_and_every_folder_says_what_it_is_for() -> None:
    empty = [line for page in module_pages().values() for line in page.splitlines() if line.endswith("|  |")]
    assert empty == []
    folders = {file.parent for file in SOURCE.rglob("*.py")}
    assert [folder for folder in folders if not first_paragraph(folder / "__init__.py")] == []


def test_no_folder_is_fuller_than_one_takes_in_at_a_glance() -> None:
    files = {folder: len(list(folder.glob("*.py"))) - 1 for folder in {file.parent for file in SOURCE.rglob("*.py")}}
    assert {folder.name: number for folder, number in files.items() if number > 15} == {}


def test_every_decision_has_a_number_and_says_what_and_why() -> None:
    decisions = sorted((TOP / "docs" / "internals" / "decisions").glob("*.md"))
    for number, page in enumerate(decisions, start=1):
        assert page.name.startswith(f"{number:04}-")
        assert page.read_text().startswith(f"# {number}. ")
        assert "**Decided.**" in page.read_text()
        assert "**Why.**" in page.read_text()


def test_the_readme_names_the_main_commands() -> None:
    readme = (TOP / "README.md").read_text()
    families = {command.name.split()[0] for group in COMMANDS.values() for command in group}
    assert {"map", "run", "up", "submit", "jobs", "workers", "status"} <= families
    for family in ("map", "run", "up", "submit", "jobs", "workers", "status"):
        assert f"waku {family}" in readme
