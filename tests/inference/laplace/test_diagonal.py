"""Diagonal Laplace against the diagonal of the dense precision."""

import pyro
import pyro.distributions as dist
import pytest
import torch

from bnnzoo.inference import MAP, DiagonalLaplace, Laplace, fit, log_marginal_likelihood
from bnnzoo.inference.laplace.family import LaplaceError
from bnnzoo.testing.targets import linear_gaussian
from tests.helpers.densities import cases

SHORT = MAP(num_steps=300)


@pytest.mark.parametrize(
    "name", ["categorical", *(pytest.param(name, marks=pytest.mark.slow) for name in ("hierarchical", "poisson"))]
)
def test_diagonal_is_that_of_the_dense_precision(name: str) -> None:
    model, data = cases()[name]
    start = fit(model, SHORT, *data).theta[0]
    fixed = MAP(init=start, num_steps=1, learning_rate=1e-12, polish_steps=0)
    dense = fit(model, Laplace(fixed, curvature="ggn"), *data)
    diagonal = fit(model, DiagonalLaplace(fixed), *data)
    precision = torch.linalg.inv(dense.covariance.dense())
    torch.testing.assert_close(diagonal.covariance.scale**-2, precision.diagonal(), rtol=1e-6, atol=1e-6)


def test_exact_where_parameters_are_independent() -> None:
    target = linear_gaussian(correlation=0.0)
    posterior = fit(target.model, DiagonalLaplace(), *target.data)
    torch.testing.assert_close(posterior.loc, target.mean["w"], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(posterior.covariance.scale, target.mean_field_sd(), rtol=1e-6, atol=1e-6)


def test_damping_is_added_to_each_precision() -> None:
    target = linear_gaussian()
    plain, damped = (fit(target.model, DiagonalLaplace(SHORT, damping=d), *target.data) for d in (0.0, 2.5))
    torch.testing.assert_close(damped.covariance.scale**-2, plain.covariance.scale**-2 + 2.5)
    assert log_marginal_likelihood(damped) < log_marginal_likelihood(plain)


def test_precision_that_is_not_positive_names_the_damping() -> None:
    def model(y):
        a = pyro.sample("a", dist.StudentT(1.0, 0.0, 0.1))  # convex in its tails
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(a, 10.0), obs=y)

    there = MAP(init=torch.ones(1, 1), num_steps=0, polish_steps=0)
    with pytest.raises(LaplaceError, match=r"diagonal precision at the mode is not positive.*add damping="):
        fit(model, DiagonalLaplace(there), torch.ones(3))


def test_a_precision_of_zero_names_a_damping_that_is_not() -> None:
    def model(y):
        a = pyro.sample("a", dist.Normal(0.0, 1.0))
        pyro.sample("flat", dist.Laplace(0.0, 1.0))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(a, 1.0), obs=y)

    there = MAP(init=torch.ones(1, 2), num_steps=0, polish_steps=0)
    with pytest.raises(LaplaceError, match=r"its smallest entry is -?0\. Give .*, or add damping=1e-06\."):
        fit(model, DiagonalLaplace(there), torch.ones(3))


def test_refuses_the_exact_hessian() -> None:
    target = linear_gaussian()
    method = DiagonalLaplace()
    object.__setattr__(method, "curvature", "hessian")  # past the annotation, which tests check
    with pytest.raises(
        ValueError, match=r"DiagonalLaplace\(curvature='hessian'\): write 'ggn' or 'empirical_fisher' or a"
    ):
        fit(target.model, method, *target.data)
