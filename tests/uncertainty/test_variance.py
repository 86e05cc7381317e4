"""The law of total variance against plain loops, and where peers get it wrong."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from bnnzoo.testing import check_measure, example_tree
from bnnzoo.uncertainty import aleatoric_variance, decompose, epistemic_variance, total_variance

SHAPES = st.tuples(st.integers(2, 6), st.integers(1, 4))
DIMS = ("chain", "draw", "obs_id")


def group(mean, variance):
    """Label moments [draws, rows]."""
    return xr.Dataset({"mean": (DIMS, np.asarray(mean)[None]), "variance": (DIMS, np.asarray(variance)[None])})


@pytest.mark.parametrize("measure", [aleatoric_variance, epistemic_variance, total_variance, decompose])
def test_conformance(measure):
    check_measure(measure, example_tree("regression"))


def test_against_the_mixture_itself():
    """The variance of y drawn from the mixture, for Gaussian and Laplace likelihoods."""
    rng = np.random.default_rng(0)
    mean, scale = rng.normal(size=(5, 1)), rng.gamma(2.0, size=(5, 1))
    component = rng.integers(5, size=400_000)
    noise = {"gaussian": rng.normal(size=400_000), "laplace": rng.laplace(size=400_000)}
    variance = {"gaussian": scale**2, "laplace": 2 * scale**2}
    for likelihood, values in noise.items():
        y = mean[component, 0] + scale[component, 0] * values
        error = np.std((y - y.mean()) ** 2) / np.sqrt(len(y))
        total = float(total_variance(group(mean, variance[likelihood]))[0])
        assert abs(total - y.var()) < 5 * error


def test_against_plain_loops():
    tree = example_tree("regression")
    mean = tree["conditional"]["mean"].values.reshape(-1, 7)
    variance = tree["conditional"]["variance"].values.reshape(-1, 7)
    parts = decompose(tree)
    for row in range(7):
        centre = sum(mean[:, row]) / len(mean)
        spread = sum((value - centre) ** 2 for value in mean[:, row]) / len(mean)
        assert parts["epistemic"].values[row] == pytest.approx(spread, rel=1e-12)
        assert parts["aleatoric"].values[row] == pytest.approx(sum(variance[:, row]) / len(mean), rel=1e-12)


def test_units_are_said():
    assert decompose(example_tree("regression"))["total"].attrs["units"] == "squared units of y"
    assert decompose(example_tree("classification"))["epistemic"].attrs["units"] == "nats"


def test_several_outputs_keep_their_dim():
    values = np.random.default_rng(0).random((1, 5, 3, 2))
    both = xr.Dataset(dict.fromkeys(("mean", "variance"), ((*DIMS, "output_id"), values)))
    assert decompose(both)["total"].dims == ("obs_id", "output_id")


def test_infinite_noise_stays_infinite():
    parts = decompose(group([[0.0], [1.0]], [[np.inf], [1.0]]))
    assert np.isinf(parts["aleatoric"]).all()
    assert float(parts["epistemic"][0]) == 0.25


def test_missing_variance_and_a_single_draw_are_named():
    with pytest.raises(ValueError, match=r"has variables mean, but not 'variance', .* the noise variance"):
        decompose(group([[0.0], [1.0]], [[1.0], [1.0]]).drop_vars("variance"))
    with pytest.raises(ValueError, match="epistemic_variance compares draws"):
        decompose(group([[0.0]], [[1.0]]))


def test_a_tree_with_nothing_to_split_is_told_both_ways():
    with pytest.raises(ValueError, match=r"but not 'probs', .* or 'mean'"):
        decompose(xr.DataTree.from_dict({"conditional": xr.Dataset({"a": ("draw", [1.0])})}))


@settings(max_examples=30, deadline=None)
@given(
    shape=st.tuples(st.integers(2, 6), st.integers(1, 4)), shift=st.floats(-1e6, 1e6), seed=st.integers(0, 2**32 - 1)
)
def test_properties(shape, shift, seed):
    rng = np.random.default_rng(seed)
    mean, variance = rng.normal(size=shape), rng.gamma(1.0, size=shape)
    parts = decompose(group(mean, variance))
    xr.testing.assert_allclose(parts["total"], parts["aleatoric"] + parts["epistemic"])
    xr.testing.assert_allclose(decompose(group(mean + shift, variance)), parts, rtol=1e-6, atol=1e-8)
    xr.testing.assert_allclose(decompose(group(mean, variance).chunk(draw=2, obs_id=1)), parts, rtol=1e-12)
    order = rng.permutation(shape[0])
    xr.testing.assert_allclose(decompose(group(mean[order], variance[order])), parts, rtol=1e-12)
    same = decompose(group(np.broadcast_to(mean[:1], shape), variance))
    np.testing.assert_allclose(same["epistemic"], 0.0, atol=1e-15)
