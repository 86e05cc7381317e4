"""The evidence lower bound against the log evidence and the divergence of a Gaussian, both known exactly."""

import numpy as np
import pytest
import xarray as xr

import bnnzoo as bz
from bnnzoo.core.model.density import build_density
from bnnzoo.core.posterior.covariance import Diagonal
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.posterior import Gaussian
from bnnzoo.testing import linear_gaussian


@pytest.mark.parametrize("scale", [1.0, 0.7])
def test_it_is_the_log_evidence_minus_the_divergence(scale: float) -> None:
    target = linear_gaussian(correlation=0.0)
    density = build_density(target.model, *target.data)
    sd = target.sd["w"]
    covariance = Diagonal(scale * sd)
    posterior = Gaussian(density, FitInfo("iid", method="MeanFieldVI"), target.mean["w"], covariance)
    bound = bz.diagnostics.elbo(bz.to_datatree(posterior, num_draws=4000))
    product = np.linalg.inv(np.asarray(target.covariance)) @ np.diag(np.asarray(scale * sd) ** 2)
    divergence = 0.5 * float(np.trace(product) - len(product) - np.linalg.slogdet(product)[1])
    expected = float(target.log_evidence) - divergence
    assert abs(float(bound["value"]) - expected) < 4 * float(bound["mcse"]) + 1e-9
    assert float(bound["value"]) <= float(bound["importance_weighted"]) + 1e-9


def test_its_error_is_that_of_a_mean() -> None:
    rng = np.random.default_rng(0)
    stats = xr.Dataset({name: (("chain", "draw"), rng.normal(size=(2, 500))) for name in ("lp", "log_q")})
    bound = bz.diagnostics.elbo(xr.DataTree.from_dict({"sample_stats": stats}))
    ratios = (stats["lp"] - stats["log_q"]).values
    assert float(bound["mcse"]) == pytest.approx(np.sqrt(ratios.var(1, ddof=1).mean() / 1000))


def test_a_tree_without_a_density_is_named() -> None:
    stats = xr.Dataset({"lp": (("chain", "draw"), np.zeros((1, 30)))})
    with pytest.raises(
        ValueError, match="An evidence lower bound needs 'log_q' in the group 'sample_stats', which has lp"
    ):
        bz.diagnostics.elbo(xr.DataTree.from_dict({"sample_stats": stats}))
