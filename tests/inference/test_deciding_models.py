"""Models that decide by their data, as many do: how many groups there are, which values are missing."""

from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import bnnzoo as bz
from bnnzoo.core.program.sites import ModelError
from bnnzoo.inference.many import seed_of_fit


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(0, 4, (40,), generator=generator)
    return codes, torch.randn(40, generator=generator) + codes


def counted(codes: Tensor, y: Tensor | None = None) -> None:
    of_groups(codes, int(codes.max()) + 1, y)


def of_groups(codes: Tensor, number: int, y: Tensor | None = None) -> None:
    mu, tau = pyro.sample("mu", dist.Normal(0.0, 3.0)), pyro.sample("tau", dist.HalfNormal(3.0))
    with pyro.plate("groups", number):
        effect = pyro.sample("effect", dist.Normal(mu, tau))
    with pyro.plate("rows", len(codes)):
        pyro.sample("y", dist.Normal(effect[codes], 1.0), obs=y)


def imputed(x: Tensor, y: Tensor | None = None, how: str = "written") -> None:
    gaps = torch.isnan(x)
    mu, slope = pyro.sample("mu", dist.Normal(0.0, 1.0)), pyro.sample("slope", dist.Normal(0.0, 1.0))
    with pyro.plate("gaps", int(gaps.sum())):
        fill = pyro.sample("fill", dist.Normal(mu, 1.0))
    with pyro.plate("seen", len(x) - len(fill)):
        pyro.sample("x_seen", dist.Normal(mu, 1.0), obs=x[~gaps])
    if how == "written":
        whole = x.clone()
        whole[gaps] = fill
    else:
        whole = x.nan_to_num(0.0).masked_scatter(gaps, fill)
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(slope * whole, 1.0), obs=y)


@pytest.mark.parametrize(
    "method",
    [
        bz.NUTS(num_chains=2, num_warmup=60, num_draws=60),
        bz.MAMS(num_chains=2, num_warmup=60, num_draws=60),
        bz.MeanFieldVI(num_steps=50),
        bz.Pathfinder(),
    ],
    ids=lambda method: type(method).__name__,
)
@pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")
def test_draws_are_those_of_a_model_that_is_told_the_number(method: Any) -> None:
    codes, y = data()
    found = bz.fit(counted, method, codes, y, seed=0)
    expected = bz.fit(of_groups, method, codes, 4, y, seed=0)
    engines = [fit.info.engine.engine for fit in (found, expected) if fit.info.engine]
    assert len(set(engines)) < 2 and "python" not in engines
    torch.testing.assert_close(found.draws(20), expected.draws(20), rtol=0, atol=0)


def test_each_fit_counts_its_own_groups() -> None:
    codes, y = data()
    method = bz.NUTS(num_chains=1, num_warmup=300, num_draws=300)
    for given in (codes, codes.clamp(max=2), codes.clamp(max=1), codes):
        posterior = bz.fit(counted, method, given, y, seed=0)
        sizes = {site.name: site.shape for site in posterior.density.sites}
        assert sizes["effect"] == (int(given.max()) + 1,)
        tree = bz.predict(posterior, given)
        means = torch.tensor([float(y[given == group].mean()) for group in range(int(given.max()) + 1)])
        predicted = torch.tensor(tree["conditional"]["mean"].mean(("chain", "draw")).values)
        torch.testing.assert_close(predicted, means[given].to(predicted.dtype), rtol=0, atol=0.3)


def test_many_fits_are_those_of_a_loop() -> None:
    codes, y = data()
    sets = [(codes, y), (codes.clamp(max=2), y), (codes.flip(0), y), (codes, y + 1)]
    method = bz.NUTS(num_chains=1, num_warmup=100, num_draws=50)
    together = bz.fit_many(counted, method, sets, seed=3)
    for number, (posterior, given) in enumerate(zip(together, sets, strict=True)):
        alone = bz.fit(counted, method, *given, seed=seed_of_fit(3, number))
        torch.testing.assert_close(posterior.draws(), alone.draws(), rtol=0, atol=0)


@pytest.mark.parametrize("how", ["written", "scattered"])
def test_values_that_are_missing_are_latent(how: str) -> None:
    generator = torch.Generator().manual_seed(1)
    x = 1 + torch.randn(50, generator=generator)
    y = 2 * x + torch.randn(50, generator=generator)
    x[:5] = torch.nan
    posterior = bz.fit(imputed, bz.NUTS(), x, y, how, seed=0)
    assert posterior.info.engine.engine == "native"
    draws = posterior.density.constrain(posterior.draws().flatten(0, 1)[None])
    slope, mu, fill = (draws[name].reshape(4000, -1) for name in ("slope", "mu", "fill"))
    # given slope and mu, a missing x is normal: precision 1 + slope^2, mean (mu + slope y) / precision
    mean = ((mu + slope * y[:5]) / (1 + slope**2)).mean(0)
    assert ((fill.mean(0) - mean).abs() < 5 * fill.std(0) / 1000**0.5).all()


def rows_that_are_seen(x: Tensor, seen: Tensor, y: Tensor | None = None) -> None:
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", len(x[seen])):
        pyro.sample("y", dist.Normal(slope * x[seen], 1.0), obs=None if y is None else y[seen])


def rows_without_gaps(x: Tensor, y: Tensor) -> None:
    rows_that_are_seen(x, ~y.isnan(), y)


def standardised_if_large(x: Tensor, y: Tensor) -> None:
    if x.abs().max() > 10:
        x = (x - x.mean()) / x.std()
    rows_that_are_seen(x, x < torch.inf, y)


@pytest.mark.parametrize("model", ["condition", "gaps", "branch"])
def test_chains_of_models_that_choose_rows_run_in_native_code(model: str) -> None:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(60, generator=generator)
    seen, y = torch.rand(60, generator=generator) < 0.6, x + torch.randn(60, generator=generator)
    gaps = torch.where(seen, y, torch.nan)
    models = {
        "condition": (rows_that_are_seen, (x, seen, y)),
        "gaps": (rows_without_gaps, (x, gaps)),
        "branch": (standardised_if_large, (1000 + 5 * x, y)),
    }
    if model == "branch":
        used, seen = (x - x.mean()) / x.std(), x < torch.inf
    else:
        used = x
    posterior = bz.fit(models[model][0], bz.NUTS(), *models[model][1], seed=0)
    assert posterior.info.engine.engine == "native"
    precision = 1 + (used[seen] ** 2).sum()
    mean = (used[seen] * y[seen]).sum() / precision
    draws = posterior.draws()
    assert abs(draws.mean() - mean) < 5 * precision**-0.5 / 1000**0.5
    assert abs(draws.std() * precision**0.5 - 1) < 0.1


@pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")
def test_mini_batches_of_rows_that_are_counted_are_refused() -> None:
    codes, y = data()
    with pytest.raises(
        ModelError, match="keep what is not by row, such as a number of groups, in a closure, or take all rows"
    ):
        bz.fit(counted, bz.MeanFieldVI(batch_size=16, num_steps=5), codes, y)
    bz.fit(of_groups, bz.MeanFieldVI(batch_size=16, num_steps=5), codes, 4, y)


def test_mini_batches_of_counted_rows_are_refused_beside_another_code() -> None:
    codes, y = data()
    sex = torch.arange(40) % 2

    def with_sex(sex: Tensor, codes: Tensor, y: Tensor | None = None) -> None:
        slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
        of_groups(codes, int(codes.max()) + 1, None if y is None else y - slope * sex)

    with pytest.raises(ModelError, match="keep what is not by row, such as a number of groups, in a closure"):
        bz.fit(with_sex, bz.MeanFieldVI(batch_size=16, num_steps=5), sex, codes, y)
