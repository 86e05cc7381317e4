"""Bias of long steps: differences from an exact run, paired by chain, and their standard errors."""

import numpy as np
import pytest
import xarray as xr

from benchmarks.microcanonical import compared, functions, held_out, within

CHAINS, DRAWS, ROWS = 4, 400, 5
MODES = np.array([0.0, 30.0, -20.0, 5.0])[:, None]


def run(seed: int, shift: float = 0.0, scale: float = 1.0) -> xr.Dataset:
    """Return independent draws around a mode for each chain, of sd two times ``scale``."""
    noise = np.random.default_rng(seed).normal(size=(CHAINS, DRAWS))
    return xr.Dataset({"log density": (("chain", "draw"), MODES + shift + 2 * scale * noise)})


def tree(seed: int, shift: float = 0.0, scale: float = 1.0) -> xr.DataTree:
    """Return draws of f at some rows with an sd of ``scale``, around another function in each chain."""
    noise = np.random.default_rng(seed).normal(size=(CHAINS, DRAWS, ROWS))
    mean = (("chain", "draw", "obs_id"), MODES[..., None] + shift + scale * noise)
    return xr.DataTree.from_dict({"conditional": xr.Dataset({"mean": mean})})


def test_equal_runs_do_not_differ() -> None:
    found = compared(run(0), run(0))["log density"]
    assert found["difference"] == found["difference in sds"] == found["standard error between chains"] == 0.0
    assert found["sd ratio"] == 1.0


def test_a_shift_is_found_in_both_units_although_chains_lie_far_apart() -> None:
    found = compared(run(1, shift=1.0, scale=1.5), run(0))["log density"]
    error = np.sqrt(4 + 9) / np.sqrt(CHAINS * DRAWS)  # draws are independent, of sds 2 and 3
    assert found["standard error"] == pytest.approx(error, rel=0.2)
    assert abs(found["difference"] - 1.0) < 4 * error
    assert abs(found["difference in sds"] - 0.5) < 4 * error / 2
    assert found["standard error in sds"] == pytest.approx(error / 2, rel=0.2)
    assert abs(np.log(found["sd ratio"] / 1.5)) < 4 * np.sqrt(2 / 2) / np.sqrt(CHAINS * DRAWS)
    assert 0.2 * error < found["standard error between chains"] < 3 * error


def test_a_drift_within_chains_shows_in_their_rhat_and_error() -> None:
    still, moving = run(0), run(0) + xr.DataArray(np.linspace(-4, 4, DRAWS), dims="draw")
    calm, found = (within(each["log density"]) for each in (still, moving))
    assert float(calm["rhat"].max()) < 1.03 and float(found["rhat"].min()) > 1.5
    assert float(found["drift"].mean() - calm["drift"].mean()) == pytest.approx(4.0, rel=0.01)
    assert float((found["mcse_mean"] / calm["mcse_mean"]).min()) > 3


def test_held_out_densities_of_equal_runs_do_not_differ_and_a_shift_is_found() -> None:
    exact = np.random.default_rng(0).normal(size=(CHAINS, ROWS))
    assert set(held_out(exact, exact).values()) == {0.0}
    shifted = held_out(exact - 0.1, exact)
    assert shifted["one chain"] == pytest.approx(-0.1) and shifted["mixture"] == pytest.approx(-0.1)
    assert shifted["standard error of one chain"] == pytest.approx(0.0, abs=1e-12)
    assert shifted["standard error of the mixture"] == pytest.approx(0.0, abs=1e-12)


def test_the_jackknife_of_one_row_of_equal_densities_is_the_error_of_the_mean() -> None:
    exact, gaps = np.zeros((CHAINS, 1)), np.array([[0.01], [-0.02], [0.03], [0.005]])
    found = held_out(gaps, exact)
    assert found["standard error of the mixture"] == pytest.approx(found["standard error of one chain"], rel=0.02)


def test_functions_are_compared_chain_by_chain() -> None:
    same, other = functions(tree(1), tree(0)), functions(tree(1, shift=0.5, scale=1.3), tree(0))
    assert same["mean_difference"] < 3 * same["mean_difference_floor"]
    assert other["mean_difference"] == pytest.approx(0.5, abs=0.1)
    assert other["sd_ratio"] == pytest.approx(1.3, rel=0.05) and same["sd_ratio"] == pytest.approx(1.0, rel=0.05)
