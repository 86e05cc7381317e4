"""Leave-one-out cross-validation, with the importance weights that the kind of draws in a tree asks for."""

import warnings

import numpy as np
import xarray as xr
from arviz_stats.loo.loo import loo as loo_of_chains
from arviz_stats.loo.loo_approximate_posterior import loo_approximate_posterior
from arviz_stats.utils import ELPDData

from bnnzoo.diagnostics.pareto_smoothing import MIN_DRAWS, refuse_infinite, smoothed_log_weights
from bnnzoo.trees import SAMPLE_DIMS, num_draws, refuse_parts_of_trees

__all__ = ["UnreliableLooWarning", "loo", "sum_by_row"]

GOOD_K = 0.7
"""Pareto k up to which resampled draws count as the posterior's."""


class UnreliableLooWarning(UserWarning):
    """For some observations the importance weights are too uneven for leave-one-out cross-validation."""


def loo(tree: xr.DataTree) -> ELPDData:
    r"""Return the leave-one-out log predictive density :math:`\sum_i \log p(y_i \mid y_{-i})` by importance sampling.

    Draws :math:`\theta_s \sim q` are weighted by what turns them into draws from the posterior without observation i,
    with Pareto-smoothed weights

    .. math:: w_{is} \propto \frac{p(y, \theta_s)}{q(\theta_s)} \frac{1}{p(y_i \mid \theta_s)}

    Markov chains draw from the posterior itself, and the first factor is one. For independent draws of an approximation
    (VI, Laplace) it corrects for the approximation; without it, the k-hats look good however far the approximation is
    from the posterior. Draws that were resampled by such weights (Pathfinder, :func:`psis_resample`) count as the posterior's
    if the Pareto k of the weights is at most 0.7, and are refused otherwise. The tree's attribute ``sampling`` decides
    between the two; without it, draws that have ``log_q``
    are treated as draws from an approximation, and all others as Markov chains.

    Parameters
    ----------
    tree : DataTree
        From :func:`bnnzoo.posterior_predictive` on the training data, with ``log_likelihood``; for an approximation also
        with ``lp`` and ``log_q`` in ``sample_stats``. If it has predictions of the linearised model (attribute
        ``linearized``) and a group ``log_prior``, the joint density is that of the linearised model: the log prior densities,
        ``log_jacobian`` in ``sample_stats`` (zero without it), and the log likelihood.

    Returns
    -------
    ELPDData
        ArviZ's, with ``elpd``, ``se``, ``p`` and, for each observation, ``elpd_i`` and ``pareto_k``; ``az.compare`` takes
        it. An entry of the log likelihood counts as one observation, except that several observed sites are summed
        row by row, since they are left out together; those in plates of their own (variables with other attributes ``plate``)
        are observations of their own, and so is a site without rows beside others that have rows. Masked observations, whose
        log likelihood is exactly zero or NaN in all draws, are left out of the result.

    Raises
    ------
    ValueError
        If the tree has no log likelihood, its draws are those of a prior, members of an ensemble or point masses (dropout), the
        density of an approximation is missing or not finite, or there are fewer than 25 draws.

    Warns
    -----
    UnreliableLooWarning
        If a k-hat is NaN or above ``good_k``, ``min(1 - 1 / log10(S), 0.7)`` for S draws, or the effective number of parameters
        ``p`` is negative. A k-hat is infinite where the largest weights are equal, as in a chain that stands still at the draw
        that explains an observation worst.

    References
    ----------
    Vehtari, Gelman and Gabry (2017), Practical Bayesian model evaluation using leave-one-out cross-validation and WAIC,
    Statistics and Computing 27. Magnusson, Andersen, Jonasson and Vehtari (2019), Bayesian leave-one-out
    cross-validation for large data, ICML (approximate posteriors).

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> posterior = bz.fit(target.model, bz.Laplace(), *target.data, progress=False)
    >>> found = bz.diagnostics.loo(bz.posterior_predictive(posterior, *target.data))
    >>> int(found.n_data_points), bool((found.pareto_k < 0.7).all())
    (40, True)
    """
    refuse_parts_of_trees(tree)
    if tree.attrs.get("inference_method") == "prior" or {*tree.children} & {"prior", "posterior"} == {"prior"}:
        raise ValueError(
            "LOO is of a fit, but the draws are those of the prior, which has seen no data to leave out: pass "
            "bnnzoo.posterior_predictive(posterior, x, y)."
        )
    if _sampling(tree) == "ensemble":
        raise ValueError(
            f"Members of an ensemble ({tree.attrs.get('inference_method', 'unknown method')}) are not draws from a known "
            "density, so importance weights cannot leave an observation out: compare held-out log scores instead, "
            "bnnzoo.calibration.nll(bnnzoo.predict(posterior, x_test, y_test))."
        )
    log_likelihood = _seen(_by_observation(tree), tree)
    if num_draws(log_likelihood) < MIN_DRAWS:
        raise ValueError(f"LOO needs {MIN_DRAWS} draws or more, but there are {num_draws(log_likelihood)}.")
    if log_likelihood.size == num_draws(log_likelihood):
        raise ValueError(
            "LOO needs two observations or more, but the log likelihood of each draw is a single number: either one row was "
            "seen, or the model makes all rows one event. Where rows are independent, observe them in pyro.plate('data', "
            "len(x)) and without .to_event(); a joint distribution of all rows, such as a Gaussian process, has no LOO by row."
        )
    is_approximate = _sampling(tree) == "iid" and not _is_resampled(tree)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of ArviZ, about k-hats: they are warned of below
        found = _of_approximation(log_likelihood, tree) if is_approximate else _of_chains(log_likelihood, tree)
    _warn_if_unreliable(found, is_approximate)
    return found


def _sampling(tree: xr.DataTree) -> str:
    return str(tree.attrs.get("sampling", "iid" if "log_q" in _sample_stats(tree) else "mcmc"))


def _is_resampled(tree: xr.DataTree) -> bool:
    """Tell whether draws were resampled by importance weights that can be trusted: then they are the posterior's."""
    return float(tree.attrs.get("psis_pareto_k", np.inf)) <= GOOD_K and "log_q" not in _sample_stats(tree)


def _sample_stats(tree: xr.DataTree) -> xr.Dataset:
    return tree["sample_stats"].to_dataset() if "sample_stats" in tree.children else xr.Dataset()


def _by_observation(tree: xr.DataTree) -> xr.DataArray:
    """Return the log likelihood ``[chain, draw, obs_id, ...]``, that of several sites summed by row."""
    if "log_likelihood" not in tree.children:
        is_new = "predictions_log_likelihood" in tree.children
        raise ValueError(
            f"LOO needs the log likelihood of the training data, but the tree has no group 'log_likelihood' (groups: "
            f"{', '.join(tree.children) or 'none'}): "
            + (
                "of new data take bnnzoo.calibration.nll."
                if is_new
                else "pass bnnzoo.posterior_predictive(posterior, x, y)."
            )
        )
    sites = list(tree["log_likelihood"].to_dataset().data_vars.values())
    plates = {site.attrs.get("plate") for site in sites}
    if len(plates) > 1 and None not in plates:
        # plates have no rows in common; sites of one plate are summed row by row
        by_plate: dict[str, xr.DataArray] = {}
        for site in sites:
            own = sum_by_row(site).rename(obs_id="observation").drop_vars("observation", errors="ignore")
            plate = site.attrs["plate"]
            by_plate[plate] = by_plate[plate] + own if plate in by_plate else own
        return xr.concat(list(by_plate.values()), "observation").compute().transpose(*SAMPLE_DIMS, ...).rename("y")
    rows = [site for site in sites if "obs_id" in site.dims]
    if rows and len(rows) < len(sites):
        single = [site for site in sites if "obs_id" not in site.dims]
        whole = xr.concat([sum_by_row(site) for site in rows], "site").sum("site", skipna=False)
        by_row = whole.rename(obs_id="observation").drop_vars("observation", errors="ignore")
        found = [by_row, *(sum_by_row(site).expand_dims("observation") for site in single)]
        return xr.concat(found, "observation").compute().transpose(*SAMPLE_DIMS, ...).rename("y")
    total = sites[0]
    if len(sites) > 1:
        total = xr.concat([sum_by_row(site) for site in sites], "site").sum("site", skipna=False)
    return total.compute().transpose(*SAMPLE_DIMS, ...).rename("y")


def sum_by_row(site: xr.DataArray) -> xr.DataArray:
    """Return the sum over outputs ``[chain, draw, obs_id]``, to which masked entries add nothing."""
    seen = site.where(site.notnull().any(SAMPLE_DIMS), 0.0)
    return seen.sum([dim for dim in site.dims if dim not in (*SAMPLE_DIMS, "obs_id")], skipna=False)


def _seen(log_likelihood: xr.DataArray, tree: xr.DataTree) -> xr.DataArray:
    """Leave out masked observations: a density is not exactly one in all draws, unless a class is certain."""
    # for which rows a class has probability one in all draws, so that its log likelihood is zero
    conditional = tree["conditional"].to_dataset() if "conditional" in tree.children else xr.Dataset()
    if "probs" not in conditional:
        certain = xr.DataArray(False)
    else:
        certain = (conditional["probs"].max("class_id") > 1 - 1e-6).all(SAMPLE_DIMS)
    masked = ((log_likelihood == 0) | log_likelihood.isnull()).all(SAMPLE_DIMS) & ~certain
    if not masked.any():
        return log_likelihood
    if masked.ndim > 1:
        log_likelihood = log_likelihood.stack(observation=masked.dims, create_index=False)
        masked = masked.stack(observation=masked.dims, create_index=False)
    if masked.all():
        raise ValueError(
            "LOO needs observations, but the log likelihood of all is zero or NaN: none was seen in the fit."
        )
    return log_likelihood[..., ~masked.to_numpy()]


def _of_chains(log_likelihood: xr.DataArray, tree: xr.DataTree) -> ELPDData:
    """Return ArviZ's LOO with our weights, which allow for rows whose largest are equal, as where a chain stands still."""
    log_weights, pareto_k = xr.apply_ufunc(
        smoothed_log_weights,
        -log_likelihood,
        kwargs={"r_eff": _relative_ess(tree)},
        input_core_dims=[SAMPLE_DIMS],
        output_core_dims=[SAMPLE_DIMS, ()],
        vectorize=True,
    )
    return loo_of_chains(
        _with_log_likelihood(log_likelihood, {}),
        pointwise=True,
        reff=1.0,  # is in the weights
        log_weights=log_weights.transpose(*log_likelihood.dims),
        pareto_k=pareto_k,
    )


def _relative_ess(tree: xr.DataTree) -> float:
    """Return the mean ESS of all latent values, per draw; NaN if a chain stands still, for the longest tail."""
    posterior = tree["posterior"].to_dataset() if "posterior" in tree.children else xr.Dataset()
    if _is_resampled(tree):
        return min(1.0, float(tree.attrs["psis_ess"]) / num_draws(_sample_stats(tree)["lp"]))
    if posterior.sizes.get("chain", 1) == 1 or not posterior.data_vars:
        return 1.0
    ess = posterior.azstats.ess(method="mean")
    draws = posterior.sizes["chain"] * posterior.sizes["draw"]
    return float(np.concatenate([found.to_numpy().ravel() for found in ess.values()]).mean()) / draws


def _of_approximation(log_likelihood: xr.DataArray, tree: xr.DataTree) -> ELPDData:
    stats = _sample_stats(tree)
    if tree.attrs.get("has_atoms") == "yes":
        raise ValueError(
            f"LOO weights draws by their density, and those of {tree.attrs.get('inference_method', 'dropout')} have none: they "
            "are point masses, one for each set of units that is dropped. Compare held-out log scores instead, "
            "bnnzoo.calibration.nll(bnnzoo.predict(posterior, x_test, y_test))."
        )
    for name in ("log_q", "lp"):
        if name not in stats:
            raise ValueError(
                f"LOO of an approximation corrects for it by the density of its draws, but 'sample_stats' has no {name!r}: "
                "pass the tree of a method with a density, such as VI or Laplace, as it was before any resampling, or "
                "compare held-out log scores, bnnzoo.calibration.nll(bnnzoo.predict(posterior, x_test, y_test))."
            )
    log_p, log_q = _log_joint(tree).transpose(*SAMPLE_DIMS), stats["log_q"].transpose(*SAMPLE_DIMS)
    refuse_infinite(log_p.to_numpy() - log_q.to_numpy())
    return loo_approximate_posterior(
        _with_log_likelihood(log_likelihood, {}), log_p.to_numpy(), log_q.to_numpy(), pointwise=True
    )


def _log_joint(tree: xr.DataTree) -> xr.DataArray:
    """Return log p(y, theta) ``[chain, draw]``; ``lp`` is that of the model itself, and not of a linearised one."""
    if tree.attrs.get("linearized") != "yes" or "log_prior" not in tree.children:
        return _sample_stats(tree)["lp"]
    terms = [
        term.sum([dim for dim in term.dims if dim not in SAMPLE_DIMS])
        for group in ("log_prior", "log_likelihood")
        for term in tree[group].to_dataset().data_vars.values()
    ]
    return xr.concat(terms, "term").sum("term") + _sample_stats(tree).get("log_jacobian", 0.0)


def _with_log_likelihood(log_likelihood: xr.DataArray, groups: dict[str, xr.Dataset]) -> xr.DataTree:
    return xr.DataTree.from_dict(groups | {"log_likelihood": log_likelihood.to_dataset(name="y")})


def _warn_if_unreliable(found: ELPDData, is_approximate: bool) -> None:
    bad = int((~(found.pareto_k <= found.good_k)).sum())
    advice = (
        "The approximation is too far from the posterior: use a richer family, such as FullRankVI, or NUTS, or compare"
        if is_approximate
        else "Refit without each of these observations, move draws by bnnzoo.validation.moment_match(posterior), or compare"
    )
    found_wrong = [
        *(
            [f"the Pareto k of {bad} of {found.pareto_k.size} observations is above {found.good_k:.2f} or NaN"]
            if bad
            else []
        ),
        *([f"its effective number of parameters is negative, {found.p:.2g}"] if found.p < 0 else []),
    ]
    if found_wrong:
        warnings.warn(
            f"LOO is unreliable: {', and '.join(found_wrong)}. {advice} held-out log scores, "
            f"bnnzoo.calibration.nll(bnnzoo.predict(posterior, x_test, y_test)).",
            UnreliableLooWarning,
            stacklevel=3,
        )
