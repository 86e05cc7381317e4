"""Symmetries of weights on networks that were permuted, flipped and scaled on purpose."""

import json

import numpy as np
import pytest
import xarray as xr

from bnnzoo.diagnostics import canonical_weights, function_modes, match_weights, weight_rhat

SHAPES = {"0.weight": (5, 2), "0.bias": (5,), "2.weight": (4, 5), "2.bias": (4,), "4.weight": (1, 4), "4.bias": (1,)}
FUNCTIONS = {"tanh": np.tanh, "relu": lambda z: np.maximum(z, 0), "sigmoid": lambda z: 1 / (1 + np.exp(-z))}


def tree_of(weights, activation):
    """Return a tree of weights ``[chain, draw, ...]`` of a network with two hidden layers."""
    group = {n: (("chain", "draw", *(f"{n}_dim_{i}" for i in range(a.ndim - 2))), a) for n, a in weights.items()}
    tree = xr.DataTree.from_dict({"weights": xr.Dataset(group)})
    layers = [{"weight": f"{i}.weight", "bias": f"{i}.bias", "activation": activation} for i in (0, 2, 4)]
    del layers[-1]["activation"]
    tree.attrs["layers"] = json.dumps([layers])
    return tree


def disguised(weights, activation, rng):
    """Return weights ``[chain, draw, ...]`` of the same functions, with another symmetry for each chain."""
    weights = {name: array.copy() for name, array in weights.items()}
    for chain in range(len(weights["0.bias"])):
        for i in (0, 2):
            units = weights[f"{i}.bias"].shape[-1]
            order = rng.permutation(units)
            factor = {"tanh": rng.choice([-1, 1], units), "relu": rng.gamma(3, size=units)}.get(
                activation, np.ones(units)
            )
            weights[f"{i}.weight"][chain] = factor[:, None] * weights[f"{i}.weight"][chain][:, order]
            weights[f"{i}.bias"][chain] = factor * weights[f"{i}.bias"][chain][:, order]
            weights[f"{i + 2}.weight"][chain] = weights[f"{i + 2}.weight"][chain][:, :, order] / factor
    return weights


def draws(activation, chains=3, num_draws=40):
    rng = np.random.default_rng(0)
    middle = {name: rng.normal(size=shape) for name, shape in SHAPES.items()}
    known = {n: m + 0.02 * rng.normal(size=(chains, num_draws, *m.shape)) for n, m in middle.items()}
    return known, disguised(known, activation, rng)


def outputs(weights, activation):
    """Return the functions ``[chain, draw, row]`` at five inputs."""
    values = np.random.default_rng(9).normal(size=(5, 2))
    for i in (0, 2, 4):
        values = (
            values @ np.swapaxes(np.asarray(weights[f"{i}.weight"]), -1, -2)
            + np.asarray(weights[f"{i}.bias"])[..., None, :]
        )
        values = FUNCTIONS[activation](values) if i < 4 else values
    return values[..., 0]


@pytest.mark.parametrize("activation", FUNCTIONS)
@pytest.mark.parametrize("transform", [canonical_weights, match_weights])
def test_functions_stay_as_they_were(activation, transform):
    _, weights = draws(activation, num_draws=6)
    found = transform(tree_of(weights, activation))
    np.testing.assert_allclose(outputs(found, activation), outputs(weights, activation), atol=1e-12)


@pytest.mark.parametrize("activation", FUNCTIONS)
def test_symmetric_draws_have_one_canonical_form(activation):
    known, weights = draws(activation, num_draws=6)
    one, other = (canonical_weights(tree_of(w, activation)) for w in (known, weights))
    xr.testing.assert_allclose(one, other)


@pytest.mark.parametrize("activation", FUNCTIONS)
def test_units_are_matched_with_the_reference(activation):
    known, weights = draws(activation, num_draws=6)
    found = match_weights(tree_of(weights, activation), reference=(0, 0))
    plain = match_weights(tree_of(known, activation), reference=(0, 0))  # in order already
    spread = max(float(found[name].std(("chain", "draw")).max()) for name in found)
    assert spread == pytest.approx(max(float(plain[name].std(("chain", "draw")).max()) for name in plain))


def test_rhat_of_weights_before_and_after():
    _, weights = draws("tanh")
    found = weight_rhat(tree_of(weights, "tanh"))
    assert float(found["raw"].max()) > 1.5
    assert float(found["matched"].max()) < 1.1  # independent draws of one mode
    assert found["site"].values[:3].tolist() == ["0.weight"] * 3


def test_the_reference_is_the_most_probable_draw():
    _, weights = draws("tanh", num_draws=6)
    tree = tree_of(weights, "tanh")
    lp = np.zeros((3, 6))
    lp[1, 4] = 1.0
    tree["sample_stats"] = xr.DataTree(xr.Dataset({"lp": (("chain", "draw"), lp)}))
    xr.testing.assert_identical(match_weights(tree), match_weights(tree, reference=(1, 4)))


def test_modes_are_functions():
    rng = np.random.default_rng(0)
    centres = np.array([0.0, 0.1, 6.0, 0.05])[:, None, None]
    found = function_modes(xr.DataArray(rng.normal(centres, 1.0, (4, 200, 8)), dims=("chain", "draw", "obs_id")))
    assert found["mode"].values.tolist() == [0, 0, 1, 0]
    assert float(found["separation"][0, 2]) == pytest.approx(6.0, rel=0.05)
    members = np.linspace(-1, 1, 8) * np.array([1.0, 1.001, -1.0])[:, None]
    tree = xr.DataTree.from_dict({"conditional": xr.Dataset({"mean": (("chain", "draw", "obs_id"), members[None])})})
    tree.attrs["sampling"] = "ensemble"
    assert int(function_modes(tree)["num_modes"]) == 2
    assert int(function_modes(tree, threshold=100.0)["num_modes"]) == 1


@pytest.mark.parametrize("activation", FUNCTIONS)
def test_relabelled_hidden_units_are_one_mode(activation):
    _, weights = draws(activation)
    dims = ("chain", "draw", "obs_id")
    flat = np.concatenate([array.reshape(3, 40, -1) for array in weights.values()], -1)
    assert int(function_modes(xr.DataArray(flat, dims=dims))["num_modes"]) == 3
    functions = outputs(weights, activation)
    assert int(function_modes(xr.DataArray(functions, dims=dims))["num_modes"]) == 1
    functions[2] += 5 * functions.std((0, 1))  # another bias of the output
    assert function_modes(xr.DataArray(functions, dims=dims))["mode"].values.tolist() == [0, 0, 1]


def test_what_is_missing_is_named():
    with pytest.raises(ValueError, match="the tree has no group 'weights'"):
        canonical_weights(xr.DataTree())
    tree = tree_of(draws("tanh", num_draws=2)[1], "tanh")
    with pytest.raises(ValueError, match="it needs two chains of 4 draws or more, but there are 3 of 2"):
        weight_rhat(tree)
    tree.attrs.clear()
    with pytest.raises(ValueError, match="attribute 'layers' names no hidden layer"):
        match_weights(tree)
    one = xr.DataArray([[[1.0]]], dims=("chain", "draw", "obs_id"))
    with pytest.raises(ValueError, match="told apart by the spread of their draws"):
        function_modes(one)
    with pytest.raises(ValueError, match="threshold=0 must be positive"):
        function_modes(one, threshold=0)
