"""R-hat and effective sample sizes against ArviZ's, and autocorrelation times that are known."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import xarray as xr
from arviz_stats.base.array import array_stats
from arviz_stats.sampling_diagnostics import rhat_nested
from numpy.typing import NDArray

from bnnzoo.core.posterior.mixing import autocorrelation_time, mixing, worst_gap

type Array = NDArray[np.float64]


def sticky(noise: Array) -> Array:
    draws = noise.copy()
    for t in range(1, draws.shape[1]):
        draws[:, t] += 0.9 * draws[:, t - 1]
    return draws


def with_nan(noise: Array) -> Array:
    noise[-1, 0, 0] = np.nan
    return noise


KINDS: dict[str, Callable[[Array], Array]] = {
    "independent": lambda noise: noise,
    "ties": lambda noise: np.round(noise),
    "two values": lambda noise: (noise > 0).astype(float),
    "constant": lambda noise: np.full_like(noise, 1.5),
    "one chain stands still": lambda noise: np.concatenate([np.zeros_like(noise[:1]), noise[1:]]),
    "antithetic": lambda noise: 0.1 * noise + (-1.0) ** np.arange(noise.shape[1])[:, None],
    "one chain apart": lambda noise: noise + 3.0 * (np.arange(len(noise)) == 0)[:, None, None],
    "one chain wider": lambda noise: noise * (1.0 + 3.0 * (np.arange(len(noise)) == 0)[:, None, None]),
    "sticky": sticky,
    "nan": with_nan,
}
SHAPES = [(4, 2), (4, 3), (2, 4), (4, 5), (3, 9), (1, 50), (4, 101), (4, 250), (2, 500), (8, 64)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of ArviZ, for constant draws
def test_rhat_and_effective_sample_size_are_those_of_arviz(kind: str) -> None:
    rng = np.random.default_rng(0)
    for shape in SHAPES:
        draws = KINDS[kind](rng.normal(size=(*shape, 2)))
        found = mixing(torch.from_numpy(draws))
        each = [draws[..., i] for i in range(2)]
        rhat = [array_stats.rhat(entry, chain_axis=0, draw_axis=1) for entry in each]
        ess = [array_stats.ess(entry, method="bulk", chain_axis=0, draw_axis=1) for entry in each]
        np.testing.assert_allclose(found.rhat, rhat, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(found.ess, ess, rtol=1e-10, atol=1e-10)


def test_a_chain_of_another_scale_is_seen_though_all_means_are_equal() -> None:
    draws = np.random.default_rng(0).normal(size=(4, 1000, 1))
    draws[0] *= 4.0
    assert float(mixing(torch.from_numpy(draws)).rhat) > 1.15
    assert array_stats.rhat(draws[..., 0], method="z_scale", chain_axis=0, draw_axis=1) < 1.01  # the bulk half alone


def test_chains_that_each_stand_still_elsewhere_disagree_without_bound() -> None:
    found = mixing(torch.arange(4.0)[:, None, None].expand(4, 100, 1))
    assert float(found.rhat) == float("inf") and float(found.ess) < 10


def test_the_gap_between_chains_is_in_their_standard_deviations() -> None:
    noise = torch.randn(3, 20_000, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    apart = 5.0 * (noise + torch.tensor([0.0, 2.0, 1.0])[:, None, None])
    assert float(worst_gap(apart)) == pytest.approx(2.0, abs=0.03)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_autocorrelation_time_of_an_autoregression(correlation: float) -> None:
    noise = torch.randn(8, 20000, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    draws = [noise[:, 0]]
    for new in noise[:, 1:].unbind(1):
        draws.append(correlation * draws[-1] + (1 - correlation**2) ** 0.5 * new)
    time = autocorrelation_time(torch.stack(draws, 1))
    expected = torch.full_like(time, (1 + correlation) / (1 - correlation))
    torch.testing.assert_close(time, expected, rtol=0.15, atol=0.0)


def test_differences_between_chains_do_not_count() -> None:
    noise = torch.randn(4, 5000, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    apart = noise + 100 * torch.arange(4, dtype=torch.float64)[:, None, None]
    torch.testing.assert_close(autocorrelation_time(apart), autocorrelation_time(noise))


def test_a_chain_that_never_moves_has_the_shortest_time() -> None:
    assert autocorrelation_time(torch.zeros(2, 100, 1)).tolist() == [1.0]


@pytest.mark.parametrize(("chains", "superchains"), [(6, 3), (16, 4), (8, 2)])
def test_nested_rhat_is_that_of_arviz(chains: int, superchains: int) -> None:
    rng = np.random.default_rng(chains)
    draws = rng.normal(size=(chains, 21, 3)) + np.repeat(rng.normal(size=(superchains, 1, 3)), chains // superchains, 0)
    draws[..., 1] *= rng.gamma(2.0, size=(chains, 1))
    found = mixing(torch.from_numpy(draws), superchains).rhat
    tree = xr.DataArray(draws, dims=("chain", "draw", "entry")).to_dataset(name="x")
    ids = np.arange(chains) * superchains // chains
    np.testing.assert_allclose(found, rhat_nested(tree, superchain_ids=ids)["x"], rtol=1e-10)


def test_short_chains_of_many_superchains_pass_by_nested_rhat_alone() -> None:
    """Chains of an autoregression that began at its distribution: as many short ones as it takes, R-hat never passes."""
    rng = np.random.default_rng(0)
    draws = np.zeros((256, 8, 1))
    draws[:, 0] = rng.normal(size=(256, 1))
    for now in range(1, 8):
        draws[:, now] = 0.9 * draws[:, now - 1] + 0.19**0.5 * rng.normal(size=(256, 1))
    assert float(mixing(torch.from_numpy(draws)).rhat) > 1.5
    assert float(mixing(torch.from_numpy(draws), 4).rhat) < 1.02
    draws[:64] += 1.0
    assert float(mixing(torch.from_numpy(draws), 4).rhat) > 1.1
