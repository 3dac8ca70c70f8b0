"""How does a run look? Runs commands of the README in a terminal and writes docs/start/first-run.svg.

.venv/bin/python -m tools.picture            in any folder; about 20 s; `make picture` calls it
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

PAGE = Path(__file__).absolute().parents[1] / "docs" / "start" / "first-run.svg"
COLUMNS = 92
PREPARE = 'mkdir inputs; for n in 1 2 3 4 5 6 7 8; do seq 1 "$n" > "inputs/part-$n.txt"; done'
COMMANDS = ("waku map wc inputs -- -l", "cat waku-out/part-3.txt/stdout.txt", "waku demo")

_CONTROL = re.compile(r"\x1b\[\??([\d;]*)([A-Za-z])|\r|\n")
_TEXT = re.compile(
    r'<text class="([\w-]+)" x="([\d.]+)" y="([\d.]+)" textLength="[\d.]+" (clip-path="[^"]+")>([^<]*)</text>'
)
_CELL = 12.2
"""Width of a character in the picture that rich makes."""
_FONT_FACE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def screen(written: str) -> list[str]:
    """The lines that stay on a terminal: an erased line is gone, colours stay as they are."""
    lines, row, at = [""], 0, 0
    for found in _CONTROL.finditer(written):
        lines[row] += written[at : found.start()]
        at = found.end()
        if found[0] == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif found[2] == "K":
            lines[row] = ""
        elif found[2] == "A":
            row -= int(found[1] or 1)
        elif found[2] == "m":
            lines[row] += found[0]
    lines[row] += written[at:]
    return lines


def run(command: str, folder: Path) -> list[str]:
    """What a command leaves on a terminal of its own."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    process = subprocess.Popen(["bash", "-c", command], cwd=folder, env=environment, stdout=theirs, stderr=theirs)
    os.close(theirs)
    written = b""
    while True:
        try:
            written += os.read(ours, 65_536)
        except OSError:  # the other end is closed
            break
    os.close(ours)
    if process.wait() != 0:
        raise SystemExit(f"{command} ended with {process.returncode}")
    return screen(written.decode())


def by_word(found: re.Match[str]) -> str:
    """Each word at its own place: not every viewer stretches a line to its length."""
    kind, x, y, clip, text = found.groups()
    texts, at = [], float(x)
    for piece in re.split(r"((?:&#160;)+)", text):
        cells = len(re.sub(r"&#?\w+;", " ", piece))
        if piece.strip() and not piece.startswith("&#160;"):
            width = f'{cells * _CELL:g}" {clip}'
            texts.append(f'<text class="{kind}" x="{at:g}" y="{y}" textLength="{width}>{piece}</text>')
        at += cells * _CELL
    return "".join(texts)


def picture() -> str:
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    with tempfile.TemporaryDirectory() as name:
        run(PREPARE, Path(name))
        for command in COMMANDS:
            console.print(Text.from_markup(f"[green]$[/green] [bold]{command}[/bold]"))
            lines = run(command, Path(name))
            while lines and not Text.from_ansi(lines[-1]).plain.strip():
                lines.pop()
            for line in lines:
                console.print(Text.from_ansi(line.rstrip()))
            console.print()
    # The fonts that rich names would be fetched from elsewhere; every system has one of its own.
    return _TEXT.sub(by_word, _FONT_FACE.sub("", console.export_svg(title="waku", unique_id="waku")))


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(picture(), encoding="utf-8")
