"""The documentation is complete, and what it tells people to type works."""

import importlib
import inspect
import json
import re
import runpy
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest
import torch

import bnnzoo
from bnnzoo.zoo.cells import Cell
from bnnzoo.zoo.export import leaderboard

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text()

# Which page has to mention every public name of a package.
PAGES = {
    "bnnzoo.inference": "inference.md",
    "bnnzoo.models.priors": "models.md",
    "bnnzoo.models.likelihoods": "models.md",
    "bnnzoo.uncertainty": "measures/*.md",
    "bnnzoo.diagnostics": "measures/*.md",
    "bnnzoo.calibration": "measures/*.md",
    "bnnzoo.ood": "measures/*.md",
    "bnnzoo.acquisition": "measures/*.md",
    "bnnzoo.plots": "measures/*.md",
    "bnnzoo.validation": "measures/*.md",
    "bnnzoo.zoo": "zoo.md",
}
GUIDE = [*sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("[a-z]*/*.md")), ROOT / "CONTRIBUTING.md", ROOT / "README.md"]
PACKAGES = sorted(
    ".".join(path.parent.relative_to(ROOT).parts)
    for path in (ROOT / "bnnzoo").rglob("__init__.py")
    if path.parent.name not in {"core", "trees"}
    and importlib.import_module(".".join(path.parent.relative_to(ROOT).parts)).__all__
)


def public(package: str) -> dict[str, Any]:
    """Return what a package offers, except for its own packages."""
    module = importlib.import_module(package)
    members = {name: getattr(module, name) for name in module.__all__}
    return {name: member for name, member in members.items() if not isinstance(member, ModuleType)}


def blocks(text: str, language: str) -> list[str]:
    """Return the fenced blocks of one language in a page."""
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def commands() -> list[str]:
    """Return the README's lines for the shell that set up everything they need."""
    return [block.strip() for block in blocks(README, "sh")]


def test_readme_has_one_command_for_the_demo_and_one_for_the_tests() -> None:
    demo, tests = commands()
    assert demo.startswith("python3 -m venv .venv && .venv/bin/pip install . && ")
    assert demo.endswith(" .venv/bin/bnnzoo demo")
    assert tests.startswith("python3 -m venv .venv && .venv/bin/pip install ")
    assert tests.endswith(" .venv/bin/python -m pytest")
    assert "\n" not in demo + tests


def test_continuous_integration_runs_the_command_of_the_readme() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    (pattern,) = re.findall(r"grep -m 1 -E '([^']*)' README.md", script)
    found = [line for line in README.splitlines() if re.search(pattern, line)]
    assert found[:1] == [commands()[1]]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_has_a_page_in_the_reference(package: str) -> None:
    listed = (DOCS / "api" / "index.md").read_text()
    if package != "bnnzoo":
        assert package in listed.split()
        return
    assert [name for name in bnnzoo.__all__ if not re.search(rf"[`.]{name}`", listed)] == []


# What readers look for, and the page of the guide that answers.
SEARCHES = {
    "credible interval": "measures/uncertainty",
    "prior predictive": "predictive",
    "R-hat": "measures/diagnostics",
    "divergences": "inference",
    "leave-one-out": "measures/diagnostics",
    "deep ensemble": "methods/ensembles",
    "MC dropout": "methods/dropout",
    "SWAG": "methods/ensembles",
    "heteroscedastic": "models",
    "missing data": "formulas",
    "save": "saving",
    "GPU": "inference",
    "multilevel": "formulas",
    "brms": "coming_from",
    "Laplace approximation": "methods/laplace",
    "random effects": "formulas",
    "marginal effects": "effects",
    "install": "installation",
    "convergence": "measures/diagnostics",
    "horseshoe": "models",
    "time series": "your_models",
    "hierarchical": "your_models",
    "pandas": "formulas",
    "progress bar": "inference",
    "seed": "inference",
}


def keywords() -> dict[str, str]:
    """Return the page of each keyword, in lower case, by the front matter of the guide."""
    found: dict[str, str] = {}
    for page in sorted(DOCS.glob("**/*.md")):
        for line in re.findall(r"^    keywords: (.*)$", page.read_text(), re.MULTILINE):
            for word in line.lower().split(", "):
                assert word not in found, f"{word!r} is a keyword of {found[word]} and of {page}"
                found[word] = str(page.relative_to(DOCS).with_suffix(""))
    return found


@pytest.mark.parametrize(("asked", "page"), SEARCHES.items())
def test_a_search_finds_the_page_of_the_guide_first(asked: str, page: str) -> None:
    """Sphinx ranks entries of the index by the share of them that was typed, from a half on, and above titles and text."""
    scores = {
        word: (100 * len(asked) / len(word), found)
        for word, found in keywords().items()
        if asked.lower() in word and len(asked) >= len(word) / 2
    }
    (first, found), *others = sorted(scores.values(), reverse=True)
    assert found == page and first > 50
    assert [other for score, other in others if score == first and other != page] == []


def test_keywords_become_entries_of_the_index() -> None:
    with_entries = runpy.run_path(str(DOCS / "conf.py"))["with_entries"]
    page = (DOCS / "formulas.md").read_text()
    assert "# Formulas\n\n```{index} ! formulas, ! lme4, ! multilevel models, " in with_entries(page)
    assert with_entries("# No keywords\n") == "# No keywords\n"


def test_the_site_has_the_leaderboard(tmp_path: Path) -> None:
    write_zoo = runpy.run_path(str(DOCS / "conf.py"))["write_zoo"]
    cells = [Cell(card="two-moons", method="nuts", version=bnnzoo.zoo.load("two-moons").version, seed=0, distance=1.02)]
    write_zoo(tmp_path, cells)
    assert json.loads((tmp_path / "leaderboard.json").read_text()) == json.loads(json.dumps(leaderboard(cells)))
    assert (tmp_path / "table.md").is_file()
    assert "<zoo/leaderboard.json>" in (DOCS / "reference_posteriors.md").read_text()


def label(page: Path) -> str:
    """Name a test after the page it reads."""
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", GUIDE, ids=label)
def test_tables_are_not_split_by_empty_lines(page: Path) -> None:
    lines = ["", *page.read_text().splitlines(), ""]
    starts = [i for i, line in enumerate(lines) if line.startswith("|") and not lines[i - 1].startswith("|")]
    assert [lines[i] for i in starts if lines[i - 1] or not re.match(r"\|(\s*:?-+:?\s*\|)+$", lines[i + 1])] == []


def test_formulas_are_displayed_without_a_network() -> None:
    conf = runpy.run_path(str(DOCS / "conf.py"))
    (folder,) = conf["html_static_path"]
    assert (DOCS / folder / conf["mathjax_path"]).stat().st_size > 1_000_000
    assert (DOCS / folder / "mathjax" / "LICENSE").exists()


@pytest.mark.parametrize("page", GUIDE, ids=label)
def test_links_to_the_reference_have_a_target(page: Path) -> None:
    for target in re.findall(r"\{py:obj\}`(?:~|[^`]*<)?([\w.]+)>?`", page.read_text()):
        package, _, name = target.rpartition(".")
        assert name in importlib.import_module(package).__all__, target


@pytest.mark.parametrize("page", GUIDE, ids=label)
def test_links_between_pages_have_a_target(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+\.(?:md|rst|png))\)", page.read_text()):
        if "gallery" not in target:  # written by sphinx-gallery, which checks them
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("package", [package for package in PAGES if package in PACKAGES])
def test_every_function_and_method_is_explained(package: str) -> None:
    pages = " ".join(page.read_text() for page in sorted(DOCS.glob(PAGES[package])))
    explained = [n for n, member in public(package).items() if inspect.isfunction(member) or hasattr(member, "needs")]
    missing = [name for name in explained if not re.search(rf"\b{name}\b", pages)]
    assert missing == [], f"not in docs/{PAGES[package]}"


def test_every_method_documents_each_of_its_settings() -> None:
    for name, member in public("bnnzoo.inference").items():
        if inspect.isclass(member) and hasattr(member, "needs") and is_dataclass(member):
            said = inspect.cleandoc(member.__doc__ or "").partition("\nParameters\n")[2]
            named = re.findall(r"\w+", " ".join(line.partition(" : ")[0] for line in re.findall(r"(?m)^\w.*", said)))
            assert {field.name for field in fields(member)} <= set(named), name


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_has_a_docstring(package: str) -> None:
    members = public(package).items()
    documented = [(name, member) for name, member in members if inspect.isclass(member) or inspect.isfunction(member)]
    missing = [name for name, member in documented if not (member.__doc__ or "").strip()]
    methods = [
        f"{name}.{attribute}"
        for name, member in documented
        if inspect.isclass(member) and not getattr(member, "_is_protocol", False)
        for attribute, value in vars(member).items()
        if inspect.isfunction(value) and not attribute.startswith("_") and not value.__doc__
    ]
    assert missing + methods == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto:UserWarning")  # what az.loo says of so few rows
def test_code_of_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mpl.use("agg")
    monkeypatch.chdir(tmp_path)
    torch.set_default_dtype(torch.float32)  # as users run it
    exec("\n".join(blocks(README, "python")), {"__name__": "page"})
    plt.close("all")
    assert list(tmp_path.glob("*.nc"))
    drawn, shown = (plt.imread(folder / "curve.png") for folder in (tmp_path, DOCS / "_static"))
    assert drawn.shape == shown.shape and abs(drawn - shown).mean() < 0.02  # of colours from 0 to 1


def test_the_first_hour_takes_at_most_25_lines() -> None:
    code = "\n".join(blocks((DOCS / "quickstart.md").read_text(), "python"))
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 25


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The approximation is not the posterior")  # which the page tells
def test_code_of_quickstart_runs_and_says_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mpl.use("agg")
    monkeypatch.chdir(tmp_path)
    torch.set_default_dtype(torch.float32)  # as users run it
    page = (DOCS / "quickstart.md").read_text()
    exec("\n".join(blocks(page, "python")), {"__name__": "page"})
    plt.close("all")
    assert {"diabetes.bnn", "new.nc", "report.html"} <= {each.name for each in tmp_path.iterdir()}
    said = capsys.readouterr().out
    for sentence in (
        "laplace agrees with nuts",
        "mfvi differs from nuts",
        "The model has 1 fault (34 questions to the data)",
        "Residuals of y rise with s5",
    ):
        assert sentence in page and sentence in said


@pytest.mark.slow
@pytest.mark.parametrize("page", ["formulas.md", "effects.md"])
def test_code_of_pages_on_formulas_runs(page: str) -> None:
    mpl.use("agg")
    torch.set_default_dtype(torch.float32)
    exec("\n".join(blocks((DOCS / page).read_text(), "python")), {"__name__": "page"})
    plt.close("all")


def test_every_name_at_the_top_exists() -> None:
    assert set(bnnzoo.__all__) <= set(dir(bnnzoo))
    for name in bnnzoo.__all__:
        assert getattr(bnnzoo, name) is not None
    with pytest.raises(AttributeError, match="module 'bnnzoo' has no attribute 'nonsense'"):
        bnnzoo.nonsense  # noqa: B018 - the look-up is the test
