"""Points to learn from and points held out: inside the data, between them and beyond."""

import numpy as np
from scipy.spatial.distance import cdist

from bnnzoo.serving.distillation_inputs import points_of


def clusters() -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.concatenate([rng.normal(centre, 0.1, size=(50, 2)) for centre in (-1.0, 1.0)])


def test_points_inside_lie_in_the_clusters_and_points_beyond_in_the_gap_or_outside() -> None:
    found = points_of(clusters(), 400, 0.5, seed=0)
    assert found.training.shape == (400, 2) and len(found.inside) == 100 and 50 <= len(found.beyond) <= 100
    assert cdist(found.inside, clusters()).min(1).max() < 0.3
    assert cdist(found.beyond, clusters()).min(1).min() > 0.05
    gap = (abs(found.beyond) < 0.5).all(1)
    assert gap.any() and (abs(found.beyond) > 1.5).any()


def test_the_box_is_wider_than_the_data_by_reach_and_holds_all_points() -> None:
    x = clusters()
    found = points_of(x, 400, 0.25, seed=0)
    np.testing.assert_allclose(found.high, x.max(0) + 0.25 * np.ptp(x, 0))
    for part in (found.training, found.inside, found.beyond):
        assert (part >= found.low).all() and (part <= found.high).all()


def test_nothing_is_learned_at_rows_that_are_held_out() -> None:
    x = clusters()
    found = points_of(x, 400, 0.5, seed=0)
    rows = {
        part: [row for row in x.tolist() if row in getattr(found, part).tolist()] for part in ("training", "inside")
    }
    assert len(rows["training"]) == 80 and len(rows["inside"]) == 20
    assert not [row for row in rows["inside"] if row in rows["training"]]


def test_columns_of_two_values_are_codes_and_shapes_of_images_are_kept() -> None:
    x = np.column_stack([clusters()[:, 0], np.arange(100) % 2, np.full(100, 3.0)])
    found = points_of(x, 400, 0.5, seed=0)
    for part in (found.training, found.inside, found.beyond):
        assert set(part[:, 1]) <= {0.0, 1.0} and set(part[:, 2]) == {3.0}
    assert points_of(x.reshape(100, 1, 3, 1), 400, 0.5, seed=0).inside.shape == (100, 1, 3, 1)
