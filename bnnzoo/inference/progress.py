"""Progress on a terminal, and silence everywhere else."""

import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from bnnzoo.core.method import Progress as ProgressProtocol
from bnnzoo.core.method import Silent

__all__ = ["Bar", "progress_for"]


class Bar:
    """A progress bar with the step, a few numbers such as the ELBO or the acceptance rate, and the time left."""

    def __init__(self, console: Console) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=console, transient=True)
        self._task: TaskID | None = None

    def start(self, description: str, total: int) -> None:
        """Begin a stage of ``total`` steps; a stage still running ends."""
        if self._task is None:
            self._progress.start()
        else:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(description, total=total, numbers="")

    def update(self, step: int, **fields: float) -> None:
        """Show that ``step`` steps are done, and the latest numbers."""
        if self._task is not None:
            numbers = "  ".join(f"{name} {value:.4g}" for name, value in fields.items())
            self._progress.update(self._task, completed=step, numbers=numbers)

    def stop(self) -> None:
        """Remove the bar."""
        self._progress.stop()
        self._task = None


def progress_for(show: bool) -> ProgressProtocol:
    """Return a bar where standard error is a terminal and ``show`` is true, else silence."""
    return Bar(Console(stderr=True)) if show and sys.stderr.isatty() else Silent()
