"""Work that calls share, on one machine or on many: what each of them does, where it writes, and what is still missing."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bnnzoo.engine.files import refuse_missing_folder

__all__ = [
    "Share",
    "ShareError",
    "UnfinishedError",
    "file_of",
    "out_asked",
    "parts_in",
    "refuse_missing",
    "share_asked",
]

NAMED = 5
"""How many of the missing items a sentence names."""


class ShareError(ValueError):
    """Calls cannot share the work as asked; the message is one sentence."""


class UnfinishedError(ShareError):
    """Part of the work has not been done yet; the message names it."""


@dataclass(frozen=True)
class Share:
    """What one of several calls, the tasks, does of a list of items; by default all of it.

    Parameters
    ----------
    task : int
        Its number, from 0.
    of : int
        How many tasks there are.

    Examples
    --------
    >>> [Share(task, 3).numbers(8, "items") for task in range(3)]
    [[0, 5, 6], [1, 4, 7], [2, 3]]
    """

    task: int = 0
    of: int = 1

    @classmethod
    def given(cls, task: object) -> Self:
        """Return the share that an argument ``task=(0, 10)`` asks for.

        Raises
        ------
        ShareError
            If it is no such pair.
        """
        match task:
            case None:
                return cls()
            case (int(number), int(of)) if 0 <= number < of:
                return cls(number, of)
        raise ShareError(
            f"task={task!r}; write the number of the task, from 0, and how many there are, such as task=(0, 10)."
        )

    def numbers(self, total: int, what: str) -> list[int]:
        """Return the numbers of this task's items: neighbours go to different tasks.

        Parameters
        ----------
        total : int
            How many items all tasks share.
        what : str
            What they are, for the sentence: ``"cells"``.

        Raises
        ------
        ShareError
            If there are more tasks than items.
        """
        if 1 < self.of > total:
            raise ShareError(f"{total} {what} are fewer than {self.of} tasks: share them among {total} or fewer.")
        return [number for number in range(total) if _owner(number, self.of) == self.task]


def file_of(path: Path, task: tuple[int, int] | None, suffix: str) -> Path:
    """Return the file that a call writes: that of the path, or a task's own in the folder of the path, which is made if need be.

    Raises
    ------
    ShareError
        If a folder stands where a file should, or a file where a folder should.
    """
    if task is None:
        if path.is_dir():
            raise ShareError(
                f"{str(path)!r} is a folder: name a file, or say which of the tasks that share it this is."
            )
        return path
    if path.exists() and not path.is_dir():
        raise ShareError(f"{str(path)!r} is a file: tasks write a file each, so name a folder.")
    share = Share.given(task)
    path.mkdir(parents=True, exist_ok=True)
    return path / f"task-{share.task}-of-{share.of}.{suffix}"


def share_asked(task: int | None, of: int | None) -> tuple[int, int] | None:
    """Return the argument ``task`` for the options ``--task`` and ``--of`` of a command.

    Raises
    ------
    ShareError
        If one of them is missing, or there is no such task.
    """
    if task is None and of is None:
        return None
    if task is None or of is None:
        raise ShareError("--task and --of go together: --task $SLURM_ARRAY_TASK_ID --of 100.")
    if not 0 <= task < of:
        raise ShareError(f"--task {task} --of {of}: tasks are numbered from 0 to {of - 1}.")
    return task, of


def out_asked(out: Path | None, task: tuple[int, int] | None, whole: str) -> Path:
    """Return where a command writes: the file ``--out``, or the folder that tasks share; by default named after the whole file.

    Raises
    ------
    FileNotFoundError
        If the file is to stand in a folder that does not exist.
    """
    if out is None:
        out = Path(whole if task is None else Path(whole).stem)
    if task is None:
        refuse_missing_folder(out)
    return out


def parts_in(folder: Path, suffix: str, of: int | None = None) -> list[Path]:
    """Return the files that tasks have written into a folder: those of so many tasks, by default of any number."""
    return sorted(folder.glob(f"task-*-of-{of or '*'}.{suffix}"))


def refuse_missing(missing: Mapping[int, str], total: int, of: int, what: str) -> None:
    """Refuse to put together what is not complete.

    Parameters
    ----------
    missing : mapping of int to str
        Names of the items that have not been done, by their number.
    total : int
        How many items there are.
    of : int
        How many tasks share them.
    what : str
        As for :meth:`Share.numbers`.

    Raises
    ------
    UnfinishedError
        If there are any.

    Examples
    --------
    >>> refuse_missing({1: "line by nuts"}, 8, 3, "cells")
    Traceback (most recent call last):
    bnnzoo.engine.shares.UnfinishedError: Of 8 cells 1 is missing: line by nuts. Run task 1 of 3: it goes on where it stopped.
    """
    if not missing:
        return
    names = [missing[number] for number in sorted(missing)]
    more = [f"and {len(names) - NAMED} more"] if len(names) > NAMED else []
    due = {_owner(number, of) for number in missing}
    first = sorted(each for each in due if each - 1 not in due)
    last = sorted(each for each in due if each + 1 not in due)
    runs = zip(first, last, strict=True)
    ranges = ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)  # as batch systems take them: 0-2,5
    again = f"tasks {ranges} of {of}: each" if len(due) > 1 else f"task {ranges} of {of}: it"
    verb = "is" if len(names) == 1 else "are"
    raise UnfinishedError(
        f"Of {total} {what} {len(names)} {verb} missing: {'; '.join(names[:NAMED] + more)}. Run {again} goes on where it stopped."
    )


def _owner(number: int, of: int) -> int:
    """Return the task of an item: they are dealt to 0, 1, ..., of - 1 and back again, so that none always has the dearer one."""
    turn, place = divmod(number, of)
    return of - 1 - place if turn % 2 else place
