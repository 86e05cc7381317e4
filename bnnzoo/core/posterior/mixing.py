"""R-hat, effective sample sizes and autocorrelation times of many quantities at once, quick enough for the end of every fit."""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

__all__ = ["Mixing", "autocorrelation_time", "mixing", "worst_gap"]

MIN_DRAWS = 4  # of a chain, since its halves need variances
EQUAL_WITHIN = 1e-15  # normal scores that differ by less are those of a constant


class Mixing(NamedTuple):
    """R-hat ``[D]`` and bulk effective sample sizes ``[D]``."""

    rhat: Tensor
    ess: Tensor


def mixing(draws: Tensor, num_superchains: int | None = None) -> Mixing:
    r"""Return R-hat and the bulk effective sample size of each quantity in ``draws[C, S, D]``, as ArviZ computes them.

    Chains are split into M halves of T draws, and draws are replaced by the normal scores of their ranks. R-hat is the larger of
    those of the scores (chains that differ in place) and of the scores of absolute deviations from the median (chains
    that differ in scale):

    .. math:: \hat R^2 = \frac{T - 1}{T} + \frac{\mathrm{var}_m(\bar z_m)}{\mathrm{mean}_m(s_m^2)}

    Of superchains, consecutive chains that began at the same point, it is the nested one: with the variance between means of
    superchains :math:`B` and, within them, that between means of halves and that of draws,

    .. math:: \hat R_\nu^2 = 1 + B / \mathrm{mean}_k(\mathrm{var}_m(\bar z_{km}) + \mathrm{mean}_m(s_{km}^2))

    Both are NaN where draws are NaN or chains have fewer than four, and R-hat of a single chain or of constant draws.

    References
    ----------
    Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021), Rank-normalization, folding, and localization: an improved
    R-hat, Bayesian Analysis 16. Margossian, Hoffman, Sountsov, Riou-Durand, Vehtari and Gelman (2024), Nested R-hat: assessing
    the convergence of Markov chain Monte Carlo when running many short chains, Bayesian Analysis 19.

    Examples
    --------
    >>> noise = torch.randn(4, 1000, 1, generator=torch.Generator().manual_seed(0))
    >>> found = mixing(noise)
    >>> round(float(found.rhat), 2), abs(float(found.ess) / 4000 - 1) < 0.1
    (1.0, True)
    >>> wider = torch.cat([4 * noise[:1], noise[1:]])  # one chain of another scale, with the same mean
    >>> float(mixing(wider).rhat) > 1.1
    True
    """
    chains, size, count = draws.shape
    if size < MIN_DRAWS or not count:
        nothing = draws.new_full((count,), math.nan, dtype=torch.float64)
        return Mixing(nothing, nothing)
    halves = torch.cat([draws[:, : size // 2], draws[:, -(size // 2) :]]).double().permute(2, 0, 1)  # [D, M, T]
    flat = halves.flatten(1).contiguous()
    scores, ordered = _normal_scores(flat)
    middle = flat.shape[1] // 2
    folded, _ = _normal_scores((flat - (ordered[:, middle - 1, None] + ordered[:, middle, None]) / 2).abs())
    bulk, tail = (_rhat(each.reshape(halves.shape), num_superchains) for each in (scores, folded))
    invalid = flat.isnan().any(1)
    rhat = torch.where(tail > bulk, tail, bulk)
    ess = _effective_sample_size(scores.reshape(halves.shape))
    return Mixing(rhat.masked_fill(invalid | (chains < 2), math.nan), ess.masked_fill(invalid, math.nan))


def worst_gap(draws: Tensor) -> Tensor:
    """Return how far the means of the chains of ``draws[C, S, D]`` are apart, ``[D]``: the largest difference, in pooled sds."""
    means = draws.double().mean(1)
    return (means.amax(0) - means.amin(0)) / draws.double().var(1).mean(0).sqrt()


def autocorrelation_time(draws: Tensor) -> Tensor:
    """Return the integrated autocorrelation time ``[D]`` of chains ``draws[C, S, D]``, in iterations, and at least one.

    Unlike in effective sample sizes, what the means of chains differ by does not count.

    Examples
    --------
    >>> noise = torch.randn(4, 2000, 1, generator=torch.Generator().manual_seed(0))
    >>> round(float(autocorrelation_time(noise)))
    1
    """
    covariance = _autocovariance(draws.permute(2, 0, 1))
    correlation = covariance / covariance[:, :1].clamp(min=torch.finfo(draws.dtype).tiny)
    return _time(correlation).clamp(min=1.0)


def _normal_scores(flat: Tensor) -> tuple[Tensor, Tensor]:
    """Return the normal scores of the ranks in each row ``[D, N]``, equal values sharing their average rank, and sorted rows."""
    values, size = flat.cpu().numpy(), flat.shape[1]
    order = values.argsort(1)
    ordered = np.take_along_axis(values, order, 1)
    place = np.arange(size)
    first, last = place, place
    if not (differs := ordered[:, 1:] != ordered[:, :-1]).all():
        ends = np.ones((len(values), 1), dtype=bool)
        first = np.maximum.accumulate(np.where(np.concatenate([ends, differs], 1), place, 0), 1)
        last = np.where(np.concatenate([differs, ends], 1), place, size)[:, ::-1]
        last = np.minimum.accumulate(last, 1)[:, ::-1]
    ranks = 1 + torch.arange(2 * size - 1, dtype=torch.float64) / 2  # whole ones, and averages of two
    by_rank = torch.special.ndtri((ranks - 0.375) / (size + 0.25)).numpy()
    scores = np.empty_like(values)
    np.put_along_axis(scores, order, np.broadcast_to(by_rank[first + last], values.shape), 1)
    return torch.from_numpy(scores).to(flat.device), torch.from_numpy(ordered).to(flat.device)


def _rhat(scores: Tensor, num_superchains: int | None) -> Tensor:
    size = scores.shape[2]
    if num_superchains is not None:
        nested = scores.unflatten(1, (2, num_superchains, -1)).transpose(1, 2).flatten(2, 3)  # [D, K, halves, T]
        means = nested.mean(3)
        within = means.var(2) + nested.var(3).mean(2)
        return (1 + means.mean(2).var(1) / within.mean(1)).sqrt()
    return (scores.mean(2).var(1) / scores.var(2).mean(1) + (size - 1) / size).sqrt()


def _effective_sample_size(scores: Tensor) -> Tensor:
    """Return effective sample sizes ``[D]`` of split chains ``scores[D, M, T]``; constant ones count in full."""
    _, chains, size = scores.shape
    covariance = _autocovariance(scores)
    within = covariance[:, :1] * size / (size - 1)
    total = covariance[:, :1] + (scores.mean(2).var(1, keepdim=True) if chains > 1 else 0.0)
    correlation = 1 - (within - covariance) / total
    correlation[:, 0] = 1.0
    time = _time(correlation).clamp(min=1 / math.log10(chains * size))
    constant = scores.amax((1, 2)) - scores.amin((1, 2)) < EQUAL_WITHIN
    return chains * size / torch.where(constant, torch.ones_like(time), time)


def _autocovariance(chains: Tensor) -> Tensor:
    """Return the autocovariance ``[D, T]`` of ``chains[D, M, T]`` at lags 0 to T - 1, within chains and averaged over them."""
    size = chains.shape[2]
    spectrum = torch.fft.rfft(chains - chains.mean(2, keepdim=True), n=_fast_length(2 * size))
    return torch.fft.irfft(spectrum.abs().square().mean(1), n=_fast_length(2 * size))[:, :size] / size


def _fast_length(size: int) -> int:
    """Return the next length that is a power of two, or five quarters or one and a half of one, and fast to transform."""
    power = 1 << (size - 1).bit_length()
    return min(length for length in (power, 3 * power // 4, 5 * power // 8) if length >= size)


def _time(correlation: Tensor) -> Tensor:
    """Return the sum of correlations ``[D, T]`` at positive and negative lags, over Geyer's initial monotone sequence.

    Sums of adjacent pairs estimate a positive and decreasing sequence: it ends before the first that is not positive, and no pair
    counts for more than the one before it. The even half of the pair at which it ends counts once if it is positive.
    """
    size = correlation.shape[1]
    num_pairs = max((size - 3) // 2, 0) + 1
    even, odd = correlation[:, : 2 * num_pairs : 2], correlation[:, 1 : 2 * num_pairs : 2]
    pairs = even[:, : odd.shape[1]] + odd
    end = (pairs > 0).long().cumprod(1).sum(1).clamp(max=pairs.shape[1] - 1)[:, None]
    before = torch.arange(pairs.shape[1], device=pairs.device) < end
    last = even.gather(1, end)[:, 0]
    last = torch.where((last > 0) | (pairs.gather(1, end)[:, 0] >= 0), last, torch.zeros_like(last))
    return 2 * (pairs.cummin(1).values * before).sum(1) + last - 1
