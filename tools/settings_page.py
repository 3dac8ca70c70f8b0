"""Which settings are there? Writes docs/reference/settings.md from the settings values of the roles.

.venv/bin/python tools/settings_page.py            `make docs` calls it
"""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

from wakugumi.app.client_settings import ClientSettings, LogSettings
from wakugumi.app.program_settings import ProgramSettings
from wakugumi.core.setting import OFF, RoleSetting, options_of
from wakugumi.roles.gateway.settings import GatewaySettings
from wakugumi.roles.leader.settings import LeaderSettings
from wakugumi.roles.node.settings import NodeSettings
from wakugumi.roles.runner.settings import WorkerSettings

PAGE = Path(__file__).absolute().parents[1] / "docs" / "reference" / "settings.md"
HEAD = """\
# Settings
Made by `make docs` from the settings values of the roles; a test compares it with the source.

A flag wins over the environment, the environment over `waku.toml`, and that over the default. `waku.toml` lies in the
current folder, or where WAKU_CONFIG says; a command that takes a value from the current folder's file says so. Its keys
are the flags without `--`, except where the table names another key. Of several variables the first one that is set
counts; an empty one counts as not set. A flag that may be repeated is one text elsewhere, with blanks or commas between
the values. A dash means that there is no flag, or no variable and no key. Sizes have a unit, such as 20GB or 512MiB.
"""
SECTIONS: dict[str, tuple[type[msgspec.Struct], str]] = {
    "Leader": (LeaderSettings, "`waku leader`; `waku up` takes some of these."),
    "Worker": (WorkerSettings, "`waku worker`; `waku up` takes some of these."),
    "Node": (NodeSettings, "`waku node`."),
    "Programs": (ProgramSettings, "Environment and user of programs: `waku worker`, `waku node`, `waku up`."),
    "Gateway": (GatewaySettings, "`waku gateway`."),
    "Clients": (ClientSettings, "Commands that use a leader or work right here; each takes some of these."),
    "Log": (LogSettings, "All commands."),
}


def bounds(option: RoleSetting) -> str:
    least, most = option.setting.least, option.setting.most
    if option.choices:
        return ", ".join(option.choices)
    if math.isinf(least):
        return "repeated" if option.setting.joined else ""
    return f"{least:g} to {most:g}" + (f", or {OFF}" if option.setting.off else "")


def row(option: RoleSetting) -> str:
    setting = option.setting
    flag = "–" if setting.no_flag else ", ".join(f"`{name}`" for name in (option.flag, setting.short) if name)
    key = f" (key `{option.key}`)" if setting.no_flag or option.flag != f"--{option.key}" else ""
    cells = (flag + key, ", ".join(option.env) or "–", option.shown_default, bounds(option), setting.about)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def settings_page() -> str:
    lines = [HEAD]
    log = options_of(LogSettings)
    for title, (role, about) in SECTIONS.items():
        options = [option for name, option in options_of(role).items() if name not in log or role is LogSettings]
        lines += [
            f"## {title}",
            about,
            "",
            "| flag | environment | default | allowed | meaning |",
            "|---|---|---|---|---|",
        ]
        lines += [*map(row, options), ""]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(settings_page(), encoding="utf-8")
