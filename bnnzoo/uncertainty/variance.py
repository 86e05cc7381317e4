"""Uncertainty of real predictions by the law of total variance, in squared units of y."""

import xarray as xr

from bnnzoo.trees import Labelled, draw_means, draw_variance, moment, refuse_single_draw, sum_draws

__all__ = ["aleatoric_variance", "epistemic_variance", "total_variance"]


def aleatoric_variance(data: Labelled) -> xr.DataArray:
    r"""Aleatoric uncertainty: mean over draws :math:`E_\theta[Var[y \mid x, \theta]]` of the noise variance.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        With ``variance[chain, draw, obs_id, ...]``: the variance of y, which for a Laplace likelihood of scale
        b is 2 b².

    Returns
    -------
    DataArray [obs_id, ...]
        In squared units of y; infinite if a draw's likelihood has infinite variance.

    References
    ----------
    A. Kendall, Y. Gal, What uncertainties do we need in Bayesian deep learning for computer vision?, NeurIPS 2017.

    Examples
    --------
    >>> variance = xr.DataArray([[[1.0], [3.0]]], dims=("chain", "draw", "obs_id"))
    >>> aleatoric_variance(variance).values
    array([2.])
    """
    mean = draw_means(moment(data, "variance"), {"variance": sum_draws})["variance"]
    return mean.rename("aleatoric_variance").assign_attrs(units="squared units of y")


def epistemic_variance(data: Labelled) -> xr.DataArray:
    r"""Epistemic uncertainty: variance over draws :math:`Var_\theta[E[y \mid x, \theta]]` of the conditional mean.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        With ``mean[chain, draw, obs_id, ...]`` of at least two draws.

    Returns
    -------
    DataArray [obs_id, ...]
        In squared units of y, with divisor S, since the predictive distribution is the mixture of the draws.

    Raises
    ------
    ValueError
        If there is a single draw.

    References
    ----------
    A. Kendall, Y. Gal, What uncertainties do we need in Bayesian deep learning for computer vision?, NeurIPS 2017.

    Examples
    --------
    >>> mean = xr.DataArray([[[-1.0], [1.0]]], dims=("chain", "draw", "obs_id"))
    >>> epistemic_variance(mean).values
    array([1.])
    """
    mean = moment(data, "mean")
    refuse_single_draw(mean, "epistemic_variance")
    variance = draw_variance(mean)
    return variance.rename("epistemic_variance").assign_attrs(units="squared units of y")


def total_variance(data: Labelled) -> xr.DataArray:
    r"""Total uncertainty: variance :math:`Var[y \mid x]` of the predictive distribution, the mixture over draws.

    By the law of total variance, the sum of :func:`aleatoric_variance` and :func:`epistemic_variance`.

    Parameters
    ----------
    data : DataTree or Dataset
        With ``mean`` and ``variance``, both ``[chain, draw, obs_id, ...]``, of at least two draws.

    Returns
    -------
    DataArray [obs_id, ...]
        In squared units of y.

    Raises
    ------
    ValueError
        If there is a single draw.

    Examples
    --------
    >>> draws = dict(dims=("chain", "draw", "obs_id"))
    >>> group = xr.Dataset({"mean": xr.DataArray([[[-1.0], [1.0]]], **draws),
    ...                     "variance": xr.DataArray([[[1.0], [3.0]]], **draws)})
    >>> total_variance(group).values
    array([3.])
    """
    total = aleatoric_variance(data) + epistemic_variance(data)
    return total.rename("total_variance").assign_attrs(units="squared units of y")
