"""What functions and classes share in their docstrings is written once, and what they leave out is said."""

import ast
import importlib
import inspect
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any

from bnnzoo.docstrings import parameters, sections, with_inherited_parameters, with_shared_entries
from tests.architecture import MODULES, parsed


class Base:
    """Settings.

    Parameters
    ----------
    a : int
        One.
    b : int
        Two, which takes
        two lines.

        And a paragraph.
    """


class Derived(Base):
    """A method.

    Parameters
    ----------
    c, d : int
        Three.
    a : int
        Another one.

    References
    ----------
    A book.
    """


class Plain(Base):
    """A method without settings of its own.

    Examples
    --------
    >>> 1
    1
    """


def test_parameters_that_bases_document_are_inherited_in_the_order_of_the_signature() -> None:
    assert with_inherited_parameters(Derived) == (
        "A method.\n\nParameters\n----------\na : int\n    Another one.\nb : int\n    Two, which takes\n    two lines.\n\n"
        "    And a paragraph.\nc, d : int\n    Three.\n\nReferences\n----------\nA book."
    )
    found = with_inherited_parameters(Plain)
    assert found is not None
    assert found.startswith(
        "A method without settings of its own.\n\nParameters\n----------\na : int\n    One.\nb : int"
    )
    assert found.endswith("    And a paragraph.\n\nExamples\n--------\n>>> 1\n1")


def test_a_class_that_inherits_nothing_keeps_its_docstring() -> None:
    assert with_inherited_parameters(type("Short", (), {"__doc__": "Short."})) == "Short."
    assert with_inherited_parameters(type("Silent", (Base,), {})) is None


SHARED = """What some functions share.

Parameters
----------
seed : int
    Of the random numbers.
*data
    Arguments of the model.

    Observations included.
low, high : float
    Ends.
unused : int

Returns
-------
float

Raises
------
ValueError
    If there are no data.
"""


def documented(function: Callable[..., Any]) -> str:
    """Return what becomes of a function's docstring."""
    return with_shared_entries(SHARED)(function).__doc__ or ""


def test_entries_that_a_function_leaves_out_stand_in_the_order_of_its_signature_and_sections_in_that_of_numpydoc() -> (
    None
):
    def statistic(x: float, *data: object, low: float = 0, high: float = 1, scale: float = 1, seed: int = 0) -> float:
        """Return a statistic.

        Parameters
        ----------
        x : float
            Where.
        scale : float

        Examples
        --------
        >>> 1
        1
        """
        return x

    assert documented(statistic) == (
        "Return a statistic.\n\nParameters\n----------\nx : float\n    Where.\n"
        "*data\n    Arguments of the model.\n\n    Observations included.\nlow, high : float\n    Ends.\nscale : float\n"
        "seed : int\n    Of the random numbers.\n\nReturns\n-------\nfloat\n\n"
        "Raises\n------\nValueError\n    If there are no data.\n\nExamples\n--------\n>>> 1\n1"
    )


def test_what_a_function_says_itself_wins() -> None:
    def statistic(seed: int, low: float) -> int:
        """Return a statistic.

        Parameters
        ----------
        seed : int
            Of the split.

        Returns
        -------
        int
            Positive.

        Raises
        ------
        TypeError
        """
        return seed

    assert documented(statistic) == (
        "Return a statistic.\n\nParameters\n----------\nseed : int\n    Of the split.\nlow, high : float\n    Ends.\n\n"
        "Returns\n-------\nint\n    Positive.\n\nRaises\n------\nTypeError"
    )


def test_a_function_without_a_section_of_parameters_gets_one_and_stays_itself() -> None:
    def statistic(seed: int) -> int:
        """Return a statistic."""
        return seed

    assert with_shared_entries("Parameters\n----------\nseed : int")(statistic) is statistic
    assert statistic.__doc__ == "Return a statistic.\n\nParameters\n----------\nseed : int"


def test_the_signature_is_that_of_the_function_behind_decorators() -> None:
    def statistic(seed: int) -> int:
        """Return a statistic."""
        return seed

    @wraps(statistic)
    def wrapped(*arguments: Any) -> int:
        return statistic(*arguments)

    assert list(parameters(sections(documented(wrapped)))) == ["seed"]


def test_nothing_is_added_where_python_leaves_docstrings_out() -> None:
    code = f"""
import runpy
with_shared_entries = runpy.run_path({str(MODULES["bnnzoo.docstrings"])!r})["with_shared_entries"]
@with_shared_entries("Parameters\\n----------\\nseed : int")
def statistic(seed):
    'Return a statistic.'
print(statistic.__doc__)
"""
    # Pyro itself cannot be imported without docstrings
    found = subprocess.run([sys.executable, "-OO", "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "None\n"


@dataclass(frozen=True)
class Sharing:
    """A function that shares entries: its name, itself, its docstring as written, and the shared ones by their names."""

    name: str
    function: Callable[..., Any]
    written: str
    shared: Mapping[str, str]


def functions_of(owner: Any, tree: ast.Module | ast.ClassDef) -> Iterator[tuple[Callable[..., Any], ast.FunctionDef]]:
    """Yield the functions and methods of a module or class, with their source."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield getattr(owner, node.name), node
        elif isinstance(node, ast.ClassDef):
            yield from functions_of(getattr(owner, node.name), node)


@cache
def functions_that_share() -> list[Sharing]:
    """Return all functions of the package that share entries."""
    found = []
    for name, path in MODULES.items():
        if "@with_shared_entries(" in path.read_text() and name != "bnnzoo.docstrings":
            module = importlib.import_module(name)
            for function, node in functions_of(module, parsed(path)):
                for each in node.decorator_list:
                    if isinstance(each, ast.Call) and ast.unparse(each.func) == "with_shared_entries":
                        shared = {name: getattr(module, name) for name in map(ast.unparse, each.args)}
                        where = f"{name}.{function.__qualname__}"
                        found.append(Sharing(where, function, ast.get_docstring(node) or "", shared))
    return found


def test_every_parameter_of_a_function_that_shares_entries_is_described() -> None:
    for each in functions_that_share():
        needed = inspect.signature(each.function).parameters.keys() - {"self", "cls"}
        assert needed == parameters(sections(each.function.__doc__ or "")).keys(), each.name


def test_no_function_repeats_a_shared_entry_and_three_take_some_of_each_docstring() -> None:
    uses: Counter[str] = Counter()
    for each in functions_that_share():
        written = sections(each.written)
        for name, text in each.shared.items():
            said = {title: section for title, section in sections(text).items() if title not in ("", "Parameters")}
            said |= parameters(sections(text))
            own = {**written, **parameters(written)}
            repeated = [entry for entry in said if own.get(entry) == said[entry]]
            assert repeated == [], f"{each.name} repeats {name}"
            has = inspect.signature(each.function).parameters.keys() | {"Returns", "Raises"}
            taken = said.keys() & has - own.keys()
            assert taken, f"{each.name} takes nothing from {name}"
            uses[name] += 1
    assert uses and [name for name, count in uses.items() if count < 3] == []
