"""A programme is data: what it says of its contestants, events and goals must fit together."""

import ast
import sys
from pathlib import Path

import pytest

import environment
import report
from environment import NotOnDisk
from programme import DURABLE, RIVALS, Programme, before

PROGRAMMES = pytest.mark.parametrize(
    "programme", [RIVALS, DURABLE, before(Path("other"))], ids=lambda programme: programme.command
)


@PROGRAMMES
def test_everybody_who_is_named_takes_part(programme: Programme) -> None:
    entries = {entry.name for entry in programme.entries}
    events = {event.name: set(event.entries) for event in programme.events}
    assert len(entries) == len(programme.entries)
    assert set().union(*events.values()) <= entries
    assert all(set(event.slow) <= set(event.entries) for event in programme.events)
    for ratio in programme.ratios:
        assert {ratio.ours, *ratio.rivals} <= events[ratio.event]
    for figure in programme.figures:
        assert figure.of is None or figure.of[0] in events[figure.of[1]]


@PROGRAMMES
def test_whoever_takes_no_turns_tells_figures(programme: Programme) -> None:
    taking_turns = {name for event in programme.events for name in event.entries}
    assert {entry.name for entry in programme.entries if not entry.tells_figures} <= taking_turns


@PROGRAMMES
def test_every_figure_that_is_to_be_told_is_a_word_of_one_who_tells(programme: Programme) -> None:
    scripts = {entry.script for entry in programme.entries if entry.tells_figures}
    words = {
        node.value
        for script in scripts
        for node in ast.walk(ast.parse(script.read_text()))
        if isinstance(node, ast.Constant)
    }
    assert {figure.key for figure in programme.figures if figure.of is None} <= words


@PROGRAMMES
def test_a_figure_of_an_entry_is_a_measure_that_the_report_knows(programme: Programme) -> None:
    assert {figure.key for figure in programme.figures if figure.of} <= report.UNITS.keys()


def test_the_two_write_different_documents() -> None:
    assert RIVALS.document != DURABLE.document


def test_against_rivals_our_leader_has_its_queue_in_memory_as_the_goals_say() -> None:
    ours = {entry.name: entry.arguments for entry in RIVALS.entries if entry.ours}
    assert ours == {"ours": ("memory",), "leader": ("memory",)}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_contest_about_the_disk_is_not_held_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "IN_MEMORY", {environment._file_system(tmp_path)})
    with pytest.raises(NotOnDisk, match="nothing would be proven"):
        environment.disk(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_disk_is_told_with_the_time_it_takes_to_keep_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "IN_MEMORY", set())
    monkeypatch.setattr(environment, "SYNCS", 3)
    assert "fsync of 4 KiB more takes" in environment.disk(tmp_path / "new")["Disk"]
    assert list((tmp_path / "new").iterdir()) == []


def test_before_and_now_differ_in_their_interpreter_alone() -> None:
    programme = before(Path("other"))
    entries = {entry.name: entry for entry in programme.entries}
    for ratio in programme.ratios:
        now, other = entries[ratio.ours], entries[ratio.rivals[0]]
        assert (now.module, now.arguments) == (other.module, other.arguments)
        assert now.python is None
        assert other.python == Path("other/.venv/bin/python")
