"""Any Pyro guide: classes, objects and functions, and nothing of it left in the global parameter store."""

import json

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer import ELBO, Predictive, RenyiELBO, TraceMeanField_ELBO, TraceTailAdaptive_ELBO
from pyro.infer.autoguide import AutoDiagonalNormal, AutoGuideList, AutoIAFNormal, AutoMultivariateNormal, AutoNormal
from torch import Tensor

from bnnzoo.core.program.sites import ModelError
from bnnzoo.inference import SVI, fit
from bnnzoo.predictive import posterior_predictive
from bnnzoo.testing import check_moments
from bnnzoo.testing.isolation import leaves_no_trace
from bnnzoo.testing.targets import linear_gaussian
from tests.helpers.densities import cases

TARGET = linear_gaussian()


def own_guide(x: Tensor, y: Tensor | None = None) -> None:
    loc = pyro.param("loc", torch.zeros(3))
    scale = pyro.param("scale", 0.1 * torch.ones(3), constraint=dist.constraints.positive)
    pyro.sample("w", dist.Normal(loc, scale).to_event(1))


@pytest.mark.slow
def test_full_rank_guide_recovers_the_posterior() -> None:
    posterior = fit(TARGET.model, SVI(AutoMultivariateNormal, num_steps=1500), *TARGET.data)
    draws = posterior.draws(2000)[0]
    assert ((draws.mean(0) - TARGET.mean["w"]).abs() < 0.2 * TARGET.sd["w"]).all()
    assert ((draws.std(0) / TARGET.sd["w"] - 1).abs() < 0.15).all()
    exact = torch.distributions.MultivariateNormal(TARGET.mean["w"], TARGET.covariance)
    torch.testing.assert_close(posterior.log_prob(draws[:5]), exact.log_prob(draws[:5]), rtol=0, atol=1.0)
    assert posterior.info.fit_stats["elbo"].shape == (1, 1500)


@pytest.mark.parametrize("batch_size", [None, 10])
def test_guide_written_by_hand(batch_size: int | None) -> None:
    posterior = fit(TARGET.model, SVI(own_guide, num_steps=1000, batch_size=batch_size), *TARGET.data)
    draws = posterior.draws(1000)[0]
    assert ((draws.mean(0) - TARGET.mean["w"]).abs() < 0.4 * TARGET.sd["w"]).all()
    assert ((draws.std(0) / TARGET.mean_field_sd() - 1).abs() < 0.25).all()  # unscaled: twice
    normal = torch.distributions.Normal(draws.mean(0), draws.std(0))
    assert (posterior.log_prob(draws[:5]) - normal.log_prob(draws[:5]).sum(-1)).abs().max() < 0.5
    assert posterior.info.config["guide"] == "own_guide"


@pytest.mark.parametrize("guide", [AutoNormal, AutoIAFNormal])
def test_every_kind_of_model_and_guide_gives_a_tree(guide: type) -> None:
    model, data = cases()["hierarchical"]
    posterior = fit(model, SVI(guide, num_steps=20), *data)
    tree = posterior_predictive(posterior, *data, num_draws=7)
    assert dict(tree["posterior"].sizes)["draw"] == 7
    assert ("log_q" in tree["sample_stats"]) == (guide is AutoIAFNormal)
    drawn = Predictive(model, guide=posterior.as_guide(), num_samples=3, parallel=False)(*data)
    assert drawn["slope"].shape[0] == 3


def test_log_prob_is_over_unconstrained_space() -> None:
    model, data = cases()["hierarchical"]
    posterior = fit(model, SVI(AutoDiagonalNormal, num_steps=5), *data)
    theta = posterior.draws(3)[0]
    normal = torch.distributions.Normal(posterior.guide.loc.detach(), posterior.guide.scale.detach())
    torch.testing.assert_close(posterior.log_prob(theta), normal.log_prob(theta).sum(-1))

    def by_hand(x: Tensor, y: Tensor | None = None) -> None:
        pyro.sample("w", dist.Normal(torch.zeros(3), 1.0).to_event(1))
        pyro.sample("s", dist.LogNormal(0.5, 2.0))

    def model_of_it(x: Tensor, y: Tensor | None = None) -> None:
        w, s = pyro.sample("w", dist.Normal(torch.zeros(3), 1.0).to_event(1)), pyro.sample("s", dist.HalfNormal(1.0))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(x @ w, s), obs=y)

    found = fit(model_of_it, SVI(by_hand, num_steps=1), *TARGET.data)
    theta = torch.tensor([0.1, 0.2, 0.3, 0.4])
    expected = (
        torch.distributions.Normal(torch.tensor([0.0, 0, 0, 0.5]), torch.tensor([1.0, 1, 1, 2])).log_prob(theta).sum()
    )
    torch.testing.assert_close(found.log_prob(theta), expected)


def test_other_bounds_and_optimisers() -> None:
    method = SVI(own_guide, RenyiELBO(alpha=0.5, num_particles=2), pyro.optim.Adam({"lr": 0.05}), num_steps=20)
    posterior = fit(TARGET.model, method, *TARGET.data)
    assert posterior.info.num_gradients == 40
    assert posterior.info.config["elbo"] == "RenyiELBO"


def test_isolated_and_reproducible() -> None:
    pyro.param("loc", torch.full((3,), 17.0))  # of the user's own, under the guide's name
    with leaves_no_trace("SVI"):
        first = fit(TARGET.model, SVI(own_guide, num_steps=20), *TARGET.data, seed=3)
        draws = first.draws(5)
    assert draws.abs().max() < 5
    assert torch.equal(draws, fit(TARGET.model, SVI(own_guide, num_steps=20), *TARGET.data, seed=3).draws(5))
    assert not torch.equal(draws, fit(TARGET.model, SVI(own_guide, num_steps=20), *TARGET.data, seed=4).draws(5))
    json.dumps(dict(first.info.config))


def test_guide_object_is_copied() -> None:
    guide = AutoNormal(TARGET.model)
    fit(TARGET.model, SVI(guide, num_steps=3), *TARGET.data)
    assert not list(guide.parameters())


def test_lists_of_guides_are_copied_with_what_their_parts_know() -> None:
    def model(y: Tensor) -> None:
        loc, scale = pyro.sample("loc", dist.Normal(0.0, 1.0)), pyro.sample("scale", dist.LogNormal(0.0, 1.0))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(loc, scale), obs=y)

    guide = AutoGuideList(model)
    for name in ("loc", "scale"):
        guide.append(AutoNormal(poutine.block(model, expose=[name])))
    posterior = fit(model, SVI(guide, num_steps=3), torch.randn(5))
    assert posterior.draws(4).shape == (1, 4, 2)
    assert not list(guide.parameters())
    guide(torch.randn(5))  # still whole


def test_refuses_a_guide_that_leaves_sites_out() -> None:
    with pytest.raises(ModelError, match="The guide has no site 'w', which the model samples"):
        fit(TARGET.model, SVI(lambda *data: None), *TARGET.data)
    with pytest.raises(ValueError, match=r"SVI\(num_steps=0\): write 1 or more"):
        fit(TARGET.model, SVI(num_steps=0), *TARGET.data)


@pytest.mark.slow
@pytest.mark.parametrize(
    "bound",
    [
        TraceMeanField_ELBO(),
        RenyiELBO(alpha=0.5, num_particles=4),
        TraceTailAdaptive_ELBO(num_particles=16, vectorize_particles=True, max_plate_nesting=1),
    ],
    ids=lambda bound: type(bound).__name__,
)
def test_every_bound_of_pyro_finds_a_posterior_its_guide_can_be(bound: ELBO) -> None:
    target = linear_gaussian(correlation=0.0)

    def model(x: Tensor, y: Tensor | None = None) -> None:  # sums over the last axis, so that Pyro can batch particles
        w = pyro.sample("w", dist.Normal(torch.zeros(3), 1.0).to_event(1))
        with pyro.plate("data", len(x), dim=-1):
            pyro.sample("y", dist.Normal((x * w).sum(-1), 0.5), obs=y)

    falling = pyro.optim.ClippedAdam({"lr": 0.1, "lrd": 0.01 ** (1 / 800)})
    posterior = fit(model, SVI(AutoDiagonalNormal, bound, falling, num_steps=800), *target.data)
    assert posterior.info.config["elbo"] == type(bound).__name__
    # the noise of Adam's last steps: up to 0.17 sds and 9% over four seeds
    draws = posterior.draws(4000)[0].numpy()[None]
    check_moments("w", draws, target.mean["w"].numpy(), target.sd["w"].numpy(), accuracy=0.2)


def test_a_point_without_a_density_ends_in_a_sentence() -> None:
    def model(y: Tensor) -> None:
        z = pyro.sample("z", dist.Normal(torch.zeros(3), 2.0).to_event(1))
        factor = torch.linalg.cholesky(torch.eye(3) + z.diag())
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(factor[0, 0], 1.0), obs=y)

    with pytest.raises(
        FloatingPointError,
        match=r"cannot be evaluated at values that SVI tried \(.*not positive-definite.*\), which Pyro's steps cannot take back. "
        r"Use MeanFieldVI\(\) or FullRankVI\(\)",
    ):
        fit(model, SVI(num_steps=200), torch.zeros(5))
