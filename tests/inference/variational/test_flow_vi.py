"""Variational inference with flows, on posteriors that no Gaussian is near."""

import math
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch
from pyro.infer import Trace_ELBO
from torch.func import vmap

from bnnzoo.core.posterior.posterior import Mixture
from bnnzoo.inference import MAP, FlowVI, FullRankVI, LowRankVI, MeanFieldVI, fit
from bnnzoo.inference.variational import flow_vi
from bnnzoo.inference.variational.fit_family import fit_family
from bnnzoo.inference.variational.flow import FlowPosterior
from bnnzoo.predictive import to_datatree
from bnnzoo.testing import banana, leaves_no_trace, linear_gaussian, skewed

NUM_DRAWS = 20000  # the divergence of a Gaussian from the skewed posterior is a hundredth
TINY = FlowVI(MeanFieldVI(num_steps=5), num_layers=2, num_hidden=4, num_steps=5, num_particles=2)


@pytest.mark.slow
def test_restarts_are_chains_of_a_mixture() -> None:
    target = linear_gaussian()
    with leaves_no_trace("FlowVI"):
        posterior = fit(target.model, replace(TINY, num_restarts=2), *target.data, seed=3)
    assert isinstance(posterior, Mixture)
    assert posterior.draws(7).shape == (2, 7, 3)
    assert posterior.info.fit_stats["elbo"].shape == (2, 5)
    assert posterior.info.num_gradients == 2 * (5 * 8 + 5 * 2)
    again = fit(target.model, replace(TINY, num_restarts=2), *target.data, seed=3)
    assert torch.equal(posterior.draws(7), again.draws(7))
    each = torch.stack([component.log_prob(posterior.draws(7)) for component in posterior.components])
    torch.testing.assert_close(posterior.log_prob(posterior.draws(7)), each.logsumexp(0) - math.log(2))


def test_guide_and_tree_have_the_density_of_the_flow() -> None:
    target = linear_gaussian()
    posterior = fit(target.model, TINY, *target.data)
    assert isinstance(posterior, FlowPosterior)
    tree = to_datatree(posterior, num_draws=200)
    stats = tree["sample_stats"]
    theta = torch.from_numpy(tree["posterior"]["w"].to_numpy())
    torch.testing.assert_close(torch.from_numpy(stats["log_q"].to_numpy()), posterior.log_prob(theta))
    ratios = (stats["lp"] - stats["log_q"]).to_numpy()
    bounds = [-Trace_ELBO(num_particles=20).loss(target.model, posterior.as_guide(), *target.data) for _ in range(10)]
    error = ratios.std() * (1 / 200 + 1 / 200) ** 0.5
    assert abs(sum(bounds) / 10 - ratios.mean()) < 5 * error


def test_needs_zuko(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zuko.flows.autoregressive", None)
    target = linear_gaussian()
    with pytest.raises(ImportError, match=r"FlowVI needs zuko: pip install bnnzoo\[flows\]"):
        fit(target.model, TINY, *target.data)


def test_refusals() -> None:
    target = linear_gaussian()
    for method, sentence in (
        (FlowVI(num_layers=0), r"FlowVI\(num_layers=0\): write 1 or more"),
        (FlowVI(num_hidden=0), r"FlowVI\(num_hidden=0\): write 1 or more"),
        (FlowVI(LowRankVI()), r"FlowVI\(base=LowRankVI\(\)\): write FullRankVI\(\) or MeanFieldVI\(\)"),
        (FlowVI(MAP()), r"FlowVI\(base=MAP\(\)\): write FullRankVI\(\) or MeanFieldVI\(\)"),
        (FlowVI(FullRankVI(init=torch.zeros(1, 3))), r"leave init out of FullRankVI"),
    ):
        with pytest.raises(ValueError, match=sentence):
            fit(target.model, method, *target.data)


def gap(posterior, target, log_evidence: float) -> tuple[float, float]:
    """Return the divergence of an approximation from the posterior and its standard error."""
    theta = posterior.draws(NUM_DRAWS)[0]
    ratios = vmap(lambda row: posterior.density.log_joint(row, *target.data))(theta) - posterior.log_prob(theta)
    return log_evidence - float(ratios.mean()), float(ratios.std()) / NUM_DRAWS**0.5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")  # the Gaussian is meant to be far off
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_nearer_to_a_banana_than_any_gaussian(seed: int) -> None:
    target = banana()
    gaussian, flow = (fit(target.model, method, seed=seed) for method in (FullRankVI(), FlowVI()))
    (before, _), (after, error) = gap(gaussian, target, 0.0), gap(flow, target, 0.0)
    assert before > 0.4
    assert after < 0.02 + 5 * error
    draws = flow.density.constrain(flow.draws(4000)[0])
    for name, sd in target.sd.items():
        z = (draws[name] - target.mean[name]) / sd
        fourth = ((z - z.mean()) / z.std()).pow(4).mean()  # large: the tails of a banana are long
        assert abs(z.mean()) < 0.05 + 5 * z.std() / len(z) ** 0.5
        assert abs(z.std() - 1) < 0.05 + 5 * (0.25 * (fourth - 1) / len(z)) ** 0.5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")  # the Gaussian is meant to be far off
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_nearer_to_a_skewed_posterior_than_any_gaussian(seed: int) -> None:
    target = skewed()
    y = target.data[0]
    shape, rate = 1.5 + y.sum(), torch.tensor(0.5 + len(y))
    log_evidence = 1.5 * math.log(0.5) - math.lgamma(1.5) + shape.lgamma() - shape * rate.log() - (y + 1).lgamma().sum()
    gaussian, flow = (fit(target.model, method, *target.data, seed=seed) for method in (FullRankVI(), FlowVI()))
    (before, spread), (after, error) = (gap(p, target, float(log_evidence)) for p in (gaussian, flow))
    assert after + 5 * error < before - 5 * spread


def test_interrupted_while_its_gaussian_is_fitted_there_is_no_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fit of the Gaussian swallowed Ctrl-C, and the flow was trained."""

    def interrupted(*args: Any, **settings: Any) -> Any:
        params, info = fit_family(*args, **settings)
        return params, replace(info, complete=False)

    monkeypatch.setattr(flow_vi, "fit_family", interrupted)
    target = linear_gaussian()
    with pytest.raises(KeyboardInterrupt, match="before its flow was trained"):
        fit(target.model, FlowVI(FullRankVI(num_steps=20), num_steps=20), *target.data, progress=False)
