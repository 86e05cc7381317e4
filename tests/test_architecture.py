"""The layering of the package, read from its source: who imports whom, and what every module looks like."""

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "bnnzoo"
MODULES = sorted(PACKAGE.rglob("*.py"))

MEASURES = frozenset({"diagnostics", "uncertainty", "calibration", "ood", "acquisition"})
LABELLED = frozenset({"numpy", "scipy", "sklearn", "pandas", "xarray", "arviz_base", "arviz_stats"})
TENSORS = frozenset({"numpy", "torch", "pyro"})
OPTIONAL = frozenset({"curvlinops", "dask", "distributed", "zarr", "zuko"})  # what the extras of pyproject.toml bring
SLOW_TO_IMPORT = (
    "rich.",
    "scipy.optimize",
    "scipy.sparse.linalg",
    "torch._inductor",
    "torch._functorch",
    "torch.fx.experimental.symbolic_shapes",
)  # a tenth of a second to seconds, and many runs do without
MAX_LINES, MAX_CLASS_LINES = 320, 150

# What a family of inference methods may import from bnnzoo.inference besides itself.
SHARED_BY_FAMILIES = ("config", "fit", "optimise", "progress", "starts")
FAMILIES = {
    "markov": (),
    "ensembles": (),
    "variational": ("ensembles.map",),
    "laplace": ("ensembles.map",),
}


@dataclass(frozen=True)
class Layer:
    """What a package may import: siblings within bnnzoo, and other libraries."""

    siblings: frozenset[str]
    libraries: frozenset[str]


LAYERS = {
    "lowering": Layer(frozenset(), frozenset({"numpy", "torch"})),
    "core": Layer(frozenset({"lowering"}), TENSORS | {"cloudpickle", "pandas", "safetensors"}),
    "models": Layer(frozenset({"core"}), TENSORS),
    "inference": Layer(frozenset({"core", "lowering"}), frozenset({"cloudpickle", "numpy", "rich", "scipy", "torch"})),
    "predictive": Layer(frozenset({"core", "lowering"}), frozenset({"numpy", "torch", "xarray", "arviz_base"})),
    "labelled": Layer(frozenset(), LABELLED),
    **dict.fromkeys(MEASURES, Layer(frozenset({"labelled"}), LABELLED)),
    "plots": Layer(MEASURES | {"labelled"}, LABELLED | {"matplotlib", "arviz_plots"}),
    "datasets": Layer(frozenset(), frozenset({"numpy", "pandas", "sklearn"})),
}
ABOVE_ALL = {
    "__init__",
    "benchmarking",
    "cli",
    "demo",
    "loading",
    "reporting",
    "tables",
    "testing",
    "validation",
    "zoo",
}


@dataclass(frozen=True)
class Import:
    """One import statement: the full names it asks for, and where it stands."""

    names: tuple[str, ...]
    line: int
    level: int
    in_function: bool


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text())


def imports(path: Path) -> Iterator[Import]:
    """Yield every import statement of a file."""
    tree = parsed(path)
    nested = {
        child
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield Import(tuple(alias.name for alias in node.names), node.lineno, 0, node in nested)
        elif isinstance(node, ast.ImportFrom):
            names = tuple(f"{node.module}.{alias.name}" for alias in node.names)
            yield Import(names, node.lineno, node.level, node in nested)


def layer_of(path: Path) -> str:
    """Name the package, or the module right below bnnzoo, that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def label(path: Path) -> str:
    """Name a test after the file it reads."""
    return str(path.relative_to(PACKAGE))


def violations(path: Path) -> Iterator[str]:
    """Yield what a file imports against the table."""
    layer = LAYERS[layer_of(path)]
    for statement in imports(path):
        for name in statement.names:
            top, *rest = name.split(".")
            if top == "bnnzoo":
                forbidden = rest[0] not in layer.siblings | {layer_of(path)}
            else:
                forbidden = top not in layer.libraries | OPTIONAL | sys.stdlib_module_names
            if top == "pyro" and path.name == "svi.py":
                forbidden = False
            if forbidden:
                yield f"{label(path)}:{statement.line} imports {name}"


@pytest.mark.parametrize("path", [p for p in MODULES if layer_of(p) not in ABOVE_ALL], ids=label)
def test_imports_respect_the_layers(path: Path) -> None:
    assert list(violations(path)) == []


def test_every_package_has_a_layer() -> None:
    assert {layer_of(path) for path in MODULES} <= LAYERS.keys() | ABOVE_ALL


def of_inference(path: Path) -> Iterator[str]:
    """Yield what a file imports from ``bnnzoo.inference``, as a path below it."""
    for statement in imports(path):
        for name in statement.names:
            if name.startswith("bnnzoo.inference."):
                yield name.removeprefix("bnnzoo.inference.")


def test_inference_has_few_files_at_the_top_and_a_rule_for_every_family() -> None:
    folder = PACKAGE / "inference"
    assert {path.stem for path in folder.glob("*.py")} <= {"__init__", *SHARED_BY_FAMILIES}
    rooms = {path.name for path in folder.iterdir() if (path / "__init__.py").exists()}
    assert rooms == FAMILIES.keys() | {"optimise"}


@pytest.mark.parametrize("family", FAMILIES)
def test_families_do_not_import_each_other(family: str) -> None:
    allowed = (family, *SHARED_BY_FAMILIES, *FAMILIES[family])
    for path in (PACKAGE / "inference" / family).rglob("*.py"):
        strangers = [name for name in of_inference(path) if not name.startswith(tuple(f"{a}." for a in allowed))]
        assert strangers == [], label(path)


@pytest.mark.parametrize("below", ["optimise", "starts", "progress", "config"])
def test_what_families_share_imports_none_of_them(below: str) -> None:
    place = PACKAGE / "inference" / below
    for path in place.rglob("*.py") if place.is_dir() else [place.with_suffix(".py")]:
        assert [name for name in of_inference(path) if name.startswith(tuple(f"{f}." for f in FAMILIES))] == []


def modules_in_a_circle() -> list[str]:
    """Return modules that import themselves through others."""
    names = {
        ".".join(p.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): p for p in MODULES
    }
    graph = {name: set(_imported_modules(path, names)) - {name} for name, path in names.items()}
    while leaves := [name for name, imported in graph.items() if not imported & graph.keys()]:
        for name in leaves:
            del graph[name]
    return sorted(graph)


def _imported_modules(path: Path, names: dict[str, Path]) -> Iterator[str]:
    for statement in imports(path):
        for name in statement.names:
            yield name if name in names else name.rpartition(".")[0]


def test_no_module_imports_itself_through_others() -> None:
    assert modules_in_a_circle() == []


def test_tests_import_helpers_and_no_other_test() -> None:
    tests = Path(__file__).parent
    for path in tests.rglob("*.py"):
        for statement in imports(path):
            strangers = [name for name in statement.names if name.startswith("tests.") and ".test_" in name]
            assert strangers == [], path.relative_to(tests)


@pytest.mark.parametrize("path", MODULES, ids=label)
def test_data_travel_inside_the_density(path: Path) -> None:
    """Other rows than those of the fit are a batch; whoever has a density needs no data and replays no model by hand."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef):
            arguments = {each.arg for each in (*node.args.args, *node.args.kwonlyargs)}
            assert not {"density", "data"} <= arguments, f"{node.name} takes data beside a density that holds them"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "replay":
            assert layer_of(path) == "core", f"line {node.lineno}: call density.nodes(theta, *batch)"


@pytest.mark.parametrize("path", MODULES, ids=label)
def test_imports_are_absolute_and_at_the_top(path: Path) -> None:
    for statement in imports(path):
        assert statement.level == 0, f"line {statement.line}: relative import"
        libraries = {name.split(".")[0] for name in statement.names if not name.startswith(SLOW_TO_IMPORT)}
        assert not statement.in_function or libraries <= OPTIONAL, f"line {statement.line}: import in a function"


@pytest.mark.parametrize("path", MODULES, ids=label)
def test_every_module_says_what_it_is_and_what_it_offers(path: Path) -> None:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    module = importlib.import_module(".".join(parts).removesuffix(".__init__"))
    assert module.__doc__, "no docstring"
    assert len(module.__all__) == len(set(module.__all__))
    missing = [name for name in module.__all__ if not hasattr(module, name)]
    assert missing == []


@pytest.mark.parametrize("path", MODULES, ids=label)
def test_no_module_is_a_drawer_or_a_scroll(path: Path) -> None:
    assert path.stem not in {"utils", "helpers", "misc", "common"}
    assert len(path.read_text().splitlines()) <= MAX_LINES
    classes = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.ClassDef)]
    long = [node.name for node in classes if (node.end_lineno or 0) - node.lineno + 1 > MAX_CLASS_LINES]
    assert long == []


def test_a_forbidden_import_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    module = tmp_path / "uncertainty" / "entropy.py"
    module.parent.mkdir()
    module.write_text("import numpy\nfrom torch import nn\nfrom bnnzoo.core import sites\nfrom bnnzoo import models\n")
    found = [violation.partition(" ")[2] for violation in violations(module)]
    assert found == ["imports torch.nn", "imports bnnzoo.core.sites", "imports bnnzoo.models"]


@pytest.mark.slow
def test_importing_bnnzoo_leaves_slow_libraries_alone() -> None:
    asked = f"import sys, bnnzoo; print([m for m in sys.modules if m.startswith({SLOW_TO_IMPORT[:4]!r})])"
    code = f"import torch, pyro; {asked}"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent)
    assert found.stdout.strip() == "[]"
