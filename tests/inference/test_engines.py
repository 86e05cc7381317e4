"""Every method by every engine, on three models and in both precisions: the same draws however the arithmetic is run."""

from functools import cache
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor, nn

import bnnzoo as bz
from bnnzoo import inference
from bnnzoo.core.model.density import build_density
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.posterior import Draws
from bnnzoo.engine.lowered import Lowered, Specialized
from bnnzoo.predictive import posterior_predictive, sweep
from bnnzoo.predictive.block_graphs import BlockGraph, _NativeBlock
from tests.helpers.executors import InProcess
from tests.helpers.methods import METHODS as ALL

CHAINS: dict[str, Any] = {"num_chains": 2, "num_warmup": 8, "num_draws": 6}
STOCHASTIC = CHAINS | {"optimise_steps": 20}
STEPS = {"num_steps": 40}
METHODS: dict[str, Any] = {
    "HMC": inference.HMC(**CHAINS),
    "NUTS": inference.NUTS(**CHAINS, max_tree_depth=4),
    "ChEESHMC": inference.ChEESHMC(**CHAINS),
    "MAMS": inference.MAMS(**CHAINS),
    "MCLMC": inference.MCLMC(**CHAINS),
    "Tempered": inference.Tempered(inference.HMC(**CHAINS), num_temperatures=3),
    "SGLD": inference.SGLD(**STOCHASTIC, steps_per_draw=3),
    "PSGLD": inference.PSGLD(**STOCHASTIC, steps_per_draw=3),
    "SGHMC": inference.SGHMC(**STOCHASTIC, steps_per_draw=3),
    "StochasticMCLMC": inference.StochasticMCLMC(**STOCHASTIC),
    "CyclicalSGMCMC": inference.CyclicalSGMCMC(num_chains=2, num_cycles=2, num_draws=6, optimise_steps=20),
    "MAP": inference.MAP(**STEPS),
    "DeepEnsemble": inference.DeepEnsemble(num_members=2, **STEPS),
    "SWAG": inference.SWAG(**STEPS),
    "MultiSWAG": inference.MultiSWAG(2, inference.SWAG(**STEPS)),
    "MixtureOf": inference.MixtureOf(inference.Laplace(), num_members=2),
    "MeanFieldVI": inference.MeanFieldVI(**STEPS),
    "LowRankVI": inference.LowRankVI(**STEPS),
    "FullRankVI": inference.FullRankVI(**STEPS),
    "FlowVI": inference.FlowVI(inference.FullRankVI(num_steps=20), num_layers=2, num_hidden=4, num_steps=20),
    "SVI": inference.SVI(**STEPS),
    "SubsetVI": inference.SubsetVI(vi=inference.MeanFieldVI(**STEPS)),
    "LastLayerVI": inference.LastLayerVI(vi=inference.MeanFieldVI(**STEPS)),
    "MCDropout": inference.MCDropout(**STEPS),
    "ConcreteDropout": inference.ConcreteDropout(**STEPS),
    "Pathfinder": inference.Pathfinder(num_paths=2),
    "Laplace": inference.Laplace(),
    "HierarchicalLaplace": inference.HierarchicalLaplace(),
    "DiagonalLaplace": inference.DiagonalLaplace(),
    "LowRankLaplace": inference.LowRankLaplace(2),
    "SubsetLaplace": inference.SubsetLaplace(),
    "KFACLaplace": inference.KFACLaplace(),
    "LastLayerLaplace": inference.LastLayerLaplace(),
}
SENSITIVE = {"Pathfinder", "LastLayerVI", "SubsetVI"}
"""A path of L-BFGS over a network's posterior; Adam from a mode, where it divides rounding errors by their size."""

ON_NETWORKS = {"KFACLaplace", "LastLayerLaplace", "LastLayerVI", "MCDropout", "ConcreteDropout"}

generator = torch.Generator().manual_seed(0)
X = torch.randn(30, 2, generator=generator, dtype=torch.float64)
Y = X @ X.new_tensor([1.0, -1.0]) + 0.3 * torch.randn(30, generator=generator, dtype=torch.float64)
GROUP = torch.arange(30) % 5


def linear(x: Tensor, y: Tensor) -> None:
    b = pyro.sample("b", dist.Normal(x.new_zeros(2), 2.0).to_event(1))
    s = pyro.sample("s", dist.HalfNormal(x.new_ones(())))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(x @ b, s), obs=y)


def hierarchy(x: Tensor, group: Tensor, y: Tensor) -> None:
    """A slope that has no value below zero, where points are rejected."""
    mu, tau = pyro.sample("mu", dist.Normal(x.new_zeros(()), 2.0)), pyro.sample("tau", dist.HalfNormal(x.new_ones(())))
    with pyro.plate("groups", 5):
        a = pyro.sample("a", dist.Normal(mu, tau))
    b = pyro.sample("b", dist.Normal(x.new_ones(()), 0.5))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(a[group] + b.sqrt() * x[:, 0], 0.5), obs=y)


def network(*dropout: nn.Module) -> Any:
    net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), *dropout, nn.Linear(4, 1))
    return bz.models.supervised(net, bz.priors.normal(1.0), bz.likelihoods.gaussian(0.3))


MODELS: dict[str, tuple[Any, tuple[Tensor, ...]]] = {
    "linear": (linear, (X, Y)),
    "network": (network(), (X, Y)),
    "hierarchy": (hierarchy, (X, GROUP, Y)),
}
WITH_DROPOUT = network(nn.Dropout(0.2))

CASES = [
    (name, model, dtype, engine)
    for name in METHODS
    for model in MODELS
    for dtype in (torch.float64, torch.float32)
    for engine in ("native", "python")
    if model == "network" or name not in ON_NETWORKS
]


def by_default(number: int, name: str, model: str, dtype: torch.dtype, engine: str) -> bool:
    """Each method once, natively and in double precision, in turn on one of the models; a flow takes the compiler longest."""
    models = ["network"] if name in ON_NETWORKS else [*MODELS]
    return (model, dtype, engine) == (models[number % len(models)], torch.float64, "native") and name != "FlowVI"


MARKED = [
    case if by_default(list(METHODS).index(case[0]), *case) else pytest.param(*case, marks=pytest.mark.slow)
    for case in CASES
]


def moved(data: Tensor) -> Tensor:
    """Move every number to the next one that there is."""
    return torch.nextafter(data, data.new_tensor(torch.inf)) if data.is_floating_point() else data


@cache
def drawn(name: str, model: str, dtype: torch.dtype, engine: Any, is_moved: bool = False) -> Tensor:
    """Return draws, after a look at what ran; ``is_moved`` moves the data by one in the last place."""
    function, data = MODELS[model]
    data = tuple(each.to(dtype) if each.is_floating_point() else each for each in data)
    data = tuple(map(moved, data)) if is_moved else data
    function = WITH_DROPOUT if name.endswith("Dropout") else function
    found = bz.fit(function, METHODS[name], *data, seed=2, dtype=dtype, engine=engine, progress=False)
    assert found.info.engine is None or found.info.engine.engine.endswith(engine)  # a graph may be compiled
    return found.draws(None if isinstance(found, Draws) else 5).double()


def test_the_table_has_every_method() -> None:
    assert METHODS.keys() == ALL.keys()


@pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")  # of runs as short as these
@pytest.mark.parametrize(("name", "model", "dtype", "engine"), MARKED)
def test_draws_are_those_of_the_graph(name: str, model: str, dtype: torch.dtype, engine: str) -> None:
    """To 1e-8, in single precision to 1e-4; or no further apart than the graph's own where its data differ in the last place.

    Rounding grows along a trajectory, and a search along a flat direction ends where rounding says.
    """
    found, wanted = drawn(name, model, dtype, engine), drawn(name, model, dtype, "graph")
    assert found.shape == wanted.shape and bool(wanted.isfinite().all())
    apart = float((found - wanted).abs().max())
    if apart > (1e-8 if dtype == torch.float64 else 1e-4):
        assert apart < 100 * float((drawn(name, model, dtype, "graph", is_moved=True) - wanted).abs().max())
        assert dtype == torch.float32 or name in SENSITIVE or apart < 1e-4


FIXED: dict[str, Any] = {"num_chains": 2, "num_warmup": 0, "num_draws": 20}
WITH_FIXED_STEPS = {
    "HMC": inference.HMC(**FIXED, step_size=0.05, trajectory_length=0.5),
    "NUTS": inference.NUTS(**FIXED, step_size=0.05, max_tree_depth=4),
    "MAMS": inference.MAMS(**FIXED, step_size=0.05, trajectory_length=0.5),
    "SGHMC": inference.SGHMC(**FIXED, step_size=1e-4, steps_per_draw=3, optimise_steps=20, preconditioning=None),
}


@pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")
@pytest.mark.parametrize("engine", ["native", "python"])
@pytest.mark.parametrize("name", WITH_FIXED_STEPS)
def test_the_first_twenty_draws_are_those_of_the_graph(name: str, engine: Any) -> None:
    """To 1e-6 with steps of a fixed size: dual averaging would let rounding grow twentyfold with every draw."""

    def drawn_by(engine: Any) -> Tensor:
        found = bz.fit(linear, WITH_FIXED_STEPS[name], X, Y, seed=2, dtype=torch.float64, engine=engine, progress=False)
        assert found.info.engine.engine.endswith(engine)
        return found.draws()

    found, wanted = drawn_by(engine), drawn_by("graph")
    assert found.shape == (2, 20, 3) and len(found.flatten(0, 1).unique(dim=0)) > 20
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")
@pytest.mark.parametrize("engine", ["native", "graph", "python"])
@pytest.mark.parametrize(
    ("name", "executor"),
    [("MAP", None), ("MeanFieldVI", None), ("DeepEnsemble", None), ("DeepEnsemble", InProcess())],
)
def test_training_runs_by_the_engine_asked_for_and_says_so(
    name: str, executor: InProcess | None, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here, and for each member by itself on an executor."""
    hows: set[str] = set()
    specialize = Lowered.specialize

    def seen(lowered: Lowered, *args: Any, **kwargs: Any) -> Specialized:
        made = specialize(lowered, *args, **kwargs)
        hows.add(made.how)
        return made

    monkeypatch.setattr(Lowered, "specialize", seen)
    posterior = bz.fit(linear, METHODS[name], X, Y, seed=2, engine=engine, executor=executor, progress=False)
    info = posterior.info
    assert info.engine.engine == engine and info.engine.running > 0
    assert info.engine.tracing + info.engine.compiling == pytest.approx(info.compiling)
    assert hows == {"eager"} if engine == "python" else "eager" not in hows


@pytest.mark.parametrize("engine", ["native", "graph"])
@pytest.mark.parametrize("name", MODELS)
def test_every_engine_predicts_the_same(name: str, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = MODELS[name]
    density = build_density(model, *data)
    theta = torch.randn(2, 40, density.num_params, dtype=torch.float64)  # at some of which the hierarchy has no value
    posterior = Draws(density, FitInfo("mcmc", method="none", seed=0), theta)
    trees: dict[str, Any] = {}
    graphs: list[BlockGraph | None] = []
    of_block = sweep.block_graph

    def noted(*args: Any) -> BlockGraph | None:
        graphs.append(of_block(*args))
        return graphs[-1]

    monkeypatch.setattr(sweep, "block_graph", noted)
    for each in ("python", engine):
        monkeypatch.setenv("BNNZOO_ENGINE", each)
        trees[each] = posterior_predictive(posterior, *data)
        assert bool(graphs) == (each == engine)
    assert all(graph is not None for graph in graphs)
    assert any(graph is not None and isinstance(graph.run, _NativeBlock) for graph in graphs) == (engine == "native")
    for group in ("posterior", "log_prior", "sample_stats", "posterior_predictive", "conditional", "log_likelihood"):
        for variable, values in trees["python"][group].data_vars.items():
            found = trees[engine][group][variable]
            assert np.allclose(found, values, rtol=1e-8, atol=1e-8, equal_nan=True), f"{group}/{variable}"
    lost = trees["python"]["conditional"].to_dataset().isnull().any().to_array().any()
    assert bool(lost) == (name == "hierarchy")
