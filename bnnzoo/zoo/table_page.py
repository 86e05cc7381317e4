"""The page of the zoo's table: which method for what, and every cell."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from statistics import median

from bnnzoo.zoo.catalogue import NETWORKS, STATISTICAL, TEXTBOOK
from bnnzoo.zoo.cells import Cell
from bnnzoo.zoo.reference import referenced
from bnnzoo.zoo.seed_spread import SeedSpread, seed_spreads, spread_over_seeds
from bnnzoo.zoo.table import own_and_others, table_rows

__all__ = ["table_page", "which_method"]

GOOD, FAIR = 1.5, 3.0
"""Median distances, in floors, up to which a method is good, and fair."""

GOOD_SD, FAIR_SD = 1.33, 2.0
"""Factors by which the median standard deviation inside the data may then be wrong: the floor of few draws is a wide one."""

FEW_CARDS = 3
"""Cards below which nothing is said of a method."""

KINDS = {"statistical models": STATISTICAL, "textbook models": TEXTBOOK, "networks": NETWORKS}

VERDICTS = {
    (False, False): "right",
    (False, True): "right, warned",
    (True, True): "off, warned",
    (True, False): "**off, silent**",
}
"""By whether a fit is off and whether it warned."""

PARTIAL = ("ensemble", "dropout", "concrete-dropout", "last-layer-laplace", "last-layer-vi")
"""Methods that make no attempt at the posterior of all weights, of whose fits no warning is expected."""

GRIDS: dict[str, Callable[[Cell], float | None]] = {
    "Standard deviations over the reference's, inside the data": lambda cell: cell.sd_inside,
    "Standard deviations over the reference's, beyond the data": lambda cell: cell.sd_beyond,
    "Mean log predictive density of new observations": lambda cell: cell.log_density,
    "Calibration: expected calibration error of classes, miscalibration area of other outcomes": lambda cell: (
        cell.calibration
    ),
    "Gradients of the log density": lambda cell: cell.gradients,
    "Processor seconds of fit and predictions": lambda cell: cell.processor,
    "Wall seconds of the fit": lambda cell: cell.seconds,
    "Wall seconds of it that went into tracing and compiling": lambda cell: cell.compiling,
}


def table_page(cells: Sequence[Cell]) -> str:
    """Return the page of the zoo's table in Markdown.

    Examples
    --------
    >>> cell = Cell(card="cubic", method="nuts", version=1, seed=0, distance=1.04)
    >>> "| `cubic` | 1.04 |" in table_page([cell])
    True
    """
    fits = f"{len({(cell.card, cell.method) for cell in cells}):,} cells, {len(cells):,} fits."
    own, others = own_and_others(cells)
    missing = [name for name in referenced() if name not in {cell.card for cell in cells}]
    not_run = f"Not run: {', '.join(f'`{name}`' for name in missing)}." if missing else ""
    parts = (
        INTRODUCTION,
        f"{fits} {not_run}".strip(),
        which_method(own),
        _verdicts(own),
        _distances(own),
        *(f"## {title}\n\n{_grid(own, value)}" for title, value in GRIDS.items()),
        _programs(others) if others else "",
        _reasons(cells),
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def which_method(cells: Sequence[Cell]) -> str:
    """Return a table with a line for each method: how far off it is on each kind of model, at which cost, in words.

    Parameters
    ----------
    cells : sequence of Cell
    """
    header = ["method", *KINDS, "sd inside", "sd beyond", "gradients"]
    by_nuts = {cell.card: cell.gradients for cell in cells if cell.method == "nuts" and not cell.seed}
    lines = []
    for method, found in _by_method(cells):
        costs = [cell.gradients / nuts for cell in found if cell.gradients and (nuts := by_nuts.get(cell.card))]
        sds = [[cell.sd_inside for cell in found], [cell.sd_beyond for cell in found]]
        lines.append(
            [
                f"`{method}`",
                *(_in_words(found, names) for names in KINDS.values()),
                *(f"{median(drawn):.2g}" if (drawn := [each for each in sd if each is not None]) else "" for sd in sds),
                f"{median(costs):.2g}" if costs else "",
            ]
        )
    return _markdown([header, *lines])


def _in_words(found: Sequence[Cell], names: Sequence[str]) -> str:
    """Return what the rule on the page says of a method on a kind of model, its median distance and the number of cards."""
    distances, sds = (_medians(found, names, value) for value in (_distance, _sd_inside))
    if not distances:
        return ""
    distance, factor = median(distances), max(median(sds), 1 / median(sds)) if sds else 1.0
    is_good, is_fair = distance <= GOOD and factor <= GOOD_SD, distance <= FAIR and factor <= FAIR_SD
    rank = "" if len(distances) < FEW_CARDS else "good, " if is_good else "fair, " if is_fair else "no, "
    return f"{rank}{distance:.2g} ({len(distances)})"


def _distance(cell: Cell) -> float | None:
    return cell.distance


def _sd_inside(cell: Cell) -> float | None:
    return None if cell.sd_inside is None else max(cell.sd_inside, 1e-6)


def _medians(cells: Iterable[Cell], names: Sequence[str], value: Callable[[Cell], float | None]) -> list[float]:
    """Return a number on each of some cards, the median over seeds."""
    known = sorted((cell.card, number) for cell in cells if cell.card in names and (number := value(cell)) is not None)
    return [median(number for _, number in seeds) for _, seeds in groupby(known, key=lambda each: each[0])]


def _by_method(cells: Sequence[Cell]) -> list[tuple[str, list[Cell]]]:
    """Return the cells of each method, in the order of the table."""
    header, *_ = table_rows(cells, lambda seeds: "")
    return [(method, [cell for cell in cells if cell.method == method]) for method in header[1:]]


def _verdicts(cells: Sequence[Cell]) -> str:
    lines = [["method", "right, silent", "right, warned", "off, warned", "off, silent", "no result"]]
    for method, found in _by_method(cells):
        counts = [
            sum(cell.off is off and cell.warned is warned for cell in found)
            for off, warned in ((False, False), (False, True), (True, True), (True, False))
        ]
        lines.append([f"`{method}`", *map(str, counts), str(sum(bool(cell.refused) for cell in found))])
    about = "Numbers of fits; a point estimate is in none of the columns but the last."
    grid = _markdown(_in_code("card", table_rows(cells, _verdicts_of_seeds)))
    return "\n\n".join(("## Whether a fit that is off says so", about, _markdown(lines), BESIDE, grid))


def _verdicts_of_seeds(seeds: Sequence[Cell]) -> str:
    """Return what became of the fits of a cell, with numbers where that differs between seeds."""
    found = [VERDICTS[cell.off, cell.warned] for cell in seeds if cell.off is not None]
    counts = {words: found.count(words) for words in VERDICTS.values() if words in found}
    if len(counts) == 1:
        return found[0]
    return "; ".join(f"{count} {words}" for words, count in counts.items()) or "-"


def _distances(cells: Sequence[Cell]) -> str:
    """Return distances with their intervals, and how far they move with the seed."""
    spreads = seed_spreads(cells)
    title = "## Distance from the reference posterior, in Monte Carlo floors"
    grid = _markdown(_in_code("card", table_rows(cells, lambda seeds: _with_interval(seeds, spreads))))
    if not spreads:
        return f"{title}\n\n{grid}"
    found = [f"`{method}` {spread.log_sd:.2g}" for method, spread in spreads.items()]
    return f"{title}\n\n{INTERVALS.format(', '.join(found), spread_over_seeds(cells).degrees)}\n\n{grid}"


def _with_interval(seeds: Sequence[Cell], spreads: Mapping[str, SeedSpread]) -> str:
    """Return the median over seeds and, in brackets, where that of one more seed lies."""
    found = [cell.distance for cell in seeds if cell.distance is not None]
    spread = spreads.get(seeds[0].method)
    if spread is None or not found or min(found) <= 0:
        return _written(seeds, _distance)
    low, high = spread.interval(found)
    return f"{median(found):.3g} ({low:.3g} to {high:.3g})"


def _programs(cells: Sequence[Cell]) -> str:
    """Return the distances of other programs with a line for each, since they are many and their cards few."""

    def written(seeds: Sequence[Cell]) -> str:
        return _written(seeds, _distance) + (", off" if any(cell.off for cell in seeds) else "")

    by_method = [list(line) for line in zip(*table_rows(cells, written), strict=True)]
    about = "Distances in floors, without intervals, for which several seeds are needed."
    return f"## Other programs\n\n{about}\n\n{_markdown(_in_code('method', by_method))}"


def _reasons(cells: Sequence[Cell]) -> str:
    """Return why cells have no result, each reason once with its cards."""
    places: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        if cell.refused:
            places.setdefault((cell.method, cell.refused), []).append(f"`{cell.card}`")
    lines = [f"- `{method}` on {', '.join(dict.fromkeys(names))}: {why}" for (method, why), names in places.items()]
    return "## Cells without a result\n\n" + "\n".join(lines) if lines else ""


def _grid(cells: Sequence[Cell], value: Callable[[Cell], float | None]) -> str:
    return _markdown(_in_code("card", table_rows(cells, lambda seeds: _written(seeds, value))))


def _in_code(corner: str, rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return rows whose header and first column are names of cards and methods, in type of code."""
    (_, *header), *lines = rows
    return [[corner, *(f"`{name}`" for name in header)], *([f"`{name}`", *values] for name, *values in lines)]


def _written(seeds: Sequence[Cell], value: Callable[[Cell], float | None]) -> str:
    """Return the median over seeds and, in brackets, the range."""
    found = [number for cell in seeds if (number := value(cell)) is not None]
    if not found:
        return "-"
    middle = f"{median(found):.3g}"
    return middle if len(found) == 1 else f"{middle} ({min(found):.3g} to {max(found):.3g})"


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    header, *others = rows
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, ["---"] * len(header), *others))


INTERVALS = """The brackets hold the distance of one more fit, with another seed, with 95% probability, and all that were
measured. They follow from the spread between the seeds of a cell: the standard deviation of the logarithm of the distance, pooled
over the cards on which a method has several seeds, and over all methods for those with fewer than ten such seeds ({1:,} in all).
Such fits take less than a minute each; slower ones are taken to vary as much. The error of the reference is the same for all
methods on a card, and in none of the intervals. Standard deviations of the logarithm: {0}."""

BESIDE = f"""Cell by cell: whether the fits are right, and whether they warned; where that differs between seeds, of how many.
Some methods make no attempt at the posterior of all weights, and are not expected to warn:
{", ".join(f"`{name}`" for name in PARTIAL)}."""

INTRODUCTION = f"""# All methods on the small cards

Wasserstein distances between the predictions of a method and the reference posterior, averaged over test rows, as multiples
of the Monte Carlo floor, for which see [The zoo](../zoo.md): one is as good as it gets. Every method has its default settings;
dropout, which has no default rate, drops a tenth of the units. A cell of several seeds shows the median and, in brackets, the
range; those of distances are explained there. Processor seconds are those of the fit, the compiler included, and of the
predictions.

A row is *beyond the data* if it is further from its nearest training observation than these are from each other. A fit is *off*
if the mean of a prediction is more than 0.3 posterior standard deviations away, or its standard deviation wrong by a factor of
more than 1.33, beyond three Monte Carlo errors, or if chains have fewer than 100 effective draws of a prediction; a hundredth
is added to the standard deviations of probabilities.

`-` marks a point estimate, which has no posterior, and a cell without a result, explained below; empty cells were not run.

```{{eval-rst}}
.. plot:: ../benchmarks/plot_zoo_table.py
   :alt: Distance of each method from each reference posterior.
```

## Which method for what

Median distances in floors by kind of model, with the number of cards in brackets; gradients as multiples of those of `nuts`. The
words follow from the numbers by a rule. A method is *good* for a kind of model if its median distance is at most
{GOOD:g} floors and its median standard deviation inside the data is right to within a factor of {GOOD_SD:g}, *fair* up
to {FAIR:g} floors and a factor of {FAIR_SD:g}, and *no* method for it otherwise. Few draws have a wide floor: an ensemble of five
may be at it with a tenth of the posterior's standard deviation. Of fewer than {FEW_CARDS} cards nothing is said."""
