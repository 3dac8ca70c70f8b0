"""The commands of the README and of the first pages run: every block fenced as `sh`, in order, in one empty folder."""

from __future__ import annotations

from pathlib import Path

from tests.kit.page_commands import TOP, blocks, run

from wakugumi.app.serve.free_ports import free_port


def test_the_readmes_commands_run(home: Path) -> None:
    found = blocks(TOP / "README.md")
    assert found
    # The README's port may be taken where this runs.
    script = "\n".join(found).replace("5000", str(free_port()))
    run(f"trap 'kill $(jobs -p) 2>/dev/null || :' EXIT\n{script}", home)


def test_the_commands_of_the_first_job_and_of_its_files_run(home: Path) -> None:
    pages = [TOP / "docs" / "start" / name for name in ("first-job.md", "files.md")]
    script = "\n".join(block for page in pages for block in blocks(page)).replace("5000", str(free_port()))
    assert script.count("waku ") >= 12
    run(f"trap 'kill $(jobs -p) 2>/dev/null || :' EXIT\n{script}", home)


def test_the_examples_commands_run(home: Path) -> None:
    for name in ("price.py", "make_inputs.py"):
        (home / name).write_bytes((TOP / "examples" / "pricer" / name).read_bytes())
        (home / name).chmod(0o755)
    # A few inputs are enough to see that the commands are right; `waku demo` prices them all.
    script = "\n".join(blocks(TOP / "examples" / "pricer" / "README.md"))
    first, _, rest = script.partition("\n")
    run(f"{first}\nfind options -type f ! -name 'call-100-*' -delete\n{rest}", home)
