"""One file says what pays: no constant that picks a way stands elsewhere, and clocks are read for what is named here alone."""

import ast
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from bnnzoo.engine import choose
from tests.architecture import PACKAGE, parsed

ROOMS = ("core", "engine", "inference", "predictive")
OF_GENERATED_CODE = PACKAGE / "engine" / "cpp"
CHOOSE = PACKAGE / "engine" / "choose.py"
FILES = [
    path
    for room in ROOMS
    for path in sorted((PACKAGE / room).rglob("*.py"))
    if path != CHOOSE and OF_GENERATED_CODE not in path.parents
]

SAYS_WHAT_PAYS = re.compile(
    r"(^|_)(FROM$|PAYS?|NATIVE|THREADS?|FLOPS|SECONDS|CALLS|FITS|BUDGET|TOGETHER|TO_(TRACE|COMPILE|RECORD|LOWER))(_|$)"
)
NOT_ABOUT_HOW_TO_RUN = {
    "inference/markov/checkpoint.py SECONDS_BETWEEN_BLOCKS": "how often a checkpoint is written",
    "inference/many.py ASSUMED_NUM_FITS": "how many data sets an iterator has, which does not say",
    "inference/laplace/hyperparameter_marginal.py MAX_FITS": "how far a search goes",
    "core/posterior/info.py SHORT": "of which seconds of compiling a report speaks",
    "engine/chunks.py NATIVE": "the name of an engine in reports",
}
READ_CLOCKS = {
    "engine/reports.py": "what a report says of tracing, compiling and running",
    "engine/fleet.py": "length of the next chunk, and seconds that threads are worth",
    "inference/optimise/training_engines.py": "length of the next chunk",
    "inference/markov/running.py": "whether to step aside",
    "core/program/turns.py": "seconds aside",
    "inference/config.py": "seconds of a fit, and whether threads pay for fits like it",
    "inference/many.py": "number of fits that run side by side next",
    "inference/markov/checkpoint.py": "when a checkpoint was written last",
}
CLOCKS = {"perf_counter", "monotonic", "process_time", "time_ns", "perf_counter_ns", "thread_time"}
EXPECTATIONS = {*CLOCKS, "over_all_fits", "estimated_seconds", "seconds_to_compile", "seconds", "seconds_aside"}
DECIDED_BY = {"num_calls", "max_flops", "native_pays", "native_pays_from", "max_native_chains"}


def label(path: Path) -> str:
    """Name a file as the tables above do."""
    return str(path.relative_to(PACKAGE))


def constants_of(path: Path) -> Iterator[str]:
    """Yield the names of the constants that a file defines for all of it."""
    for node in parsed(path).body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for name in (each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)):
            if name.isupper():
                yield name


def named(node: ast.AST) -> set[str]:
    """Return the names in a part of a file, and what is called there."""
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return names | {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


def strangers(path: Path, value: ast.AST) -> set[str]:
    """Return constants in an expression that were not imported from where they belong, and numbers but 0 and 1."""
    of_choose = {
        alias.name
        for node in parsed(path).body
        if isinstance(node, ast.ImportFrom) and node.module == "bnnzoo.engine.choose"
        for alias in node.names
    }
    numbers = {
        repr(each.value) for each in ast.walk(value) if isinstance(each, ast.Constant) and each.value not in (0, 1)
    }
    return {name for name in named(value) if name.isupper() and name not in of_choose} | numbers


def limits_elsewhere(path: Path) -> Iterator[str]:
    """Yield constants whose names say that something pays from there on."""
    for name in constants_of(path):
        if SAYS_WHAT_PAYS.search(name) and (where := f"{label(path)} {name}") not in NOT_ABOUT_HOW_TO_RUN:
            yield where


def decisions_elsewhere(path: Path) -> Iterator[str]:
    """Yield where seconds, or expected steps, are held against a number, and where one says how something runs."""
    for node in ast.walk(parsed(path)):
        found: set[str] = set()
        if isinstance(node, ast.Compare) and named(node) & EXPECTATIONS:
            found = strangers(path, node)
        elif (isinstance(node, ast.keyword) and node.arg in DECIDED_BY) or (
            isinstance(node, ast.AnnAssign) and node.value and named(node.target) & DECIDED_BY
        ):
            found = strangers(path, node.value)
        for name in sorted(found):
            if f"{label(path)} {name}" not in NOT_ABOUT_HOW_TO_RUN:
                yield f"{label(path)}:{node.lineno} {name}"


def test_one_file_says_what_pays() -> None:
    assert [found for path in FILES for found in (*limits_elsewhere(path), *decisions_elsewhere(path))] == []


def test_clocks_are_read_where_it_is_said_what_for() -> None:
    reads = {
        label(path)
        for path in FILES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute) and node.attr in CLOCKS
    }
    assert reads == READ_CLOCKS.keys()


def test_what_is_excepted_is_there() -> None:
    assert NOT_ABOUT_HOW_TO_RUN.keys() <= {f"{label(path)} {name}" for path in FILES for name in constants_of(path)}


def test_the_file_is_short_and_says_of_each_constant_what_it_rests_on() -> None:
    body = parsed(CHOOSE).body
    assert len(CHOOSE.read_text().splitlines()) < 400
    for node, following in pairwise(body):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) != "__all__":
            assert isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant), ast.unparse(node)


PLANTED = {  # what a file breaks
    limits_elsewhere: "GRAPHS_PAY_FROM = 3\nMIN_ROWS_TO_TRACE, OTHER = 4, 5",
    decisions_elsewhere: (
        "from bnnzoo.engine.choose import SMALL_STEP\nLONG = 3\n"
        "a = over_all_fits(n) > SMALL_STEP\nb = time.perf_counter() - began > LONG\nc = specialize(num_calls=50)"
    ),
}


@pytest.mark.parametrize("rule", PLANTED, ids=lambda rule: rule.__name__)
def test_a_rule_finds_what_breaks_it(rule: Callable[[Path], Iterator[str]], tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(f"{__name__}.PACKAGE", tmp_path)
    module = tmp_path / "module.py"
    module.write_text(PLANTED[rule])
    assert len(list(rule(module))) == 2


def test_more_fits_run_side_by_side_while_they_are_quick() -> None:
    sizes = [choose.FITS_TOGETHER]
    for seconds in (0.1, 0.1, 0.1, 0.1, 0.1, 5.0):
        sizes.append(choose.next_number_together(sizes[-1], seconds))
    assert sizes == [20, 40, 80, 160, 200, 200, 200]


def test_a_chunk_takes_a_tenth_of_a_second_and_grows_by_steps() -> None:
    assert choose.next_budget(64, 64, 1e-6) == 64 * choose.MAX_GROWTH
    assert choose.next_budget(1000, 1000, 1.0) == 100
    assert choose.next_budget(1, 1, 1e9) == 1


def test_threads_are_started_for_work_that_is_worth_them() -> None:
    assert choose.threads_worth(choose.THREADS_PAY_FROM, 3) == 3
    assert choose.threads_worth(choose.THREADS_PAY_FROM / 2, 3) == 1
    assert choose.threads_pay_for_fits(0.6, 1.0) and not choose.threads_pay_for_fits(0.4, 1.0)
