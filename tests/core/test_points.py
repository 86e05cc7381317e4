"""Point masses in a model: functions of other sites, with a density of their own or without, and data that have none."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer.autoguide import AutoIAFNormal
from pyro.infer.reparam import LocScaleReparam, NeuTraReparam, SplitReparam
from torch import Tensor

import bnnzoo as bz
from bnnzoo.core.model.density import build_density
from bnnzoo.core.model.prior_terms import log_jacobian, prior_terms
from bnnzoo.core.program.sites import ModelError
from tests.helpers.pyro_density import pyro_log_joint

Y = torch.linspace(-1.0, 1.0, 7, dtype=torch.float64)


def vector(y: Tensor) -> None:
    w = pyro.sample("w", dist.Normal(0.0, 0.1).expand([4]).to_event(1))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(w.sum(), 1.0), obs=y)


def by_density(y: Tensor) -> None:
    m = pyro.sample("m", dist.Normal(0.0, 1.0))
    pyro.sample("t", dist.Delta(m, log_density=-50 * m**2), obs=m)
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(m, 1.0), obs=y)


def in_a_plate(y: Tensor) -> None:
    with pyro.plate("groups", 3):
        m = pyro.sample("m", dist.Normal(0.0, 1.0))
        with poutine.scale(scale=2.0), poutine.mask(mask=torch.tensor([True, False, True])):
            pyro.sample("t", dist.Delta(m, log_density=-(m**4)), obs=m)
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(m.sum(), 1.0), obs=y)


def neutra() -> object:
    guide = AutoIAFNormal(vector, hidden_dim=[8])
    with torch.random.fork_rng(), pyro.get_param_store().scope():
        torch.manual_seed(0)
        guide(Y)
    return NeuTraReparam(guide.requires_grad_(False)).reparam(vector)


MODELS = {
    "density": by_density,
    "plate": in_a_plate,
    "split": poutine.reparam(vector, config={"w": SplitReparam([2, 2], -1)}),
    "centred": poutine.reparam(vector, config={"w": LocScaleReparam(0.0)}),
    "neutra": neutra,
}


@pytest.mark.parametrize("name", MODELS)
def test_density_of_a_point_counts_as_in_pyro(name: str) -> None:
    model = MODELS[name]() if name == "neutra" else MODELS[name]
    density = build_density(model, Y)
    for seed in range(3):
        theta = torch.randn(density.num_params, generator=torch.Generator().manual_seed(seed))
        expected = pyro_log_joint(density, theta)
        assert density.log_joint(theta, *density.data).item() == pytest.approx(expected.item(), rel=1e-10)
        terms = sum(prior_terms(density, theta).values()) + log_jacobian(density, theta)
        assert density.log_prior(theta).item() == pytest.approx(float(terms), rel=1e-10)


def test_prior_that_a_reparametrisation_keeps_in_a_point_is_sampled() -> None:
    posterior = bz.fit(by_density, bz.Laplace(), Y + 1.0, progress=False)
    precision = 1.0 + 100.0 + len(Y)
    assert posterior.loc.item() == pytest.approx(float(len(Y)) / precision, rel=1e-6)
    assert posterior.covariance.dense().item() == pytest.approx(1 / precision, rel=1e-6)


def test_data_under_a_point_mass_are_refused() -> None:
    def model(y: Tensor) -> None:
        m = pyro.sample("m", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Delta(m), obs=y)

    with pytest.raises(ModelError, match=r"Site 'y' observes data under a point mass \(Delta\) that lies elsewhere"):
        build_density(model, Y)
