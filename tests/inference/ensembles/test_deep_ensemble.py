"""Deep ensembles: members against single fits, closed forms and the exact posterior."""

import json

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from torch import Tensor

import bnnzoo as bz
from bnnzoo.core.fit_warnings import DegenerateWeightsWarning
from bnnzoo.core.model.density import build_density
from bnnzoo.inference import FGSM, MAP, DeepEnsemble, fit
from bnnzoo.inference.ensembles.anchors import anchors
from bnnzoo.inference.ensembles.held_out import log_density_of_rows, split_rows
from bnnzoo.inference.ensembles.weighted_members import WeightedMembers
from bnnzoo.inference.optimise.batches import Bootstrap
from bnnzoo.inference.optimise.streams import MemberStreams
from bnnzoo.testing import linear_gaussian
from bnnzoo.testing.isolation import leaves_no_trace
from tests.helpers.densities import cases
from tests.helpers.executors import InProcess

TARGET = linear_gaussian()
X, Y = TARGET.data
CONVERGED = {"num_steps": 1500, "learning_rate": 0.05}


def test_an_ensemble_of_one_is_the_model() -> None:
    one = fit(TARGET.model, DeepEnsemble(1, num_steps=60, learning_rate=0.03), *TARGET.data, seed=4)
    alone = fit(TARGET.model, MAP(num_steps=60, polish_steps=0), *TARGET.data, seed=4)
    assert torch.equal(one.theta, alone.theta)
    assert torch.equal(one.info.sample_stats["lp"], alone.info.sample_stats["lp"])


def test_members_are_trained_in_one_batch_as_they_would_be_alone() -> None:
    start = torch.randn(3, 3, generator=torch.Generator().manual_seed(5))
    together = fit(TARGET.model, DeepEnsemble(3, num_steps=40, init=start), *TARGET.data)
    for i, row in enumerate(start):
        alone = fit(TARGET.model, DeepEnsemble(1, num_steps=40, init=row[None]), *TARGET.data)
        torch.testing.assert_close(together.theta[0, i], alone.theta[0, 0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"batch_size": 9, "bootstrap": True, "adversarial": FGSM()},
        {"batch_size": 9, "anchored": True},
        {"adversarial": bz.inference.VirtualAdversarial()},
    ],
)
def test_members_on_an_executor_are_those_of_one_batch(settings) -> None:
    executor, method = InProcess(), DeepEnsemble(num_members=3, num_steps=30, **settings)
    together = fit(TARGET.model, method, *TARGET.data, seed=5)
    apart = fit(TARGET.model, method, *TARGET.data, seed=5, executor=executor)
    assert executor.num_tasks == 3
    torch.testing.assert_close(apart.theta, together.theta, rtol=1e-9, atol=1e-10)


def test_members_that_stop_together_are_not_spread() -> None:
    executor, method = InProcess(), DeepEnsemble(num_members=3, num_steps=30, held_out=0.2)
    fit(TARGET.model, method, *TARGET.data, executor=executor)
    assert executor.num_tasks == 0


def test_each_member_sees_the_rows_in_an_order_of_its_own() -> None:
    start = torch.zeros(2, 3)
    posterior = fit(TARGET.model, DeepEnsemble(2, num_steps=5, batch_size=4, init=start), *TARGET.data)
    assert not torch.equal(posterior.theta[0, 0], posterior.theta[0, 1])
    whole = fit(TARGET.model, DeepEnsemble(2, num_steps=5, init=start), *TARGET.data)
    torch.testing.assert_close(whole.theta[0, 0], whole.theta[0, 1], rtol=1e-12, atol=1e-12)


def test_bootstrapped_members_find_the_modes_of_their_resamples() -> None:
    posterior = fit(TARGET.model, DeepEnsemble(3, bootstrap=True, **CONVERGED), *TARGET.data, seed=2)
    weights = Bootstrap().row_weights(len(X), MemberStreams(2, range(3)))
    for member, counts in zip(posterior.theta[0], weights, strict=True):
        precision = X.mT @ (counts[:, None] * X) / TARGET.noise**2 + torch.eye(3)
        mode = torch.linalg.solve(precision, X.mT @ (counts * Y) / TARGET.noise**2)
        torch.testing.assert_close(member, mode, rtol=0, atol=1e-3)


def test_anchored_members_find_the_modes_of_their_perturbed_problems() -> None:
    posterior = fit(TARGET.model, DeepEnsemble(3, anchored=True, **CONVERGED), *TARGET.data, seed=2)
    drawn = anchors(build_density(TARGET.model, *TARGET.data), MemberStreams(2, range(3)))
    (noise,) = drawn.noise
    for member, anchor, epsilon in zip(posterior.theta[0], drawn.shift, noise, strict=True):
        mode = TARGET.covariance @ (X.mT @ (Y + TARGET.noise * epsilon) / TARGET.noise**2 + anchor)
        torch.testing.assert_close(member, mode, rtol=0, atol=1e-3)


@pytest.mark.slow
def test_anchored_members_are_draws_from_the_posterior_of_a_linear_gaussian_model() -> None:
    size = 2000
    posterior = fit(TARGET.model, DeepEnsemble(size, anchored=True, num_steps=600, learning_rate=0.05), *TARGET.data)
    found, exact = posterior.theta[0], TARGET.covariance
    mean_error = (found.mean(0) - TARGET.mean["w"]) / (TARGET.sd["w"] / size**0.5)
    assert bool((mean_error.abs() < 4).all())
    # the standard error of an entry of a Gaussian's sample covariance
    standard_error = ((exact**2 + exact.diagonal()[:, None] * exact.diagonal()) / size).sqrt()
    assert bool(((found.mT.cov() - exact).abs() < 4 * standard_error).all())


@pytest.mark.slow
def test_anchored_mini_batches_have_the_noise_of_their_rows() -> None:
    method = DeepEnsemble(1, anchored=True, batch_size=8, num_steps=4000, learning_rate=0.02)
    posterior = fit(TARGET.model, method, *TARGET.data, seed=2)
    drawn = anchors(build_density(TARGET.model, *TARGET.data), MemberStreams(2, range(1)))
    mode = TARGET.covariance @ (X.mT @ (Y + TARGET.noise * drawn.noise[0][0]) / TARGET.noise**2 + drawn.shift[0])
    assert float(((posterior.theta[0, 0] - mode) / TARGET.sd["w"]).abs().max()) < 0.3


@pytest.mark.filterwarnings(
    "ignore::bnnzoo.core.fit_warnings.TooNarrowWarning"
)  # of the noise scale, which is not anchored
@pytest.mark.parametrize("noise_is_known", [True, False])
def test_anchored_members_by_default_have_the_moments_of_the_posterior(noise_is_known: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 4, generator=generator)
    y = x @ torch.tensor([1.0, -2.0, 0.5, 0.0]) + 0.8 * torch.randn(400, generator=generator)

    def model(x: Tensor, y: Tensor) -> None:
        w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([4]).to_event(1))
        sigma = 0.8 if noise_is_known else pyro.sample("sigma", dist.HalfNormal(1.0))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal(x @ w, sigma), obs=y)

    precision = x.mT @ x / 0.8**2 + torch.eye(4)
    mean, sd = torch.linalg.solve(precision, x.mT @ y / 0.8**2), precision.inverse().diagonal().sqrt()
    size = 200
    posterior = fit(model, DeepEnsemble(size, anchored=True), x, y, progress=False)
    found = posterior.theta[0, :, posterior.density.sites[0].span]
    assert bool(((found.mean(0) - mean) / sd * size**0.5).abs().max() < 4)
    assert bool(((found.std(0) / sd - 1) * (2 * size) ** 0.5).abs().max() < 4)
    if not noise_is_known:
        residual = float((y - x @ mean).std())
        assert 0.97 * residual < float(posterior.theta[0, :, 4].exp().mean()) < 1.05 * residual


def test_anchored_noise_spares_masked_observations_and_counts_tempered_ones_less() -> None:
    def model(x: Tensor, seen: Tensor, y: Tensor) -> None:
        w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        with pyro.plate("rows", len(x)), poutine.scale(scale=0.25), poutine.mask(mask=seen):
            pyro.sample("y", dist.Normal(x @ w, 0.5), obs=y)

    seen = torch.arange(len(X)) % 3 > 0
    posterior = fit(model, DeepEnsemble(3, anchored=True), X, seen, Y, seed=2)
    drawn = anchors(build_density(model, X, seen, Y), MemberStreams(2, range(3)))
    precision = 0.25 * X[seen].mT @ X[seen] / 0.5**2 + torch.eye(3)
    for member, anchor, epsilon in zip(posterior.theta[0], drawn.shift, drawn.noise[0], strict=True):
        pull = X[seen].mT @ (0.25 * Y[seen] / 0.5**2 + 0.5 * epsilon[seen] / 0.5)  # noise of sd 0.5 / sqrt(0.25)
        torch.testing.assert_close(member, torch.linalg.solve(precision, pull + anchor), rtol=1e-6, atol=1e-6)


def test_anchors_of_other_likelihoods_and_sites() -> None:
    model, data = cases()["regression"]
    density = build_density(model, *data)
    drawn = anchors(density, MemberStreams(0, range(2)))
    (sigma,) = (site for site in density.sites if site.name == "sigma")
    assert list(drawn.sites) == [1]
    assert bool((drawn.shift[:, sigma.span] == 0).all())  # its prior is half-normal
    assert int((drawn.shift != 0).sum()) == 2 * (density.num_params - 1)
    for name in ("categorical", "heteroscedastic"):
        model, data = cases()[name]
        posterior = fit(model, DeepEnsemble(2, num_steps=20, batch_size=6, anchored=True), *data)
        assert bool(posterior.theta.isfinite().all())


def test_training_stops_early_and_keeps_what_predicted_held_out_rows_best() -> None:
    net = bz.models.mlp(1, (20,))
    model = bz.models.supervised(net, bz.priors.normal(10.0), bz.likelihoods.gaussian(0.3))
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(24, 1, generator=generator)
    y = x[:, 0] + 0.5 * torch.randn(24, generator=generator)
    settings = {"num_members": 3, "learning_rate": 0.03, "schedule": "constant"}
    stopped = fit(model, DeepEnsemble(num_steps=1500, held_out=0.4, patience=5, **settings), x, y, seed=1)
    num_steps = stopped.info.fit_stats["loss"].shape[1]
    assert num_steps < 1500
    assert num_steps % 20 == 0
    train, held_out = split_rows(build_density(model, x, y), 0.4, seed=1)
    score = log_density_of_rows(held_out)
    last = fit(model, DeepEnsemble(num_steps=num_steps, **settings), *train.data, seed=1)  # the same path to its end
    assert bool((score(stopped.theta[0]).mean(1) > score(last.theta[0]).mean(1)).all())


def test_stacked_members_are_drawn_by_their_weights() -> None:
    method = DeepEnsemble(3, num_steps=40, held_out=0.3, weights="stacking")
    posterior = fit(TARGET.model, method, *TARGET.data)
    assert isinstance(posterior, WeightedMembers)
    torch.testing.assert_close(torch.tensor(posterior.info.config["member_weights"]), posterior.weights)
    members = posterior.members(50)[0]
    assert bool(((members.bincount(minlength=3) - 50 * posterior.weights).abs() < 1).all())
    assert torch.equal(posterior.draws(50)[0], posterior.theta[members])
    tree = bz.predict(posterior, X[:4])
    assert tree["sample_stats"]["member"].sizes == {"chain": 1, "draw": 100}
    assert tree["conditional"]["mean"].sizes["draw"] == 100


def test_stacking_that_leaves_one_member_says_so() -> None:
    start = torch.stack([TARGET.mean["w"], TARGET.mean["w"] + 5.0, TARGET.mean["w"] - 5.0])
    method = DeepEnsemble(3, num_steps=1, learning_rate=1e-6, held_out=0.3, weights="stacking", init=start)
    sentence = r"Stacking gives number 0 of 3 members a weight of 1\.000: .* that member's alone.* larger held_out \(now 0\.3\)"
    with pytest.warns(DegenerateWeightsWarning, match=sentence):
        fit(TARGET.model, method, *TARGET.data)


def test_a_tree_can_be_looked_at_member_by_member() -> None:
    posterior = fit(TARGET.model, DeepEnsemble(3, num_steps=20), *TARGET.data)
    tree = bz.predict(posterior, X[:4])
    mean = torch.from_numpy(tree["conditional"]["mean"].sel(chain=0, draw=2).to_numpy())
    torch.testing.assert_close(mean, X[:4] @ posterior.theta[0, 2])
    assert tree["fit_stats"]["loss"].dims == ("member", "step")


def test_leaves_global_state_alone_and_records_its_settings() -> None:
    method = DeepEnsemble(2, num_steps=10, batch_size=10, adversarial=FGSM(0.02), bootstrap=True)
    with leaves_no_trace("DeepEnsemble"):
        first = fit(TARGET.model, method, *TARGET.data, seed=4)
    assert torch.equal(first.theta, fit(TARGET.model, method, *TARGET.data, seed=4).theta)
    assert not torch.equal(first.theta, fit(TARGET.model, method, *TARGET.data, seed=5).theta)
    assert json.loads(json.dumps(dict(first.info.config)))["adversarial"] == {"class": "FGSM", "epsilon": 0.02}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"num_members": 0}, r"DeepEnsemble\(num_members=0\): write 1 or more"),
        (
            {"batch_size": 41},
            r"DeepEnsemble\(batch_size=41\), but there are only 40 observations to train on: write at most 40",
        ),
        ({"batch_size": 33, "held_out": 0.2}, r"there are only 32 observations to train on"),
        ({"held_out": 1.0}, r"DeepEnsemble\(held_out=1\.0\): write a number from 0 to 1, not 1 itself"),
        (
            {"weights": "stacking"},
            r"chooses weights by how well held-out rows are predicted: write held_out=0\.2 as well",
        ),
    ],
)
def test_refuses_impossible_settings(settings, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        fit(TARGET.model, DeepEnsemble(**settings), *TARGET.data)


@pytest.mark.filterwarnings("ignore:Site 'y' is one observation")
@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"bootstrap": True},
            r"bootstrap=True needs rows, but no argument of the model has one row for each of its 1 obs",
        ),
        ({"held_out": 0.2}, r"held_out=0\.2 needs rows"),
        ({"adversarial": FGSM()}, r"adversarial=FGSM\(\.\.\.\) needs rows"),
    ],
)
def test_refuses_settings_that_need_rows_of_a_model_without_any(settings, sentence: str) -> None:
    def model(y: Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        pyro.sample("y", dist.Normal(mu, 1.0).expand([4]).to_event(1), obs=y)

    with pytest.raises(ValueError, match=sentence):
        fit(model, DeepEnsemble(**settings), torch.arange(4.0))


def test_refuses_anchors_without_a_gaussian_prior() -> None:
    def flat(y: Tensor) -> None:
        rate = pyro.sample("rate", dist.LogNormal(0.0, 1.0))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Poisson(rate), obs=y)

    with pytest.raises(ValueError, match=r"needs a Gaussian prior, but none of the latent sites has one \(rate\)"):
        fit(flat, DeepEnsemble(anchored=True), torch.arange(4.0))
    model, data = cases()["hierarchical"]
    with pytest.raises(ValueError, match=r"the prior of one site depends on another\. Give the prior fixed scales"):
        fit(model, DeepEnsemble(anchored=True), *data)
