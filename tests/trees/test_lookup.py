"""What is missing from a tree is named, with what is there and how to make it."""

import numpy as np
import pytest
import xarray as xr

from bnnzoo.testing import example_tree
from bnnzoo.trees import class_indices, companion, first_moment, moment, observations, refuse_bad_probs

DIMS = ("chain", "draw", "obs_id", "class_id")


def probs_array(shape=(2, 5, 4, 3)):
    return xr.DataArray(np.random.default_rng(0).dirichlet(np.ones(shape[-1]), shape[:-1]), dims=DIMS)


def test_a_moment_is_found_in_a_tree_a_group_and_itself():
    tree = example_tree("classification")
    from_tree = moment(tree, "probs")
    assert from_tree.identical(moment(tree["conditional"], "probs"))
    assert from_tree.identical(moment(tree["conditional"].to_dataset(), "probs"))
    assert from_tree.identical(moment(from_tree, "probs"))


def test_a_moment_of_a_named_site_is_found():
    group = xr.Dataset({"y.probs": probs_array(), "y.entropy": probs_array().sum("class_id")})
    assert moment(group, "probs").identical(group["y.probs"])
    assert companion(group, "probs", "entropy").identical(group["y.entropy"])


def test_classes_are_moved_last():
    assert moment(probs_array().transpose("class_id", ...), "probs").dims == DIMS


def test_a_missing_group_is_named():
    tree = xr.DataTree.from_dict({"posterior": xr.Dataset({"a": ("draw", [1.0])})})
    sentence = (
        r"no group 'conditional' \(groups: posterior\), which must have 'probs', the class probabilities "
        r".* of each draw\. bnnzoo\.predict .* tree\['conditional'\] = xr\.DataTree"
    )
    with pytest.raises(ValueError, match=sentence):
        moment(tree, "probs")


def test_the_advice_for_a_missing_group_works():
    tree, probs = xr.DataTree(), np.full((1, 2, 3, 4), 0.25)
    tree["conditional"] = xr.DataTree(xr.Dataset({"probs": (("chain", "draw", "obs_id", "class_id"), probs)}))
    assert moment(tree, "probs").sizes["obs_id"] == 3


def test_a_missing_variable_is_named():
    with pytest.raises(ValueError, match=r"has variables mean, variance, entropy, but not 'probs'"):
        moment(example_tree("regression"), "probs")
    with pytest.raises(ValueError, match=r"but not 'probs', the class .* or 'mean', the mean of"):
        first_moment(xr.Dataset({"other": 1}), "probs", "mean")


def test_moments_of_several_sites_are_not_guessed_between():
    group = xr.Dataset({"a.probs": probs_array(), "b.probs": probs_array()})
    with pytest.raises(ValueError, match=r"\(a\.probs, b\.probs\).*to_dataset\(\)\[\['a\.probs'"):
        moment(group, "probs")


@pytest.mark.parametrize("dim", ["chain", "draw"])
def test_a_missing_dim_of_draws_is_named(dim):
    with pytest.raises(ValueError, match=rf"but no '{dim}', .*array\.expand_dims\('{dim}'\)"):
        moment(probs_array().isel({dim: 0}), "probs")


def test_a_missing_dim_of_classes_is_named():
    with pytest.raises(ValueError, match=r"but no 'class_id', .*rename\(k='class_id'\)"):
        moment(probs_array().rename(class_id="k"), "probs")


def test_a_missing_dim_of_rows_is_named():
    with pytest.raises(ValueError, match="no dim of observations"):
        moment(xr.DataArray(np.zeros((2, 3)), dims=("chain", "draw")), "mean")


def test_observations_are_those_of_the_predictions_or_given():
    tree = example_tree("regression")
    assert observations(tree).identical(tree["predictions_observed_data"]["y"])
    y = xr.DataArray([1.0], dims="obs_id")
    assert observations(tree, y) is y
    assert observations(tree, np.zeros(7), tree["predictions"]["y"])["obs_id"].identical(tree["predictions"]["obs_id"])


def test_observations_of_the_training_data_are_not_those_of_predictions():
    tree = example_tree("regression").assign({"observed_data": example_tree("regression")["predictions_observed_data"]})
    tree = xr.DataTree.from_dict(
        {n: g.to_dataset() for n, g in tree.children.items() if not n.endswith("ns_observed_data")}
    )
    with pytest.raises(
        ValueError, match=r"no observations of the rows it predicts \(groups: predictions, conditional, obs"
    ):
        observations(tree)


def test_missing_observations_are_named():
    tree = xr.DataTree.from_dict({"conditional": example_tree("regression")["conditional"].to_dataset()})
    with pytest.raises(ValueError, match=r"no observations \(groups: conditional\).*predict\(posterior, x, y\)"):
        observations(tree)
    with pytest.raises(ValueError, match="There are no observations: pass them as y="):
        observations(probs_array())
    tree["observed_data"] = xr.DataTree(xr.Dataset({"a": ("obs_id", [1]), "b": ("obs_id", [1])}))
    with pytest.raises(ValueError, match=r"has variables a, b instead of one: .*y=tree\['observed_data'\]"):
        observations(tree)


@pytest.mark.parametrize(
    ("bad", "words"),
    [([0.5, 0.6], "sum 1.1"), ([1.2, -0.2], "sum 1: pass"), ([np.nan, 1.0], "sum nan"), ([2.0, -3.0], "sum -1")],
)
def test_values_that_are_no_probabilities_are_placed(bad, words):
    probs = np.full((3, 4, 2), 0.5)
    probs[1, 2] = bad
    with pytest.raises(ValueError, match=rf"at obs_id=12.*{words}"):
        refuse_bad_probs(probs, "obs_id", 10)


def test_labels_are_looked_up_among_the_classes():
    probs = probs_array().assign_coords(class_id=["a", "b", "c"])
    assert class_indices(xr.DataArray(["c", "a", "a", "b"], dims="obs_id"), probs).values.tolist() == [2, 0, 0, 1]
    assert class_indices([1.0, 2.0, 0.0, 1.0], probs_array()).values.tolist() == [1, 2, 0, 1]


def test_a_label_outside_the_classes_is_named():
    with pytest.raises(ValueError, match="Observation 1 has label 3, which is not one of the classes 0, 1, 2"):
        class_indices(xr.DataArray([0, 3, 1, 1], dims="obs_id"), probs_array())


def test_truth_values_are_no_labels_of_three_classes():
    with pytest.raises(ValueError, match=r"Observations are True or False, but there are 3 classes \(0, 1, 2\)"):
        class_indices(xr.DataArray([True, False, True, True], dims="obs_id"), probs_array())
    two = xr.DataArray(np.full((4, 2), 0.5), dims=("obs_id", "class_id"))
    assert class_indices(xr.DataArray([True, False, True, True], dims="obs_id"), two).values.tolist() == [1, 0, 1, 1]
