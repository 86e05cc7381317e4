"""Names of dimensions and coordinates in trees: plates, the index and columns of frames, and what the user chooses."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
import xarray as xr
from torch import Tensor

from bnnzoo.predictive import posterior_predictive, predict, prior_predictive, to_datatree
from bnnzoo.testing import linear_gaussian
from tests.helpers.exact import exact_posterior, narrow_posterior


def mixed_effects(x: Tensor, group: Tensor, y: Tensor | None = None) -> None:
    """Slopes for the columns of x, an intercept for each of three schools, and the mean of every row."""
    spread = pyro.sample("spread", dist.HalfNormal(1.0))
    with pyro.plate("school", 3):
        intercept = pyro.sample("intercept", dist.Normal(0.0, spread))
    slope = pyro.sample("slope", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    with pyro.plate("pupils", len(x)):
        mu = pyro.deterministic("mu", intercept[group] + x @ slope)
        shift = pyro.sample("shift", dist.Normal(0.0, 0.1)) if y is not None else 0.0
        pyro.sample("y", dist.Normal(mu + shift, 0.3), obs=y)


DATA = (torch.randn(12, 2), torch.arange(12) % 3, torch.randn(12))
FRAME = pd.DataFrame(DATA[0].numpy(), columns=["age", "height"], index=[f"pupil {i}" for i in range(12)])


@pytest.fixture(scope="module")
def posterior():
    return narrow_posterior(mixed_effects, *DATA)


def test_plates_name_dimensions_and_that_of_the_rows_is_obs_id(posterior):
    tree = to_datatree(posterior, num_draws=5)["posterior"]
    assert tree["intercept"].dims == ("chain", "draw", "school")
    assert tree["shift"].dims == ("chain", "draw", "obs_id")
    assert tree["mu"].dims == ("chain", "draw", "obs_id")
    assert tree["slope"].dims == ("chain", "draw", "slope_dim_0")


def test_crossed_plates_and_events_are_told_apart():
    def model(y: Tensor) -> None:
        with pyro.plate("row", 2, dim=-2), pyro.plate("column", 4, dim=-1):
            cell = pyro.sample("cell", dist.Normal(torch.zeros(3), 1.0).to_event(1))
            pyro.deterministic("double", 2 * cell, event_dim=1)
            pyro.deterministic("sum", cell.sum(-1))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(cell.sum(), 1.0), obs=y)

    tree = to_datatree(narrow_posterior(model, torch.zeros(5)), num_draws=4)["posterior"]
    assert tree["cell"].dims == ("chain", "draw", "row", "column", "cell_dim_2")
    assert tree["double"].dims == ("chain", "draw", "row", "column", "double_dim_2")
    assert tree["sum"].dims == ("chain", "draw", "row", "column")


@pytest.mark.parametrize("plate", ["chain", "class_id"])
def test_plates_whose_names_are_taken_do_not_name_dimensions(plate):
    def model(y: Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        with pyro.plate(plate, 3):
            z = pyro.sample("z", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(z.sum() + mu.sum(), 1.0), obs=y)

    tree = to_datatree(narrow_posterior(model, torch.zeros(5)), num_draws=4)
    assert tree["posterior"]["z"].dims == ("chain", "draw", "z_dim_0")


def test_dims_and_coords_of_the_user_are_taken(posterior, tmp_path: Path):
    names = {"dims": {"slope": ["feature"], "x": ["obs_id", "feature"]}, "coords": {"feature": ["age", "height"]}}
    tree = posterior_predictive(posterior, *DATA, num_draws=5, **names, num_prior_draws=7)
    for array in (tree["posterior"]["slope"], tree["constant_data"]["x"], tree["prior"]["slope"]):
        assert array.dims[-1] == "feature"
        assert list(array["feature"].to_numpy()) == ["age", "height"]
    tree.to_netcdf(tmp_path / "tree.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "tree.nc", engine="h5netcdf") as loaded:
        assert tree.identical(loaded.load())
    assert list(to_datatree(posterior, num_draws=5, coords={"school": ["a", "b", "c"]})["posterior"]["school"]) == [
        "a",
        "b",
        "c",
    ]


def test_the_index_of_a_frame_labels_observations(posterior):
    tree = posterior_predictive(posterior, FRAME, *DATA[1:], num_draws=5)
    for group in ("posterior", "log_likelihood", "conditional", "observed_data", "constant_data"):
        assert list(tree[group]["obs_id"].to_numpy()) == list(FRAME.index)
    assert list(tree["constant_data"]["x_dim_0"].to_numpy()) == ["age", "height"]


@pytest.mark.parametrize(
    ("index", "labels"),
    [
        ([3, 1, 2], [3, 1, 2]),
        (["a", "a", "b"], [0, 1, 2]),
        (pd.MultiIndex.from_tuples([(0, 1), (0, 2), (1, 1)]), [0, 1, 2]),
        (pd.to_datetime(["2020-01-01", "2020-01-02", "2020-01-03"]).tz_localize("UTC"), None),
    ],
)
def test_an_index_of_any_kind_is_stored_or_left_out(index, labels, tmp_path: Path):
    target = linear_gaussian(num_inputs=2)
    frame = pd.DataFrame(np.zeros((3, 2)), columns=["a", "b"], index=index)
    tree = predict(exact_posterior(target), frame, num_draws=5)
    found = tree["predictions"]["obs_id"].to_numpy()
    assert list(found) == (labels or [str(label) for label in index])
    tree.to_netcdf(tmp_path / "tree.nc", engine="h5netcdf")


def test_an_input_of_one_column_is_one_dimensional():
    target = linear_gaussian(num_inputs=1)
    frame = pd.DataFrame(target.data[0].numpy(), columns=["age"])
    tree = posterior_predictive(exact_posterior(target), frame, target.data[1], num_draws=5)
    assert tree["constant_data"]["x"].dims == ("obs_id",)
    assert tree["constant_data"]["x"]["x_dim_0"].item() == "age"
    named = posterior_predictive(exact_posterior(target), *target.data, num_draws=5, dims={"x": ["obs_id", "f"]})
    assert named["constant_data"]["x"].dims == ("obs_id", "f")


def test_deterministic_sites_are_evaluated_at_new_inputs(posterior):
    x, group = torch.randn(4, 2), torch.tensor([0, 2, 1, 0])
    fixed = narrow_posterior(without_shift, *DATA)
    tree = predict(fixed, x, group, num_draws=5)
    latent = tree["posterior"]
    expected = latent["intercept"].to_numpy()[..., group] + latent["slope"].to_numpy() @ x.numpy().T
    found = tree["predictions_deterministic"]["mu"]
    assert found.dims == ("chain", "draw", "obs_id")
    assert np.allclose(found, expected)
    assert tree["posterior"]["mu"].sizes["obs_id"] == 12


def test_log_prior_has_the_density_of_every_site_without_jacobian(posterior):
    tree = to_datatree(posterior, num_draws=6)
    latent, found = tree["posterior"], tree["log_prior"]
    assert set(found.data_vars) == {"spread", "intercept", "slope", "shift"}
    assert all(values.dims == ("chain", "draw") for values in found.data_vars.values())
    spread = torch.from_numpy(latent["spread"].to_numpy())
    intercept = torch.from_numpy(latent["intercept"].to_numpy())
    assert np.allclose(found["spread"], dist.HalfNormal(1.0).log_prob(spread))
    assert np.allclose(found["intercept"], dist.Normal(0.0, spread[..., None]).log_prob(intercept).sum(-1))
    assert np.allclose(tree["sample_stats"]["log_jacobian"], spread.log())


def test_the_prior_beside_a_posterior_is_that_of_prior_predictive(posterior):
    alone = prior_predictive(mixed_effects, *DATA, num_draws=7, seed=3)
    tree = posterior_predictive(posterior, *DATA, num_draws=5, seed=3, num_prior_draws=7)
    for group in ("prior", "prior_predictive"):
        assert tree[group].to_dataset().identical(alone[group].to_dataset())


def test_rows_that_were_not_fitted_are_refused():
    target = linear_gaussian()
    x, y = target.data
    with pytest.raises(ValueError, match=r"argument 'x' differs from what the fit got \(shape \(5, 3\), and \(40, 3\)"):
        posterior_predictive(exact_posterior(target), x[:5], y[:5])
    other = y.clone()
    other[[3, 7]] += 1.0
    with pytest.raises(ValueError, match=r"argument 'y' differs .* \(in 2 of 40 rows, first in row 3\)\. Use predict"):
        posterior_predictive(exact_posterior(target), x, other)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"dims": {"slpe": ["a"]}}, "dims names 'slpe', but the tree has no such variable; it has "),
        ({"dims": {"slope": ["a", "b"]}}, r"dims\['slope'\] has 2 names \(a, b\), but 'slope' has shape \(2,\)"),
        ({"dims": {"slope": "a"}}, r"dims\['slope'\]='a': write a list of names, \['a'\]"),
        ({"dims": {"slope": ["draw"]}}, r"dims\['slope'\] has 'draw': leave chain and draw out"),
        ({"dims": {"slope": ["y"]}}, r"dims\['slope'\] has 'y', which is the name of a site"),
        ({"dims": {"y": ["a"]}}, r"'y' is observed, and the dimensions of observations are always obs_id"),
        ({"coords": {"shool": ["a"]}}, "coords names 'shool', but the tree has no such dimension; it has chain, "),
        ({"coords": {"school": ["a"]}}, r"coords\['school'\] has 1 labels, but the dimension has length 3"),
    ],
)
def test_names_that_do_not_fit_are_refused(posterior, names, message):
    with pytest.raises(ValueError, match=message):
        to_datatree(posterior, num_draws=5, **names)


def without_shift(x: Tensor, group: Tensor, y: Tensor | None = None) -> None:
    """The same model without a latent variable for each row, which new rows lack."""
    with pyro.plate("school", 3):
        intercept = pyro.sample("intercept", dist.Normal(0.0, 1.0))
    slope = pyro.sample("slope", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    with pyro.plate("pupils", len(x)):
        mu = pyro.deterministic("mu", intercept[group] + x @ slope)
        pyro.sample("y", dist.Normal(mu, 0.3), obs=y)
