"""Stacking of fits and of chains."""

from dataclasses import replace

import arviz as az
import numpy as np
import pytest
import xarray as xr

import bnnzoo as bz
from bnnzoo.testing import linear_gaussian
from bnnzoo.trees import SAMPLE_DIMS
from bnnzoo.validation import stack, stack_chains, stacking_weights

Y = np.random.default_rng(0).normal(size=200)


def log_density(loc, scale=1.0):
    return -0.5 * ((Y - loc) / scale) ** 2 - np.log(scale) - 0.5 * np.log(2 * np.pi)


def tree(locs, num_draws=100):
    """Return a tree of Normal(loc, 1) predictions, one chain a location, as a sampler would make it."""
    jitter = 0.01 * np.random.default_rng(1).normal(size=(len(locs), num_draws, 1))
    loc = np.asarray(locs)[:, None, None] + jitter
    rows = np.broadcast_to(loc, (len(locs), num_draws, len(Y)))
    dims = (*SAMPLE_DIMS, "obs_id")
    groups = {
        "posterior": xr.Dataset({"loc": (SAMPLE_DIMS, loc[..., 0])}),
        "log_likelihood": xr.Dataset({"y": (dims, log_density(rows))}),
        "conditional": xr.Dataset({"mean": (dims, rows), "variance": (dims, np.ones_like(rows))}),
        "observed_data": xr.Dataset({"y": ("obs_id", Y)}),
    }
    labels = {"obs_id": np.arange(len(Y))}
    labelled = {name: group.assign_coords(labels) for name, group in groups.items() if "obs_id" in group.dims}
    made = xr.DataTree.from_dict(groups | labelled)
    made.attrs["sampling"] = "mcmc"
    return made


def test_draws_come_in_proportion_and_rows_keep_their_labels():
    stacked = stack({"a": tree([0.0]), "b": tree([5.0])}, {"a": 0.3, "b": 0.7}, num_draws=10)
    assert stacked["conditional"]["model"].to_numpy().tolist() == ["a"] * 3 + ["b"] * 7
    means = stacked["conditional"]["mean"].mean("obs_id").squeeze().to_numpy()
    assert np.abs(means[:3]).max() < 0.1
    assert np.abs(means[3:] - 5).max() < 0.1
    assert stacked.attrs["weight_b"] == 0.7
    assert stacked["observed_data"]["y"].equals(tree([0.0])["observed_data"]["y"])


def test_moments_of_the_mixture_are_those_of_its_parts():
    stacked = stack({"a": tree([0.0]), "b": tree([5.0])}, {"a": 0.5, "b": 0.5}, num_draws=200)
    variance = bz.uncertainty.decompose(stacked)["epistemic"]
    assert float(variance.mean()) == pytest.approx(6.25, rel=0.01)


def test_the_better_of_two_fits_gets_the_weight():
    trees = {"right": tree([0.0], num_draws=1000), "wrong": tree([3.0], num_draws=1000)}  # of 100, k-hat is noise
    found = {name: bz.diagnostics.loo(each) for name, each in trees.items()}
    weights = stacking_weights(found)
    assert list(weights.index) == ["right", "wrong"]
    assert weights["right"] > 0.99


def test_chains_off_on_either_side_share_the_weight():
    stacked = stack_chains(tree([-1.5, 1.5, 4.0], num_draws=400), num_draws=100)
    names, counts = np.unique(stacked["conditional"]["model"], return_counts=True)
    assert set(names) == {"chain 0", "chain 1"}
    assert counts.min() > 30  # the data are symmetric but for their mean's standard error


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        ({"a": 1.0}, "The trees are a, b, but the weights are of a"),
        ({"a": -1.0, "b": 2.0}, "are no shares of a mixture"),
        ({"a": 0.0, "b": 0.0}, "are no shares of a mixture"),
    ],
)
def test_bad_weights_are_refused(weights, sentence):
    with pytest.raises(ValueError, match=sentence):
        stack({"a": tree([0.0]), "b": tree([1.0])}, weights)


def test_one_chain_is_refused():
    with pytest.raises(ValueError, match="the tree has one: fit with num_chains=4"):
        stack_chains(tree([0.0]))


def test_trees_without_predictions_are_refused():
    bare = xr.DataTree.from_dict({"posterior": tree([0.0])["posterior"].to_dataset()})
    with pytest.raises(ValueError, match="The trees have no predictions in common"):
        stack({"a": bare}, {"a": 1.0})


def test_trees_of_other_rows_and_other_things_are_refused():
    other = tree([1.0])
    groups = {name: group.to_dataset() for name, group in other.children.items() if "obs_id" in group.dims}
    short = xr.DataTree.from_dict({name: group.isel(obs_id=slice(3)) for name, group in groups.items()})
    with pytest.raises(ValueError, match=r"The trees 'a' and 'b' are about other rows \(200 and 3, or other labels\)"):
        stack({"a": tree([0.0]), "b": short}, {"a": 0.5, "b": 0.5})
    with pytest.raises(TypeError, match="stack takes trees of predictions, but 'a' is of type float"):
        stack({"a": 1.0}, {"a": 1.0})
    with pytest.raises(ValueError, match=r"stack\(num_draws=0\): write 1 or more"):
        stack({"a": tree([0.0])}, {"a": 1.0}, num_draws=0)


def test_weights_need_pointwise_results():
    with pytest.raises(TypeError, match=r"takes pointwise results .*, but 'a' is of type DataTree: pass"):
        stacking_weights({"a": tree([0.0])})
    with pytest.raises(ValueError, match="stacking_weights has nothing to weigh"):
        stacking_weights({})


def test_leave_one_out_that_is_unreliable_gets_no_weight():
    target = linear_gaussian()
    tree = bz.posterior_predictive(bz.fit(target.model, bz.Laplace(), *target.data, progress=False), *target.data)
    good = bz.diagnostics.loo(tree)
    bad_k = good.pareto_k.copy(data=np.where(np.arange(good.n_data_points) < 20, 0.9, 0.1))
    bad = replace(good, pareto_k=bad_k)
    with pytest.raises(
        ValueError,
        match=r"'mfvi' is unreliable.*Pareto k of 20 of 40 .*bnnzoo\.validation\.kfold\(model, method, x, y\)",
    ):
        bz.validation.stacking_weights({"nuts": good, "mfvi": bad})
    one_of_forty = replace(
        good, pareto_k=good.pareto_k.copy(data=np.where(np.arange(good.n_data_points) < 1, 0.9, 0.1))
    )
    assert bz.validation.stacking_weights({"nuts": good, "other": one_of_forty}).sum() == pytest.approx(1.0)
    assert "20 k" in az.compare({"nuts": good, "mfvi": bad})["diag_elpd"]["mfvi"]  # which ArviZ's table says, too
