"""Distance of an approximation from the posterior, in standard deviations of latent sites and of a network's functions."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps

import torch
from torch import Tensor

from bnnzoo.core.posterior.posterior import Gaussian, Posterior
from bnnzoo.core.verdict.importance import (
    NUM_DRAWS,
    Shift,
    WeightedDraws,
    alike,
    drawn_from,
    draws_together,
    many_draws_of,
    shift_by_weights,
)
from bnnzoo.core.verdict.pareto import MAX_PARETO_K, pareto_k
from bnnzoo.core.verdict.quantities import Quantities, quantities_of, weights_vary
from bnnzoo.core.verdict.short_chains import FEW_CHAINS, Moved, moves, shift_by_chains

__all__ = [
    "SURE_K",
    "Accuracy",
    "accuracy_of",
    "none_if_it_fails",
    "off_its_optimum",
    "trouble_by_chains",
    "trouble_of_resampled",
]

MAX_SHIFT = 0.28  # of a mean, in standard deviations of the posterior
MAX_LOG_RATIO = math.log(1.32)  # of standard deviations
SURE_K = 0.4  # of the weights, and of weighted squares: below it the moments by importance weights alone are right
MIN_ACCEPTANCE = 0.3  # of short chains; below it they go nowhere, since the approximation is nowhere near
MIN_SIGNIFICANCE = 2.0  # in standard errors, and more where the largest of many numbers is looked at
MAX_FAILED = 0.05  # of draws at which the model cannot be evaluated
DRAWS_A_SLOPE = 10  # at least, for the slopes to be known
NEAR_MODE = 0.3  # of the way from a mode to draws of a linearised model
STUCK = "short chains that start at its draws do not move, so little probability lies there"


@dataclass(frozen=True)
class Accuracy:
    """What was found of an approximation.

    Attributes
    ----------
    k : float
        Its Pareto k; NaN where none can be computed.
    trouble : str
        The clause that says what is off, with the site and the size; empty if nothing is.
    drawn : WeightedDraws
        The draws by which it was judged.
    """

    k: float
    trouble: str
    drawn: WeightedDraws


def accuracy_of(posterior: Posterior) -> Accuracy | None:
    """Judge an approximation by its draws; None where that cannot be done or says nothing.

    Importance weights turn its moments into the posterior's, with errors that are known, as long as Pareto k is small. They
    cannot where it misses a part of the posterior, and k is large; from ``SURE_K`` on, short chains that start at its draws show
    where moments move to. Means that are off by 0.3 standard deviations and standard deviations off by a third are told; the
    thresholds lie a little below, since both kinds of estimates fall short.

    Of networks, functions are compared in place of weights, see :func:`quantities_of`, and chains alone judge them.

    Parameters
    ----------
    posterior : Posterior

    References
    ----------
    Yao, Vehtari, Simpson and Gelman (2018), Yes, but did it work? Evaluating variational inference, ICML.
    Wang, Kasprzak and Huggins (2023), A targeted accuracy diagnostic for variational approximations, AISTATS.
    """
    info = posterior.info
    if info.sampling != "iid" or info.is_tempered or info.has_atoms:
        return None
    quantities = quantities_of(posterior)
    if quantities is None or posterior.density.networks:
        return None if quantities is None else _of_functions(posterior, quantities)
    drawn = drawn_from(posterior)
    if drawn is None or not bool((drawn.theta.std(0) > 0).all()):  # of some parameters only, the others known by choice
        return None
    failed = ~drawn.log_ratios.isfinite()
    k = pareto_k(drawn.log_ratios[~failed])
    share = float(failed.double().mean())
    if share > MAX_FAILED:
        clause = f"the posterior density is zero or cannot be computed at {share:.0%} of its draws"
        return Accuracy(k if share < 1 else math.nan, clause, drawn)
    kept = WeightedDraws(drawn.theta[(~failed).to(drawn.theta.device)], drawn.log_ratios[~failed])
    return Accuracy(k, _trouble(posterior, quantities, k, kept), drawn)


def none_if_it_fails[**P, T](judge: Callable[P, T | None]) -> Callable[P, T | None]:
    """Return None where the model's own code raises at draws, which may be anything where it cannot be batched."""

    @wraps(judge)
    def judged(*args: P.args, **kwargs: P.kwargs) -> T | None:
        try:
            return judge(*args, **kwargs)
        except Exception:
            return None

    return judged


@none_if_it_fails
def _of_functions(posterior: Posterior, quantities: Quantities) -> Accuracy | None:
    """Judge an approximation to the posterior of a network by what it says of the training rows.

    Draws of a linearised model need not fit the data where the network bends, and chains start near its mode. Scales of the
    prior that stand at their most probable values are left there: the rest is judged given these.
    """
    theta = draws_together(posterior, NUM_DRAWS)
    if len(theta) < FEW_CHAINS or not weights_vary(posterior.density, theta):
        return None
    own = quantities.own(theta)
    varying = own.std(0) > 0
    if not bool(varying.any()):  # of a model that predicts given its data
        return None
    if not bool((theta.std(0) > 0).all()):
        quantities, own = quantities.chosen(varying), own[:, varying]
    drawn = alike(theta)
    shrunk = NEAR_MODE if getattr(posterior, "linearize_at", None) is not None else 1.0
    trouble = trouble_by_chains(quantities, own, moves(posterior.density, drawn, shrunk))
    return None if trouble is None else Accuracy(math.nan, trouble, drawn)


def trouble_of_resampled(posterior: Posterior, k: float) -> str:
    """Return what is off of draws that were resampled by importance weights, as a clause; empty if nothing is found.

    Weights cannot put draws where the approximation has none, and say nothing of it where their Pareto k is below the limit.

    Parameters
    ----------
    posterior : Posterior
    k : float
        Pareto k of the weights.
    """
    quantities = quantities_of(posterior)
    if quantities is None:
        return ""
    if posterior.density.networks:
        found = _of_functions(posterior, quantities)
        return "" if found is None else found.trouble
    drawn = alike(draws_together(posterior, NUM_DRAWS))
    values = quantities.own(drawn.theta)
    if k < SURE_K and _k_of_squares(values, drawn.log_ratios) < SURE_K:
        return ""
    return trouble_by_chains(quantities, values, moves(posterior.density, drawn)) or ""


def trouble_by_chains(
    quantities: Quantities, values: Tensor, chains: Iterator[Moved], ess: Tensor | None = None
) -> str | None:
    """Return what is off of draws by short chains alone, as a clause; empty if nothing is found, None if it is unknown.

    Parameters
    ----------
    quantities : Quantities
    values : Tensor [S, D]
        Of the draws.
    chains : iterator of Moved
        That start at them.
    ess : Tensor [D], optional
        Effective sample sizes of draws that are correlated. Default: draws have no Monte Carlo error to speak of.
    """

    def judged(found: Moved) -> tuple[Shift, Shift]:
        shift = shift_by_chains(quantities, values, found)
        if ess is not None:
            errors = torch.hypot(shift.mean_error, ess.rsqrt()), torch.hypot(shift.log_sd_error, (2 * ess).rsqrt())
            shift = Shift(shift.mean, errors[0], shift.log_sd, errors[1])
        return shift, shift

    trouble, moving = _by_short_chains(quantities, chains, judged)
    return trouble if moving or trouble is not None else STUCK


def _k_of_squares(values: Tensor, log_ratios: Tensor) -> float:
    """Return Pareto k of weighted squared distances from the mean, for the one of ``values[S, D]`` on whose largest most rests.

    A standard deviation by weights may have no error that is known although the weights themselves have no tail.

    References
    ----------
    Vehtari, Simpson, Gelman, Yao and Gabry (2024), Pareto smoothed importance sampling, JMLR 25.
    """
    weights = log_ratios.softmax(0)[:, None]
    terms = weights * (values - (weights * values).sum(0)).square()
    heaviest = int((terms.square().sum(0) / terms.sum(0).square()).nan_to_num(0.0).argmax())
    return pareto_k(terms[:, heaviest].clamp(min=torch.finfo(terms.dtype).tiny).log())


def _by_short_chains(
    quantities: Quantities, chains: Iterator[Moved], judged: Callable[[Moved], tuple[Shift, Shift]]
) -> tuple[str | None, bool]:
    """Return what is off, None where that is unknown, and whether chains move: they go on until it is told or clearly nothing."""
    trouble = None
    for found in _while_it_runs(chains):
        if found.acceptance < MIN_ACCEPTANCE:
            return trouble, False
        shift, by_chains = judged(found)
        trouble = _worst(quantities, shift, by_chains)
        differences = (
            (shift.mean.abs(), shift.mean_error, MAX_SHIFT),
            (shift.log_sd.abs(), shift.log_sd_error, MAX_LOG_RATIO),
            (-by_chains.log_sd, by_chains.log_sd_error, MAX_LOG_RATIO),
        )
        # the largest may be below their limits by more than errors
        if trouble or all(bool((d + MIN_SIGNIFICANCE * error <= limit).all()) for d, error, limit in differences):
            break
    return trouble, True


def _while_it_runs(found: Iterator[Moved]) -> Iterator[Moved]:
    try:
        yield from found
    except Exception:  # the model's own code may raise anything where it cannot be batched
        return


def _trouble(posterior: Posterior, quantities: Quantities, k: float, drawn: WeightedDraws) -> str:
    values = quantities.own(drawn.theta)
    by_weights = shift_by_weights(values, drawn.log_ratios)
    if k < SURE_K and _k_of_squares(values, drawn.log_ratios) < SURE_K:
        return _worst(quantities, by_weights, by_weights)
    many = quantities.own(many_draws_of(posterior))

    def judged(found: Moved) -> tuple[Shift, Shift]:
        one, other = by_weights, shift_by_chains(quantities, many, found)
        if not k <= MAX_PARETO_K:  # NaN, too
            return other, other
        mean, mean_error = _averaged(one.mean, one.mean_error, other.mean, other.mean_error)
        log_sd, log_sd_error = _averaged(one.log_sd, one.log_sd_error, other.log_sd, other.log_sd_error)
        return Shift(mean, mean_error, log_sd, log_sd_error), other

    trouble, moving = _by_short_chains(quantities, moves(posterior.density, drawn), judged)
    if trouble is not None:
        return trouble
    is_fine = k < SURE_K or (moving and k <= MAX_PARETO_K)
    return _worst(quantities, by_weights, by_weights) if is_fine else "it misses a part of the posterior"


def _averaged(one: Tensor, error: Tensor, other: Tensor, other_error: Tensor) -> tuple[Tensor, Tensor]:
    """Return the average by precision, and its error."""
    weight, more = (each.clamp(min=1e-3) ** -2 for each in (error, other_error))
    return (weight * one + more * other) / (weight + more), (weight + more).rsqrt()


def _worst(quantities: Quantities, shift: Shift, chains: Shift) -> str:
    """Return what is most off, as a clause.

    Weights cannot widen an approximation by more than its draws reach, so that chains decide whether it is too narrow.
    """
    sure = max(MIN_SIGNIFICANCE, math.sqrt(2 * math.log(len(shift.mean))))
    of_mean = _beyond(shift.mean, sure * shift.mean_error, MAX_SHIFT)
    of_sd = _beyond(shift.log_sd, sure * shift.log_sd_error, MAX_LOG_RATIO)
    narrow = _beyond(chains.log_sd.clamp(max=0.0), sure * chains.log_sd_error, MAX_LOG_RATIO)
    mean, sd = (int(each.argmax()) for each in (of_mean, torch.maximum(of_sd, narrow)))
    largest = max(float(of_sd[sd]), float(narrow[sd]))
    if max(float(of_mean[mean]), largest) <= 0.0:
        return ""
    if float(of_mean[mean]) >= largest:
        value, name = float(shift.mean[mean]), quantities.names[mean]
        return f"its mean of {name} is {abs(value):.1f} standard deviations too {'high' if value > 0 else 'low'}"
    by = shift if float(of_sd[sd]) >= float(narrow[sd]) else chains
    ratio = math.exp(float(by.log_sd[sd]))
    return f"its standard deviation of {quantities.names[sd]} is {ratio:.2g} times the posterior's"


def _beyond(found: Tensor, error: Tensor, limit: float) -> Tensor:
    """Return the excess over a limit, in units of it, where it is significant; else zero."""
    size = found.abs()
    return torch.where((size > limit) & (size > error), size / limit, torch.zeros_like(size)).nan_to_num(0.0)


def off_its_optimum(posterior: Posterior, drawn: WeightedDraws) -> str:
    r"""Return where the bound of a Gaussian would rise, as a clause; empty at its optimum.

    There log p - log q has neither slope nor curvature on average, :math:`E_q[\nabla \log p] = 0` and
    :math:`E_q[\nabla^2 \log p]_{ii} = -(\Sigma^{-1})_{ii}`. By Stein's lemma these are the coefficients of a regression of
    log p - log q on draws of q and their squares and products; squares are left out where parameters are too many for them.
    """
    theta, ratios = drawn.theta.cpu().double(), drawn.log_ratios
    if not isinstance(posterior, Gaussian) or not bool(ratios.isfinite().all()):
        return ""
    z = (theta - theta.mean(0)) / theta.std(0)
    num_params = z.shape[1]
    if len(theta) < DRAWS_A_SLOPE * num_params:
        return ""
    row, column = torch.triu_indices(num_params, num_params)
    is_square = row == column
    if len(theta) < DRAWS_A_SLOPE * (len(row) + num_params):
        row = column = is_square = row[:0]
    products = z[:, row] * z[:, column] / torch.where(is_square > 0, 2.0, 1.0)
    design = torch.cat([torch.ones_like(z[:, :1]), z, products], 1)
    leverage = torch.linalg.pinv(design)
    coefficients = leverage @ ratios
    residual = ratios - design @ coefficients  # few draws may have most of the variance
    error = (leverage * residual).square().sum(1).sqrt()
    found = (coefficients * (coefficients.abs() > 4 * error))[1:]  # zero within four standard errors
    precision = torch.linalg.inv(torch.atleast_2d(torch.cov(z.mT))).diagonal()
    slope, bend = found[:num_params], found[num_params:][is_square > 0] / precision[: int(is_square.sum())]
    for site in posterior.density.sites:
        largest = float(slope[site.span].abs().max())
        if largest > MAX_SHIFT:
            return f"if {site.name!r} moved by {largest:.1f} of its standard deviations"
        ratio = (1 - bend[site.span]).clamp(min=1e-6).sqrt()  # of the sd to that at the optimum
        if len(ratio) and float(ratio.log().abs().max()) > MAX_LOG_RATIO:
            return f"if {site.name!r} were {'narrower' if float(ratio.log().sum()) > 0 else 'wider'}"
    return ""
