"""Draws that are lost (NaN) are left out of every measure, and a row that has lost all of them is NaN."""

import numpy as np
import pytest
import xarray as xr

import bnnzoo as bz
from bnnzoo.calibration import brier, nll, nll_of_probs
from bnnzoo.trees import average_probs
from bnnzoo.uncertainty import (
    decompose,
    expected_disagreement,
    expected_entropy,
    logit_disagreement,
    max_expected_logit,
    pairwise_kl,
    predictive_entropy,
    probability_bounds,
    votes,
)

RNG = np.random.default_rng(0)
DIMS = ("chain", "draw", "obs_id")
PROBS = xr.DataArray(RNG.dirichlet([1.0, 2.0, 0.5], size=(2, 50, 4)), dims=(*DIMS, "class_id"))
NUMBERS = xr.Dataset({name: (DIMS, RNG.gamma(2.0, size=(2, 50, 4))) for name in ("mean", "variance")})
LABELS = xr.DataArray([0, 1, 2, 0], dims="obs_id")


def with_losses(whole, left):
    """Return draws of which 7 are lost, and in row 3 all of them."""
    lost = whole.copy(deep=True)
    lost = lost.where(~((lost.chain == 1) & (lost.draw >= 43))) if left else lost
    return lost.where(lost.obs_id != 3)


def without(whole):
    flat = (
        whole.stack(all=("chain", "draw"), create_index=False)
        .isel(all=slice(93))
        .rename(all="draw")
        .expand_dims("chain")
    )
    return flat.drop_vars(["chain"], errors="ignore")


def numbered(whole):
    return whole.assign_coords({dim: np.arange(whole.sizes[dim]) for dim in DIMS})


@pytest.mark.parametrize(
    "measure",
    [
        decompose,
        average_probs,
        expected_disagreement,
        expected_entropy,
        logit_disagreement,
        max_expected_logit,
        pairwise_kl,
        predictive_entropy,
        probability_bounds,
        votes,
        lambda probs: brier(probs, LABELS),
        lambda probs: nll_of_probs(probs, LABELS),
    ],
)
def test_measures_of_classes_leave_lost_draws_out(measure):
    found, expected = measure(with_losses(numbered(PROBS), True)), measure(without(PROBS))
    for each, other in zip(
        *(x.to_array() if isinstance(x, xr.Dataset) else [x] for x in (found, expected)), strict=True
    ):
        rest = {"obs_id": slice(3)}
        np.testing.assert_allclose(each.isel(rest), other.transpose(*each.dims).isel(rest), rtol=1e-12)
        if measure is not votes and measure is not expected_disagreement:
            assert each.isel(obs_id=3).isnull().all()


def test_variances_leave_lost_draws_out_as_summaries_do():
    lost, rest = with_losses(numbered(NUMBERS), True), without(NUMBERS)
    found, expected = decompose(lost).isel(obs_id=slice(3)), decompose(rest).isel(obs_id=slice(3))
    xr.testing.assert_allclose(found.drop_vars("obs_id"), expected, rtol=1e-12)
    assert decompose(lost).isel(obs_id=3).to_array().isnull().all()
    tree = xr.DataTree.from_dict({"predictions": lost[["mean"]]})
    np.testing.assert_allclose(bz.summarise(tree)["sd"][:3] ** 2 * 92 / 93, found["epistemic"], rtol=1e-12)


def test_the_log_density_of_an_outcome_is_averaged_over_the_draws_that_have_one():
    log = np.log(numbered(NUMBERS[["mean"]]))
    found = nll(xr.DataTree.from_dict({"log_likelihood": with_losses(log, True)}))
    np.testing.assert_allclose(found[:3], -np.log(without(NUMBERS)["mean"].mean(("chain", "draw")))[:3], rtol=1e-12)
    assert np.isnan(found[3])


def test_probabilities_that_are_nan_in_part_are_refused():
    part = PROBS.copy(deep=True)
    part[0, 0, 2, 1] = np.nan
    with pytest.raises(ValueError, match="must sum to one, but at obs_id=2"):
        average_probs(part)


@pytest.mark.parametrize("kind", ["eti", "hdi"])
def test_summaries_leave_lost_draws_out(kind):
    lost, rest = with_losses(numbered(NUMBERS[["mean"]]), True), without(NUMBERS[["mean"]])
    found, expected = (bz.summarise(xr.DataTree.from_dict({"predictions": each}), kind=kind) for each in (lost, rest))
    np.testing.assert_allclose(found[:3], expected[:3])
    assert found.loc[3].isna().all()


def test_the_class_of_a_row_without_draws_is_missing():
    groups = {"predictions": xr.Dataset({"y": PROBS.argmax("class_id")}), "conditional": xr.Dataset({"probs": PROBS})}
    groups["conditional"] = with_losses(numbered(groups["conditional"]), True)
    classes = bz.summarise(xr.DataTree.from_dict(groups))["class"]
    assert classes.isna().tolist() == [False] * 3 + [True] and set(classes[:3]) <= {0, 1, 2}
