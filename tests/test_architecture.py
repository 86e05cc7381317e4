"""The layering of the package, read from its source: who imports whom, and what every module looks like."""

import ast
import importlib
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests import architecture
from tests.architecture import PACKAGE, imports, parsed

MODULES = sorted(PACKAGE.rglob("*.py"))

MEASURES = frozenset({"diagnostics", "uncertainty", "calibration", "ood", "acquisition"})
LABELLED = frozenset({"numpy", "scipy", "sklearn", "pandas", "xarray", "arviz_base", "arviz_stats"})
TENSORS = frozenset({"numpy", "torch", "pyro"})
OPTIONAL = frozenset(
    {"curvlinops", "dask", "distributed", "gpytorch", "zarr", "zuko"}
)  # what the extras of pyproject.toml bring
SLOW_TO_IMPORT = (
    "rich.",
    "scipy.interpolate",
    "scipy.optimize",
    "scipy.sparse.linalg",
    "torch._inductor",
    "torch._functorch",
    "torch.fx.experimental.symbolic_shapes",
)  # a tenth of a second to seconds, and many runs do without
MAX_LINES, MAX_CLASS_LINES = 400, 200
TOP_OF_CORE = {"__init__", "executors", "fit_warnings", "log_sums", "method", "settings", "types"}

# What a family of inference methods may import from bnnzoo.inference besides itself.
SHARED_BY_FAMILIES = ("config", "fit", "many", "optimise", "progress", "starts")
FAMILIES = {
    "markov": (),
    "ensembles": (),
    "variational": ("ensembles.map",),
    "laplace": ("ensembles.map",),
}


@dataclass(frozen=True)
class Layer:
    """What a package may import: siblings within bnnzoo, and other libraries, any of them if None."""

    siblings: frozenset[str]
    libraries: frozenset[str] | None = None


LAYERS = {
    "engine": Layer(frozenset(), frozenset({"numpy", "optree", "threadpoolctl", "torch"})),
    "core": Layer(frozenset({"engine"}), TENSORS | {"cloudpickle", "pandas", "safetensors"}),
    "models": Layer(frozenset({"core"}), TENSORS | {"formulaic", "pandas", "scipy"}),
    "inference": Layer(frozenset({"core", "engine"}), frozenset({"cloudpickle", "numpy", "rich", "scipy", "torch"})),
    "predictive": Layer(frozenset({"core", "engine"}), frozenset({"numpy", "torch", "xarray", "arviz_base"})),
    "trees": Layer(frozenset(), LABELLED),
    **dict.fromkeys(MEASURES, Layer(frozenset({"trees"}), LABELLED)),
    "plots": Layer(MEASURES | {"trees"}, LABELLED | {"matplotlib", "arviz_plots"}),
    "datasets": Layer(frozenset(), frozenset({"numpy", "pandas", "sklearn"})),
    "documents": Layer(frozenset({"engine"}), frozenset({"jinja2"})),
}
PROGRAMS = frozenset({"core", "engine", "inference", "models", "predictive"})
LAYERS |= {
    "effects": Layer(PROGRAMS),
    "loading": Layer(PROGRAMS),
    "testing": Layer(PROGRAMS),
    "serving": Layer(PROGRAMS | MEASURES | {"trees"}),
    "sklearn": Layer(PROGRAMS | {"loading"}),
    "validation": Layer(PROGRAMS | MEASURES | {"trees"}),
    "zoo": Layer(PROGRAMS | MEASURES | {"datasets", "plots", "trees"}),
    "checking": Layer(PROGRAMS | MEASURES | {"documents", "trees", "validation"}),
}
LAYERS |= {"docstrings": Layer(frozenset(), frozenset())}
ABOVE_ALL, BELOW_ALL = {"__init__", "apps"}, {"docstrings"}


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
                forbidden = not {*rest[:1]} <= layer.siblings | BELOW_ALL | {layer_of(path)}
            elif layer.libraries is None:
                forbidden = False
            else:
                forbidden = top not in layer.libraries | OPTIONAL | sys.stdlib_module_names
            if top == "pyro" and path.name == "svi.py":
                forbidden = False
            if forbidden:
                yield f"{label(path)}:{statement.line} imports {name}"


def test_imports_respect_the_layers() -> None:
    assert [found for path in MODULES if layer_of(path) not in ABOVE_ALL for found in violations(path)] == []


def test_every_package_has_a_layer() -> None:
    assert {layer_of(path) for path in MODULES} == LAYERS.keys() | ABOVE_ALL


def test_no_arrow_between_packages_runs_up() -> None:
    height = architecture.floors(architecture.room)  # refuses circles
    assert [name for name in height if height[name] == max(height.values())] == ["apps"]


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
    graph = {name: architecture.imported_by(name) for name in architecture.MODULES}
    while leaves := [name for name, imported in graph.items() if not imported & graph.keys()]:
        for name in leaves:
            del graph[name]
    return sorted(graph)


def test_no_module_imports_itself_through_others() -> None:
    assert modules_in_a_circle() == []


def test_core_has_rooms_of_few_files_on_few_floors_and_no_circle() -> None:
    height = architecture.floors(architecture.room_of_core)  # refuses circles
    assert max(height.values()) < 6
    assert all(len(architecture.files_of(room)) <= 12 for room in height)
    assert {path.stem for path in (PACKAGE / "core").glob("*.py")} <= TOP_OF_CORE


def test_rooms_in_a_circle_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    back = {("data", "verdict"): 1, **architecture.arrows(architecture.room_of_core)}
    monkeypatch.setattr(architecture, "arrows", lambda _: back)
    with pytest.raises(ValueError, match="rooms import each other in a circle: data"):
        architecture.floors(architecture.room_of_core)


def test_the_page_on_architecture_names_the_files_of_every_room() -> None:
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text()
    table = page.partition("## The rooms of `core`")[2].partition("\n## ")[0]
    rows = {line.split("|")[1].strip(" `"): line for line in table.splitlines() if line.startswith("| `")}
    for room in architecture.floors(architecture.room_of_core):
        assert all(f"`{name}`" in rows[room] for name in architecture.files_of(room)), room


def test_the_page_on_architecture_names_the_steps_of_a_report_which_import_no_later_one() -> None:
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text()
    table = page.partition("## The rooms of `apps`")[2].partition("\n## ")[0]
    steps = [re.findall(r"`(\w+)`", line.split("|")[2]) for line in table.splitlines() if line.startswith("| ")][1:]
    files = {path.stem for path in (PACKAGE / "apps" / "reporting").glob("*.py")} - {"__init__"}
    assert {name for step in steps for name in step} == files
    for number, step in enumerate(steps):
        later = {f"bnnzoo.apps.reporting.{name}" for others in steps[number + 1 :] for name in others}
        assert all(not architecture.imported_by(f"bnnzoo.apps.reporting.{name}") & later for name in step), step


def test_walks_open_at_most_six_files_which_hold_what_is_said_of_them() -> None:
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text()
    walks = page.partition("## Three walks\n")[2].partition("\n## ")[0].strip().split("\n\n")
    assert len(walks) == 3
    for walk in walks:
        quoted = re.findall(r"`([^`]+)`", walk)
        files = [name for name in quoted if name.endswith(".py")]
        found = [path for name in files for path in MODULES if str(path).endswith(f"/{name}")]
        assert 3 <= len(found) == len(files) <= 6, files
        text = "".join(path.read_text() for path in found)
        for name in re.findall(r"`(?:\w+\.)*(_?[A-Za-z]\w+)`", walk):
            assert re.search(rf"\b{name}\b", text), name


def test_a_score_needs_the_reading_of_trees_and_nothing_else() -> None:
    needed = architecture.closure("bnnzoo.calibration.proper_scores") - {
        "bnnzoo.calibration.proper_scores",
        "bnnzoo.docstrings",
    }
    assert {name for name in needed if not name.startswith("bnnzoo.trees")} == set()
    assert len(needed) < 9


# Public in two packages: users write bz.checking.Finding and bz.diagnostics.Finding.
OFFERED_TWICE = ["Finding"]


def test_names_of_files_and_classes_say_whose_they_are() -> None:
    files = Counter(path.stem for path in MODULES if path.stem != "__init__")
    classes = Counter(node.name for path in MODULES for node in parsed(path).body if isinstance(node, ast.ClassDef))
    assert [name for name, count in (files + classes).items() if count > 1] == OFFERED_TWICE


PRIVATE_WORDS = {  # the field says chunk, leapfrog step, path, half kick, reset, key of a cache, inputs
    *("stretch", "leap", "leaps", "travel", "travels", "arrive", "arrived", "taken_back", "words_of", "going_on"),
    *("look_at", "looked_at", "feed", "Feed", "Kept", "Drawn", "Plan", "Counters"),
    *("HOPELESS", "STEEPEST", "ALONE", "STAGES", "SPREAD", "FEW", "HEAD", "MANY", "NOTHING", "SHORTER"),
}


def private_words(path: Path) -> Iterator[str]:
    """Yield names of our own for what has one in the field."""
    for node in ast.walk(parsed(path)):
        names = (getattr(node, field, None) for field in ("id", "attr", "name", "arg"))  # of whatever kind of node
        for name in PRIVATE_WORDS.intersection(name for name in names if isinstance(name, str)):
            yield f"{label(path)}:{getattr(node, 'lineno', 1)} {name}"


def test_names_are_the_fields() -> None:
    assert [found for path in MODULES for found in private_words(path)] == []


def test_helpers_that_are_used_once_are_few() -> None:
    # such a helper is a paragraph of its caller, unless it has a name in the field, or stands in a table of cases
    found = architecture.used_once()
    assert len(found) <= 400, found


def test_tests_import_helpers_and_no_other_test() -> None:
    tests = Path(__file__).parent
    for path in tests.rglob("*.py"):
        for statement in imports(path):
            strangers = [name for name in statement.names if name.startswith("tests.") and ".test_" in name]
            assert strangers == [], path.relative_to(tests)


def replays_by_hand(path: Path) -> Iterator[str]:
    """Yield where data stand beside the density that holds them, and where a model is replayed outside core."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef):
            arguments = {each.arg for each in (*node.args.args, *node.args.kwonlyargs)}
            if {"density", "data"} <= arguments:
                yield f"{label(path)}:{node.lineno} {node.name} takes data beside a density that holds them"
        by_name = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "replay"
        if by_name and layer_of(path) != "core":
            yield f"{label(path)}:{node.lineno} replays a model: call density.nodes(theta, *batch)"


def test_data_travel_inside_the_density() -> None:
    """Other rows than those of the fit are a batch; whoever has a density needs no data and replays no model by hand."""
    assert [found for path in MODULES for found in replays_by_hand(path)] == []


def misplaced_imports(path: Path) -> Iterator[str]:
    """Yield imports that are relative, or within a function though they are neither optional nor slow."""
    for statement in imports(path):
        if statement.level:
            yield f"{label(path)}:{statement.line} relative import"
        libraries = {name.split(".")[0] for name in statement.names if not name.startswith(SLOW_TO_IMPORT)}
        if statement.in_function and not libraries <= OPTIONAL:
            yield f"{label(path)}:{statement.line} import in a function"


def test_imports_are_absolute_and_at_the_top() -> None:
    assert [found for path in MODULES for found in misplaced_imports(path)] == []


def untold(path: Path) -> Iterator[str]:
    """Yield what a module leaves unsaid: what it is, and what it offers."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    module = importlib.import_module(".".join(parts).removesuffix(".__init__"))
    if not module.__doc__:
        yield f"{label(path)} has no docstring"
    elif module.__doc__.split()[0] in {"What", "How", "Which", "Why", "Where", "Whether", "Is", "Are"}:
        yield f"{label(path)} asks what it is: begin with a noun"
    if len(module.__all__) != len(set(module.__all__)):
        yield f"{label(path)} names something twice in __all__"
    yield from (f"{label(path)} has no {name}" for name in module.__all__ if not hasattr(module, name))


def test_every_module_says_what_it_is_and_what_it_offers() -> None:
    assert [found for path in MODULES for found in untold(path)] == []


def offered_by_others(path: Path) -> Iterator[str]:
    """Yield names in ``__all__`` that another module defines; packages alone gather what their files define."""
    body = parsed(path).body if path.stem != "__init__" else []
    foreign = {alias.asname or alias.name for node in body if isinstance(node, ast.ImportFrom) for alias in node.names}
    for node in body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            for name in foreign & set(ast.literal_eval(node.value)):
                yield f"{label(path)}:{node.lineno} offers {name}, which another module defines"


def test_a_module_offers_what_it_defines_and_nothing_else() -> None:
    assert [found for path in MODULES for found in offered_by_others(path)] == []


PRIVATE_TO_TORCH = {"_C", "_can_decompose", "_overloadname", "_schema", "_version"}
"""Private attributes of torch's objects, by which one reaches them without the word torch."""


def private_parts_of_torch(path: Path) -> Iterator[str]:
    """Yield where a file names a private part of torch; one file does, and works where a part is missing."""
    if path.name == "torch_private.py":
        return
    for statement in imports(path):
        for name in statement.names:
            if name.startswith("torch.") and any(part.startswith("_") for part in name.split(".")):
                yield f"{label(path)}:{statement.line} imports {name}"
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            whole = ast.unparse(node)
            is_of_torch = whole.startswith("torch.") and not whole.startswith("torch.ops.")
            if is_of_torch or node.attr in PRIVATE_TO_TORCH:
                yield f"{label(path)}:{node.lineno} names {whole}"


def test_one_file_names_private_parts_of_torch() -> None:
    assert [found for path in MODULES for found in private_parts_of_torch(path)] == []


def test_private_parts_are_found_without_the_word_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    module = tmp_path / "module.py"
    module.write_text(
        "def seen(tensor, operation):\n    return tensor._version, operation._schema, tensor._mine, tensor.data\n"
    )
    assert [found.partition(" ")[2] for found in private_parts_of_torch(module)] == [
        "names tensor._version",
        "names operation._schema",
    ]


def drawers_and_scrolls(path: Path) -> Iterator[str]:
    """Yield modules named after nothing, and modules and classes that are too long."""
    if path.stem in {"utils", "helpers", "misc", "common"}:
        yield f"{label(path)} is a drawer"
    if (length := len(path.read_text().splitlines())) > MAX_LINES:
        yield f"{label(path)} has {length} lines"
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ClassDef) and (node.end_lineno or 0) - node.lineno + 1 > MAX_CLASS_LINES:
            yield f"{label(path)}:{node.lineno} class {node.name} is too long"


def test_no_module_is_a_drawer_or_a_scroll() -> None:
    assert [found for path in MODULES for found in drawers_and_scrolls(path)] == []


PRIVATE_TO_OTHERS = {"_replace", "_fields", "_asdict", "_repr_html_", "_data", "_model", "_parameters", "_base"}
"""Private in name only (named tuples, notebooks), or names of torch and xarray that classes here have, too."""


@cache
def names_in_classes(path: Path) -> frozenset[str]:
    """Return the methods and fields of the classes of a file."""
    found = set()
    for kind in parsed(path).body:
        for node in ast.walk(kind) if isinstance(kind, ast.ClassDef) else ():
            if isinstance(node, ast.FunctionDef):
                found.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                found.add(node.attr)
    return frozenset(found)


def trespasses(path: Path) -> Iterator[str]:
    """Yield where a function reads a private field or method of an object that is not its own."""
    known = frozenset.union(names_in_classes(path), *map(names_in_classes, MODULES))
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            owner = ast.unparse(node.value)
            if node.attr in known - PRIVATE_TO_OTHERS and owner not in {"self", "cls", "super()"}:
                yield f"{label(path)}:{node.lineno} reaches into {owner}.{node.attr}"


def test_no_function_reaches_into_another_object() -> None:
    assert [found for path in MODULES for found in trespasses(path)] == []


RULES = {  # what a file breaks, one rule each
    violations: "import torch",
    replays_by_hand: "def density_of(density, data):\n    return replay(density)",
    misplaced_imports: "from . import entropy\ndef late():\n    if True:\n        import json",
    offered_by_others: "from json import dumps, loads\n__all__ = ['dumps', 'loads']",
    private_parts_of_torch: "from torch._guards import tracing\nfound = torch._C",
    private_words: "def leap(feed):\n    return 1",
    trespasses: "class A:\n    def _f(self): self._x = 1\ndef g(a): return a._f() + a._x",
    drawers_and_scrolls: "\n".join(["class Long:", *["    x = 1"] * (MAX_LINES + 10)]),
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_rule_finds_what_breaks_it(rule: Callable[[Path], Iterator[str]], tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    module = tmp_path / "uncertainty" / "module.py"
    module.parent.mkdir()
    module.write_text(RULES[rule])
    assert len(list(rule(module))) == (1 if rule is violations else 2)


def test_a_forbidden_import_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    module = tmp_path / "uncertainty" / "entropy.py"
    module.parent.mkdir()
    module.write_text(
        "import numpy\nfrom torch import nn\nfrom bnnzoo.core.program import sites\nfrom bnnzoo import models\n"
    )
    found = [violation.partition(" ")[2] for violation in violations(module)]
    assert found == ["imports torch.nn", "imports bnnzoo.core.program.sites", "imports bnnzoo.models"]


@pytest.mark.slow
def test_importing_bnnzoo_leaves_slow_libraries_alone() -> None:
    asked = f"import sys, bnnzoo; print([m for m in sys.modules if m.startswith({SLOW_TO_IMPORT[:5]!r})])"
    code = f"import torch, pyro; {asked}"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent)
    assert found.stdout.strip() == "[]"


@pytest.mark.slow
def test_measures_and_validation_import_no_library_for_plots() -> None:
    code = "import sys; from bnnzoo import validation, diagnostics, calibration; print('arviz_plots' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent)
    assert found.stdout.strip() == "False"
