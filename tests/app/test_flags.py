"""A command's parameter that is a settings value becomes flags, and comes back as that value."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Annotated

import msgspec
import pytest

from wakugumi.app.flags import Only, server, with_settings
from wakugumi.core.setting import Setting


class Role(msgspec.Struct, frozen=True, kw_only=True):
    slots: Annotated[int, Setting("Jobs at once.")] = 4
    names: Annotated[tuple[str, ...], Setting("Name.", key="name", joined=" ")] = ()
    secret: Annotated[str, Setting("Not for all.", key="made-up")] = ""


TAKEN: list[object] = []
LOG = ["log_level", "log_json"]


@with_settings
def command(port: int = 1, /, *, fast: bool = False, settings: Role) -> int:
    """What it is for."""
    TAKEN[:] = [port, fast, settings]
    return 7


@with_settings
def smaller(*words: str, settings: Annotated[Role, Only("slots", without_flag="secret")]) -> int:
    TAKEN[:] = [words, settings]
    return 8


def test_flags_stand_where_the_value_stood() -> None:
    assert list(inspect.signature(command).parameters) == ["port", "fast", "slots", "names", "secret", *LOG]
    assert command.__doc__ == "What it is for."


def test_the_command_gets_the_value_whole() -> None:
    assert command(2, fast=True, slots=9, names=("a", "b")) == 7
    assert [2, True, Role(slots=9, names=("a", "b"))] == TAKEN
    assert command() == 7
    assert [1, False, Role()] == TAKEN


def test_a_command_takes_only_the_fields_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAKU_SLOTS", "5")
    monkeypatch.setenv("WAKU_NAME", "a")
    monkeypatch.setenv("WAKU_MADE_UP", "x")
    assert list(inspect.signature(smaller).parameters) == ["words", "slots", *LOG]
    assert smaller("one", "two") == 8
    assert [("one", "two"), Role(slots=5, secret="x")] == TAKEN


@pytest.mark.parametrize(("made_by", "level"), [(with_settings, "WARNING"), (server, "INFO")])
def test_the_log_of_a_command_is_started(made_by: Callable[..., Callable[..., int]], level: str) -> None:
    levels: list[str] = []

    def looks(*, settings: Role) -> int:
        levels.append(logging.getLevelName(logging.getLogger().level))
        return 0

    looks.__annotations__["settings"] = Role
    made = made_by(looks)
    assert made() == made(log_level="debug") == 0
    assert levels == [level, "DEBUG"]
