"""Progress on a terminal or in a notebook, and silence everywhere else."""

from importlib.util import find_spec

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from bnnzoo.core.method import Progress as ProgressProtocol
from bnnzoo.core.method import Silent

__all__ = ["Bar", "progress_for"]


class Bar:
    """A progress bar with the stage, its step, a few numbers such as the ELBO or the acceptance rate, and the time left.

    A stage whose length is not known, such as compiling, pulses.
    """

    def __init__(self, console: Console) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(elapsed_when_finished=True),
        )
        self._progress = Progress(*columns, console=console, transient=True)
        self._task: TaskID | None = None

    def start(self, description: str, total: int) -> None:
        """Begin a stage of ``total`` steps; a stage still running ends."""
        if self._task is None:
            self._progress.start()
        else:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(description, total=total if total > 1 else None, numbers="")

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
    """Return a bar where standard error is a terminal, or in a notebook, and ``show`` is true; else silence.

    In a notebook rich needs ipywidgets; without it there is no bar.
    """
    console = Console(stderr=True)
    visible = console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)
    return Bar(console) if show and visible else Silent()
