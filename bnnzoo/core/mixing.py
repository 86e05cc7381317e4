"""R-hat and effective sample sizes of many parameters at once, cheap enough for the end of every fit."""

import math

import torch
from torch import Tensor

__all__ = ["autocovariance", "effective_sample_size", "rank_normalised", "split_rhat"]


def autocovariance(draws: Tensor) -> Tensor:
    """Return the autocovariance ``[S, D]`` of draws ``[C, S, D]`` at lags 0 to S - 1, within chains and averaged over them."""
    size = draws.shape[1]
    centred = draws - draws.mean(1, keepdim=True)
    spectrum = torch.fft.rfft(centred, n=2 * size, dim=1)
    return torch.fft.irfft(spectrum.abs().square(), n=2 * size, dim=1)[:, :size].mean(0) / size


def rank_normalised(draws: Tensor) -> Tensor:
    """Return normal scores ``[2C, S // 2, D]`` of draws ``[C, S, D]``, whose chains are split into halves.

    References
    ----------
    Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021), Rank-normalization, folding, and localization: an improved
    R-hat, Bayesian Analysis 16.
    """
    half = draws.shape[1] // 2
    halves = torch.cat([draws[:, :half], draws[:, -half:]]).double()
    flat = halves.flatten(0, 1)
    ranks = flat.argsort(0).argsort(0).double() + 1
    return torch.special.ndtri((ranks - 0.375) / (len(flat) + 0.25)).reshape(halves.shape)


def split_rhat(scores: Tensor) -> Tensor:
    r"""Return R-hat ``[D]`` of the normal scores ``[M, T, D]`` of split chains.

    .. math:: \hat R^2 = \frac{T - 1}{T} + \frac{\mathrm{var}_m(\bar z_m)}{\mathrm{mean}_m(s_m^2)}
    """
    within, between = scores.var(1).mean(0), scores.mean(1).var(0)
    return ((scores.shape[1] - 1) / scores.shape[1] + between / within).sqrt()


def effective_sample_size(scores: Tensor) -> Tensor:
    """Return the bulk effective sample size ``[D]`` of the normal scores ``[M, T, D]`` of split chains.

    Autocorrelations include what the means of chains differ by, and are summed over Geyer's initial monotone sequence.

    Examples
    --------
    >>> noise = torch.randn(4, 1000, 1, generator=torch.Generator().manual_seed(0))
    >>> abs(float(effective_sample_size(rank_normalised(noise))) / 4000 - 1) < 0.1
    True
    """
    chains, size, _ = scores.shape
    covariance = autocovariance(scores)
    within = covariance[0] * size / (size - 1)
    total = within * (size - 1) / size + (scores.mean(1).var(0) if chains > 1 else 0.0)
    correlation = 1 - (within - covariance) / total
    correlation[0] = 1.0
    pairs = correlation[: 2 * (size // 2)].unflatten(0, (-1, 2)).sum(1)
    positive = (pairs > 0).long().cumprod(0)
    time = 2 * (pairs.cummin(0).values * positive).sum(0) - 1
    return chains * size / time.clamp(min=1 / math.log10(chains * size))
