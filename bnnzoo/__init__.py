"""Bayesian neural networks in Pyro: write the model once, fit it with any method, get one DataTree for ArviZ."""

import sys
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if sys.version_info < (3, 12):  # noqa: UP036 - pip does not stop everybody; before anything that older versions cannot read
    raise ImportError(f"bnnzoo needs Python 3.12 or newer, and this is {sys.version.split()[0]}.")

from bnnzoo import models
from bnnzoo.inference import (
    HMC,
    MAMS,
    MAP,
    MCLMC,
    NUTS,
    PSGLD,
    SGHMC,
    SGLD,
    SVI,
    SWAG,
    ChEESHMC,
    ConcreteDropout,
    CyclicalSGMCMC,
    DeepEnsemble,
    DiagonalLaplace,
    FitWarning,
    FlowVI,
    FullRankVI,
    HierarchicalLaplace,
    KFACLaplace,
    Laplace,
    LastLayerLaplace,
    LastLayerVI,
    LowRankLaplace,
    LowRankVI,
    MCDropout,
    MeanFieldVI,
    MixtureOf,
    MultiSWAG,
    Pathfinder,
    StochasticMCLMC,
    SubsetLaplace,
    SubsetVI,
    Tempered,
    fit,
    fit_many,
    maximise_evidence,
)
from bnnzoo.loading import load
from bnnzoo.models import likelihoods, priors, random_module

if TYPE_CHECKING:
    from bnnzoo import (
        acquisition,
        calibration,
        datasets,
        diagnostics,
        effects,
        ood,
        plots,
        serving,
        testing,
        uncertainty,
        validation,
        zoo,
    )
    from bnnzoo.apps.reporting import report
    from bnnzoo.checking import check
    from bnnzoo.models.formula import formula
    from bnnzoo.predictive import (
        measure_predictions,
        posterior_predictive,
        predict,
        prior_predictive,
        save_tree,
        to_datatree,
    )
    from bnnzoo.serving import distil
    from bnnzoo.uncertainty import summarise
    from bnnzoo.validation import monitor

__all__ = [
    "HMC",
    "MAMS",
    "MAP",
    "MCLMC",
    "NUTS",
    "PSGLD",
    "SGHMC",
    "SGLD",
    "SVI",
    "SWAG",
    "ChEESHMC",
    "ConcreteDropout",
    "CyclicalSGMCMC",
    "DeepEnsemble",
    "DiagonalLaplace",
    "FitWarning",
    "FlowVI",
    "FullRankVI",
    "HierarchicalLaplace",
    "KFACLaplace",
    "Laplace",
    "LastLayerLaplace",
    "LastLayerVI",
    "LowRankLaplace",
    "LowRankVI",
    "MCDropout",
    "MeanFieldVI",
    "MixtureOf",
    "MultiSWAG",
    "Pathfinder",
    "StochasticMCLMC",
    "SubsetLaplace",
    "SubsetVI",
    "Tempered",
    "acquisition",
    "calibration",
    "check",
    "datasets",
    "diagnostics",
    "distil",
    "effects",
    "fit",
    "fit_many",
    "formula",
    "likelihoods",
    "load",
    "maximise_evidence",
    "measure_predictions",
    "models",
    "monitor",
    "ood",
    "plots",
    "posterior_predictive",
    "predict",
    "prior_predictive",
    "priors",
    "random_module",
    "report",
    "save_tree",
    "serving",
    "summarise",
    "testing",
    "to_datatree",
    "uncertainty",
    "validation",
    "zoo",
]

__version__ = "0.1.0"

# Loaded when first used: xarray, scikit-learn, scipy's statistics and plotting take seconds that a fit does not need.
_ON_FIRST_USE = frozenset(
    {
        "acquisition",
        "calibration",
        "datasets",
        "diagnostics",
        "effects",
        "ood",
        "plots",
        "predictive",
        "serving",
        "testing",
        "uncertainty",
        "validation",
        "zoo",
    }
)
_FUNCTIONS = {
    "check": "checking",
    "distil": "serving",
    "formula": "models.formula",
    "monitor": "validation",
    "report": "apps.reporting",
    "summarise": "uncertainty",
    **dict.fromkeys(
        ("measure_predictions", "posterior_predictive", "predict", "prior_predictive", "save_tree", "to_datatree"),
        "predictive",
    ),
}


def _suggesting(package: ModuleType) -> ModuleType:
    """Let a package suggest the names that it has for one that it has not."""
    if "__getattr__" not in vars(package):
        package.__getattr__ = partial(_refused, package.__name__)  # type: ignore[method-assign]
    return package


class _Package(ModuleType):
    """Lets packages below suggest names from the moment they are imported, by whomever."""

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name in _ON_FIRST_USE and isinstance(value, ModuleType):
            _suggesting(value)


def _refused(package: str, name: str) -> Any:
    raise AttributeError(f"module {package!r} has no attribute {name!r}{_suggestion(name)}", name=name, obj=None)


for _package in (models, likelihoods, priors):
    _suggesting(_package)
sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name in _ON_FIRST_USE:
        return import_module(f"bnnzoo.{name}")
    if name in _FUNCTIONS:
        return getattr(import_module(f"bnnzoo.{_FUNCTIONS[name]}"), name)
    return _refused("bnnzoo", name)


def _suggestion(name: str) -> str:
    """Return public names like one that does not exist, those of the packages below among them, as part of a sentence."""
    if name.startswith("_"):
        return ""
    places = {each: f"bnnzoo.{each}" for each in __all__}
    for package in ("models.likelihoods", "models.priors", "models", "inference", "predictive", *sorted(_ON_FIRST_USE)):
        for each in import_module(f"bnnzoo.{package}").__all__:
            places.setdefault(each, f"bnnzoo.{package.removeprefix('models.')}.{each}")
    folded = {each.lower(): where for each, where in places.items()}
    close = [folded[each] for each in get_close_matches(name.lower(), folded, 3, 0.7)]
    return f"; did you mean {' or '.join(close)}?" if close else ""


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
