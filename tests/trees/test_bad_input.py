"""Every measure names what it lacks: the group, a dim, probabilities, labels, draws."""

import numpy as np
import pytest
import xarray as xr

from bnnzoo import acquisition, calibration, diagnostics, uncertainty
from bnnzoo.testing import example_tree

OF_PROBS = [
    *(getattr(uncertainty, name) for name in ("decompose", "entropies", "predictive_entropy", "expected_entropy",
      "mutual_information", "jensen_shannon", "pairwise_kl", "votes", "variation_ratio", "expected_disagreement",
      "logit_disagreement", "max_probability", "max_expected_logit", "margin")),
    *(getattr(calibration, name) for name in ("nll_of_probs", "brier", "brier_split", "ece", "classwise_ece",
      "reliability_curve", "misclassified")),
    acquisition.bald,
]  # fmt: skip
WITH_LABELS = [m for m in OF_PROBS if m.__module__.startswith("bnnzoo.calibration")]
OF_MOMENTS = [getattr(uncertainty, name) for name in ("aleatoric_variance", "epistemic_variance", "total_variance",
              "gaussian_mixture_entropy", "laplace_mixture_entropy")]  # fmt: skip
OF_DRAWS = [getattr(calibration, name) for name in ("crps", "interval_score", "pit", "coverage_curve",
            "miscalibration_area", "sharpness")]  # fmt: skip
by_name = {"ids": lambda measure: measure.__name__}


def without(tree, *groups):
    return xr.DataTree.from_dict(
        {name: node.to_dataset() for name, node in tree.children.items() if name not in groups}
    )


@pytest.mark.parametrize("measure", [*OF_PROBS, *OF_MOMENTS], **by_name)
def test_a_missing_group(measure):
    tree = without(example_tree("classification"), "conditional")
    with pytest.raises(ValueError, match=r"no group 'conditional' \(groups: predictions.*bnnzoo\.predict .* make it"):
        measure(tree)


@pytest.mark.parametrize("measure", OF_DRAWS, **by_name)
def test_missing_draws_of_y(measure):
    with pytest.raises(ValueError, match=r"needs draws of y, but the tree has neither 'predictions'.*bnnzoo\.predict"):
        measure(without(example_tree("regression"), "predictions"))


@pytest.mark.parametrize("dim", ["chain", "draw", "class_id"])
@pytest.mark.parametrize("measure", OF_PROBS, **by_name)
def test_a_missing_dim(measure, dim):
    tree = without(example_tree("classification"))
    tree["conditional"] = xr.DataTree(tree["conditional"].to_dataset()[["probs"]].isel({dim: 0}, drop=True))
    with pytest.raises(ValueError, match=rf"'probs' has dims .*, but no '{dim}'"):
        measure(tree)


@pytest.mark.parametrize("measure", OF_PROBS, **by_name)
def test_values_that_are_no_probabilities(measure):
    tree = without(example_tree("classification"))
    tree["conditional"] = xr.DataTree(2 * tree["conditional"].to_dataset()[["probs"]])
    with pytest.raises(ValueError, match=r"must sum to one, but at obs_id=0 they are .*, with sum 2: pass"):
        measure(tree)


@pytest.mark.parametrize("measure", WITH_LABELS, **by_name)
def test_labels_outside_the_classes_and_no_labels(measure):
    tree = example_tree("classification")
    with pytest.raises(ValueError, match="Observation 0 has label 9, which is not one of the classes 0, 1, 2"):
        measure(tree, xr.DataArray(np.full(7, 9), dims="obs_id"))
    with pytest.raises(ValueError, match=r"no observations \(groups: .*or pass y="):
        measure(without(tree, "predictions_observed_data"))


COMPARING = {"decompose", "entropies", "mutual_information", "jensen_shannon", "pairwise_kl", "variation_ratio",
             "expected_disagreement", "logit_disagreement", "bald", "epistemic_variance", "total_variance",
             "gaussian_mixture_entropy", "laplace_mixture_entropy", "crps", "sharpness"}  # fmt: skip


@pytest.mark.parametrize("measure", [*OF_PROBS, *OF_MOMENTS, *OF_DRAWS], **by_name)
def test_a_single_draw_is_refused_where_draws_are_compared_and_enough_elsewhere(measure):
    single = example_tree("classification" if measure in OF_PROBS else "regression").isel(chain=[0], draw=[0])
    if measure.__name__ in COMPARING:
        with pytest.raises(
            ValueError, match=r"compares draws of the posterior, but .* only one|needs at least 2 draws"
        ):
            measure(single)
    else:
        result = measure(single)
        dataset = result.to_dataset(name="value") if isinstance(result, xr.DataArray) else result
        assert all(np.isfinite(values).all() for values in dataset.data_vars.values())


@pytest.mark.parametrize(
    "measure",
    [uncertainty.decompose, diagnostics.loo, diagnostics.function_space, diagnostics.psis, calibration.nll],
    ids=lambda measure: measure.__name__,
)
@pytest.mark.parametrize(
    ("value", "instead"), [(np.zeros(3), "what bnnzoo.predict returns"), (None, "what bnnzoo.predict")]
)
def test_what_is_no_tree_is_refused_with_what_makes_one(measure, value, instead):
    with pytest.raises(TypeError, match=rf"Measures take trees, .* of type {type(value).__name__}: pass {instead}"):
        measure(value)


def test_a_posterior_in_place_of_a_tree_is_told_how_to_become_one():
    class Posterior:
        def draws(self): ...

    with pytest.raises(TypeError, match=r"of type Posterior: pass tree = bnnzoo\.predict\(posterior, x, y\)"):
        uncertainty.decompose(Posterior())
