"""Parameters without a prior: learned by SVI, latent by ``flat_priors``, refused by all others."""

from pathlib import Path

import pyro
import pyro.contrib.gp as gp
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer.reparam import LocScaleReparam
from torch import Tensor

import bnnzoo as bz
from bnnzoo.core.model.density import build_density
from bnnzoo.core.program.sites import ModelError

Y = 3.0 + 2.0 * torch.randn(60, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def normal(y: Tensor | None) -> None:
    s = pyro.param("s", torch.tensor(1.0), constraint=dist.constraints.positive)
    mu = pyro.sample("mu", dist.Normal(0.0, 10.0))
    with pyro.plate("rows", 60):
        pyro.sample("y", dist.Normal(mu, s), obs=y)


@pytest.mark.parametrize(
    "method", [bz.NUTS(), bz.MAP(), bz.Laplace(), bz.MeanFieldVI()], ids=lambda m: type(m).__name__
)
def test_other_methods_say_what_to_write(method: object) -> None:
    with pytest.raises(
        ModelError, match=r"learnable parameter 's' .*PyroSample.*SVI\(\) learns.*models\.flat_priors\(model\)"
    ):
        bz.fit(normal, method, Y, progress=False)


def test_parameters_of_a_reparametrisation_are_refused_with_its_own_words() -> None:
    def model(y: Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(0.0, 10.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(pyro.sample("u", dist.Normal(mu, 1.0)), 1.0), obs=y)

    centred = poutine.reparam(model, config={"u": LocScaleReparam()})
    with pytest.raises(
        ModelError, match=r"'u_centered' of a reparametrisation\. Write LocScaleReparam\(centered=0\.0\)"
    ):
        bz.fit(centred, bz.NUTS(), Y, progress=False)


def test_svi_learns_keeps_and_loads_a_parameter(tmp_path: Path) -> None:
    found = bz.fit(normal, bz.SVI(num_steps=1500, learning_rate=0.05), Y, progress=False)
    learned = found.density.model.values["s"]
    assert abs(float(learned) - float(Y.std(correction=0))) < 0.15
    assert not pyro.get_param_store().keys()
    tree = bz.posterior_predictive(found, Y, num_draws=200)
    assert abs(float(tree["posterior_predictive"]["y"].std()) - float(learned)) < 0.15
    found.save(tmp_path / "svi.bnn")
    loaded = bz.load(tmp_path / "svi.bnn", normal, Y)
    assert torch.equal(loaded.density.model.values["s"], learned)
    assert torch.equal(loaded.draws(5, seed=1), found.draws(5, seed=1))


def test_a_flat_prior_gives_the_maximum_of_the_likelihood() -> None:
    found = bz.fit(bz.models.flat_priors(normal), bz.MAP(), Y, progress=False)
    values = found.density.constrain(found.draws()[0, 0])
    torch.testing.assert_close(values["s"], Y.std(correction=0), rtol=1e-2, atol=0.0)


def test_a_gaussian_process_of_pyro_is_fitted_by_its_marginal_likelihood() -> None:
    x = torch.linspace(0, 1, 12)
    y = torch.sin(6 * x)
    model = gp.models.GPRegression(x, y, gp.kernels.RBF(1), noise=torch.tensor(0.1)).model
    density = build_density(bz.models.flat_priors(model))
    assert [site.name for site in density.sites] == ["kernel.lengthscale", "kernel.variance", "noise"]
    values = density.constrain(torch.zeros(3))
    gram = values["kernel.variance"] * (-0.5 * ((x[:, None] - x) / values["kernel.lengthscale"]) ** 2).exp()
    covariance = gram + (values["noise"] + 1e-6) * torch.eye(12)
    expected = dist.MultivariateNormal(torch.zeros(12), covariance).log_prob(y)
    torch.testing.assert_close(density.log_likelihood(torch.zeros(3)).sum(), expected)


def test_weights_of_a_registered_network_are_those_of_the_posterior() -> None:
    net = torch.nn.Linear(1, 1)

    def model(x: Tensor, y: Tensor | None = None) -> None:
        pyro.module("net", net)
        s = pyro.sample("s", dist.HalfNormal(1.0))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal(net(x).squeeze(-1), s), obs=y)

    x = torch.linspace(-1, 1, 20)[:, None]
    found = bz.fit(model, bz.SVI(num_steps=200), x, 2 * x[:, 0], progress=False)
    before = bz.predict(found, x, num_draws=5)["conditional"]["mean"]
    torch.nn.init.zeros_(net.weight)
    after = bz.predict(found, x, num_draws=5)["conditional"]["mean"]
    assert float(abs(before - after).max()) == 0.0
    with pytest.raises(
        ModelError, match=r"'weight' of the network that pyro\.module\('net', \.\.\.\).*random_module.*SVI\(\)"
    ):
        bz.fit(model, bz.NUTS(), x, 2 * x[:, 0], progress=False)
    with pytest.raises(ModelError, match=r"'weight' belongs to the module 'net'.*random_module\('net', net, prior\)"):
        bz.fit(bz.models.flat_priors(model), bz.MAP(), x, 2 * x[:, 0], progress=False)
