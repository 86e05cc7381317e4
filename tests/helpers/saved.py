"""Posteriors whose files are written by one process and read by another, which calls :func:`changed`."""

import dataclasses
import warnings
from pathlib import Path

import torch
import xarray as xr
from torch import Tensor

import bnnzoo as bz
from bnnzoo import inference
from bnnzoo.core.method import Method
from bnnzoo.core.model.density import build_density
from bnnzoo.core.posterior.covariance import Dense, Diagonal, Embedded, Kronecker, LowRankPlusDiagonal, LowRankPrecision
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.posterior import Draws, Gaussian, Mixture, Posterior
from bnnzoo.inference.ensembles.weighted_members import WeightedMembers
from bnnzoo.inference.variational.dropout import DropoutPosterior
from bnnzoo.inference.variational.flow import FlowPosterior, flow_over
from bnnzoo.inference.variational.full_rank_vi import FullRank
from bnnzoo.inference.variational.mean_field_vi import MeanField
from bnnzoo.inference.variational.pathfinder_vi import Resampled
from bnnzoo.models import likelihoods, mlp, priors, supervised

__all__ = ["METHODS", "MODELS", "X", "by_hand", "changed", "fitted", "predicted"]

SHORT = {"num_warmup": 20, "num_draws": 10, "num_steps": 20, "max_fits": 5}
# near a start: the hierarchical model has no mode, its density grows without bound as scales shrink
FEW_STEPS = inference.MAP(num_steps=20, polish_steps=0)
OF_THEIR_OWN = {
    "CyclicalSGMCMC": inference.CyclicalSGMCMC(num_warmup=20, num_draws=10, num_cycles=2, optimise_steps=20),
    "DeepEnsemble": inference.DeepEnsemble(num_members=3, num_steps=40, held_out=0.3, weights="stacking"),
    "MAP": inference.MAP(num_steps=20, num_members=2),
    "MeanFieldVI": inference.MeanFieldVI(num_steps=20, num_restarts=2),
    "MCDropout": inference.MCDropout(0.2, num_steps=20),
    "FlowVI": inference.FlowVI(inference.FullRankVI(num_steps=10), num_steps=10, num_layers=2, num_hidden=3),
    "MixtureOf": inference.MixtureOf(inference.MeanFieldVI(num_steps=20), num_members=2, weights="evidence"),
    "MultiSWAG": inference.MultiSWAG(2, inference.SWAG(num_steps=40, learning_rate=1e-6, init=FEW_STEPS)),
    "SWAG": inference.SWAG(num_steps=40, learning_rate=1e-6, init=FEW_STEPS),
    "SubsetVI": inference.SubsetVI(("net.2.*",), below=inference.MAP(num_steps=20)),
    "Laplace": inference.Laplace(damping=20.0, map=FEW_STEPS),  # near a start the hierarchical model has a saddle
    "LowRankLaplace": inference.LowRankLaplace(damping=20.0, map=FEW_STEPS),
    "SubsetLaplace": inference.SubsetLaplace(("net.2.*",)),
    "Pathfinder": inference.Pathfinder(num_draws=25),
    "HierarchicalLaplace": inference.HierarchicalLaplace(tolerance=0.5, max_fits=5),
}
METHODS = {
    name: kind
    for name in inference.__all__
    if isinstance(kind := getattr(inference, name), type) and hasattr(kind, "needs")
}
UNITS = torch.stack([torch.arange(14) % 3, torch.full((14,), 2)])
X = torch.randn(12, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = X[:, 0] + 0.1 * torch.randn(12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
MODELS = {
    "regression": (supervised(mlp(2, (3,)), priors.normal(1.0), likelihoods.gaussian()), (X, Y)),
    "classification": (
        supervised(mlp(2, (3,), out_features=2), priors.normal(1.0), likelihoods.categorical()),
        (X, (Y > 0).long()),
    ),
    "hierarchical": (supervised(mlp(2, (3,)), priors.layerwise(), likelihoods.gaussian()), (X, Y)),
}


def short(name: str) -> Method:
    """Return a method with a budget that makes a posterior of its kind, whatever its quality."""
    if name in OF_THEIR_OWN:
        return OF_THEIR_OWN[name]
    own = {field.name for field in dataclasses.fields(METHODS[name])}
    return METHODS[name](**{setting: value for setting, value in SHORT.items() if setting in own})


def fitted(name: str, model: str) -> Posterior:
    """Return the fit of a model by a method."""
    callable_model, data = MODELS[model]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such short runs have every reason to warn
        return bz.fit(callable_model, short(name), *data, seed=3, dtype=torch.float64, progress=False)


def predicted(posterior: Posterior) -> xr.DataTree:
    """Return everything that is said about new rows, and the record of the fit."""
    return bz.predict(posterior, X[:5], num_draws=2, weights=True)


def by_hand() -> dict[str, Posterior]:
    """Return a posterior of every class, with every covariance, that nothing was fitted for; a guide takes two steps."""
    model, data = MODELS["regression"]
    density = build_density(model, *data, dtype=torch.float64)
    size, generator = density.num_params, torch.Generator().manual_seed(5)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    info = FitInfo("iid", method="Laplace", seed=3, config={"num_hidden": 4}, fit_stats={"elbo": random(1, 6)})
    chains = FitInfo("mcmc", method="NUTS", seed=3, sample_stats={"lp": random(2, 8), "diverging": random(2, 8) > 0})
    half = size // 2
    sub = Diagonal(random(half).abs())
    factor = torch.linalg.cholesky(
        torch.eye(size, dtype=torch.float64) + 0.01 * random(size, 1) @ torch.ones(1, size).double()
    )
    orthonormal = torch.linalg.qr(random(size, 2))[0]
    blocks = tuple(
        (torch.linalg.qr(random(n, n))[0], torch.ones(1, 1).double(), random(n, 1).abs()) for n in (half, size - half)
    )
    covariances = {
        "diagonal": Diagonal(random(size).abs()),
        "dense": Dense(factor),
        "low_rank": LowRankPlusDiagonal(random(size, 2), random(size).abs()),
        "precision": LowRankPrecision(random(size).abs(), orthonormal, random(2).abs()),
        "kronecker": Kronecker(blocks),
        "embedded": Embedded(sub, torch.arange(half) * 2, size),
    }
    loc = random(size)
    gaussians = {name: Gaussian(density, info, loc, each, linearize_at=loc) for name, each in covariances.items()}
    flows = {}
    for name, family in (("flow", FullRank(size)), ("narrow_flow", MeanField())):
        base = family.start(loc, 0.1)
        flow = flow_over(density, family, 2, 4, seed=3)
        params = flow.start_from(base)
        flows[name] = FlowPosterior(density, info, flow, params + 0.1 * random(len(params)))
    weights = torch.tensor([0.3, 0.7]).log()
    weighted = FitInfo("iid", seed=3, config={"psis_pareto_k": 0.5, "psis_ess": 5.0})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        guide = bz.fit(model, bz.SVI(num_steps=2), *data, seed=3, dtype=torch.float64, progress=False)
    return (
        gaussians
        | {
            "draws": Draws(density, chains, random(2, 8, size)),
            "mixture": Mixture(density, info, (gaussians["diagonal"], gaussians["kronecker"]), weights),
            "guide": guide,
            "resampled": Resampled(
                density, weighted, gaussians["precision"], random(9, size), random(9).log_softmax(0)
            ),
            "members": WeightedMembers(density, FitInfo("ensemble", seed=3), random(3, size), random(3)),
            "dropout": DropoutPosterior(density, info, loc, torch.tensor([0.2, 0.3]).double(), UNITS),
        }
        | flows
    )


def changed(folder: str) -> list[str]:
    """Return the posteriors in a folder that say something else after loading, with their data or without."""
    return [name for path in sorted(Path(folder).glob("*.bnn")) for name in _changed(path)]


def _changed(path: Path) -> list[str]:
    """Return what the loaded posterior says differently."""
    model, data = MODELS[path.stem.partition("-")[2]]
    with xr.open_datatree(path.with_suffix(".nc"), engine="h5netcdf") as tree:
        before = tree.load()
    changed = [] if predicted(bz.load(path, model, *data)).identical(before) else [path.stem]
    without = predicted(bz.load(path, model))
    same = all(without[group].identical(before[group]) for group in ("predictions", "conditional", "weights"))
    return changed if same else [*changed, f"{path.stem} without data"]
