"""Comparing draws with exact moments in units of their own Monte Carlo error."""

import numpy as np
from arviz_stats.base.array import array_stats
from numpy.typing import ArrayLike, NDArray

__all__ = ["check_moments", "mean_z_score", "variance_z_score"]


def mean_z_score(draws: NDArray[np.floating], mean: ArrayLike, sd: ArrayLike) -> NDArray[np.floating]:
    r"""Return the error of the mean of ``draws[C, S, ...]`` in Monte Carlo standard errors ``[...]``.

    .. math:: z = (\bar x - \mu) \sqrt{\mathrm{ESS}} / \sigma

    Parameters
    ----------
    draws : ndarray [C, S, ...]
        Chains, draws, then the shape of the variable.
    mean, sd : array_like [...]
        Exact moments.

    Returns
    -------
    ndarray [...]
    """
    ess = _ess(draws)
    return (draws.mean((0, 1)) - np.asarray(mean)) * np.sqrt(ess) / np.asarray(sd)


def variance_z_score(draws: NDArray[np.floating], mean: ArrayLike, sd: ArrayLike) -> NDArray[np.floating]:
    """Return the error of the variance of ``draws[C, S, ...]`` about the exact mean, in Monte Carlo standard errors.

    The standard error is that of the mean of the squared deviations, with their own spread and effective size.

    Parameters
    ----------
    draws : ndarray [C, S, ...]
    mean, sd : array_like [...]
        Exact moments.

    Returns
    -------
    ndarray [...]
    """
    squares = (draws - np.asarray(mean)) ** 2
    return mean_z_score(squares, np.asarray(sd) ** 2, squares.std((0, 1)))


def check_moments(
    name: str,
    draws: NDArray[np.floating],
    mean: ArrayLike,
    sd: ArrayLike,
    *,
    num_sigma: float = 5.0,
    min_ess: float = 100.0,
    accuracy: float = 0.0,
) -> None:
    """Check mean and variance of ``draws[C, S, ...]`` against exact ones, gated on the effective sample size.

    Too few effective draws fail as well: a check that cannot see an error is no check.

    Parameters
    ----------
    name : str
        What is checked, for the message.
    draws : ndarray [C, S, ...]
    mean, sd : array_like [...]
        Exact moments.
    num_sigma : float
        Monte Carlo standard errors allowed.
    min_ess : float
        Least effective sample size, of the draws and of their squares.
    accuracy : float
        Error allowed beyond Monte Carlo: of the mean in standard deviations, of the variance relative to it. Only an
        approximate method needs more than 0.

    Raises
    ------
    AssertionError
        Naming the variable, the entry and by how much it is off.

    Examples
    --------
    >>> check_moments("z", np.random.default_rng(0).normal(3.0, 2.0, (4, 500)), mean=3.0, sd=2.0)
    """
    draws = np.asarray(draws, dtype=np.float64)
    if not np.isfinite(draws).all():
        raise AssertionError(f"{name}: {np.count_nonzero(~np.isfinite(draws))} of {draws.size} draws are not finite.")
    mean, sd = np.asarray(mean, np.float64), np.asarray(sd, np.float64)
    squares = (draws - mean) ** 2
    for what, values in {"draws": draws, "squared deviations": squares}.items():
        if (ess := float(_ess(values).min())) < min_ess:
            raise AssertionError(
                f"{name}: effective size of the {what} is {ess:.0f}, at least {min_ess:.0f} is needed to judge."
            )
    mean_slack = accuracy * sd * np.sqrt(_ess(draws)) / sd
    variance_slack = accuracy * sd**2 * np.sqrt(_ess(squares)) / squares.std((0, 1))
    _check_z(f"mean of {name}", mean_z_score(draws, mean, sd), num_sigma + mean_slack)
    _check_z(f"variance of {name}", variance_z_score(draws, mean, sd), num_sigma + variance_slack)


def _check_z(what: str, z: NDArray[np.floating], limit: NDArray[np.floating]) -> None:
    excess = np.abs(z) - limit
    worst = np.unravel_index(int(np.argmax(excess)), excess.shape)
    if excess[worst] > 0:
        place = f"[{', '.join(map(str, worst))}]" if worst else ""
        raise AssertionError(
            f"{what}{place} is off by {z[worst]:.1f} Monte Carlo standard errors (limit {limit[worst]:.1f})."
        )


def _ess(draws: NDArray[np.floating]) -> NDArray[np.floating]:
    flat = draws.reshape(*draws.shape[:2], -1)
    ess = array_stats.ess(flat, chain_axis=0, draw_axis=1, method="mean")
    return np.asarray(ess).reshape(draws.shape[2:])
