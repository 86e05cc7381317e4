"""A posterior is refused in the hands of another model, with its data or without."""

import json
from collections.abc import Callable
from pathlib import Path

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor, nn

import bnnzoo as bz
from bnnzoo.core.model.density import build_density
from bnnzoo.core.posterior.archive import read_archive, write_archive
from bnnzoo.core.reading import fingerprint as module
from bnnzoo.core.reading.fingerprint import VALUES, different_model, fingerprint
from bnnzoo.core.reading.placeholders import density_without_data

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(30, 2, generator=GENERATOR, dtype=torch.float64)
Y = X[:, 0].tanh() + 0.1 * torch.randn(30, generator=GENERATOR, dtype=torch.float64)


def network(activation: Callable[[], nn.Module], scale: float = 1.0, bias: bool = True) -> Callable[..., None]:
    net = nn.Sequential(nn.Linear(2, 8, bias=bias), activation(), nn.Linear(8, 1, bias=bias))
    return bz.models.supervised(net, bz.priors.normal(scale), bz.likelihoods.gaussian(0.5))


def answers(model: Callable, other: Callable, *data: Tensor, dtype: torch.dtype = torch.float64) -> list[str | None]:
    """What is said of another model with the data, and without."""
    data = tuple(each.to(dtype) for each in data)
    saved = json.loads(json.dumps(fingerprint(build_density(model, *data, dtype=dtype))))
    given = build_density(other, *data, dtype=dtype)
    shapes = [{"shape": list(each.shape), "dtype": str(each.dtype).removeprefix("torch.")} for each in data]
    without = density_without_data(other, shapes, dtype, torch.device("cpu"))
    return [different_model(saved, each) for each in (given, without)]


ACTIVATIONS = {
    "tanh and ReLU": (nn.Tanh, nn.ReLU),
    "ReLU and LeakyReLU": (nn.ReLU, nn.LeakyReLU),
    "tanh and hardtanh": (nn.Tanh, nn.Hardtanh),
    "SiLU and GELU": (nn.SiLU, nn.GELU),
    "GELU and its approximation": (nn.GELU, lambda: nn.GELU(approximate="tanh")),
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_another_activation_is_noticed(name: str, dtype: torch.dtype, bias: bool) -> None:
    one, other = ACTIVATIONS[name]
    for first, second in ((one, other), (other, one)):
        for said in answers(network(first, bias=bias), network(second, bias=bias), X, Y, dtype=dtype):
            assert said is not None
            assert "at a random point was" in said and "so the likelihood, or a network in it, differs" in said


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_same_model_is_known_again(dtype: torch.dtype) -> None:
    for activation in (nn.Tanh, nn.ReLU, nn.SiLU):
        assert answers(network(activation), network(activation), X, Y, dtype=dtype) == [None, None]


def scaled(scale: float) -> Callable[..., None]:
    def model(x: Tensor, y: Tensor | None = None) -> None:
        w = pyro.sample("w", dist.Normal(torch.zeros(2), scale).to_event(1))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(x @ w, 1.0), obs=y)

    return model


def test_a_prior_is_noticed_beside_many_rows() -> None:
    x = torch.randn(20_000, 2, generator=GENERATOR, dtype=torch.float64)
    for dtype in (torch.float64, torch.float32):
        for said in answers(scaled(1.0), scaled(2.0), x, x[:, 0], dtype=dtype):
            assert said is not None
            assert "the log prior at a random point was" in said and "so a prior differs" in said


def by_years(loc: float, spread: float = 1.0) -> Callable[..., None]:
    def model(t: Tensor, y: Tensor | None = None) -> None:
        tau = pyro.sample("tau", dist.Normal(1950.0, 30.0))
        with pyro.plate("data", len(t)):
            pyro.sample("y", dist.Poisson((3 * torch.sigmoid((t - tau) / spread) + loc).exp()), obs=y)

    return model


def test_models_in_units_of_their_own_are_told_apart() -> None:
    t = torch.arange(1900.0, 2000.0)
    y = torch.poisson(torch.full((100,), 3.0), generator=GENERATOR)
    assert answers(by_years(0.0), by_years(0.0, 2.0), t, y)[0] is not None
    assert all(answers(by_years(0.0), by_years(0.1), t, y))
    assert answers(by_years(0.0), by_years(0.0), t, y) == [None, None]


def test_a_likelihood_with_the_same_mean_is_told_apart() -> None:
    def model(family: Callable) -> Callable:
        def run(y: Tensor) -> None:
            m = pyro.sample("m", dist.Normal(0.0, 1.0))
            with pyro.plate("data", len(y)):
                pyro.sample("y", family(m), obs=y)

        return run

    normal, laplace = model(lambda m: dist.Normal(m, 2.0**0.5)), model(lambda m: dist.Laplace(m, 1.0))
    with_data, without = answers(normal, laplace, Y)
    assert with_data is not None and "the log likelihood at a random point was" in with_data
    assert without is not None and "entropy" in without


def test_an_improper_prior_and_a_model_that_fails_on_made_up_data_are_saved() -> None:
    def model(y: Tensor) -> None:
        m = pyro.sample("m", dist.ImproperUniform(dist.constraints.real, (), ()))
        if float(y[0]) != 7.0 and float(y[0]) != 0.0:
            raise RuntimeError("made up")
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(m, 1.0), obs=y)

    y = torch.tensor([7.0, 1.0])
    saved = fingerprint(build_density(model, y))
    assert saved[VALUES]["without data"] == {} and saved[VALUES]["scales"] == {"m": [0.0, 1.0]}
    assert different_model(saved, build_density(model, y)) is None


def test_another_model_without_data_is_refused_by_load(tmp_path: Path) -> None:
    posterior = bz.fit(network(nn.Tanh), bz.MAP(num_steps=3), X, Y, progress=False)
    posterior.save(tmp_path / "fit.bnn")
    bz.predict(bz.load(tmp_path / "fit.bnn", network(nn.Tanh)), X)
    with pytest.raises(ValueError, match=r"fit\.bnn holds another fit: the .* of an observation at a random point was"):
        bz.load(tmp_path / "fit.bnn", network(nn.ReLU))


def test_a_file_of_an_older_version_is_read_and_compared_as_it_was(tmp_path: Path) -> None:
    posterior = bz.fit(scaled(1.0), bz.Laplace(), X, Y, progress=False)
    posterior.save(tmp_path / "fit.bnn")
    tensors, header = read_archive(tmp_path / "fit.bnn")
    del header["fingerprint"][VALUES]
    header["fingerprint"][module.LOG_DENSITY] = module._log_density(posterior.density)
    write_archive(tmp_path / "old.bnn", tensors, header)
    assert torch.equal(bz.load(tmp_path / "old.bnn", scaled(1.0), X, Y).loc, posterior.loc)
    assert torch.equal(bz.load(tmp_path / "old.bnn", scaled(1.0)).loc, posterior.loc)
    with pytest.raises(ValueError, match=r"log density at a fixed point was .* so a prior or the likelihood differs"):
        bz.load(tmp_path / "old.bnn", scaled(3.0), X, Y)


SHORT = bz.NUTS(num_chains=2, num_warmup=5, num_draws=5)


def test_a_checkpoint_of_another_model_or_an_older_version_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("zarr")
    bz.fit(network(nn.ReLU), SHORT, X, Y, checkpoint=tmp_path / "run.zarr", progress=False)
    bz.fit(network(nn.ReLU), SHORT, X, Y, checkpoint=tmp_path / "run.zarr", progress=False)
    with pytest.raises(
        ValueError, match=r"belongs to another fit: the .* so the likelihood, or a network in it, differs"
    ):
        bz.fit(network(nn.LeakyReLU), SHORT, X, Y, checkpoint=tmp_path / "run.zarr", progress=False)
    attributes = next((tmp_path / "run.zarr").glob("chains-*")) / "zarr.json"
    about = json.loads(attributes.read_text())
    del about["attributes"]["fingerprint"][VALUES]
    attributes.write_text(json.dumps(about))
    with pytest.raises(ValueError, match=r"was begun by bnnzoo .* with torch .*, which did not write down values at"):
        bz.fit(network(nn.ReLU), SHORT, X, Y, checkpoint=tmp_path / "run.zarr", progress=False)
