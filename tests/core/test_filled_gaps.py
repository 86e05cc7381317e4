"""Data with missing values, which a model fills or masks itself, and frames of which it asks for columns by name."""

import math
from collections.abc import Callable

import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import bnnzoo as bz
from bnnzoo.core.data.conversion import DataError

X = torch.randn(60, generator=torch.Generator().manual_seed(0))
Y = 0.5 * X + torch.randn(60, generator=torch.Generator().manual_seed(1))
WITH_GAPS = X.clone()
WITH_GAPS[::7] = math.nan
REFUSED = r"argument 1 of the model{} holds nan at row 0\. Remove or impute missing values before fitting, or let the model fill"


def imputing(x: Tensor, y: Tensor) -> None:
    """The standard model of covariates that are missing at random."""
    gaps = x.isnan()
    values = pyro.sample("values", dist.Normal(0.0, 1.0).expand([int(gaps.sum())]).to_event(1))
    filled = x.clone()
    filled[gaps] = values
    a = pyro.sample("a", dist.Normal(0.0, 0.5))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(a * filled, 1.0), obs=y)


def masking(x: Tensor, y: Tensor) -> None:
    a = pyro.sample("a", dist.Normal(0.0, 0.5))
    seen = ~x.isnan()
    with pyro.plate("rows", len(y)), pyro.poutine.mask(mask=seen):
        pyro.sample("y", dist.Normal(a * torch.where(seen, x, 0.0), 1.0), obs=y)


def careless(x: Tensor, y: Tensor) -> None:
    a = pyro.sample("a", dist.Normal(0.0, 0.5))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(a * x, 1.0), obs=y)


def masking_too_late(x: Tensor, y: Tensor) -> None:
    """Its log density is finite, and the gradient is not."""
    a = pyro.sample("a", dist.Normal(0.0, 0.5))
    mean = torch.where(x.isnan(), 0.0, a * x)
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def in_a_mapping(model: Callable[..., None]) -> Callable[..., None]:
    return lambda data: model(data["x"], data["y"])


def exact() -> tuple[float, float]:
    """Return mean and sd of the slope where rows with a gap are left out."""
    x, y = WITH_GAPS[~WITH_GAPS.isnan()].double(), Y[~WITH_GAPS.isnan()].double()
    precision = float(x @ x) + 4.0
    return float(x @ y) / precision, precision**-0.5


def test_gaps_that_a_model_masks_are_data() -> None:
    posterior = bz.fit(masking, bz.Laplace(), WITH_GAPS, Y, progress=False)
    mean, sd = exact()
    assert posterior.loc[0].item() == pytest.approx(mean, abs=1e-4)
    assert posterior.covariance.diagonal()[0].sqrt().item() == pytest.approx(sd, rel=1e-3)
    assert dict(bz.posterior_predictive(posterior, WITH_GAPS, Y, num_draws=5)["log_likelihood"].sizes)["obs_id"] == 60
    assert bz.predict(posterior, WITH_GAPS[:3], num_draws=5)["predictions"].sizes["obs_id"] == 3


@pytest.mark.filterwarnings("ignore::bnnzoo.engine.compiling.LoweringWarning")  # the number of gaps is asked for
@pytest.mark.parametrize(
    "data", [(WITH_GAPS, Y), ({"x": WITH_GAPS.numpy(), "y": Y.numpy()},)], ids=["tensor", "mapping"]
)
def test_gaps_that_a_model_fills_are_parameters(data: tuple[object, ...]) -> None:
    model = imputing if len(data) == 2 else in_a_mapping(imputing)
    posterior = bz.fit(model, bz.FullRankVI(num_steps=50), *data, progress=False)
    assert [site.name for site in posterior.density.sites] == ["values", "a"]
    assert posterior.density.num_params == 10


@pytest.mark.parametrize("model", [careless, masking_too_late], ids=lambda m: m.__name__)
def test_gaps_that_reach_the_density_are_refused(model: Callable[..., None]) -> None:
    with pytest.raises(DataError, match=REFUSED.format("")):
        bz.fit(model, bz.Laplace(), WITH_GAPS, Y)
    with pytest.raises(DataError, match=REFUSED.format(r"\['x'\]")):
        bz.fit(in_a_mapping(model), bz.Laplace(), {"x": WITH_GAPS, "y": Y})


def test_rows_without_gaps_at_the_fit_have_none_in_predictions() -> None:
    posterior = bz.fit(masking, bz.Laplace(), X, Y, progress=False)
    with pytest.raises(DataError, match="holds nan at row 0"):
        bz.predict(posterior, WITH_GAPS)


def test_infinite_values_are_refused_where_gaps_are_not() -> None:
    infinite = WITH_GAPS.clone()
    infinite[1] = math.inf
    with pytest.raises(DataError, match="holds inf at row 1"):
        bz.fit(masking, bz.Laplace(), infinite, Y)


@pytest.mark.parametrize("column", [lambda d: d["x"], lambda d: d.x], ids=["by name", "by attribute"])
@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
def test_a_frame_has_no_columns_by_name(column: Callable[..., Tensor]) -> None:
    def model(data: Tensor) -> None:
        a = pyro.sample("a", dist.Normal(0.0, 0.5))
        with pyro.plate("rows", len(data)):
            pyro.sample("y", dist.Normal(a, 1.0), obs=column(data))

    frame = pd.DataFrame({"x": X.numpy(), "y": Y.numpy()})
    with pytest.raises(
        DataError, match=r"asks argument 1 \('data'\) for .*, this one of shape \[60, 2\]\. Pass dict\(data\)"
    ):
        bz.fit(model, bz.Laplace(), frame)


def test_a_frame_as_a_mapping_has() -> None:
    frame = pd.DataFrame({"x": X.numpy(), "y": Y.numpy()}, index=range(5, 65))
    posterior = bz.fit(in_a_mapping(careless), bz.Laplace(), dict(frame), progress=False)
    assert posterior.density.num_data == 60
