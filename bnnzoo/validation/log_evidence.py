"""The evidence of a model from a fit, and the posterior probabilities of models."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from bnnzoo.core.fit_warnings import told
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.log_joints import log_joint_at
from bnnzoo.core.posterior.mixing import mixing
from bnnzoo.core.posterior.posterior import Draws, Posterior
from bnnzoo.core.program.turns import one_at_a_time
from bnnzoo.core.settings import Count, Positive, check_argument
from bnnzoo.core.types import Whole
from bnnzoo.core.verdict.importance import draws_together, smoothed_ratios
from bnnzoo.core.verdict.pareto import MAX_PARETO_K
from bnnzoo.predictive.prediction_arguments import refuse_no_posterior
from bnnzoo.trees import refuse_other_kind

__all__ = ["LogEvidence", "log_evidence", "model_probabilities"]

MAX_RHAT = 1.05
"""R-hat of a parameter above which chains have not found the same posterior, whose volume is asked for."""

DRAWS_A_PARAMETER = 10
"""Draws of the first half, effective ones, that the covariance of the Gaussian takes for each parameter."""

TOLERANCE, MAX_STEPS = 1e-10, 1000
"""Of the fixed point, in nats."""


@dataclass(frozen=True)
class LogEvidence:
    r"""An estimate of :math:`\log p(y)`.

    Attributes
    ----------
    value : float
        In nats.
    error : float
        Its standard error, which is the relative error of p(y).
    how : {"bridge sampling", "importance sampling", "tempering"}
    num_values : int
        Evaluations of the density that it took.
    pareto_k : float or None
        Of the importance weights.
    """

    value: float
    error: float
    how: Literal["bridge sampling", "importance sampling", "tempering"]
    num_values: int
    pareto_k: float | None = None

    def __float__(self) -> float:
        """Return the value."""
        return self.value


@one_at_a_time
def log_evidence(
    posterior: Posterior, *, num_draws: Count = 4000, max_error: Positive = 0.3, seed: Whole = 0
) -> LogEvidence:
    r"""Return the log evidence :math:`\log p(y) = \log \int p(y \mid \theta) \, p(\theta) \, d\theta` of a model that was fitted.

    From Markov chains it comes by bridge sampling: a Gaussian g is fitted to the first half of each chain, in unconstrained
    space, made symmetric with the posterior by reflecting both at its mean (warp-III), and

    .. math:: p(y) = \frac{E_g[h(\theta) \, p(y, \theta)]}{E_{post}[h(\theta) \, g(\theta)]}

    is solved for the h that is best for it. From :class:`bnnzoo.Tempered` it is the estimate of its ladders, by such bridges
    between neighbouring temperatures, which is right with several modes, too. From approximations with a density (VI, Laplace,
    Pathfinder) it comes by Pareto-smoothed importance sampling. :func:`bnnzoo.inference.log_marginal_likelihood` is the
    estimate that a Laplace approximation makes without a draw, which is right where the posterior is Gaussian.

    Parameters
    ----------
    posterior : Posterior
        With its data. Priors must be proper: an improper one has no evidence.
    num_draws : int
        Draws of the approximation, or of the Gaussian.
    max_error : float
        Largest standard error that is returned.
    seed : int

    Returns
    -------
    LogEvidence

    Raises
    ------
    ValueError
        If the estimate is not to be trusted: R-hat above 1.05, too few draws for the covariance, Pareto k above 0.7, an error
        above ``max_error``; or if draws are neither of Markov chains nor of a known density.

    References
    ----------
    Meng and Wong (1996), Simulating ratios of normalizing constants via a simple identity, Statistica Sinica 6. Meng and
    Schilling (2002), Warp bridge sampling, Journal of Computational and Graphical Statistics 11. Gronau et al. (2017), A
    tutorial on bridge sampling, Journal of Mathematical Psychology 81. Frühwirth-Schnatter (2004), Estimating marginal
    likelihoods for mixture and Markov switching models using bridge sampling techniques, Econometrics Journal 7.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> posterior = bz.fit(target.model, bz.NUTS(), *target.data, dtype=torch.float64, progress=False)
    >>> abs(float(log_evidence(posterior)) - float(target.log_evidence)) < 0.01
    True
    """
    refuse_no_posterior("log_evidence", posterior, "posterior")
    check_argument("log_evidence", "num_draws", num_draws, Count)
    check_argument("log_evidence", "max_error", max_error, Positive)
    _refuse_unsuitable(posterior)
    if "tempering" in posterior.info.config:
        said = posterior.info.config["tempering"]
        if not said["round_trips"]:
            raise ValueError(
                f"The log evidence by tempering is not to be trusted: no state went from the prior to the posterior and back. "
                f"Write a larger num_temperatures (now {len(said['inverse_temperatures'][0])}) or num_draws."
            )
        found = LogEvidence(said["log_evidence"], said["log_evidence_se"], "tempering", posterior.info.num_gradients)
    elif isinstance(posterior, Draws):
        found = _by_bridge(posterior, num_draws, int(seed))
    else:
        found = _by_importance(posterior, num_draws, int(seed))
    if not found.error <= max_error:
        raise ValueError(
            f"The log evidence by {found.how} is {found.value:.2f} with a standard error of {told(found.error, max_error, 2)} "
            f"nats, above max_error={max_error}. Fit with more draws, by a better approximation, or write a larger max_error."
        )
    return found


def _refuse_unsuitable(posterior: Posterior) -> None:
    info, name = posterior.info, posterior.info.method or type(posterior).__name__
    if not posterior.density.has_data and posterior.density.likelihood:
        raise ValueError(
            "This posterior was loaded without its data, and the evidence is the density of the data. Load it with them: "
            "bnnzoo.load(path, model, *data)."
        )
    if info.is_tempered:
        raise ValueError(
            f"The posterior of {name}(temperature={info.config['temperature']}) is a tempered one, whose draws say nothing of "
            f"the evidence. Fit with temperature=1.0."
        )
    if info.sampling == "ensemble" or info.has_atoms:
        what = "point masses" if info.has_atoms else "members of an ensemble"
        raise ValueError(
            f"Draws of {name} are {what}, which have no density and are no draws of the posterior. Take "
            f"Laplace(), FullRankVI(), Pathfinder() or NUTS()."
        )


def _by_importance(posterior: Posterior, num_draws: int, seed: int) -> LogEvidence:
    density, name = posterior.density, posterior.info.method
    source: Posterior = getattr(posterior, "proposal", posterior)  # draws that were resampled have one
    theta = draws_together(source, num_draws, seed)
    with torch.no_grad():
        log_q = source.log_prob(theta)
    if log_q is None:
        raise ValueError(
            f"The density of draws of {name} is not known. Take Laplace(), FullRankVI(), Pathfinder() or NUTS()."
        )
    if int((theta.std(0) == 0).sum()):
        raise ValueError(
            f"{name} approximates some parameters and takes the others as known: its draws do not cover the posterior, whose "
            f"volume is the evidence. Take Laplace(), FullRankVI(), Pathfinder() or NUTS()."
        )
    log_weights, k = smoothed_ratios(density, theta, log_q)
    if not k <= MAX_PARETO_K:
        said = "cannot be computed" if math.isnan(k) else f"is {told(k, MAX_PARETO_K, 2)}, above {MAX_PARETO_K}"
        raise ValueError(
            f"The log evidence by importance sampling is not to be trusted: the Pareto k of the weights of {name} {said}. "
            f"Fit by a richer family, such as FlowVI(), or by NUTS(), from whose chains it comes by bridge sampling."
        )
    count = len(log_weights)
    value = float(log_weights.logsumexp(0)) - math.log(count)
    relative = (log_weights - value).exp()
    return LogEvidence(value, float(relative.std() / math.sqrt(count)), "importance sampling", count, k)


def _by_bridge(posterior: Draws, num_draws: int, seed: int) -> LogEvidence:
    density, theta = posterior.density, posterior.theta.double()
    half = theta.shape[1] // 2
    _refuse_chains(posterior, half)
    first, second = theta[:, :half].flatten(0, 1), theta[:, half:]
    centre = first.mean(0)
    # the covariance [P, P] of draws [S, P], with a little more of its diagonal, so that it has a root
    found = torch.atleast_2d(torch.cov(first.mT))
    root = torch.linalg.cholesky(found + 1e-9 * torch.diag(found.diagonal()))
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(num_draws, theta.shape[2], generator=generator, dtype=torch.float64).to(theta.device)
    ours = torch.linalg.solve_triangular(root, (second - centre).flatten(0, 1).mT, upper=False).mT
    log_ratio_ours, log_ratio_noise = (_log_ratios(density, each, centre, root) for each in (ours, noise))
    shape = (*second.shape[:2], 1)
    effective = float(mixing(log_ratio_ours.reshape(shape).cpu()).ess.nan_to_num(len(ours)))
    share = effective / (effective + num_draws)
    # the log of the ratio of normalising constants is a fixed point
    value, odds = float(log_ratio_ours.median()), math.log(share / (1 - share))
    for _ in range(MAX_STEPS):
        of_noise = torch.sigmoid(odds + log_ratio_noise - value).mean()
        of_ours = torch.sigmoid(value - odds - log_ratio_ours).mean()
        change = float(of_noise.log() - of_ours.log()) - odds
        value += change
        if not abs(change) > TOLERANCE:
            break
    of_noise, of_ours = torch.sigmoid(odds + log_ratio_noise - value), torch.sigmoid(value - odds - log_ratio_ours)
    own = float(mixing(of_ours.reshape(shape).cpu()).ess.nan_to_num(len(ours)))
    variance = _relative_variance(of_noise) / num_draws + _relative_variance(of_ours) / min(own, len(ours))
    num_values = 2 * (len(ours) + num_draws)
    return LogEvidence(value, math.sqrt(variance), "bridge sampling", num_values)


def _refuse_chains(posterior: Draws, half: int) -> None:
    """Refuse chains that disagree, and too few draws for the covariance of the Gaussian."""
    theta, method = posterior.theta, posterior.info.method
    num_params = theta.shape[2]
    found = mixing(theta.cpu())
    if len(theta) * half < DRAWS_A_PARAMETER * (num_params + 1):
        raise ValueError(_too_few(len(theta) * half, "draws", num_params))
    rhat = float(found.rhat.nan_to_num(0.0, posinf=math.inf).max())
    if rhat > MAX_RHAT:
        raise ValueError(
            f"The log evidence by bridge sampling is not to be trusted: the chains of {method} disagree, R-hat of a parameter is "
            f"{told(rhat, MAX_RHAT)}, and should be at most {MAX_RHAT}. Run longer, or start elsewhere with init=."
        )
    effective = float(found.ess.nan_to_num(math.inf).min()) / 2
    if effective < DRAWS_A_PARAMETER * (num_params + 1):
        raise ValueError(_too_few(effective, "effective draws", num_params))


def _too_few(count: float, what: str, num_params: int) -> str:
    return (
        f"The log evidence by bridge sampling is not to be trusted: the first half of the chains has {count:.0f} {what}, and a "
        f"Gaussian of {num_params} parameters takes {DRAWS_A_PARAMETER * (num_params + 1)}. Write a larger num_draws."
    )


def _log_ratios(density: LogDensity, white: Tensor, centre: Tensor, root: Tensor) -> Tensor:
    """Return log p - log g ``[S]`` at standardised points ``[S, P]``, p being the mean of the density there and mirrored."""
    at = torch.stack([centre + white @ root.mT, centre - white @ root.mT]).flatten(0, 1)
    log_p = log_joint_at(density, at.to(density.dtype)).double().reshape(2, -1).logsumexp(0) - math.log(2)
    log_g = -0.5 * (white.square().sum(1) + white.shape[1] * math.log(2 * math.pi)) - root.diagonal().log().sum()
    return log_p - log_g


def _relative_variance(values: Tensor) -> float:
    return float(values.var() / values.mean() ** 2)


def model_probabilities(
    fits: Mapping[str, Posterior | LogEvidence], *, prior: Mapping[str, float] | None = None, seed: Whole = 0
) -> xr.Dataset:
    r"""Return the posterior probabilities of models of the same data, and their Bayes factors.

    .. math:: P(M_i \mid y) = \frac{p(y \mid M_i) \, P(M_i)}{\sum_j p(y \mid M_j) \, P(M_j)}

    Bayes factors depend on priors, however much data there are: a prior that is ten times as wide as need be costs log 10 nats
    for each parameter.

    Parameters
    ----------
    fits : mapping of str to Posterior or LogEvidence
        A fit of each model, or what :func:`log_evidence` returned for it.
    prior : mapping of str to float, optional
        Prior probabilities, up to a constant. Default: equal.
    seed : int
        See :func:`log_evidence`.

    Returns
    -------
    Dataset
        By ``model``: ``log_evidence``, ``log_evidence_se``, ``probability``, ``probability_se``; by ``model`` and
        ``against``: ``log_bayes_factor``, ``log_bayes_factor_se``. Standard errors are those of the estimates of the evidence.

    Raises
    ------
    ValueError
        If there are fewer than two models, they were fitted to different observations, ``prior`` names others, or
        :func:`log_evidence` refuses a fit.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> fits = {name: bz.fit(target.model, method, *target.data, progress=False)
    ...         for name, method in {"one": bz.Laplace(), "the same": bz.FullRankVI()}.items()}
    >>> found = model_probabilities(fits)
    >>> [round(float(each), 1) for each in found["probability"]]
    [0.5, 0.5]
    """
    refuse_other_kind(fits, Mapping, "fits", "posteriors by name, as in {'linear': posterior, 'spline': other}")
    names = list(fits)
    _refuse_models(fits, prior)
    found = [each if isinstance(each, LogEvidence) else _named(name, each, int(seed)) for name, each in fits.items()]
    values, errors = np.array([each.value for each in found]), np.array([each.error for each in found])
    weights = np.ones(len(names)) if prior is None else np.array([prior[name] for name in names], float)
    logits = values + np.log(weights)
    probability = np.exp(logits - np.logaddexp.reduce(logits))
    slopes = probability[:, None] * (np.eye(len(names)) - probability)  # of probabilities by log evidences
    between = np.hypot(errors[:, None], errors) * (1 - np.eye(len(names)))
    return xr.Dataset(
        {
            "log_evidence": ("model", values),
            "log_evidence_se": ("model", errors),
            "probability": ("model", probability),
            "probability_se": ("model", np.sqrt((slopes**2 * errors**2).sum(1))),
            "log_bayes_factor": (("model", "against"), values[:, None] - values),
            "log_bayes_factor_se": (("model", "against"), between),
        },
        coords={"model": names, "against": names},
    )


def _named(name: str, posterior: Posterior, seed: int) -> LogEvidence:
    try:
        return log_evidence(posterior, seed=seed)
    except ValueError as error:
        raise ValueError(f"fits[{name!r}]: {error}") from None


def _refuse_models(fits: Mapping[str, Posterior | LogEvidence], prior: Mapping[str, float] | None) -> None:
    if len(fits) < 2:
        raise ValueError(
            f"model_probabilities compares models, and fits has {len(fits)}: write a fit for each of two or more."
        )
    for name, each in fits.items():
        if not isinstance(each, LogEvidence):
            refuse_other_kind(each, Posterior, f"fits[{name!r}]", "the posterior that bnnzoo.fit returned")
    # whatever the order and the names under which they observe the values
    densities = {name: each.density for name, each in fits.items() if isinstance(each, Posterior)}
    counts = {name: density.num_data for name, density in densities.items()}
    if len({*counts.values()}) > 1:
        said = ", ".join(f"{name} to {count}" for name, count in counts.items())
        raise ValueError(
            f"The models were fitted to different observations ({said}): evidences compare models of the same data."
        )
    known = {name: each for name, each in densities.items() if each.has_data and not each.factors}
    observed = {}  # all numbers in ascending order, missing ones left out
    for name, density in known.items():
        theta = density.init(1, 0)[0]
        with torch.no_grad():
            nodes = density.observed_nodes(theta, *density.data)
        numbers = torch.cat([torch.as_tensor(nodes[each]["value"]).double().flatten() for each in density.observed])
        observed[name] = np.sort(numbers[numbers.isfinite()].cpu().numpy())
    first = next(iter(observed), "")
    for name, values in observed.items():
        if len(values) != len(observed[first]) or not np.allclose(values, observed[first], rtol=1e-5, atol=1e-6):
            raise ValueError(
                f"The models were fitted to different observations: {first} observes {_in_short(observed[first])}, {name} "
                f"{_in_short(values)}. Evidences compare models of the same data in the same units: a model of log(y) is "
                f"compared as one of y, with y ~ LogNormal."
            )
    if prior is None:
        return
    if {*prior} != {*fits}:
        raise ValueError(
            f"prior names {', '.join(prior)}, but fits has {', '.join(fits)}: write a number for each of these."
        )
    for name, value in prior.items():
        check_argument("model_probabilities", f"prior[{name!r}]", value, Positive)


def _in_short(values: np.ndarray[Any, Any]) -> str:
    return f"{len(values)} numbers of mean {values.mean():.4g} and sd {values.std():.4g}" if len(values) else "none"
