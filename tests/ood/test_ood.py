"""Densities and distances of features against closed forms, scipy and plain loops."""

import numpy as np
import pytest
import scipy.stats
import xarray as xr
from sklearn.covariance import ledoit_wolf

from bnnzoo.ood import GaussianDensity, GaussianProcessScore, Mahalanobis, NearestFeatures, sum_of_layers

DIMS = ("obs_id", "feature")


def clusters(seed=0, rows=300, features=3):
    rng = np.random.default_rng(seed)
    labels = rng.integers(2, size=rows)
    values = rng.normal(size=(rows, features)) @ np.diag([1.0, 2.0, 0.5]) + 6 * labels[:, None]
    return xr.DataArray(values, dims=DIMS), xr.DataArray(labels, dims="obs_id")


SCORES = {
    "density": lambda x, y: GaussianDensity.fit(x, y),
    "mahalanobis": lambda x, y: Mahalanobis.fit(x, y),
    "nearest": lambda x, y: NearestFeatures.fit(x),
    "process": lambda x, y: GaussianProcessScore.fit(x, y, max_rows=60),
}


@pytest.mark.parametrize("name", SCORES)
def test_strange_observations_score_higher(name):
    away = 10.0 if name == "nearest" else 0.0  # it sees directions only, and about the origin all are taken
    features, labels = clusters()
    fitted = SCORES[name](features + away, labels)
    new = clusters(1)[0] + away
    strange = xr.DataArray(np.tile([25.0, -30.0, 20.0], (5, 1)), dims=DIMS)
    assert float(fitted.score(strange).min()) > float(fitted.score(new).quantile(0.99))
    assert fitted.score(new).dims == ("obs_id",)


@pytest.mark.parametrize("name", SCORES)
def test_every_draw_has_its_own_fit_and_scores_are_averaged(name):
    (one, labels), (two, _) = clusters(0), clusters(5)
    both = xr.concat([one, two], "draw").expand_dims("chain")
    joint = SCORES[name](both, labels).score(both)
    apart = [SCORES[name](each, labels).score(each) for each in (one, two)]
    np.testing.assert_allclose(joint, (apart[0] + apart[1]) / 2, rtol=1e-10)
    with pytest.raises(ValueError, match="features of 1 draws, but training had 2: use the same draws"):
        SCORES[name](both, labels).score(one)


def test_density_is_scipys():
    features, labels = clusters()
    x, y = features.values, labels.values
    density = 0.0
    for k in range(2):
        group = x[y == k]
        gaussian = scipy.stats.multivariate_normal(group.mean(0), ledoit_wolf(group)[0])
        density += len(group) / len(x) * gaussian.pdf(x)
    np.testing.assert_allclose(GaussianDensity.fit(features, labels).score(features), -np.log(density), rtol=1e-4)


def test_ecdf_of_the_training_data_is_uniform():
    features, labels = clusters()
    fitted = GaussianDensity.fit(features, labels)
    np.testing.assert_allclose(np.sort(fitted.ecdf(features)), np.arange(1, 301) / 300)
    assert float(fitted.ecdf(features + 100.0).min()) == 1.0
    assert scipy.stats.kstest(fitted.ecdf(clusters(1, rows=200)[0]), "uniform").pvalue > 0.001


def test_mahalanobis_does_not_depend_on_units_and_is_chi_squared():
    """Without shrinkage it would not depend on them at all; with many rows hardly."""
    features, labels = clusters(rows=5000)
    score = Mahalanobis.fit(features, labels).score(features)
    assert float(score.mean()) == pytest.approx(3.0, rel=0.05)
    turned = features @ xr.DataArray(
        np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0], dims=("feature", "f")
    )
    turned = turned.rename(f="feature")
    np.testing.assert_allclose(Mahalanobis.fit(turned, labels).score(turned), score, rtol=1e-3)


def test_distances_from_known_gaussians():
    """A class of its own covariance each: squared distances are those of the true parameters, chi-squared within a class."""
    rng = np.random.default_rng(0)
    means, roots = np.array([[0.0, 0.0], [40.0, 0.0]]), np.array([[[1.0, 0.0], [0.5, 0.3]], [[4.0, 0.0], [-1.0, 2.0]]])
    labels = np.repeat([0, 1], 4000)
    values = means[labels] + np.einsum("nij,nj->ni", roots[labels], rng.normal(size=(8000, 2)))
    features = xr.DataArray(values, dims=("obs_id", "feature"))
    fitted = Mahalanobis.fit(features, xr.DataArray(labels, dims="obs_id"), shared_covariance=False)
    new = np.array([[2.0, -1.0], [33.0, 4.0], [0.3, 0.9]])
    exact = np.min(
        [[(z - m) @ np.linalg.solve(r @ r.T, z - m) for z in new] for m, r in zip(means, roots, strict=True)], axis=0
    )
    found = fitted.score(xr.DataArray(new, dims=("obs_id", "feature")))
    np.testing.assert_allclose(found, exact, rtol=0.1)
    own = fitted.score(features).to_numpy()
    for k in (0, 1):
        assert abs(own[labels == k].mean() - 2.0) < 5 * 2.0 / np.sqrt(4000) + 0.01


def test_classes_may_have_covariances_of_their_own():
    """A common covariance takes a narrow class for a wide one."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 2000)
    values = rng.normal(size=(4000, 3)) * np.where(labels, 5.0, 0.1)[:, None] + 50.0 * labels[:, None]
    features, known = xr.DataArray(values, dims=DIMS), xr.DataArray(labels, dims="obs_id")
    found = Mahalanobis.fit(features, known, shared_covariance=False).score(features)
    distances = []
    for k in range(2):
        group = values[labels == k]
        centred = values - group.mean(0)
        distances.append((centred @ np.linalg.inv(ledoit_wolf(group)[0]) * centred).sum(1))
    np.testing.assert_allclose(found, np.min(distances, axis=0), rtol=1e-4)
    assert float(found[:2000].mean()) == pytest.approx(3.0, rel=0.15)
    shared = Mahalanobis.fit(features, known).score(features)
    assert float(shared[:2000].mean()) < 0.1


def test_nearest_against_plain_loops():
    features, _ = clusters(rows=30)
    new, _ = clusters(1, rows=4)
    unit = [values / np.linalg.norm(values, axis=1, keepdims=True) for values in (features.values, new.values)]
    found = NearestFeatures.fit(features, num_neighbors=3).score(new)
    for row, point in enumerate(unit[1]):
        distances = sorted(np.linalg.norm(point - other) for other in unit[0])
        assert float(found[row]) == pytest.approx(distances[2], abs=1e-7)


def test_layers_are_standardised():
    rng = np.random.default_rng(0)
    small, large = (xr.DataArray(scale * rng.normal(size=500), dims="obs_id") for scale in (0.01, 1000.0))
    total = sum_of_layers([small, large], [small, large])
    correlations = [np.corrcoef(total, layer)[0, 1] for layer in (small, large)]
    assert abs(correlations[0] - correlations[1]) < 0.1


def test_constant_features_and_small_classes_are_survived():
    features, labels = clusters(rows=12)
    wide = xr.DataArray(np.hstack([features.values, np.ones((12, 20))]), dims=DIMS)
    assert np.isfinite(GaussianDensity.fit(wide, labels).score(wide)).all()
    assert np.isfinite(Mahalanobis.fit(wide, labels).score(wide)).all()


def test_bad_input_is_named():
    features, labels = clusters(rows=10)
    for method in (GaussianDensity, Mahalanobis):
        with pytest.raises(ValueError, match=r"dims obs_id and feature, but have obs_id, k: rename one to 'feature'"):
            method.fit(features.rename(feature="k"), labels)
        with pytest.raises(ValueError, match="There are 4 values of labels along 'obs_id' for 10 rows of the features"):
            method.fit(features, labels[:4])
        with pytest.raises(ValueError, match="Class 7 has a single observation"):
            method.fit(features, xr.where(xr.DataArray(np.arange(10), dims="obs_id") == 0, 7, 0))
        with pytest.raises(ValueError, match="Features must be finite"):
            method.fit(features * np.nan, labels)
    with pytest.raises(ValueError, match="num_neighbors=20 must be between 1 and the 10 observations"):
        NearestFeatures.fit(features, num_neighbors=20)
    with pytest.raises(ValueError, match="scores of 1 layers, but references of 0"):
        sum_of_layers([labels], [])
    with pytest.raises(ValueError, match="max_rows=1: write 2 or more"):
        GaussianProcessScore.fit(features, labels, max_rows=1)
