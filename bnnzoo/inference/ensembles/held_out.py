"""Rows that members are not trained on: for early stopping, and for weights by predictive score."""

import warnings
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torch.func import vmap

from bnnzoo.core.data.minibatch import has_rows, select
from bnnzoo.core.fit_warnings import DegenerateWeightsWarning
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.program.sites import ModelError
from bnnzoo.core.reading.parts import observations_in_words, refuse_dependent_parts
from bnnzoo.core.reading.streamed import num_held
from bnnzoo.engine.lowered import Lowered

__all__ = [
    "log_density_of_rows",
    "refuse_no_rows",
    "split_rows",
    "stacking_log_weights",
    "warn_of_one_member",
]

MAX_UPDATES = 2000
MAX_WEIGHT = 0.95  # of one member, beyond which a mixture is hardly one


def refuse_no_rows(density: LogDensity, setting: str) -> None:
    """Refuse a model without an argument that has one row for each observation; ``setting`` is what needs one.

    Raises
    ------
    ModelError
        Naming the setting.
    """
    if not any(has_rows(value, num_held(density)) for value in density.data):
        raise ModelError(
            f"{setting} needs rows, but no argument of the model has one row for each of its {observations_in_words(density)}. "
            f"Leave it out, or put the observations into a plate: pyro.sample(..., obs=y)."
        )


def split_rows(density: LogDensity, fraction: float, seed: int) -> tuple[LogDensity, LogDensity]:
    """Return the density of the rows to train on, and that of a fraction of the rows held out at random.

    Raises
    ------
    ModelError
        If the model has no rows, or cannot be evaluated on some of them.

    Examples
    --------
    >>> from bnnzoo.core.model.density import build_density
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> train, held_out = split_rows(build_density(target.model, *target.data), 0.1, seed=0)
    >>> train.num_data, held_out.num_data
    (36, 4)
    """
    refuse_no_rows(density, f"held_out={fraction}")
    size = density.num_data
    if size < 2:
        raise ModelError(
            f"held_out={fraction} needs at least two observations, but the model has {size}. Leave it out."
        )
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed)).to(density.device)
    num_held_out = min(size - 1, max(1, round(fraction * size)))
    parts = _part(density, order[num_held_out:].sort().values), _part(density, order[:num_held_out].sort().values)
    refuse_dependent_parts(density, size - num_held_out, f"held_out={fraction}", may_scale=False)
    return parts


def _part(density: LogDensity, rows: Tensor) -> LogDensity:
    part = replace(density, data=select(density.data, rows, density.num_data), num_data=len(rows))
    theta = torch.zeros(density.num_params, dtype=density.dtype, device=density.device)
    try:
        with torch.no_grad():
            found = len(part.log_likelihood(theta, *part.data))
    except (RuntimeError, ValueError, IndexError) as error:
        reason = str(error).partition("\n")[0]
        raise ModelError(
            f"The model cannot be evaluated on some of its rows ({reason}). Leave held_out out."
        ) from error
    if found != len(rows):
        raise ModelError(
            f"The model has {found} observations where it got {len(rows)} of {density.num_data} rows, so that rows cannot be "
            f"held out. Leave held_out out."
        )
    return part


def log_density_of_rows(held_out: LogDensity) -> Callable[[Tensor], Tensor]:
    """Return ``theta[C, P] -> [C, H]``: the log density of each held-out row given each member's parameters."""

    def batched(theta: Tensor) -> Tensor:
        found: Tensor = vmap(lambda row: held_out.log_likelihood(row, *held_out.data))(theta)
        return found

    def looped(theta: Tensor) -> Tensor:
        return torch.stack([held_out.log_likelihood(row, *held_out.data) for row in theta])

    return Lowered(batched, fallback=looped)


def stacking_log_weights(log_density: Tensor) -> Tensor:
    r"""Return the logarithms ``[M]`` of the weights under which a mixture predicts held-out rows best.

    .. math:: \max_w \sum_n \log \sum_m w_m \, p_m(y_n), \qquad
        w_m \leftarrow \frac1H \sum_n \frac{w_m \, p_m(y_n)}{\sum_k w_k \, p_k(y_n)}

    The problem is convex, and the update never lowers the score.

    Parameters
    ----------
    log_density : Tensor [M, H]
        Of each held-out row under each component.

    References
    ----------
    Yao, Vehtari, Simpson and Gelman (2018), Using stacking to average Bayesian predictive distributions, Bayesian Analysis 13.

    Examples
    --------
    >>> each_right_once = torch.tensor([[-1.0, -3.0], [-3.0, -1.0]])
    >>> stacking_log_weights(each_right_once).exp().round(decimals=3)
    tensor([0.5000, 0.5000])
    """
    terms = log_density.double().nan_to_num(nan=-torch.inf)
    log_weights = torch.full_like(terms[:, 0], 1 / len(terms)).log()
    for _ in range(MAX_UPDATES):
        weighted = terms + log_weights[:, None]
        responsibilities = (weighted - weighted.logsumexp(0)).exp().nan_to_num(1 / len(terms))
        new = responsibilities.mean(1).log()
        settled = bool(((new.exp() - log_weights.exp()).abs() < 1e-9).all())
        log_weights = new
        if settled:
            break
    return log_weights.to(log_density.dtype)


def warn_of_one_member(log_weights: Tensor, fraction: float) -> None:
    """Warn of a mixture whose weights leave one of its components; ``fraction`` of the rows were held out to find them.

    Warns
    -----
    DegenerateWeightsWarning
        If one of several components has nearly all weight.
    """
    largest = float(log_weights.max().exp())
    if len(log_weights) > 1 and largest > MAX_WEIGHT:
        warnings.warn(
            f"Stacking gives number {int(log_weights.argmax())} of {len(log_weights)} members a weight of {largest:.3f}: the "
            f"predictions are that member's alone, without the spread between members. The held-out observations may be too few "
            f'to tell them apart: write weights="equal", or a larger held_out (now {fraction}).',
            DegenerateWeightsWarning,
            stacklevel=3,
        )
