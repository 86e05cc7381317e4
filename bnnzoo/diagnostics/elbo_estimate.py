"""The evidence lower bound of an approximation, with its Monte Carlo error."""

import numpy as np
import xarray as xr

from bnnzoo.diagnostics.pareto_smoothing import log_ratios

__all__ = ["elbo"]


def elbo(tree: xr.DataTree) -> xr.Dataset:
    r"""Evidence lower bound :math:`\frac1S \sum_s \log p(y, \theta_s) - \log q(\theta_s)` in nats, with its standard error.

    It uses all rows of the training data and the draws of the tree, unlike the trace of an optimisation, whose entries are
    noisy estimates from few draws at changing parameters. The difference of two bounds for the same model and data is the
    difference of their divergences :math:`KL[q \| p]`.

    Parameters
    ----------
    tree : DataTree
        From a method whose draws have a density, such as VI or Laplace, with ``lp`` and ``log_q`` in ``sample_stats``.
        Chains (restarts) are components of an equally weighted mixture, whose density is ``log_q``.

    Returns
    -------
    Dataset
        ``value`` and its Monte Carlo standard error ``mcse``; and ``importance_weighted``, the logarithm of the mean
        importance weight of all draws, which in expectation lies between the bound and the log evidence. In nats.

    Raises
    ------
    ValueError
        If ``lp`` or ``log_q`` is missing or not finite, or there are fewer than 25 draws.

    References
    ----------
    D. M. Blei, A. Kucukelbir, J. D. McAuliffe, Variational inference: a review for statisticians, JASA, 2017; Y. Burda,
    R. Grosse, R. Salakhutdinov, Importance weighted autoencoders, ICLR 2016.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> tree = bz.to_datatree(bz.fit(target.model, bz.Laplace(), *target.data, progress=False))
    >>> bound = bz.diagnostics.elbo(tree)  # Laplace is exact here, so the bound is the log evidence
    >>> abs(float(bound["value"]) - float(target.log_evidence)) < 0.01
    True
    """
    ratios = log_ratios(tree, "An evidence lower bound needs")
    # draws are independent, and there are equally many from each component
    within = ratios.var("draw", ddof=1).mean() if ratios.sizes["draw"] > 1 else ratios.var(ddof=1)
    largest = ratios.max()
    parts = {
        "value": ratios.mean(),
        "mcse": np.sqrt(within / ratios.size),
        "importance_weighted": largest + np.log(np.exp(ratios - largest).mean()),
    }
    return xr.Dataset({name: part.assign_attrs(units="nats") for name, part in parts.items()})
