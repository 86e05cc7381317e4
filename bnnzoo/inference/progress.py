"""Progress on a terminal or in a notebook, and silence everywhere else."""

from importlib.util import find_spec
from typing import Any

from bnnzoo.core.method import Progress as ProgressProtocol
from bnnzoo.core.method import Silent
from bnnzoo.core.program.turns import let_others

__all__ = ["Bar", "considerate", "progress_for"]


class Bar:
    """A progress bar with the stage, its step, a few numbers such as the ELBO or the acceptance rate, and the time left.

    A stage whose length is not known, such as compiling, pulses.

    Parameters
    ----------
    console : rich.console.Console
        Where it is shown.
    """

    def __init__(self, console: Any) -> None:
        # imported here: rich takes a tenth of a second, and nothing needs it before the first fit
        from rich import progress  # noqa: PLC0415

        columns = (
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[numbers]}"),
            progress.TimeRemainingColumn(elapsed_when_finished=True),
        )
        self._progress = progress.Progress(*columns, console=console, transient=True)
        self._task: Any = None

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


class Considerate:
    """Progress of a fit in this process, at every step of which other threads may take their turn.

    Parameters
    ----------
    shown : Progress
        What it is shown by.
    """

    def __init__(self, shown: ProgressProtocol) -> None:
        self._shown = shown
        self.start, self.stop = shown.start, shown.stop

    def update(self, step: int, **fields: float) -> None:
        """Show that ``step`` steps are done, and the latest numbers."""
        self._shown.update(step, **fields)
        let_others()


class Waiting(Silent):
    """Progress of a fit that nobody watches, at every step of which other threads may take their turn."""

    def update(self, step: int, **fields: float) -> None:
        """Let other threads take their turn."""
        let_others()


def considerate(shown: ProgressProtocol) -> ProgressProtocol:
    """Return a progress that lets other threads take their turn, silent if the given one is."""
    return Waiting() if isinstance(shown, Silent) else Considerate(shown)


def progress_for(show: bool) -> ProgressProtocol:
    """Return a bar where standard error is a terminal, or in a notebook, and ``show`` is true; else silence.

    In a notebook rich needs ipywidgets; without it there is no bar.
    """
    if not show:
        return Silent()
    # imported here: nothing needs it before the first fit
    from rich.console import Console  # noqa: PLC0415

    console = Console(stderr=True)
    visible = console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)
    return Bar(console) if visible else Silent()
