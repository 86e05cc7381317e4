"""Work that tasks share: each item is one task's, neighbours are not, and what is missing is named."""

from pathlib import Path

import pytest

from bnnzoo.engine.shares import (
    Share,
    ShareError,
    UnfinishedError,
    file_of,
    out_asked,
    parts_in,
    refuse_missing,
    share_asked,
)


@pytest.mark.parametrize(("total", "of"), [(1, 1), (8, 3), (9, 3), (94, 7), (5, 5)])
def test_every_item_is_one_tasks_and_none_has_two_more_than_another(total: int, of: int) -> None:
    shares = [Share(task, of).numbers(total, "items") for task in range(of)]
    assert sorted(number for share in shares for number in share) == list(range(total))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_no_task_has_the_dearer_item_of_each_pair() -> None:
    """Dealt in one direction, the second of two tasks would have all of them."""
    costs = [1, 10] * 8
    assert [sum(costs[number] for number in Share(task, 2).numbers(16, "items")) for task in range(2)] == [44, 44]


def test_what_is_missing_is_named_with_the_tasks_to_run() -> None:
    missing = {number: f"item {number}" for number in (0, 1, 2, 5, 9, 10, 19)}
    sentence = (
        r"^Of 20 cells 7 are missing: item 0; item 1; item 2; item 5; item 9; and 2 more\. "
        r"Run tasks 0-2,5,9 of 10: each goes on where it stopped\.$"
    )
    with pytest.raises(UnfinishedError, match=sentence):
        refuse_missing(missing, 20, 10, "cells")
    refuse_missing({}, 20, 10, "cells")


def test_files_of_tasks_are_found_and_half_written_ones_are_not(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    files = [file_of(folder, task, "json") for task in ((1, 2), (3, 10))]
    assert [each.name for each in files] == ["task-1-of-2.json", "task-3-of-10.json"]
    for each in (*files, folder / "whole.json", folder / ".task-0-of-2.json.partial-host-1-1"):
        each.touch()
    assert parts_in(folder, "json") == files and parts_in(folder, "json", 10) == files[1:]


def test_a_file_is_no_folder_and_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "a.json").touch()
    with pytest.raises(ShareError, match=r"a\.json' is a file: tasks write a file each, so name a folder"):
        file_of(tmp_path / "a.json", (0, 2), "json")
    with pytest.raises(ShareError, match=r"is a folder: name a file, or say which of the tasks that share it this is"):
        file_of(tmp_path, None, "json")
    assert file_of(tmp_path / "a.json", None, "json") == tmp_path / "a.json"


@pytest.mark.parametrize("task", [(3, 3), (-1, 3), (0.5, 2), (1,), "01", 1, (0, 0)])
def test_a_task_is_a_number_and_how_many_there_are(task: object) -> None:
    with pytest.raises(ShareError, match=r"; write the number of the task, from 0, and how many there are, such as"):
        Share.given(task)


def test_options_of_tasks() -> None:
    assert share_asked(None, None) is None and share_asked(2, 3) == (2, 3)
    for half in ((1, None), (None, 3)):
        with pytest.raises(ShareError, match="--task and --of go together: --task "):
            share_asked(*half)
    with pytest.raises(ShareError, match=r"--task 3 --of 3: tasks are numbered from 0 to 2\."):
        share_asked(3, 3)
    with pytest.raises(ShareError, match=r"3 cells are fewer than 4 tasks: share them among 3 or fewer\."):
        Share(0, 4).numbers(3, "cells")


def test_commands_write_a_file_or_into_the_folder_of_the_tasks(tmp_path: Path) -> None:
    assert out_asked(None, None, "table.json") == Path("table.json")
    assert out_asked(None, (0, 2), "table.json") == Path("table")
    assert out_asked(tmp_path / "new" / "folder", (0, 2), "table.json") == tmp_path / "new" / "folder"
    with pytest.raises(FileNotFoundError, match=r"There is no folder '.*new' for 'mine.json'; create it first"):
        out_asked(tmp_path / "new" / "mine.json", None, "table.json")
