"""Bias of long steps: differences from exact runs, paired by start, with their standard errors."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

import bnnzoo as bz
from benchmarks.microcanonical import BIAS_DRAWS, compared, held_out, kept_draws, samplers, settled
from bnnzoo.core.posterior.info import FitInfo

STARTS, DRAWS, ROWS = 80, 4, 5
PLACES = 30 * np.random.default_rng(7).normal(size=(STARTS, 1))


def run(seed: int, shift: float = 0.0) -> xr.Dataset:
    """Return independent draws of sd two around the start of each run."""
    noise = np.random.default_rng(seed).normal(size=(STARTS, DRAWS))
    values = (("chain", "draw"), PLACES + shift + 2 * noise)
    return xr.Dataset({"log density": values}, {"member": ("chain", np.arange(STARTS) // 20)})


@dataclass(frozen=True)
class Chains:
    """What is read of a posterior."""

    info: FitInfo
    theta: torch.Tensor


def chains(lp: torch.Tensor, **tuning: torch.Tensor) -> Any:
    """Return chains that have these log densities ``[C, S]``, with the number of the draw as parameter."""
    info = FitInfo(sampling="mcmc", num_gradients=100, sample_stats={"lp": lp}, tuning=tuning)
    return Chains(info, torch.arange(lp.shape[1]).expand(lp.shape)[..., None])


def test_equal_runs_do_not_differ() -> None:
    found = compared(run(0), run(0))["log density"]
    assert found.pop("difference by draw") == [0.0] * DRAWS
    assert {value for name, value in found.items() if "difference" in name or "error" in name} == {0.0}


def test_a_shift_is_found_in_each_unit_although_starts_lie_far_apart() -> None:
    found = compared(run(1, shift=1.0), run(0))["log density"]
    error = np.sqrt(2 * 4 / (STARTS * DRAWS))
    assert found["standard error"] == pytest.approx(error, rel=0.3)
    assert abs(found["difference"] - 1.0) < 4 * error
    assert found["sd in a run"] == pytest.approx(2.0, rel=0.15)
    assert found["sd of a member"] == pytest.approx(np.hypot(30, 2), rel=0.3)
    for unit, sd in (("a run", found["sd in a run"]), ("a member", found["sd of a member"])):
        assert found[f"difference in sds of {unit}"] == pytest.approx(found["difference"] / sd)
        assert found[f"standard error in sds of {unit}"] == pytest.approx(found["standard error"] / sd)


def test_held_out_densities_of_equal_runs_do_not_differ_and_a_shift_is_found() -> None:
    exact = np.random.default_rng(0).normal(size=(STARTS, ROWS))
    assert set(held_out(exact, exact).values()) == {0.0}
    shifted = held_out(exact - 0.1, exact)
    assert shifted["one chain"] == pytest.approx(-0.1) and shifted["mixture"] == pytest.approx(-0.1)
    assert shifted["standard error of one chain"] == pytest.approx(0.0, abs=1e-12)
    assert shifted["standard error of the mixture"] == pytest.approx(0.0, abs=1e-12)


def test_the_jackknife_of_chains_that_hardly_differ_is_the_error_of_their_mean() -> None:
    gaps = 0.01 * np.random.default_rng(0).normal(size=(STARTS, 1))
    found = held_out(gaps, np.zeros((STARTS, 1)))
    assert found["standard error of the mixture"] == pytest.approx(found["standard error of one chain"], rel=0.02)


@pytest.mark.parametrize("every", [1, 2])
def test_runs_are_compared_at_the_same_times_after_the_first_draw(every: int) -> None:
    kept = kept_draws(chains(torch.arange(every * BIAS_DRAWS, dtype=torch.float64).expand(2, -1)))
    expected = [every * draw - 1 for draw in range(2, BIAS_DRAWS + 1)]
    assert kept.theta[1, :, 0].tolist() == expected == kept.info.sample_stats["lp"][0].tolist()


def test_steps_follow_from_the_long_ones_by_the_sixth_root_and_cover_the_same_distance() -> None:
    rows = {"step_size": torch.full((2,), 0.08), "inverse_mass": torch.ones(2, 3), "decoherence_length": torch.ones(2)}
    found = samplers(bz.MCLMC(energy_variance=0.05), chains(torch.zeros(2, 8), **rows))
    (exact, tuning), long, _, short = found.values()
    assert [*found][1:] == [f"MCLMC, energy variance {each}" for each in ("0.05", "0.005", "0.0005")]
    assert isinstance(exact, bz.MAMS) and "decoherence_length" not in tuning
    assert float(short[1]["step_size"][0]) == pytest.approx(0.08 * 0.01 ** (1 / 6))
    assert exact.num_draws * float(tuning["trajectory_length"][0]) == long[0].num_draws * 20
    for method, of in (long, short):
        assert method.steps_per_draw * float(of["step_size"][0]) == pytest.approx(20, abs=0.04)


def test_chains_that_still_climb_have_a_large_rhat() -> None:
    noise = torch.randn(2, 800, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    still, climbing = settled(chains(noise)), settled(chains(noise + torch.linspace(0, 12, 800)))
    assert max(still["R-hat"]) < 1.02 and min(climbing["R-hat"]) > 1.3
    assert np.diff(climbing["log posterior density by quarters"], axis=1) == pytest.approx(3.0, abs=0.4)
