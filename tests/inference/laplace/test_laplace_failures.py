"""Models that Laplace approximations must work on, or refuse with a sentence that names the site."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer.reparam import LocScaleReparam
from torch.autograd.functional import hessian

from bnnzoo.core.model.density import build_density
from bnnzoo.core.program.sites import ModelError
from bnnzoo.inference import MAP, KFACLaplace, Laplace, LastLayerLaplace, fit
from bnnzoo.inference.laplace.curvature import precision
from bnnzoo.models import likelihoods, mlp, priors, supervised

SHORT = MAP(num_steps=20, polish_steps=20)
X = torch.randn(20, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LEVELS = (X[:, 0] > 0).long() + (X[:, 1] > 0).long()


def ordered(x, y=None):
    slope = pyro.sample("slope", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.OrderedLogistic(x @ slope, torch.tensor([-1.0, 1.0])), obs=y)


@pytest.mark.filterwarnings("ignore:The model could not be traced")
def test_ordered_logistic_has_the_fisher_information_of_its_classes() -> None:
    density = build_density(ordered, X, LEVELS)
    theta = torch.tensor([0.3, -0.4])
    probs = density.conditional(theta, X)["probs"]
    expected = torch.eye(2)
    for level in range(3):
        scores = torch.autograd.functional.jacobian(
            lambda t, k=level: density.log_likelihood(t, X, torch.full((20,), k)), theta
        )
        expected += scores.mT @ (probs[:, level, None] * scores)
    torch.testing.assert_close(precision(density, theta, "ggn"), expected)
    exact = -hessian(lambda t: density.log_joint(t, X, LEVELS), theta)
    torch.testing.assert_close(precision(density, theta, "hessian"), exact)


@pytest.mark.parametrize("method", [KFACLaplace(SHORT), LastLayerLaplace(SHORT)])
def test_reparametrised_weights_are_refused(method) -> None:
    model = supervised(mlp(2, (3,)), priors.normal(1.0), likelihoods.gaussian(scale=0.5))
    moved = pyro.poutine.reparam(model, config={"net.0.weight": LocScaleReparam(0.0)})
    name = type(method).__name__
    with pytest.raises(
        ModelError, match=rf"{name} needs weights that are latent sites.*computes 'net.0.weight'.*Laplace\(\)"
    ):
        fit(moved, method, X, X[:, 0])


def test_mixture_of_normals_as_a_prior() -> None:
    parts = dist.MixtureSameFamily(
        dist.Categorical(torch.tensor([0.5, 0.5])), dist.Normal(torch.tensor([-9.0, 1.0]), 0.5)
    )

    def model(y):
        z = pyro.sample("z", parts)
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(z, 1.0), obs=y)

    posterior = fit(model, Laplace(MAP(init=torch.ones(1, 1))), torch.ones(5))
    # of the far component nothing is left at 1: a normal prior with precision 4
    torch.testing.assert_close(posterior.covariance.diagonal(), torch.tensor([1 / 9.0]))


def test_latent_site_of_unknown_support_is_named() -> None:
    class Strange(dist.constraints.Constraint):
        pass

    class Odd(dist.Normal):
        support = Strange()

    def model(y):
        pyro.sample("odd", Odd(0.0, 1.0))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(0.0, 1.0), obs=y)

    with pytest.raises(ModelError, match=r"support of latent site 'odd' \(Strange of Odd\) has no known transform"):
        build_density(model, torch.zeros(3))
