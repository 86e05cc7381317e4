"""The command ``bnnzoo benchmark uci``."""

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as Grid

from bnnzoo.apps.benchmarking.published import PUBLISHED
from bnnzoo.apps.benchmarking.sources import BenchmarkError, parse_splits
from bnnzoo.apps.benchmarking.uci_benchmark import MEASURES, WHOLE, Score, differences, merge_uci, run_uci, summarise
from bnnzoo.apps.tables.options import NumTasks, TaskNumber
from bnnzoo.core.method import Method
from bnnzoo.engine.shares import UnfinishedError, out_asked, share_asked
from bnnzoo.inference import MCDropout
from bnnzoo.trees.power import PairedComparison

__all__ = ["benchmark_commands"]

DROPOUT = 0.05
DIFFERENCES = (
    "Standard errors of differences allow for the overlap of training parts (Nadeau and Bengio 2003), others do not. In "
    "brackets: the smallest difference that so many splits show in 80% of comparisons; beside it, how many splits show one of "
    "the size found."
)


def benchmark_commands(
    console: Console,
    one_sentence_errors: Callable[[], AbstractContextManager[None]],
    methods_from: Callable[[str], Mapping[str, Method]],
) -> typer.Typer:
    """Return the commands of the benchmark.

    Parameters
    ----------
    console : Console
        To which they print.
    one_sentence_errors : callable
        Returns a context in which an error of the user becomes one sentence.
    methods_from : callable
        Returns methods by name from a comma-separated list.
    """
    app = typer.Typer(help="Benchmarks of inference methods.", no_args_is_help=True)

    @app.callback()
    def benchmark() -> None:
        """Benchmark inference methods."""

    @app.command()
    def uci(
        methods: Annotated[str, typer.Option(help="Inference methods, comma-separated.")] = "deepensemble,mfvi,laplace",
        data: Annotated[Path | None, typer.Option(help="Folder of the sets (default: download from OpenML).")] = None,
        sets: Annotated[str, typer.Option(help="Comma-separated.")] = "concrete,energy,yacht",
        splits: Annotated[str, typer.Option(help="Numbers and ranges, such as 0-9 or 0,3,5-7.")] = "0-9",
        gap: Annotated[bool, typer.Option("--gap", help="Take the gap splits, not the standard ones.")] = False,
        out: Annotated[
            Path | None,
            typer.Option(help=f"JSON file to begin or to go on with, or the folder of the tasks (default: {WHOLE})."),
        ] = None,
        task: TaskNumber = None,
        of: NumTasks = None,
    ) -> None:
        """Score methods on UCI regression tables, next to published results; what the file holds is not run again."""
        with one_sentence_errors():
            if not (found := [name.strip() for name in sets.split(",") if name.strip()]):
                raise BenchmarkError("--sets is empty; write names of sets, such as concrete,yacht.")
            names = list(dict.fromkeys(found))
            # dropout gets its rate: the benchmark's network has no dropout layers to take it from
            chosen = {
                name: replace(m, rate=DROPOUT) if isinstance(m, MCDropout) else m
                for name, m in methods_from(methods).items()
            }
            numbers = parse_splits(splits)
            asked = share_asked(task, of)
            out = out_asked(out, asked, WHOLE)
            plan: Mapping[str, Any] = {
                "sets": names,
                "methods": chosen,
                "splits": numbers,
                "data": data,
                "gap": gap,
            }
            scores = run_uci(out, **plan, task=asked, announce=lambda s: _say(console, s))
            if asked is not None:
                try:
                    scores = merge_uci(out, asked[1], **plan)
                except UnfinishedError as error:
                    text = f"Task {task} of {of} is done. {error}"
                    console.print(text, highlight=False, markup=False, soft_wrap=True)
                    return
            for name in names:
                console.print(_grid(name, [score for score in scores if score.set == name], next(iter(chosen))))

    return app


def _say(console: Console, score: Score) -> None:
    text = (
        f"{score.set}, {score.method}, split {score.split}: RMSE {score.rmse:.3f}, log density {score.log_density:.3f}"
    )
    if score.rhat is not None:
        text += f", largest R-hat of a prediction {score.rhat:.3f}"
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def _grid(name: str, scores: list[Score], reference: str) -> Grid:
    """Return a table of a set: mean and standard error over splits, and differences; then published rows of standard splits."""
    grid = Grid(title=f"{name}, {scores[0].splits} splits", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    grid.add_column("method", no_wrap=True)
    for measure in MEASURES:
        grid.add_column(measure.replace("_", " "), overflow="fold")
    summary, compared = summarise(scores), differences(scores, reference)
    if compared:
        grid.add_column(f"log density vs {reference}", overflow="fold")
        grid.add_column("splits needed", overflow="fold")
        grid.caption = DIFFERENCES
    for key, found in summary.items():
        against = _compared(compared.get(key)) if compared else ()
        grid.add_row(key[2], *(_written(*found[measure]) for measure in MEASURES), *against)
    for source, rows in PUBLISHED.items():
        if name in rows and scores[0].splits == "standard":
            rmse, log_density = rows[name]
            grid.add_row(source, "" if rmse is None else f"{rmse:.3f}", f"{log_density:.3f}", "", "", "")
    return grid


def _compared(found: PairedComparison | None) -> tuple[str, str]:
    """Return a difference with what so many splits show, and how many it takes for one of this size."""
    if found is None:
        return "reference", ""
    if math.isnan(found.standard_error):
        return f"{found.difference:+.3f}", ""
    needed = "none suffices" if math.isinf(found.num_needed) else f"{found.num_needed:,.0f}"
    return f"{_written(found.difference, found.standard_error, '+')} ({found.detectable:.3f})", needed


def _written(mean: float, error: float, sign: str = "") -> str:
    return f"{mean:{sign}.3f}" if math.isnan(error) else f"{mean:{sign}.3f} ± {error:.3f}"
