"""Distributions read from what they declare, against closed forms, their own log densities, and Monte Carlo."""

from typing import Any

import pyro.distributions as dist
import pytest
import torch
from torch import Tensor
from torch.func import grad_and_value, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from bnnzoo.core.likelihood import general_readout
from bnnzoo.core.likelihood.general_readout import UnreadableLikelihood, general_read
from bnnzoo.core.likelihood.readout import read
from bnnzoo.core.model.density import build_density
from bnnzoo.core.model.outputs import linearized
from tests.helpers.densities import cases
from tests.helpers.likelihoods import LIKELIHOODS, split

GENERATOR = torch.Generator().manual_seed(0)


def real(*shape: int) -> Tensor:
    return torch.randn(shape, generator=GENERATOR)


def positive(*shape: int) -> Tensor:
    return torch.rand(shape, generator=GENERATOR) + 0.5


def share(*shape: int) -> Tensor:
    return 0.1 + 0.8 * torch.rand(shape, generator=GENERATOR)


TRIL = torch.linalg.cholesky(torch.eye(3) + 0.3).expand(4, 3, 3)
EXP, AFFINE = dist.transforms.ExpTransform(), dist.transforms.AffineTransform
FAMILIES = {
    "beta": dist.Beta(positive(4), positive(4)),
    "gamma": dist.Gamma(positive(4), positive(4)),
    "inverse gamma": dist.InverseGamma(positive(4) + 2, positive(4)),
    "negative binomial": dist.NegativeBinomial(5 * positive(4), logits=real(4)),
    "negative binomial by probs": dist.NegativeBinomial(5 * positive(4), probs=share(4)),
    "gamma poisson": dist.GammaPoisson(positive(4), positive(4)),
    "beta binomial": dist.BetaBinomial(positive(4), positive(4), total_count=5),
    "multinomial": dist.Multinomial(5, logits=real(4, 3)),
    "one-hot categorical": dist.OneHotCategorical(logits=real(4, 3)),
    "geometric": dist.Geometric(logits=real(4)),
    "dirichlet": dist.Dirichlet(positive(4, 3)),
    "von Mises": dist.VonMises(real(4), positive(4)),
    "weibull": dist.Weibull(positive(4), positive(4)),
    "gumbel": dist.Gumbel(real(4), positive(4)),
    "half normal": dist.HalfNormal(positive(4)),
    "cauchy": dist.Cauchy(real(4), positive(4)),
    "normal vector": dist.MultivariateNormal(real(4, 3), scale_tril=TRIL),
    "normal vector by covariance": dist.MultivariateNormal(real(4, 3), TRIL @ TRIL.mT),
    "low-rank normal vector": dist.LowRankMultivariateNormal(real(4, 3), real(4, 3, 1), positive(4, 3)),
    "Student vector": dist.MultivariateStudentT(5.0, real(4, 3), TRIL),
    "zero-inflated poisson": dist.ZeroInflatedPoisson(3 * positive(4), gate=share(4)),
    "zero-inflated negative binomial": dist.ZeroInflatedNegativeBinomial(
        positive(4), logits=real(4), gate_logits=real(4)
    ),
    "zero-inflated other": dist.ZeroInflatedDistribution(dist.Geometric(share(4)), gate=share(4)),
    "mixture": dist.MixtureSameFamily(dist.Categorical(logits=real(4, 2)), dist.Normal(real(4, 2), positive(4, 2))),
    "mixture of vectors": dist.MixtureSameFamily(
        dist.Categorical(share(4, 2)), dist.Normal(real(4, 2, 3), positive(4, 2, 3)).to_event(1)
    ),
    "masked mixture": dist.MaskedMixture(
        torch.tensor([True, False, True, False]),
        dist.Normal(real(4), positive(4)),
        dist.Gamma(positive(4), positive(4)),
    ),
    "transformed": dist.TransformedDistribution(dist.Normal(real(4), positive(4)), [EXP]),
    "location and scale": dist.TransformedDistribution(
        dist.Normal(torch.zeros(4), 1.0), [AFFINE(real(4), -positive(4))]
    ),
    "folded": dist.FoldedDistribution(dist.Normal(real(4), positive(4))),
    "events and masks": dist.Beta(positive(4, 3), positive(4, 3))
    .to_event(1)
    .mask(torch.tensor([True, False, True, True])),
    "expanded": dist.Beta(positive(1), positive(1)).expand([4]),
}


def without_checks(distribution: Any) -> Any:
    """Return a distribution as replay leaves it, without argument checks."""
    distribution._validate_args = False
    return distribution


@pytest.mark.parametrize("name", FAMILIES)
def test_rebuilt_distributions_have_the_same_density(name: str) -> None:
    distribution = without_checks(FAMILIES[name])
    found = read(distribution)
    rebuilt = found.build(found.coordinates)
    y = distribution.sample()
    assert type(rebuilt) is type(distribution)
    torch.testing.assert_close(rebuilt.log_prob(y), distribution.log_prob(y))
    assert not found.closed_form
    for root, block in zip(found.roots, found.coordinates, strict=True):
        assert root.shape == (*block.shape, block.shape[-1]) and bool(root.isfinite().all())


CLOSED = {
    "normal": dist.Normal(real(3), positive(3)),
    "lognormal": dist.LogNormal(real(3), positive(3)),
    "laplace": dist.Laplace(real(3), positive(3)),
    "bernoulli": dist.Bernoulli(logits=real(3)),
    "binomial": dist.Binomial(5, logits=real(3)),
    "categorical": dist.Categorical(logits=real(3, 4)),
    "poisson": dist.Poisson(2 * positive(3)),
    "exponential": dist.Exponential(positive(3)),
}


def fisher(roots: tuple[Tensor, ...]) -> Tensor:
    """Return the whole Fisher information ``[B, d, d]`` for the roots of its blocks."""
    return torch.stack([torch.block_diag(*(root[i] @ root[i].mT for root in roots)) for i in range(len(roots[0]))])


@pytest.mark.parametrize("name", ["bernoulli", "binomial", "categorical"])
def test_fisher_information_by_enumeration_is_the_closed_form(name: str) -> None:
    distribution = CLOSED[name]
    general = general_read(distribution, read)
    torch.testing.assert_close(fisher(general.roots), fisher(read(distribution).roots), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", ["normal", "lognormal", "laplace", "poisson", "exponential"])
def test_fisher_information_by_draws_tends_to_the_closed_form(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution = CLOSED[name]
    exact = read(distribution)
    z = torch.cat(exact.coordinates, -1)
    num_draws = 20_000
    monkeypatch.setattr(general_readout, "NUM_DRAWS", num_draws)
    general = general_read(distribution, read)
    torch.testing.assert_close(general.coordinates[0], z)
    scores = general_readout._scores(z, distribution.sample((num_draws,)), general.build)
    products = scores[..., :, None] * scores[..., None, :]
    error = products.std(0) / num_draws**0.5  # of one standard error
    assert ((fisher(general.roots) - fisher(exact.roots)).abs() <= 5 * error + 1e-12).all()


def test_draws_of_a_fisher_information_leave_the_random_stream_alone() -> None:
    state = torch.get_rng_state()
    first, second = (read(FAMILIES["mixture"]).roots[0] for _ in range(2))
    assert torch.equal(first, second) and torch.equal(torch.get_rng_state(), state)


@pytest.mark.filterwarnings("ignore:The model could not be traced")
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_linearised_likelihood_touches_the_models_at_the_anchor(name: str) -> None:
    data, _ = split(name)
    density = build_density(LIKELIHOODS[name], *data)
    theta = 0.3 * torch.randn(density.num_params)
    line = linearized(density, theta)
    found, exact = (grad_and_value(lambda t, d=d: d.log_likelihood(t, *data).sum())(theta) for d in (line, density))
    torch.testing.assert_close(found, exact)


@pytest.mark.parametrize("name", ["mixture_density_network", "two_outputs", "zero_inflated_poisson", "beta"])
def test_linearised_likelihood_can_be_batched_over_draws(name: str) -> None:
    data, _ = split(name)
    density = build_density(LIKELIHOODS[name], *data)
    theta = 0.3 * torch.randn(3, density.num_params)
    line = linearized(density, theta[0])
    alone = torch.stack([line.log_likelihood(t, *data) for t in theta])
    torch.testing.assert_close(vmap(lambda t: line.log_likelihood(t, *data))(theta), alone)
    traced = make_fx(lambda t: line.log_likelihood(t, *data))(theta[1])
    torch.testing.assert_close(traced(theta[2]), alone[2])


def test_readable_families_keep_their_closed_forms() -> None:
    for name in ("categorical", "poisson", "heteroscedastic", "ordered"):
        model, data = cases()[name]
        density = build_density(model, *data)
        assert read(density.nodes(torch.zeros(density.num_params), *data)["obs"]["fn"]).closed_form


class Forgetful(dist.TorchDistribution):
    """A normal distribution that does not keep its location."""

    arg_constraints = {"scale": dist.constraints.positive}
    support = dist.constraints.real

    def __init__(self, where: Tensor, scale: Tensor) -> None:
        self.scale, self.inner = scale, dist.Normal(where, scale)
        super().__init__(scale.shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return self.inner.log_prob(value)


def test_refusals() -> None:
    with pytest.raises(UnreadableLikelihood, match=r"Forgetful does not keep the argument 'where' of its constructor"):
        read(Forgetful(torch.zeros(3), torch.ones(3)))
    with pytest.raises(UnreadableLikelihood, match=r"TruncatedPolyaGamma declares no continuous parameters"):
        read(dist.TruncatedPolyaGamma(torch.ones(1)))


def test_a_hidden_markov_model_without_a_duration_is_said_to_be_unreadable() -> None:
    hidden = dist.DiscreteHMM(torch.zeros(2), torch.eye(2), dist.Normal(torch.tensor([-1.0, 1.0]), 1.0))
    with pytest.raises(UnreadableLikelihood, match=r"DiscreteHMM cannot be drawn from, so its Fisher information"):
        _ = general_read(hidden, read).roots
