"""The commands ``bnnzoo demo``, ``bnnzoo compare``, ``bnnzoo check``, ``bnnzoo sbc``, ``bnnzoo zoo`` and ``bnnzoo benchmark``."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, get_args

import pandas as pd
import torch
import typer
from rich.console import Console
from rich.markup import escape

from bnnzoo import inference
from bnnzoo.apps.benchmarking.sources import BenchmarkError
from bnnzoo.apps.benchmarking.uci_command import benchmark_commands
from bnnzoo.apps.check_command import check_command
from bnnzoo.apps.reporting.choices import Splitting, prior_named
from bnnzoo.apps.reporting.comparison import compare
from bnnzoo.apps.reporting.output import show, write_or_rescue
from bnnzoo.apps.sbc_command import sbc_command
from bnnzoo.apps.tables import Missing, Table, TableError, Task, prepare, read_table
from bnnzoo.apps.tables.options import CsvFile, Decimal, Separator
from bnnzoo.core.data.conversion import DataError
from bnnzoo.core.method import Method
from bnnzoo.core.program.sites import ModelError
from bnnzoo.datasets import diabetes
from bnnzoo.documents.folders import new_folder, refuse_unusable_folder
from bnnzoo.engine.shares import ShareError
from bnnzoo.validation.simulated_data import CalibrationError
from bnnzoo.zoo.data import ZooError
from bnnzoo.zoo.zoo_commands import zoo_commands

__all__ = ["app", "method_names", "methods_from"]

app = typer.Typer(
    help="Bayesian neural networks on a table: one model, several inference methods, one report.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
console = Console()
errors = Console(stderr=True)

BAD_INPUT = 2


class CommandError(ValueError):
    """An option of a command is invalid; the message is one sentence."""


@dataclasses.dataclass(frozen=True)
class Budget:
    """How long methods run. Each method, and each method within one, uses the settings that it has."""

    num_chains: int = 4
    num_warmup: int = 500
    num_draws: int = 500
    num_steps: int | None = None

    def settings(self) -> dict[str, int]:
        """Return the settings that are not None, by name."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}

    def given_to(self, method: Any) -> Any:
        """Return the method, and the stages of which it is made, with these settings."""
        own = {each.name for each in dataclasses.fields(method)}
        chosen: dict[str, Any] = {name: value for name, value in self.settings().items() if name in own}
        stages = {name: getattr(method, name) for name in method.stages}
        chosen |= {name: self.given_to(stage) for name, stage in stages.items() if dataclasses.is_dataclass(stage)}
        return dataclasses.replace(method, **chosen)


DEFAULT_BUDGET = Budget()

Out = Annotated[Path, typer.Option(help="New folder for report.html, two tables (CSV) and one netCDF file per method.")]
USUAL_METHODS = ("nuts", "mfvi", "laplace", "deepensemble", "map")
Methods = Annotated[
    str,
    typer.Option(
        help=f"Inference methods, comma-separated; the first is the reference. The usual ones: {', '.join(USUAL_METHODS)}."
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of the split and of all random numbers.")]
TestSize = Annotated[float, typer.Option(help="Fraction of the rows that is held out.")]
Hidden = Annotated[int, typer.Option(min=1, help="Width of the hidden layer.")]
Chains = Annotated[int, typer.Option(min=1, help="Number of Markov chains.")]
Warmup = Annotated[int, typer.Option(min=1, help="Warm-up iterations of each chain.")]
Draws = Annotated[int, typer.Option(min=4, help="Draws of each chain after warm-up.")]
Steps = Annotated[int | None, typer.Option(min=1, help="Optimisation steps (default: the method's own).")]


def _show_version(wanted: bool) -> None:
    if wanted:
        try:
            console.print(f"bnnzoo {version('bnnzoo')}", highlight=False)
        except PackageNotFoundError:
            console.print("bnnzoo, run from a checkout that is not installed")
        raise typer.Exit


@app.callback()
def main(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Bayesian neural networks on a table: one model, several inference methods, one report."""


@app.command()
def demo(
    out: Out = Path("bnnzoo-demo"),
    methods: Methods = "nuts,mfvi,laplace",
    seed: Seed = 0,
    hidden: Hidden = 8,
    num_chains: Chains = DEFAULT_BUDGET.num_chains,
    num_warmup: Warmup = DEFAULT_BUDGET.num_warmup,
    num_draws: Draws = DEFAULT_BUDGET.num_draws,
    num_steps: Steps = DEFAULT_BUDGET.num_steps,
) -> None:
    """Compare methods on scikit-learn's diabetes data: progression of the disease in 442 patients, from 10 inputs."""
    with _one_sentence_errors():
        budget = Budget(num_chains, num_warmup, num_draws, num_steps)
        chosen = methods_from(methods, budget)
        refuse_unusable_folder(out)
        data = diabetes()
        frame = pd.DataFrame(data.x, columns=list(data.features)).assign(progression=data.y)
        table = prepare(frame, "progression", "regression", 0.2, seed)
        _run(table, chosen, "the diabetes data of scikit-learn", out, hidden, seed)


@app.command("compare")
def compare_command(
    data: CsvFile,
    target: Annotated[str, typer.Option(help="Column to predict.", show_default=False)],
    methods: Methods = "nuts,mfvi,laplace",
    out: Out = Path("results"),
    task: Annotated[
        str | None, typer.Option(help="regression or classification (default: inferred from the target).")
    ] = None,
    test_size: TestSize = 0.2,
    seed: Seed = 0,
    drop: Annotated[list[str] | None, typer.Option(help="Column to leave out; may be repeated.")] = None,
    separator: Separator = ",",
    decimal: Decimal = ".",
    missing: Annotated[
        str, typer.Option(help="Missing values: refuse, drop (the rows that have any) or impute (inputs).")
    ] = "refuse",
    likelihood: Annotated[
        str | None,
        typer.Option(
            help="Likelihood, such as gaussian, student_t, poisson or gamma (default: inferred from the target)."
        ),
    ] = None,
    prior: Annotated[
        str,
        typer.Option(help="Prior of the weights, by name or by name and scale: fan_in, normal:0.5, ard, horseshoe."),
    ] = "fan_in",
    repeats: Annotated[int, typer.Option(min=1, help="Random splits that are scored; the report is of the first.")] = 1,
    hidden: Hidden = 15,
    num_chains: Chains = DEFAULT_BUDGET.num_chains,
    num_warmup: Warmup = DEFAULT_BUDGET.num_warmup,
    num_draws: Draws = DEFAULT_BUDGET.num_draws,
    num_steps: Steps = DEFAULT_BUDGET.num_steps,
) -> None:
    """Compare methods on a table of your own.

    Numeric columns are standardised by the training part; text columns become one indicator per category, and dates a
    number of days. All that is wrong with the options and the table is said at once.
    """
    with _one_sentence_errors():
        budget = Budget(num_chains, num_warmup, num_draws, num_steps)
        with _all_problems_at_once() as attempt:
            chosen = attempt(methods_from, methods, budget)
            attempt(refuse_unusable_folder, out)
            wanted = attempt(_task, task)
            treatment: Missing = attempt(_missing, missing) or "refuse"
            attempt(prior_named, prior)
            frame = attempt(read_table, data, separator, decimal)
            if frame is not None:
                asked = Splitting(target, wanted, likelihood, test_size, tuple(drop or ()), treatment)
                splitting = attempt(asked.resolved, frame) or dataclasses.replace(asked, likelihood=None)
                table = attempt(splitting.table, frame, seed)
        if task is None and likelihood is None:
            console.print(f"Target {target!r} is treated as {table.task}; use --task to change this.", markup=False)
        if likelihood is None and splitting.likelihood not in ("categorical", "gaussian"):
            console.print(
                f"The values of {target!r} suggest the likelihood {splitting.likelihood}; use --likelihood to change this.",
                markup=False,
            )
        others = (splitting.table(frame, seed + number) for number in range(1, repeats))
        model = {"likelihood": splitting.likelihood, "prior": prior, "others": others}
        _run(table, chosen, data.name, out, hidden, seed, **model)


def method_names() -> dict[str, type[Method]]:
    """Return every inference method by its class name in lower case and, where it is unique, by its capitals.

    Examples
    --------
    >>> sorted(name for name, kind in method_names().items() if kind.__name__ == "MeanFieldVI")
    ['meanfieldvi', 'mfvi']
    """
    kinds = [getattr(inference, name) for name in inference.__all__]
    kinds = [kind for kind in kinds if isinstance(kind, type) and hasattr(kind, "needs")]
    names = {kind.__name__.lower(): kind for kind in kinds}
    for kind in kinds:
        capitals = "".join(letter for letter in kind.__name__ if letter.isupper()).lower()
        same = [k for k in kinds if "".join(letter for letter in k.__name__ if letter.isupper()).lower() == capitals]
        if len(capitals) > 1 and len(same) == 1:
            names.setdefault(capitals, kind)
    return names


def methods_from(text: str, budget: Budget = DEFAULT_BUDGET) -> dict[str, Method]:
    """Return methods by name from a comma-separated list.

    Parameters
    ----------
    text : str
        Such as ``"nuts,mfvi,laplace"``.
    budget : Budget

    Raises
    ------
    CommandError
        If a name is unknown, repeated or missing.

    Examples
    --------
    >>> list(methods_from("nuts,laplace"))
    ['nuts', 'laplace']
    """
    known = method_names()
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    if not names:
        raise CommandError(f"--methods is empty; choose from {', '.join(USUAL_METHODS)}, or others.")
    for name in names:
        if name not in known:
            close = [
                each
                for each in sorted(known, key=len, reverse=True)
                if len(name) > 2 and (name in each or each in name)
            ]
            close = get_close_matches(name, known, 2, 0.7) or close[:2]
            hint = f"; did you mean {' or '.join(close)}?" if close else "."
            raise CommandError(
                f"There is no inference method {name!r}{hint} The usual ones are {', '.join(USUAL_METHODS)}; the documentation "
                f"lists all {len(set(known))} names."
            )
        if names.count(name) > 1:
            raise CommandError(f"Method {name!r} is listed {names.count(name)} times; once is enough.")
    return {name: budget.given_to(known[name]()) for name in names}


def _task(text: str | None) -> Task | None:
    choices: Mapping[str, Task] = {name: name for name in get_args(Task)}
    if text is not None and text not in choices:
        raise CommandError(f"--task must be regression or classification, not {text!r}.")
    return choices[text] if text else None


def _missing(text: str) -> Missing:
    choices: Mapping[str, Missing] = {name: name for name in get_args(Missing)}
    if text not in choices:
        raise CommandError(f"--missing must be refuse, drop or impute, not {text!r}.")
    return choices[text]


def _run(
    table: Table, methods: dict[str, Method], source: str, out: Path, hidden: int, seed: int, **model: Any
) -> None:
    for note in table.notes:
        console.print(note, highlight=False, markup=False)
    console.print(
        f"{len(table.y_train)} training rows, {len(table.y_test)} held out, {len(table.features)} inputs",
        highlight=False,
    )
    torch.set_num_threads(1)  # for matrices this small, threads cost more than they gain
    with new_folder(out) as folder:
        comparison = compare(
            table,
            methods,
            source=source,
            num_hidden=hidden,
            seed=seed,
            announce=lambda name: console.print(f"fitting {name}"),
            **model,
        )
        write_or_rescue(comparison, folder, out)
    show(comparison, console)
    tables = ["predictions.csv", "effects.csv", "verdicts.json", *(["splits.csv"] if comparison.repeats else [])]
    files = ", ".join(["report.html", *tables, *(f"{name}.nc" for name in methods)])
    console.print(f"\nWritten to [bold]{out}[/bold]: {files}", highlight=False, soft_wrap=True)


@contextmanager
def _all_problems_at_once() -> Iterator[Callable[..., Any]]:
    """Yield a function that calls another, and notes its error for the end; the result is None then."""
    problems: list[str] = []

    def attempt[T](function: Callable[..., T], *arguments: object) -> T | None:
        try:
            return function(*arguments)
        except TableError as error:
            problems.extend(error.problems)
        except (CommandError, OSError) as error:
            problems.append(str(error))
        return None

    yield attempt
    if problems:
        raise TableError(*problems)


@contextmanager
def _one_sentence_errors() -> Iterator[None]:
    """Report errors of the user in one sentence, with exit code 2."""
    try:
        yield
    except (
        BenchmarkError,
        CommandError,
        TableError,
        DataError,
        ModelError,
        ZooError,
        CalibrationError,
        ShareError,
        OSError,
    ) as error:
        errors.print(f"[bold red]Error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        raise typer.Exit(BAD_INPUT) from None
    except KeyboardInterrupt:
        errors.print("Interrupted; nothing was written.")
        raise typer.Exit(130) from None


app.command("check")(check_command(console, _one_sentence_errors))
app.command("sbc")(sbc_command(console, _one_sentence_errors, methods_from))
app.add_typer(zoo_commands(console, _one_sentence_errors), name="zoo")
app.add_typer(benchmark_commands(console, _one_sentence_errors, methods_from), name="benchmark")
