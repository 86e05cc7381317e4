"""Data with gaps: refused where the density becomes NaN with them, fitted where the model fills or masks them."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from torch import Tensor
from torch.func import grad

import bnnzoo as bz
from bnnzoo.core.data.conversion import DataError
from bnnzoo.core.reading.reading import read_model
from bnnzoo.inference import Laplace

X = torch.randn(20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = 1.0 + 2.0 * X
NAN = torch.where(torch.arange(20) % 4 == 0, torch.nan, Y)
CPU = torch.device("cpu")


def plain(x: Tensor, y: Tensor) -> None:
    b = pyro.sample("b", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(1.0 + b * x, 0.5), obs=y)


def masked(x: Tensor, y: Tensor) -> None:
    with poutine.mask(mask=~torch.isnan(y)):
        plain(x, y)


def partly_seen(x: Tensor, y: Tensor) -> None:
    b = pyro.sample("b", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(1.0 + b * x, 0.5), obs=y, obs_mask=~torch.isnan(y))


def imputing(x: Tensor, y: Tensor) -> None:
    gaps, seen = torch.isnan(x), x.nan_to_num()
    pyro.sample("x", dist.Normal(0.0, 1.0).expand(x.shape).mask(~gaps).to_event(1), obs=seen)
    fill = pyro.sample("x_missing", dist.Normal(0.0, 1.0).expand([int(gaps.sum())]).to_event(1))
    plain(seen.masked_scatter(gaps, fill), y)


@pytest.mark.parametrize("data", [(NAN, Y), (X, NAN), ({"x": NAN}, Y)], ids=["covariate", "outcome", "mapping"])
def test_a_gap_that_makes_the_density_nan_is_refused_with_its_row_and_what_imputes(data: tuple[object, ...]) -> None:
    def model(x: object, y: Tensor) -> None:
        plain(x["x"] if isinstance(x, dict) else x, y)

    with pytest.raises(
        DataError, match=r"holds nan at row 0\. Remove or impute.*pyro\.sample\('x_missing', .*masked_scatter"
    ):
        bz.fit(model, bz.MAP(), *data)


def test_infinite_values_are_refused_whatever_the_model() -> None:
    with pytest.raises(DataError, match=r"holds inf at row 3"):
        bz.fit(masked, bz.MAP(), X.index_fill(0, torch.tensor([3]), torch.inf), Y)


@pytest.mark.parametrize("model", [masked, partly_seen])
def test_masked_gaps_leave_the_density_of_what_was_seen(model: object) -> None:
    density, _ = read_model(model, (X, NAN), torch.float64, CPU)
    whole, _ = read_model(plain, (X[~NAN.isnan()], Y[~NAN.isnan()]), torch.float64, CPU)
    theta, place = (
        torch.zeros(density.num_params, dtype=torch.float64),
        next(s.span for s in density.sites if s.name == "b"),
    )
    found, expected = grad(density.log_joint)(theta, *density.data), grad(whole.log_joint)(torch.zeros(1), *whole.data)
    seen = [n for n in density.observed if n.startswith("y")]
    likelihood = density.pointwise(theta, *density.data)[seen[0]]
    torch.testing.assert_close(likelihood[~NAN.isnan()], whole.log_likelihood(torch.zeros(1), *whole.data))
    assert bool((likelihood[NAN.isnan()] == 0).all())
    if model is masked:
        torch.testing.assert_close(found[place], expected)


def test_what_pyros_obs_mask_imputes_is_in_the_tree_and_right() -> None:
    found = bz.fit(partly_seen, Laplace(), X, NAN, dtype=torch.float64, progress=False)
    others = bz.fit(plain, Laplace(), X[~NAN.isnan()], Y[~NAN.isnan()], dtype=torch.float64, progress=False)
    tree = bz.to_datatree(found, num_draws=400)["posterior"]
    b = others.loc
    assert abs(float(tree["b"].mean()) - float(b)) < 4 * 0.13 / 20
    gaps = NAN.isnan().numpy()
    imputed = tree["y"].mean(("chain", "draw")).values
    assert abs(imputed[gaps] - (1.0 + float(b) * X.numpy()[gaps])).max() < 5 * 0.6 / 20
    torch.testing.assert_close(torch.from_numpy(imputed[~gaps]), Y[~NAN.isnan()])


def test_a_model_that_imputes_its_covariates_has_the_density_of_the_filled_ones() -> None:
    x = torch.where(torch.arange(6) == 2, torch.nan, X[:6])
    density, _ = read_model(imputing, (x, Y[:6]), torch.float64, CPU)
    theta = torch.tensor([0.4, 1.5])  # the missing covariate, the slope
    values = density.constrain(theta)
    filled = torch.where(x.isnan(), values["x_missing"], x)
    expected = (
        dist.Normal(0.0, 1.0).log_prob(torch.cat([filled, values["b"][None]])).sum()
        + dist.Normal(1.0 + values["b"] * filled, 0.5).log_prob(Y[:6]).sum()
    )
    torch.testing.assert_close(density.log_joint(theta, *density.data), expected)


def test_observed_data_keep_their_gaps() -> None:
    found = bz.fit(masked, Laplace(), X, NAN, dtype=torch.float64, progress=False)
    tree = bz.posterior_predictive(found, X, NAN, num_draws=10)
    assert bool((tree["observed_data"]["y"].isnull().values == NAN.isnan().numpy()).all())
