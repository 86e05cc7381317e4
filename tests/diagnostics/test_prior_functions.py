"""The prior in function space, against a linear model whose prior predictive is known."""

import numpy as np
import pytest
import xarray as xr

from bnnzoo.diagnostics import prior_functions
from bnnzoo.testing import example_tree

DIMS = ("chain", "draw", "obs_id")


def test_a_linear_function():
    """f = w x has a standard deviation of |x| at x, and a spread of |w| sd(x) over the inputs."""
    x, weights = np.linspace(-2, 2, 30), np.random.default_rng(0).normal(size=(1, 4000, 1))
    tree = xr.Dataset({"mean": (DIMS, weights * x), "variance": (DIMS, np.full((1, 4000, 30), 0.25))})
    found = prior_functions(tree)
    np.testing.assert_allclose(found["sd"], np.abs(x), rtol=4 / np.sqrt(2 * 4000))
    np.testing.assert_allclose(found["spread"], np.abs(weights[..., 0]) * x.std())
    np.testing.assert_allclose(found["noise_sd"], 0.5)
    np.testing.assert_allclose(found["r_squared"], found["spread"] ** 2 / (found["spread"] ** 2 + 0.25))


def test_classes():
    sure = np.zeros((1, 1, 4, 3))
    sure[0, 0, [0, 1, 2, 3], [0, 0, 0, 2]] = 1.0
    found = prior_functions(xr.Dataset({"probs": ((*DIMS, "class_id"), sure)}))
    values = [found[name].item() for name in ("saturated", "largest_share", "entropy")]
    np.testing.assert_allclose(values, [1.0, 0.75, 0.0], atol=1e-12)
    even = prior_functions(xr.Dataset({"probs": ((*DIMS, "class_id"), np.full((1, 2, 4, 3), 1 / 3))}))
    assert float(even["saturated"].max()) == 0.0
    np.testing.assert_allclose(even["entropy"], np.log(3))
    assert dict(prior_functions(example_tree("classification"))["entropy"].sizes) == {"chain": 2, "draw": 30}


def test_a_tree_without_moments_is_named():
    with pytest.raises(ValueError, match="The tree has no group 'conditional'"):
        prior_functions(xr.DataTree())
