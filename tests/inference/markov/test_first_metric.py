"""First mass matrices of chains that start on the paths of Pathfinder."""

import dataclasses
from typing import Any

import arviz as az
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import bnnzoo as bz
from bnnzoo.inference.many import seed_of_fit
from bnnzoo.inference.markov.first_metric import in_form_of, metric_of_start
from bnnzoo.inference.markov.metrics import identity_metric, inverse_mass_of, metric_of
from bnnzoo.models import likelihoods, mlp, priors, supervised
from bnnzoo.testing.targets import linear_gaussian

pytestmark = pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")  # of short runs

SHORT: dict[str, Any] = {"num_warmup": 19, "num_draws": 20, "num_chains": 4}  # no window in which they would be learnt
KINDS = ["diagonal", "dense", "fisher", "low_rank", "auto"]
UNITS = torch.logspace(-2, 4, 12)


def in_raw_units():
    noise = torch.randn(80, 13, generator=torch.Generator().manual_seed(0))
    x = UNITS * (noise[:, :12] + 2 * noise[:, 12:])
    y = (x / UNITS).sum(1) + torch.randn(80, generator=torch.Generator().manual_seed(1))

    def model(x, y):
        w = pyro.sample("w", dist.Normal(torch.zeros(12), 1e3).to_event(1))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(x @ w, 1.0), obs=y)

    return model, x, y


def covariances_of(tuning) -> Tensor:
    """Return the inverse masses ``[C, P, P]``, of any kind."""
    inverse = tuning["inverse_mass"]
    if inverse.ndim == 3:
        return inverse
    directions = tuning.get("directions", torch.zeros(*inverse.shape, 1))
    factors = torch.diag_embed(tuning.get("eigenvalues", torch.ones(len(inverse), 1)) - 1)
    scale = torch.diag_embed(inverse.sqrt())
    return scale @ (torch.eye(inverse.shape[1]) + directions @ factors @ directions.mT) @ scale


def assert_as_held(found: Tensor, expected: Tensor, mass_matrix: str) -> None:
    """Compare covariances in units of their own, or variances where a mass matrix has nothing else."""
    sd = expected.diagonal(dim1=1, dim2=2).sqrt()
    units = sd[:, None] * sd[:, :, None]
    correlations = expected / units
    assert float((correlations - torch.eye(sd.shape[1])).abs().max()) > 0.1
    if mass_matrix in ("diagonal", "fisher"):
        correlations = torch.eye(sd.shape[1]).expand_as(correlations)
    torch.testing.assert_close(found / units, correlations)


def paths_of(model, *data):
    return bz.fit(model, bz.Pathfinder(num_paths=4, resample=False), *data, progress=False)


def of_paths(posterior) -> Tensor:
    """Return the covariances ``[C, P, P]`` of the Gaussians of paths."""
    return torch.stack([each.covariance.dense() for each in posterior.components])


@pytest.mark.parametrize("mass_matrix", KINDS)
def test_chains_begin_with_the_covariances_of_their_paths(mass_matrix: str) -> None:
    model, x, y = in_raw_units()
    expected = of_paths(paths_of(model, x, y))
    chains = bz.fit(model, bz.NUTS(**SHORT, mass_matrix=mass_matrix, init=bz.Pathfinder()), x, y, progress=False)
    assert_as_held(covariances_of(chains.info.tuning), expected, mass_matrix)
    assert float(chains.info.sample_stats["n_steps"].double().median()) < 40  # 1,023 in units that differ by a million


@pytest.mark.parametrize("mass_matrix", KINDS)
@pytest.mark.parametrize("sampler", [bz.MAMS, bz.ChEESHMC, bz.MCLMC])
def test_chains_in_lockstep_begin_with_the_correlations_of_the_best_path_and_typical_variances(
    sampler, mass_matrix: str
) -> None:
    model, x, y = in_raw_units()
    paths = paths_of(model, x, y)
    chains = bz.fit(model, sampler(**SHORT, mass_matrix=mass_matrix, init=bz.Pathfinder()), x, y, progress=False)
    every = of_paths(paths)
    best = every[int(torch.tensor(paths.info.config["elbo"]).argmax())]
    wider = (every.diagonal(dim1=1, dim2=2).median(0).values / best.diagonal()).sqrt()
    assert_as_held(covariances_of(chains.info.tuning), (wider * best * wider[:, None]).expand(4, -1, -1), mass_matrix)


def test_ladders_and_superchains_begin_with_them() -> None:
    model, x, y = in_raw_units()
    expected = of_paths(paths_of(model, x, y))
    inner = bz.HMC(**SHORT, init=bz.Pathfinder())
    ladder = bz.fit(model, bz.Tempered(inner, num_temperatures=3), x, y, progress=False)
    found = {name: value.flatten(0, 1) for name, value in ladder.info.tuning.items() if name != "inverse_temperature"}
    assert_as_held(covariances_of(found), expected.repeat_interleave(2, 0), "auto")
    pairs = bz.fit(model, dataclasses.replace(inner, num_superchains=2), x, y, progress=False)
    assert_as_held(covariances_of(pairs.info.tuning), expected[[0, 0, 2, 2]], "auto")


@pytest.mark.parametrize("method", [bz.NUTS(init=bz.Pathfinder()), bz.MAMS(init=bz.Pathfinder())])
def test_chains_that_begin_there_are_right(method) -> None:
    target = linear_gaussian(num_inputs=6, correlation=0.95)
    draws = bz.fit(target.model, method, *target.data, progress=False).draws()
    for i, (mean, sd) in enumerate(zip(target.mean["w"], target.sd["w"], strict=True)):
        values = draws[..., i].numpy()
        ess = float(az.ess(values))
        assert ess > 400
        assert abs(values.mean() - float(mean)) < 4 * float(sd) / ess**0.5
        spread = float(az.ess((values - values.mean()) ** 2))
        assert abs(values.std() / float(sd) - 1) < 4 / (2 * spread) ** 0.5


def test_chains_of_a_network_take_variances_alone() -> None:
    x, y = torch.randn(2, 20, 2, generator=torch.Generator().manual_seed(0)).unbind()
    y, net = y[:, 0], supervised(mlp(2, (3,)), priors.fan_in(), likelihoods.gaussian(scale=0.1))
    paths = paths_of(net, x, y)
    chains = bz.fit(net, bz.NUTS(**SHORT, init=paths), x, y, progress=False)
    assert set(chains.info.tuning) == {"step_size", "target_accept", "num_warmup", "inverse_mass"}
    assert_as_held(covariances_of(chains.info.tuning), of_paths(paths), "diagonal")


@pytest.mark.parametrize("resample", [True, False])
def test_a_posterior_that_was_saved_gives_its_covariances(resample: bool, tmp_path) -> None:
    """One of weighted draws is of all paths: each chain has those of the best one."""
    model, x, y = in_raw_units()
    posterior = bz.fit(model, bz.Pathfinder(num_paths=4, resample=resample), x, y, progress=False)
    posterior.save(tmp_path / "paths.bnn")
    loaded = bz.load(tmp_path / "paths.bnn", model, x, y)
    for shared in (False, True):
        one, other = (metric_of_start(each, 4, shared=shared) for each in (posterior, loaded))
        assert one is not None and other is not None
        ours, theirs = (covariances_of(inverse_mass_of(each)) for each in (one, other))
        torch.testing.assert_close(ours, theirs)
        assert len(ours) == (1 if shared else 4)
        assert bool((ours[0] == ours[-1]).all()) == (resample or shared)


def test_of_many_directions_those_that_matter_most_are_kept() -> None:
    basis, _ = torch.linalg.qr(torch.randn(1, 30, 20, generator=torch.Generator().manual_seed(0)))
    eigenvalues = torch.cat([torch.logspace(-3, 3, 16), 1 + torch.linspace(0.01, 0.04, 4)])[None]
    known = {"inverse_mass": torch.linspace(1, 2, 30)[None], "directions": basis, "eigenvalues": eigenvalues}
    kept = known | {"directions": basis[..., :16], "eigenvalues": eigenvalues[:, :16]}
    found = inverse_mass_of(in_form_of(identity_metric(torch.zeros(1, 30), "low_rank"), metric_of(known)))
    assert found["directions"].shape == (1, 30, 16)
    torch.testing.assert_close(covariances_of(found), covariances_of(kept))


def test_a_direction_without_width_leaves_a_dense_matrix_with_a_factor() -> None:
    known = {"inverse_mass": torch.ones(1, 2), "directions": torch.tensor([[[0.6], [0.8]]])}
    metric = metric_of(known | {"eigenvalues": torch.tensor([[1e-30]])})
    dense = in_form_of(identity_metric(torch.zeros(1, 2), "dense"), metric).inverse_mass
    assert bool(torch.linalg.cholesky(dense).isfinite().all())
    torch.testing.assert_close(dense[0], torch.tensor([[0.64, -0.48], [-0.48, 0.36]]))


def test_a_step_size_that_is_given_is_in_the_models_own_units() -> None:
    target = linear_gaussian()
    own = bz.fit(target.model, bz.NUTS(**SHORT, step_size=0.1, init=bz.Pathfinder()), *target.data, progress=False)
    assert bool((own.info.tuning["inverse_mass"] == 1).all())
    unlearnt = bz.fit(target.model, bz.NUTS(**SHORT, init=bz.MAP(num_members=4)), *target.data, progress=False)
    assert bool((unlearnt.info.tuning["inverse_mass"] == 1).all())


def test_chains_of_many_fits_start_on_paths_as_those_of_fit() -> None:
    model, x, y = in_raw_units()
    method = bz.NUTS(**SHORT, init=bz.Pathfinder())
    (_, second) = bz.fit_many(model, method, [(x, y), (x, y + 1)], engine="native")
    alone = bz.fit(model, method, x, y + 1, seed=seed_of_fit(0, 1), engine="native", progress=False)
    assert torch.equal(second.draws(), alone.draws())
