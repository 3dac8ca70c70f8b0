"""Which inputs a map has, in which order, and where their results go."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from wakugumi.app.work.map.inputs import Inputs
from wakugumi.errors import ConfigError


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(os.fsencode(name))


def outs(*paths: Path) -> list[str]:
    with closing(Inputs()) as inputs:
        for path in paths:
            inputs.add(str(path))
        inputs.settle()
        return [found.out for found in inputs]


def test_a_folder_means_its_files_in_order_without_hidden_ones(tmp_path: Path) -> None:
    write(tmp_path, "b.txt", "a.txt", "c.txt", ".hidden", "below/d.txt")
    with closing(Inputs()) as inputs:
        inputs.add(str(tmp_path))
        inputs.settle()
        assert [found.name for found in inputs] == ["a.txt", "b.txt", "c.txt"]
        assert next(iter(inputs)).path == str(tmp_path / "a.txt")
        assert inputs.left_out == 1


def test_what_is_neither_file_nor_folder_is_no_input_but_a_broken_link_is(tmp_path: Path) -> None:
    write(tmp_path, "file")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "broken").symlink_to("nowhere")
    assert outs(tmp_path) == ["broken", "file"]


def test_files_keep_the_order_in_which_they_were_named(tmp_path: Path) -> None:
    write(tmp_path, "b", "a", "f/2", "f/1")
    assert outs(tmp_path / "b", tmp_path / "f", tmp_path / "a") == ["b", "1", "2", "a"]


def test_an_input_named_twice_is_one_input(tmp_path: Path) -> None:
    write(tmp_path, "a", "b")
    assert outs(tmp_path / "b", tmp_path, tmp_path / "x" / ".." / "b") == ["b", "a"]


def test_equal_names_keep_what_tells_them_apart(tmp_path: Path) -> None:
    write(tmp_path, "one/deep/x.csv", "two/x.csv", "two/y.csv")
    assert outs(tmp_path / "one" / "deep", tmp_path / "two") == ["one/deep/x.csv", "two/x.csv", "y.csv"]


def test_a_thousand_equal_names_stay_apart(tmp_path: Path) -> None:
    write(tmp_path, *(f"run{number:03d}/input.txt" for number in range(1000)))
    assert outs(*sorted(tmp_path.iterdir())) == [f"run{number:03d}/input.txt" for number in range(1000)]


def test_results_that_would_lie_inside_each_other_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "p/a/x", "p/b/x", "q/a")
    with pytest.raises(ConfigError, match="would share a folder"):
        outs(tmp_path / "p" / "a", tmp_path / "p" / "b", tmp_path / "q")


def test_what_does_not_exist_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere does not exist"):
        outs(tmp_path / "nowhere")


def test_a_list_names_inputs_line_by_line(tmp_path: Path) -> None:
    write(tmp_path, "z", "y", "in/a")
    (tmp_path / "list").write_text(f"{tmp_path}/z\n\n{tmp_path}/in\r\n{tmp_path}/y")
    with closing(Inputs()) as inputs:
        inputs.add_list(str(tmp_path / "list"))
        with pytest.raises(ConfigError, match=r"list of inputs .*none cannot be read"):
            inputs.add_list(str(tmp_path / "none"))
        inputs.settle()
        assert [found.out for found in inputs] == ["z", "a", "y"]


def test_a_name_that_is_no_text_is_still_a_name(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9")
    write(tmp_path, name)
    assert outs(tmp_path) == [name]


def test_the_order_is_the_same_each_time_one_looks(tmp_path: Path) -> None:
    write(tmp_path, *(f"{number}" for number in range(50)))
    with closing(Inputs()) as inputs:
        inputs.add(str(tmp_path))
        inputs.settle()
        assert list(inputs) == list(inputs)
        assert len(inputs) == 50
