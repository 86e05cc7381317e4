"""Entropies of mixtures against adaptive quadrature, closed forms, and their own error estimate."""

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import xarray as xr

from bnnzoo.testing import check_measure, example_tree
from bnnzoo.uncertainty import gaussian_mixture_entropy, laplace_mixture_entropy

DIMS = ("chain", "draw", "obs_id")
FAMILIES = {
    "gaussian": (gaussian_mixture_entropy, lambda variance: np.sqrt(variance), scipy.stats.norm),
    "laplace": (laplace_mixture_entropy, lambda variance: np.sqrt(variance / 2), scipy.stats.laplace),
}


def group(mean, variance):
    return xr.Dataset({"mean": (DIMS, np.asarray(mean)[None]), "variance": (DIMS, np.asarray(variance)[None])})


@pytest.mark.parametrize("measure", [gaussian_mixture_entropy, laplace_mixture_entropy])
def test_conformance(measure):
    check_measure(measure, example_tree("regression", num_draws=5, num_rows=3))


@pytest.mark.parametrize("family", FAMILIES)
def test_against_adaptive_quadrature(family):
    measure, to_scale, distribution = FAMILIES[family]
    rng = np.random.default_rng(0)
    mean, variance = rng.normal(0, 2, (4, 3)), rng.gamma(2.0, 0.3, (4, 3)) + 0.05
    found = measure(group(mean, variance))
    for row in range(3):
        parts = [distribution(m, to_scale(v)) for m, v in zip(mean[:, row], variance[:, row], strict=True)]

        def integrand(y, parts=parts):
            f = np.mean([part.pdf(y) for part in parts])
            return -f * np.log(f) if f > 0 else 0.0

        total, _ = scipy.integrate.quad(integrand, -40, 40, points=sorted(mean[:, row]), limit=500, epsabs=1e-10)
        error = abs(float(found["total"][row]) - total)
        assert error < 5e-6
        assert error <= float(found["error"][row]) + 1e-8
        assert float(found["aleatoric"][row]) == pytest.approx(np.mean([part.entropy() for part in parts]))


@pytest.mark.parametrize("family", FAMILIES)
def test_limits(family):
    measure, to_scale, distribution = FAMILIES[family]
    same = measure(group([[1.0], [1.0]], [[0.5], [0.5]]))
    assert float(same["total"][0]) == pytest.approx(float(distribution(1.0, to_scale(0.5)).entropy()), abs=1e-5)
    assert float(same["epistemic"][0]) < 1e-5
    apart = measure(group([[-40.0], [0.0], [40.0]], [[0.5]] * 3))
    assert float(apart["epistemic"][0]) == pytest.approx(np.log(3), abs=1e-4)


def test_units_change_entropies_but_not_their_difference():
    rng = np.random.default_rng(0)
    mean, variance = rng.normal(size=(5, 2)), rng.gamma(2.0, size=(5, 2))
    one, ten = (gaussian_mixture_entropy(group(c * mean, c**2 * variance)) for c in (1.0, 10.0))
    np.testing.assert_allclose(ten["total"] - one["total"], np.log(10), atol=1e-6)
    np.testing.assert_allclose(ten["epistemic"], one["epistemic"], atol=1e-6)


def test_a_component_too_narrow_for_the_grid_is_seen_in_the_error():
    found = gaussian_mixture_entropy(group([[0.0], [1.0]], [[1.0], [1e-12]]), max_nodes=1024)
    assert float(found["error"][0]) > 0.1


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="variances that are positive and finite"):
        gaussian_mixture_entropy(group([[0.0], [1.0]], [[1.0], [0.0]]))
    with pytest.raises(ValueError, match="entropy of a mixture compares draws"):
        gaussian_mixture_entropy(group([[0.0]], [[1.0]]))
