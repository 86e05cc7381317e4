"""The examples in docstrings say the truth, in single precision as users see them."""

import doctest
import importlib
import inspect
from pathlib import Path
from types import ModuleType

import pytest
import torch

ROOT = Path(__file__).parents[1]
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (ROOT / "bnnzoo").rglob("*.py")
    if ">>>" in path.read_text()
)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.DONT_ACCEPT_TRUE_FOR_1


class Finder(doctest.DocTestFinder):
    """Finds examples of functions behind decorators, too: the tests' type checks are decorators."""

    def _from_module(self, module: ModuleType | None, member: object) -> bool:
        return super()._from_module(module, inspect.unwrap(member) if callable(member) else member)


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_module(name: str) -> None:
    torch.set_default_dtype(torch.float32)
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    for test in Finder(recurse=True, exclude_empty=True).find(module):
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


def test_examples_behind_decorators_are_found() -> None:
    module = importlib.import_module("bnnzoo.core.model.density")
    found = {test.name for test in Finder().find(module) if test.examples}
    assert "bnnzoo.core.model.density.build_density" in found
