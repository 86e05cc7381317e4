"""Predictions some rows at a time: the same numbers, in a store or measured, and refusals before anything is computed."""

import inspect
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
import xarray as xr
import zarr
from torch.utils.data import DataLoader, TensorDataset

import bnnzoo as bz
from bnnzoo.core.data.conversion import DataError
from bnnzoo.predictive import bands, blocks, many_rows
from bnnzoo.predictive.row_functions import RowFunctions
from bnnzoo.testing import linear_gaussian

TARGET = linear_gaussian(num_inputs=2)
X = torch.randn(1100, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = X[:, 0]


@pytest.fixture(scope="module")
def posterior():
    return bz.fit(TARGET.model, bz.Laplace(), *TARGET.data, dtype=torch.float64, progress=False)


@pytest.fixture
def small_bands(monkeypatch):
    monkeypatch.setattr(many_rows, "BAND_BYTES", 20_000)


def assert_same(found, expected):
    assert set(found.children) == set(expected.children)
    for name in expected.children:
        xr.testing.assert_allclose(found[name].to_dataset().load(), expected[name].to_dataset(), rtol=1e-12)


def test_a_store_holds_the_same_tree(posterior, small_bands, tmp_path):
    expected = bz.predict(posterior, X, Y, num_draws=7)
    found = bz.predict(posterior, X, Y, num_draws=7, store=tmp_path / "run.zarr")
    assert not isinstance(found["predictions"]["y"].variable._data, np.ndarray)
    assert_same(found, expected)
    assert found.attrs == expected.attrs
    assert [path.name for path in tmp_path.iterdir()] == ["run.zarr"]


@pytest.mark.parametrize("num_bytes", [1, 5_000, 20_000])
def test_a_store_holds_the_same_tree_where_few_rows_are_drawn_together(
    posterior, small_bands, num_bytes, tmp_path, monkeypatch
):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", num_bytes)
    x, y, posterior = X[:150], Y[:150], replace(posterior)  # for which nothing is kept yet
    expected = bz.predict(posterior, x, y, num_draws=50)
    assert_same(bz.predict(posterior, x, y, num_draws=50, store=tmp_path / "run.zarr"), expected)
    again = [bz.predict(posterior, x, y, num_draws=50) for _ in range(2)][-1]
    assert again.identical(expected)
    assert len(np.unique(expected["predictions"]["y"])) == 50 * 150  # no stream is used twice


def test_files_of_a_store_are_small(posterior, small_bands, tmp_path, monkeypatch):
    """Draws are cut where the rows of a band take more; the last band and the last draws fill their files in part."""
    monkeypatch.setattr("bnnzoo.predictive.store.CHUNK_BYTES", 30_000)
    expected = bz.predict(posterior, X[1:], Y[1:], num_draws=50)
    found = bz.predict(posterior, X[1:], Y[1:], num_draws=50, store=tmp_path / "run.zarr")
    _, draws, rows = found["predictions"]["y"].chunks
    assert 8 * draws[0] * rows[0] <= 30_000
    assert draws[-1] < draws[0] < 50 and rows[-1] < rows[0]
    assert_same(found, expected)


def test_a_store_holds_the_same_tree_where_the_inputs_are_the_largest_tensor(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "MAX_RANDOM_ELEMENTS", 20_000)
    target = linear_gaussian(num_inputs=6)
    posterior = bz.fit(target.model, bz.Laplace(), *target.data, dtype=torch.float64, progress=False)
    x = X[:600].repeat(1, 3)
    expected = bz.predict(posterior, x, num_draws=200)
    assert_same(bz.predict(posterior, x, num_draws=200, store=tmp_path / "run.zarr"), expected)


def test_column_names_are_stored(posterior, tmp_path):
    frame = pd.DataFrame(X.numpy(), columns=["a", "b"])
    found = bz.predict(posterior, frame, num_draws=3, store=tmp_path / "run.zarr")
    inputs = found["predictions_constant_data"].to_dataset().load()
    assert inputs["x_dim_0"].values.tolist() == ["a", "b"]
    np.testing.assert_array_equal(inputs["x"].values, X.numpy())


def test_a_store_is_not_overwritten(posterior, tmp_path):
    (tmp_path / "run.zarr").mkdir()
    with pytest.raises(
        ValueError, match=r"run.zarr' exists already and is no zarr store: delete it, or choose another name"
    ):
        bz.predict(posterior, X, num_draws=7, store=tmp_path / "run.zarr")


def test_arrays_on_disk_are_predicted_as_in_memory(posterior, small_bands, tmp_path):
    np.save(tmp_path / "x.npy", X.numpy())
    stored = np.load(tmp_path / "x.npy", mmap_mode="r")
    expected = bz.predict(posterior, X, num_draws=7)
    assert_same(bz.predict(posterior, stored, num_draws=7), expected)
    dataset = bz.predict(posterior, TensorDataset(X), num_draws=7)
    assert_same(dataset, expected)
    with pytest.raises(
        ValueError, match=r"rows in a known order, which a DataLoader does not promise: pass its dataset"
    ):
        bz.predict(posterior, DataLoader(TensorDataset(X), batch_size=10))


def test_rows_of_two_blocks_have_the_same_numbers_in_a_band_as_in_memory(posterior, monkeypatch):
    expected = bz.predict(posterior, X[:1099], num_draws=7)  # five blocks, of which the last overlaps the one before
    monkeypatch.setattr(many_rows, "BAND_BYTES", 1)
    assert_same(bz.predict(posterior, TensorDataset(X[:1099]), num_draws=7), expected)


def test_keep_leaves_the_rest_out_and_changes_nothing(posterior, monkeypatch):
    expected = bz.predict(posterior, X, Y, num_draws=7)
    found = bz.predict(posterior, X, Y, num_draws=7, keep=("predictions", "conditional/mean", "posterior"))
    assert set(found.children) == {"predictions", "conditional", "posterior"}
    assert list(found["conditional"].data_vars) == ["mean"]
    xr.testing.assert_equal(found["predictions"].to_dataset(), expected["predictions"].to_dataset())
    with monkeypatch.context() as patch:
        patch.delattr(
            sys.modules["bnnzoo.predictive.predict"], "latent_groups"
        )  # which evaluates the density of every draw
        only = bz.predict(posterior, X, num_draws=7, keep=("conditional/variance",))
    assert list(only.children) == ["conditional"]
    with pytest.raises(ValueError, match=r"have no group 'posterior_predictive'. Write some of posterior, weights"):
        bz.predict(posterior, X, keep=("posterior_predictive",))


@pytest.mark.parametrize("measure", [bz.uncertainty.decompose, bz.calibration.nll], ids=lambda m: m.__name__)
def test_a_measure_of_parts_is_the_measure_of_the_whole(posterior, small_bands, measure):
    expected = measure(bz.predict(posterior, X, Y, num_draws=30))
    found = bz.measure_predictions(posterior, measure, X, Y, num_draws=30)
    expected = expected.to_dataset() if isinstance(expected, xr.DataArray) else expected
    xr.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_measure_of_all_rows_together_is_refused(posterior):
    def rmse(tree):
        return tree["conditional"]["mean"].mean()

    with pytest.raises(ValueError, match="rmse gives 'mean' for all rows together"):
        bz.measure_predictions(posterior, rmse, X, num_draws=5)


def test_what_does_not_fit_is_said_before_it_is_computed(posterior, monkeypatch):
    monkeypatch.setattr(bands, "free_memory", lambda: 2**20)
    x = torch.zeros(200_000, 2, dtype=torch.float64)
    message = r"100 draws x 200,000 rows takes 0\.\d+ GB \(conditional .* but 0.00105 GB are free\. Write it to disk with store="
    with pytest.raises(ValueError, match=message):
        bz.predict(posterior, x, num_draws=100)


def test_rows_that_depend_on_each_other_are_not_split(tmp_path):

    def model(x, y=None):
        w = pyro.sample("w", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal((x - x.mean(0)) @ w, 0.5), obs=y)

    posterior = bz.fit(model, bz.Laplace(), *TARGET.data, dtype=torch.float64, progress=False)
    with pytest.raises(ValueError, match="These rows cannot be predicted some at a time"):
        bz.predict(posterior, X, store=tmp_path / "run.zarr")


def test_stores_that_are_in_the_way_are_refused_before_anything_is_computed(posterior, tmp_path):
    zarr.create_array(str(tmp_path / "theirs.zarr"), shape=(3,), dtype="f8")
    with pytest.raises(ValueError, match=r"theirs.zarr' exists already and is a zarr store: delete it"):
        bz.predict(posterior, X, store=tmp_path / "theirs.zarr")
    with pytest.raises(ValueError, match=r"there is no folder .*missing'. Create it first"):
        bz.predict(posterior, X, store=tmp_path / "missing" / "run.zarr")
    (tmp_path / "file.zarr").write_text("")
    with pytest.raises(ValueError, match="exists already and is no zarr store"):
        bz.predict(posterior, X, store=tmp_path / "file.zarr")


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        ("predictions", r"keep='predictions': write a tuple of names, keep=\('predictions',\)"),
        (("predictions", "nothing"), r"trees of new data have no group 'nothing'. Write some of posterior, weights"),
        (("conditional/meen",), r"keep has 'conditional/meen', but the group 'conditional' has no such variable; it has mean"),
        (("posterior/v",), r"the group 'posterior' has no such variable; it has w"),
    ],
)  # fmt: skip
def test_unknown_names_are_refused_in_one_sentence(posterior, tmp_path, keep, message):
    for store in (None, tmp_path / "run.zarr"):
        with pytest.raises(ValueError, match=message):
            bz.predict(posterior, X, num_draws=3, keep=keep, store=store)


@pytest.mark.parametrize(
    "name", ["predictions_log_likelihood", "predictions_log_likelihood/y", "predictions_observed_data"]
)
def test_what_needs_the_observations_is_refused_without_them(posterior, name, tmp_path):
    """The tree was empty."""
    for store in (None, tmp_path / "p.zarr"):
        with pytest.raises(
            ValueError, match=rf"^keep has '{name}', which needs the observations .* predict\(posterior, x, y, "
        ):
            bz.predict(posterior, X, num_draws=3, keep=(name,), store=store)
    assert name.partition("/")[0] in bz.predict(posterior, X, Y, num_draws=3, keep=(name,)).children


def test_a_measure_of_nothing_is_refused(posterior):
    with pytest.raises(ValueError, match="keep leaves nothing to measure"):
        bz.measure_predictions(posterior, bz.uncertainty.decompose, X, num_draws=3, keep=("posterior",))


@pytest.mark.parametrize(
    "index",
    [
        pd.Index([f"row {i}" for i in range(1100)]),
        pd.date_range("2020-01-01", periods=1100),
        pd.Index(range(7, 1107)),
        pd.Index([0] * 1100),
    ],
    ids=["text", "time", "numbers", "not unique"],
)
def test_the_index_of_a_frame_labels_the_rows_of_a_store(posterior, small_bands, tmp_path, index):
    frame = pd.DataFrame(X.numpy(), columns=["a", "b"], index=index)
    expected = bz.predict(posterior, frame, num_draws=3)
    assert_same(bz.predict(posterior, frame, num_draws=3, store=tmp_path / "run.zarr"), expected)
    measured = bz.measure_predictions(posterior, bz.uncertainty.decompose, frame, num_draws=3)
    np.testing.assert_array_equal(measured["obs_id"], expected["predictions"]["obs_id"])


def test_chosen_dims_and_coords_are_stored(posterior, small_bands, tmp_path):
    labels = {"dims": {"x": ["obs_id", "gene"]}, "coords": {"gene": ["a", "b"], "obs_id": np.arange(1100) + 0.5}}
    expected = bz.predict(posterior, X, num_draws=3, **labels)
    assert_same(bz.predict(posterior, X, num_draws=3, store=tmp_path / "run.zarr", **labels), expected)
    with pytest.raises(ValueError, match=r"coords\['obs_id'\] has 3 labels, but the dimension has length 1100"):
        bz.predict(posterior, X, num_draws=3, store=tmp_path / "other.zarr", coords={"obs_id": [1, 2, 3]})
    assert [path.name for path in tmp_path.iterdir()] == ["run.zarr"]


def two_outcomes(x, y=None, z=None):
    w = pyro.sample("w", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    with pyro.plate("data", len(x)):
        f = pyro.deterministic("f", x @ w)
        pyro.sample("y", dist.Normal(f, 0.5), obs=y)
        pyro.sample("z", dist.Bernoulli(logits=f), obs=z)


@pytest.fixture(scope="module")
def several():
    z = (X[:40, 0] > 0).double()
    return bz.fit(two_outcomes, bz.MeanFieldVI(num_steps=5), X[:40], Y[:40], z, dtype=torch.float64, progress=False)


def test_several_outcomes_and_deterministic_sites_are_stored(several, small_bands, tmp_path):
    expected = bz.predict(several, X, num_draws=5)
    assert_same(bz.predict(several, X, num_draws=5, store=tmp_path / "run.zarr"), expected)
    keep = ("predictions/z", "predictions_deterministic/f")
    for store in (None, tmp_path / "some.zarr"):
        some = bz.predict(several, X, num_draws=5, store=store, keep=keep)
        assert set(some.children) == {"predictions", "predictions_deterministic"}
        xr.testing.assert_equal(some["predictions"]["z"].load(), expected["predictions"]["z"])
        xr.testing.assert_allclose(
            some["predictions_deterministic"].to_dataset().load(), expected["predictions_deterministic"].to_dataset()
        )


@pytest.mark.parametrize("keep", [("predictions_constant_data",), ("posterior",)], ids=str)
def test_what_needs_no_draws_of_rows_can_be_kept_alone(posterior, small_bands, tmp_path, keep):
    expected = bz.predict(posterior, X, num_draws=3)[keep[0]].to_dataset()
    for store in (None, tmp_path / "run.zarr"):
        found = bz.predict(posterior, X, num_draws=3, keep=keep, store=store)
        assert list(found.children) == list(keep)
        xr.testing.assert_equal(found[keep[0]].to_dataset().load(), expected)


def test_a_store_that_fails_leaves_nothing_behind(posterior, small_bands, tmp_path):
    values = X.numpy().copy()
    values[900, 1] = np.nan
    np.save(tmp_path / "x.npy", values)
    with pytest.raises(DataError, match=r"argument 1 of the model holds nan at row \d+, column 1 of rows"):
        bz.predict(posterior, np.load(tmp_path / "x.npy", mmap_mode="r"), num_draws=3, store=tmp_path / "run.zarr")
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


def test_a_measure_that_is_none_is_refused(posterior):
    with pytest.raises(TypeError, match=r"Dataset or DataArray with a value for each row"):
        bz.measure_predictions(posterior, lambda tree: 3.0, X, num_draws=3)
    unchecked = inspect.unwrap(bz.measure_predictions)  # the tests' own check of types would speak first
    with pytest.raises(ValueError, match=r"measure_predictions\(linearized='yes'\): write True or False or 'auto'"):
        unchecked(posterior, bz.uncertainty.decompose, X, linearized="yes")
    with pytest.raises(TypeError, match=r"measure_predictions\(measure='entropy'\): write a function of a tree"):
        unchecked(posterior, "entropy", X)


def test_deterministic_sites_are_stored_beside_the_moments_of_one_outcome(small_bands, tmp_path):
    """Draws and moments alone come from one run of the model; here it must give the site as well."""

    def model(x, y=None):
        w = pyro.sample("w", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        with pyro.plate("rows", len(x)):
            f = pyro.deterministic("f", x @ w)
            pyro.sample("y", dist.Normal(f, 0.1), obs=y)

    posterior = bz.fit(model, bz.Laplace(), X[:50], Y[:50], dtype=torch.float64, progress=False)
    assert_same(
        bz.predict(posterior, X, num_draws=7, store=tmp_path / "run.zarr"), bz.predict(posterior, X, num_draws=7)
    )


def test_blocks_are_chosen_by_the_first_rows_alone(posterior):
    """The others may lie on disk."""
    asked = []

    def read(rows):
        asked.append(rows)
        return (X[rows], None)

    functions = RowFunctions.of(posterior.density, ())
    functions.blocks(posterior.draws(3)[0], read, len(X), splits=True, together=256)
    assert asked == [slice(0, 256)]
