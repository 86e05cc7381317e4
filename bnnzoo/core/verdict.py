"""What a posterior says about its own fit: divergences, chains that disagree, optimisations that ended too early."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from bnnzoo.core.fit_warnings import (
    MAX_RHAT,
    MAX_SATURATED,
    MIN_ESS,
    ChainsApartWarning,
    DivergenceWarning,
    FewEffectiveDrawsWarning,
    FitWarning,
    NotConvergedWarning,
    ParetoKWarning,
    StillImprovingWarning,
    TreeDepthWarning,
)
from bnnzoo.core.mixing import mixing, worst_gap
from bnnzoo.core.pareto import MAX_PARETO_K, log_ratios, pareto_k
from bnnzoo.core.posterior import Draws, Posterior

__all__ = ["Trouble", "told", "troubles"]

ENOUGH_DRAWS = 1000  # over all chains: with fewer, R-hat and effective sample sizes say little
ENOUGH_STEPS = 500  # of an optimisation: shorter ones are trials
MAX_GAP = (
    1.0  # between means of chains, in standard deviations within them: those farther apart are in different places
)
SLIGHT_RHAT = 1.05  # up to which more draws are what it takes
MOST_DIGITS = 10
MAX_ENTRIES = 500  # numbers of a site whose chains are compared, evenly spaced
MANY_ROWS, MANY_PARAMS = 10_000, 1000  # beyond which an approximation is not compared with the posterior
MAX_SLOPE = 0.5  # of log p - log q, by which the mean of q is off in its own standard deviations
DRAWS_A_SLOPE = 10  # at least, for the slopes to be known
MIN_RISE = 1.0  # of the objective over its last tenth, in nats
MIN_SHARE = 0.01  # of the whole climb: a smaller rise is the end of one


@dataclass(frozen=True)
class Trouble:
    """One kind of trouble and the sentence that says what to do about it."""

    kind: type[FitWarning]
    message: str


def troubles(posterior: Posterior) -> Iterator[Trouble]:
    """Yield what a fit should warn of; only runs that are long enough to judge say anything.

    Chains are compared by the latent sites that are not network weights, which may be relabelled, or else by the log density.
    It costs no evaluation of the model, with one exception: variational fits of models without networks are compared with the
    posterior at some hundred of their draws.

    Parameters
    ----------
    posterior : Posterior
        With the record of :func:`bnnzoo.fit`.
    """
    if not posterior.info.complete:
        return
    if isinstance(posterior, Draws) and posterior.info.sampling == "mcmc":
        if posterior.theta.shape[0] * posterior.theta.shape[1] >= ENOUGH_DRAWS:
            yield from _of_chains(posterior)
    else:
        found = tuple(_of_optimisation(posterior))
        yield from found or _of_approximation(posterior)


def _of_chains(posterior: Draws) -> Iterator[Trouble]:
    stats, config = posterior.info.sample_stats, posterior.info.config
    yield from _divergences(posterior)
    depth, largest = stats.get("tree_depth"), config.get("max_tree_depth")
    if depth is not None and largest is not None:
        share = float((depth >= largest).double().mean())
        if share > MAX_SATURATED:
            yield Trouble(
                TreeDepthWarning,
                f"{share:.0%} of the trajectories ended at the largest tree depth, {largest}, before they turned back: draws "
                f"are right, but each moves little. Write a larger max_tree_depth, warm up longer, or reparametrise the "
                f"model so that its scales are alike.",
            )
    yield from _mixing(posterior)


def _divergences(posterior: Draws) -> Iterator[Trouble]:
    diverging = posterior.info.sample_stats.get("diverging")
    count = 0 if diverging is None else int(diverging.sum())
    if diverging is None or not count:
        return
    target = posterior.info.config.get("target_accept")
    shorter = "Take shorter steps, use NUTS()" if target is None else f"Write a larger target_accept (now {target})"
    yield Trouble(
        DivergenceWarning,
        f"{count} of {diverging.numel()} trajectories diverged ({count / diverging.numel():.2g} of all): the draws avoid a part "
        f"of the posterior. {shorter}, or reparametrise the model, for example a scale and "
        f"what it scales as mean + scale * z with z ~ Normal(0, 1).",
    )


def _mixing(posterior: Draws) -> Iterator[Trouble]:
    quantities = _quantities(posterior)
    found = {name: mixing(values) for name, values in quantities.items()}
    rhat = {name: float(each.rhat.nan_to_num(0.0).max()) for name, each in found.items()}
    ess = {name: float(each.ess.nan_to_num(math.inf).min()) for name, each in found.items()}
    chains, draws = posterior.theta.shape[:2]
    worst = max(rhat, key=lambda name: rhat[name], default="")
    if worst and rhat[worst] > MAX_RHAT:
        gap = float(worst_gap(quantities[worst]).nan_to_num(0.0).max())
        yield Trouble(
            ChainsApartWarning,
            f"The chains disagree: R-hat of {worst!r} is {told(rhat[worst], MAX_RHAT)}, and should be at most {MAX_RHAT}. "
            f"{_what_to_run(rhat[worst], gap, posterior.info.config.get('num_warmup'), draws)}",
        )
    least = min(ess, key=lambda name: ess[name], default="")
    if least and ess[least] < MIN_ESS:
        yield Trouble(
            FewEffectiveDrawsWarning,
            f"The {chains * draws} draws of {least!r} are worth {told(ess[least], MIN_ESS, 0)} independent ones; intervals and "
            f"R-hat need {MIN_ESS}. Write a larger num_draws (now {draws} for each of {chains} chains).",
        )


def _what_to_run(rhat: float, gap: float, num_warmup: object, num_draws: int) -> str:
    if gap > MAX_GAP:
        return (
            f"The means of its chains are up to {gap:.1f} standard deviations apart: the posterior has several modes between "
            f"which chains do not move, or some chains have not reached it. Look at each chain, write a larger num_warmup (now "
            f"{num_warmup}), or start elsewhere with init=."
        )
    longer = f"Run longer (num_warmup, num_draws: now {num_warmup} and {num_draws})"
    return f"{longer}." if rhat <= SLIGHT_RHAT else f"{longer}, or reparametrise the model so that chains move faster."


def told(value: float, limit: float, digits: int = 3) -> str:
    """Return a number with as many digits as it takes to see on which side of a limit it lies.

    Examples
    --------
    >>> told(1.0104, 1.01), told(1.52, 1.01)
    ('1.0104', '1.520')
    """
    while digits < MOST_DIGITS and (float(f"{value:.{digits}f}") > limit) != (value > limit):
        digits += 1
    while digits < MOST_DIGITS and float(f"{value:.{digits}f}") == limit != value:
        digits += 1
    return f"{value:.{digits}f}"


def _quantities(posterior: Draws) -> Mapping[str, Tensor]:
    """Return the unconstrained values ``[C, S, D]`` of the sites that are no weights, or else the log density."""
    sites = [site for site in posterior.density.sites if not site.is_weight]
    if not sites:
        lp = posterior.info.sample_stats.get("lp")
        return {} if lp is None else {"lp": lp[..., None]}
    return {site.name: _some(posterior.theta[..., site.span]) for site in sites}


def _some(values: Tensor) -> Tensor:
    return values[..., :: -(-values.shape[-1] // MAX_ENTRIES)]


def _of_optimisation(posterior: Posterior) -> Iterator[Trouble]:
    stats = posterior.info.fit_stats
    for name, sign in (("elbo", 1.0), ("loss", -1.0)):
        if name not in stats or (name == "loss" and posterior.info.config.get("polish_steps", 1)):
            continue  # L-BFGS goes on where the trace of the loss ends, and a Laplace approximation judges its mode itself
        rise = max((_rise(sign * trace) for trace in stats[name]), default=0.0)
        if rise:
            steps = stats[name].shape[1]
            yield Trouble(
                StillImprovingWarning,
                f"The optimisation had not converged: the {name} improved by {rise:.3g} over the last tenth of its {steps} "
                f"steps. Write a larger num_steps, or a larger learning_rate.",
            )
        fall = max((_fall(sign * trace) for trace in stats[name]), default=0.0)
        if fall and not posterior.info.config.get("kl_annealing"):  # which lowers the bound as it goes
            yield Trouble(
                NotConvergedWarning,
                f"The optimisation ended worse than it began: the {name} of its last tenth is worse than that of its first by "
                f"{fall:.3g}. Write a smaller learning_rate, start at a mode with init=MAP(), or standardise the data.",
            )


def _of_approximation(posterior: Posterior) -> Iterator[Trouble]:
    """Compare a variational fit with the posterior; that of a network's weights is far from it whatever its predictions are."""
    density, info = posterior.density, posterior.info
    is_trial = "elbo" not in info.fit_stats or info.fit_stats["elbo"].shape[1] < ENOUGH_STEPS
    tempered = info.config.get("temperature", 1.0) != 1.0
    if info.sampling != "iid" or is_trial or tempered or info.has_atoms or density.networks or not density.has_data:
        return
    if density.num_data > MANY_ROWS or density.num_params > MANY_PARAMS:
        return
    ratios = log_ratios(posterior)
    if ratios is None:
        return
    on_its_way = list(_off_centre(posterior, ratios))  # which also makes ratios uneven
    yield from on_its_way
    k = pareto_k(ratios)
    if k > MAX_PARETO_K and not on_its_way:
        yield Trouble(
            ParetoKWarning,
            f"The approximation misses a part of the posterior: its Pareto k is {k:.2f}, and weights can correct it up "
            f"to {MAX_PARETO_K}. Do not trust its intervals: use a richer family, such as FullRankVI() or FlowVI(), or NUTS().",
        )


def _off_centre(posterior: Posterior, ratios: Tensor) -> Iterator[Trouble]:
    """Tell a variational fit that stopped on its way: where its bound is highest, log p - log q leans no way in theta."""
    theta = posterior.draws(len(ratios)).flatten(0, 1)[: len(ratios)].cpu().double()
    if not bool(ratios.isfinite().all()) or len(theta) < DRAWS_A_SLOPE * theta.shape[1]:
        return
    slope, error = _slopes((theta - theta.mean(0)) / theta.std(0), ratios)
    slope = slope.abs() * (slope.abs() > 4 * error)  # of thousands of noisy ones
    for site in posterior.density.sites:
        largest = float(slope[site.span].max())
        if largest > MAX_SLOPE:
            yield Trouble(
                StillImprovingWarning,
                f"The optimisation had not converged: the elbo would rise if {site.name!r} moved by {largest:.1f} of its "
                f"standard deviations. Write a larger num_steps, or a larger learning_rate, and standardise the data.",
            )
            return


def _slopes(z: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the slopes ``[P]`` of a regression of ``values[S]`` on ``z[S, P]``, and their standard errors.

    By Stein's lemma the slope of log p - log q at Gaussian draws is the gradient of the bound about the mean of q.
    """
    design = torch.cat([torch.ones_like(z[:, :1]), z], 1)
    found = torch.linalg.lstsq(design, values[:, None]).solution[:, 0]
    residual = values - design @ found
    leverage = torch.linalg.pinv(design)  # few draws may have most of the variance
    return found[1:], (leverage * residual).square().sum(1)[1:].sqrt()


def _rise(trace: Tensor) -> float:
    """Return by how much a trace ``[T]`` rises over its last tenth; zero if that is little or noise."""
    medians, errors = _tenths(trace)
    rise = float(medians[-1] - medians[-2])
    enough = max(MIN_RISE, _noise(errors[-2:]), MIN_SHARE * float(medians.max() - medians[0]))
    return rise if rise > enough else 0.0


def _fall(trace: Tensor) -> float:
    """Return by how much the last tenth of a trace ``[T]`` lies below the first; zero if that is little or noise."""
    medians, errors = _tenths(trace)
    fall = float(medians[0] - medians[-1])
    return fall if fall > max(MIN_RISE, _noise(errors[[0, -1]])) else 0.0


def _tenths(trace: Tensor) -> tuple[Tensor, Tensor]:
    """Return the medians ``[10]`` of the tenths of a trace, and their standard errors; zeros if it is short or not finite."""
    tenth = len(trace) // 10
    if len(trace) < ENOUGH_STEPS or not bool(trace.isfinite().all()):
        return torch.zeros(10), torch.zeros(10)
    parts = trace.double().cpu()[-10 * tenth :].reshape(10, tenth)
    return parts.median(1).values, (parts.var(1) / tenth).sqrt()


def _noise(errors: Tensor) -> float:
    return 3.0 * float(errors.square().sum().sqrt())
