"""Configuration of the documentation, which neither the build nor the reader needs a network for."""

import json
import os
import re
import warnings
from pathlib import Path

import torch

import bnnzoo
from bnnzoo.zoo.card_pages import write_pages
from bnnzoo.zoo.cells import Cell, read_cells
from bnnzoo.zoo.export import leaderboard

__all__: list[str] = []

project = "bnnzoo"
author = "The bnnzoo developers"
copyright = f"2026, {author}"
version = release = bnnzoo.__version__

extensions = [
    "matplotlib.sphinxext.plot_directive",
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "_templates"]
templates_path = ["_templates"]
default_role = "py:obj"

html_static_path = ["_static"]
html_css_files = ["style.css"]
html_context = {"default_mode": "auto"}
mathjax_path = "mathjax/tex-chtml.js"  # MathJax 3.2.2, Apache-2.0: formulas display without a network
html_theme = "pydata_sphinx_theme"
html_title = "bnnzoo"
html_search_scorer = str(Path(__file__).parent / "_static" / "scorer.js")
html_theme_options = {
    "navigation_with_keys": False,
    "header_links_before_dropdown": 6,
    "secondary_sidebar_items": ["page-toc"],
    "show_toc_level": 2,
}

# Pages without a section of their own need no navigation on the left.
_alone = (
    "adding_a_method adding_a_sampler adding_parts architecture arviz benchmarks changelog cli conformance contributing effects "
    "engine formulas installation models r predictive quickstart reference_posteriors report saving scikit_learn serving"
)
html_sidebars = {page: [] for page in _alone.split()}

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autodoc_typehints = "none"  # numpydoc's sections say the types
autosummary_generate = True
autosummary_ignore_module_all = False
autosummary_imported_members = True
numpydoc_show_class_members = False

# The gallery shows warnings with their category, but not the path of this machine's Python.
warnings.formatwarning = lambda message, category, *_: f"{category.__name__}: {message}\n"

# The order of the gallery, section by section.
EXAMPLES = [
    "methods/plot_swap_methods.py",
    "methods/plot_raw_units.py",
    "methods/plot_network_verdict.py",
    "methods/plot_arviz_on_every_method.py",
    "methods/plot_compare_posteriors.py",
    "methods/plot_zoo.py",
    "methods/plot_gap.py",
    "methods/plot_samplers.py",
    "methods/plot_short_chains.py",
    "methods/plot_mass_matrix.py",
    "methods/plot_divergences.py",
    "methods/plot_stochastic_gradients.py",
    "methods/plot_many_rows.py",
    "methods/plot_vi_estimators.py",
    "methods/plot_cubic.py",
    "methods/plot_spiral.py",
    "methods/plot_multimodal.py",
    "methods/plot_tempering.py",
    "methods/plot_neal_modes.py",
    "methods/plot_symmetries.py",
    "models/plot_own_pyro_model.py",
    "models/plot_pyro_module.py",
    "models/plot_serving.py",
    "models/plot_discrete.py",
    "models/plot_hidden_states.py",
    "models/plot_eight_schools.py",
    "models/plot_formula.py",
    "models/plot_check.py",
    "models/plot_dose_response.py",
    "models/plot_missing.py",
    "models/plot_outcomes.py",
    "models/plot_priors.py",
    "models/plot_evidence.py",
    "models/plot_gaussian_process.py",
    "models/plot_lora.py",
    "uncertainty/plot_uncertainty.py",
    "uncertainty/plot_three_regions.py",
    "uncertainty/plot_disagreement.py",
    "uncertainty/plot_three_digits.py",
    "uncertainty/plot_pictures.py",
    "uncertainty/plot_line.py",
    "uncertainty/plot_calibration.py",
    "uncertainty/plot_simulation_based_calibration.py",
    "uncertainty/plot_simulation_study.py",
    "uncertainty/plot_out_of_distribution.py",
    "uncertainty/plot_active_learning.py",
    "uncertainty/plot_monitoring.py",
    "uncertainty/plot_distil.py",
]


def in_order(name: str) -> int:
    """Return the place of a file in the gallery."""
    return [Path(example).name for example in EXAMPLES].index(name)


def fresh(gallery_conf: dict[str, object], name: str) -> None:
    """Undo what one page does to the defaults of torch, before the next one runs in the same process."""
    torch.set_default_dtype(torch.float32)


# The gallery runs every example; with BNNZOO_DOCS_SMOKE=1 in the short form that the tests run, too.
_smoke = os.environ.get("BNNZOO_DOCS_SMOKE") == "1"
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "subsection_order": ["../examples/methods", "../examples/models", "../examples/uncertainty"],
    "within_subsection_order": in_order,
    "reset_modules": ("matplotlib", "seaborn", fresh),
    "capture_repr": (),  # figures and what is printed, but no object at the end of a block
    "reset_argv": lambda gallery_conf, script_vars: ["--smoke"] if _smoke else [],
    "show_memory": False,
    "write_computation_times": False,
    "download_all_examples": False,
    "remove_config_comments": True,
    "abort_on_example_error": True,
}
plot_html_show_formats = plot_html_show_source_link = plot_include_source = False
plot_formats = [("png", 150)]
plot_working_directory = str(Path(__file__).parents[1])  # where the package `benchmarks` is
suppress_warnings = ["config.cache"]  # the function above cannot be cached


def with_entries(page: str) -> str:
    """Return a page of the guide with its keywords as entries of the index, which the search ranks above every other page."""
    found = re.match(r"---\n.*?keywords: (.*?)\n.*?---\n", page, re.DOTALL)
    if not found:
        return page
    entries = ", ".join(f"! {word}" for word in found[1].split(", "))
    return re.sub(
        r"^# .*$", lambda title: f"{title[0]}\n\n```{{index}} {entries}\n```", page, count=1, flags=re.MULTILINE
    )


def write_zoo(folder: Path, cells: list[Cell]) -> None:
    """Write the pages of the zoo from its cards, and the leaderboard that goes with its table."""
    write_pages(folder, cells)
    text = json.dumps(leaderboard(cells), allow_nan=False) + "\n"
    (folder / "leaderboard.json").write_text(text, encoding="utf-8")


def setup(app: object) -> None:
    """Write what belongs to the zoo before the pages are read."""
    cells = read_cells(Path(__file__).parents[1] / "benchmarks" / "results" / "zoo_table.json")
    app.connect("builder-inited", lambda app: write_zoo(Path(app.srcdir) / "zoo", cells))
    app.connect("source-read", lambda app, page, source: source.__setitem__(0, with_entries(source[0])))
    app.connect("autodoc-skip-member", lambda app, what, name, *_: True if _asks_for_metadata(name) else None)


def _asks_for_metadata(name: str) -> bool:
    """Tell whether a method is one that scikit-learn adds to every estimator, with links into its own documentation."""
    return name.startswith("set_") and name.endswith("_request")
