"""Closed-form decompositions of the second-order distributions that evidential networks return."""

import xarray as xr
from scipy.special import digamma

from bnnzoo.trees import SAMPLE_DIMS, aligned, refuse_other_kind, refuse_single_draw, shannon_entropy

__all__ = [
    "decompose_dirichlet",
    "decompose_dirichlet_ensemble",
    "decompose_normal_inverse_gamma",
    "decompose_normal_inverse_gamma_ensemble",
]


def decompose_dirichlet(concentration: xr.DataArray) -> xr.Dataset:
    r"""Split the entropy of a label whose probabilities have a Dirichlet distribution, in nats.

    With :math:`p \sim Dir(a)` and :math:`a_0 = \sum_k a_k`, total is :math:`H[a / a_0]`, aleatoric
    :math:`E[H[p]] = \psi(a_0 + 1) - \sum_k \frac{a_k}{a_0} \psi(a_k + 1)`, and epistemic their difference.

    Parameters
    ----------
    concentration : DataArray [..., class_id]
        Positive.

    Returns
    -------
    Dataset
        ``total``, ``aleatoric``, ``epistemic`` ``[...]`` in nats. Interpret the epistemic part with care: a
        network can report much evidence far from all data.

    Raises
    ------
    ValueError
        If a concentration is not positive.

    References
    ----------
    A. Malinin, M. Gales, Predictive uncertainty estimation via prior networks, NeurIPS 2018.

    Examples
    --------
    >>> flat = decompose_dirichlet(xr.DataArray([[1.0, 1.0]], dims=("obs_id", "class_id")))
    >>> flat.round(6).to_array().values.ravel()
    array([0.693147, 0.5     , 0.193147])
    """
    refuse_other_kind(concentration, xr.DataArray, "concentration", "a DataArray with dim class_id")
    if "class_id" not in concentration.dims:
        raise ValueError(
            "A Dirichlet needs its classes along 'class_id', but the dims are "
            f"{', '.join(map(str, concentration.dims))}: rename one, as in concentration.rename(k='class_id')."
        )
    _refuse_not_above(concentration, "concentration", 0.0)
    strength = concentration.sum("class_id")
    probs = concentration / strength
    total = shannon_entropy(probs)
    aleatoric = _digamma(strength + 1) - (probs * _digamma(concentration + 1)).sum("class_id")
    return _split(total, aleatoric, (total - aleatoric).clip(min=0.0), "nats")


def decompose_normal_inverse_gamma(nu: xr.DataArray, alpha: xr.DataArray, beta: xr.DataArray) -> xr.Dataset:
    r"""Split the variance of y whose mean and variance have a normal-inverse-gamma distribution.

    With :math:`\sigma^2 \sim IG(\alpha, \beta)` and :math:`\mu \sim N(\gamma, \sigma^2 / \nu)`, aleatoric is
    :math:`E[\sigma^2] = \beta / (\alpha - 1)`, epistemic :math:`Var[\mu] = \beta / (\nu (\alpha - 1))`, and total, the
    variance of y, their sum.

    Parameters
    ----------
    nu, alpha, beta : DataArray [...]
        Positive, alpha above 1.

    Returns
    -------
    Dataset
        ``total``, ``aleatoric``, ``epistemic`` ``[...]`` in squared units of y.

    Raises
    ------
    ValueError
        If alpha is not above 1, so that the variance does not exist, or nu or beta is not positive.

    References
    ----------
    A. Amini et al., Deep evidential regression, NeurIPS 2020.

    Examples
    --------
    >>> one = xr.DataArray([1.0], dims="obs_id")
    >>> decompose_normal_inverse_gamma(2 * one, 3 * one, 4 * one).to_array().values.ravel()
    array([3., 2., 1.])
    """
    for name, values, bound in (("nu", nu, 0.0), ("alpha", alpha, 1.0), ("beta", beta, 0.0)):
        _refuse_not_above(values, name, bound)
    alpha, beta = (aligned(v, nu, name, "nu", apart_from=()) for name, v in (("alpha", alpha), ("beta", beta)))
    aleatoric = beta / (alpha - 1)
    epistemic = aleatoric / nu
    return _split(aleatoric + epistemic, aleatoric, epistemic, "squared units of y")


def decompose_dirichlet_ensemble(concentration: xr.DataArray) -> xr.Dataset:
    r"""Split the entropy of a label into data, distributional and model uncertainty, in nats, for an ensemble.

    Member s returns :math:`Dir(a_s)` with mean :math:`m_s = a_s / a_{s0}`. Then

    .. math::
        H[\bar m] = \underbrace{\frac1S \sum_s E[H[p]]}_{\text{aleatoric}}
        + \underbrace{\frac1S \sum_s (H[m_s] - E[H[p]])}_{\text{distributional}}
        + \underbrace{H[\bar m] - \frac1S \sum_s H[m_s]}_{\text{model}}, \qquad p \sim Dir(a_s)

    The distributional part is what each member says that it does not know, the model part their disagreement.

    Parameters
    ----------
    concentration : DataArray [chain, draw, ..., class_id]
        Positive, of at least two members.

    Returns
    -------
    Dataset
        ``total``, ``aleatoric``, ``distributional`` and ``model`` ``[...]`` in nats.

    Raises
    ------
    ValueError
        If a concentration is not positive, or there is a single member.

    References
    ----------
    A. Malinin, M. Gales, Predictive uncertainty estimation via prior networks, NeurIPS 2018.

    Examples
    --------
    >>> members = xr.DataArray([[[[9.0, 1.0]], [[1.0, 9.0]]]], dims=("chain", "draw", "obs_id", "class_id"))
    >>> decompose_dirichlet_ensemble(members).round(3).to_array().values.ravel()
    array([0.693, 0.283, 0.042, 0.368])
    """
    each = decompose_dirichlet(concentration)
    _refuse_no_members(concentration, "decompose_dirichlet_ensemble")
    total = shannon_entropy((concentration / concentration.sum("class_id")).mean(SAMPLE_DIMS))
    return _three_parts(each, (total - each["total"].mean(SAMPLE_DIMS)).clip(min=0.0), "nats")


def decompose_normal_inverse_gamma_ensemble(
    gamma: xr.DataArray, nu: xr.DataArray, alpha: xr.DataArray, beta: xr.DataArray
) -> xr.Dataset:
    r"""Split the variance of y into aleatoric, distributional and model uncertainty, for an ensemble.

    Averages over members of :math:`\beta_s / (\alpha_s - 1)` and :math:`\beta_s / (\nu_s (\alpha_s - 1))`, and the variance
    of :math:`\gamma_s` over members. Their sum is the variance of y, by the law of total variance.

    Parameters
    ----------
    gamma, nu, alpha, beta : DataArray [chain, draw, ...]
        Of at least two members; nu and beta positive, alpha above 1.

    Returns
    -------
    Dataset
        ``total``, ``aleatoric``, ``distributional`` and ``model`` ``[...]`` in squared units of y.

    Raises
    ------
    ValueError
        If alpha is not above 1, nu or beta is not positive, or there is a single member.

    References
    ----------
    A. Amini et al., Deep evidential regression, NeurIPS 2020.

    Examples
    --------
    >>> one = xr.DataArray([[[1.0], [1.0]]], dims=("chain", "draw", "obs_id"))
    >>> gamma = one.copy(data=[[[-3.0], [3.0]]])
    >>> decompose_normal_inverse_gamma_ensemble(gamma, 2 * one, 3 * one, 4 * one).to_array().values.ravel()
    array([12.,  2.,  1.,  9.])
    """
    each = decompose_normal_inverse_gamma(nu, alpha, beta)
    _refuse_no_members(gamma, "decompose_normal_inverse_gamma_ensemble")
    gamma = aligned(gamma, nu, "gamma", "nu", apart_from=())
    return _three_parts(each, gamma.var(SAMPLE_DIMS), "squared units of y")


def _three_parts(each: xr.Dataset, model: xr.DataArray, units: str) -> xr.Dataset:
    """Return averages over members of what each of them reports, and what they differ by."""
    aleatoric, distributional = (each[name].mean(SAMPLE_DIMS) for name in ("aleatoric", "epistemic"))
    parts = {"aleatoric": aleatoric, "distributional": distributional, "model": model}
    parts = {"total": aleatoric + distributional + model} | parts
    return xr.Dataset({name: part.assign_attrs(units=units) for name, part in parts.items()})


def _refuse_no_members(values: xr.DataArray, measure: str) -> None:
    if missing := [dim for dim in SAMPLE_DIMS if dim not in values.dims]:
        raise ValueError(
            f"{measure} needs the members of an ensemble along chain and draw, but {missing[0]!r} is missing (dims: "
            f"{', '.join(map(str, values.dims))}): add it, as in array.expand_dims({missing[0]!r})."
        )
    refuse_single_draw(values, measure)


def _refuse_not_above(values: xr.DataArray, name: str, bound: float) -> None:
    refuse_other_kind(values, xr.DataArray, name, "a DataArray with one value for each row")
    if not bool((values > bound).all()):
        raise ValueError(f"{name} must be above {bound:g}, but its smallest value is {float(values.min()):.4g}.")


def _digamma(values: xr.DataArray) -> xr.DataArray:
    return xr.apply_ufunc(digamma, values)


def _split(total: xr.DataArray, aleatoric: xr.DataArray, epistemic: xr.DataArray, units: str) -> xr.Dataset:
    parts = {"total": total, "aleatoric": aleatoric, "epistemic": epistemic}
    return xr.Dataset({name: part.assign_attrs(units=units) for name, part in parts.items()})
