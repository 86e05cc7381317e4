"""Mixtures of approximations, one around each member of an ensemble."""

import math
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor
from torch.func import vmap

from bnnzoo.core.likelihood.general_readout import UnreadableLikelihood
from bnnzoo.core.method import Declared, FitContext, Method, Need, declared, starting_at
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.outputs import linearized
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.posterior import Gaussian, Mixture
from bnnzoo.core.settings import Count, Range
from bnnzoo.inference.config import run_method
from bnnzoo.inference.ensembles.held_out import split_rows, stacking_log_weights, warn_of_one_member
from bnnzoo.inference.ensembles.map import MAP
from bnnzoo.inference.ensembles.swag import SWAG, MultiSWAG
from bnnzoo.inference.fit import refuse_unmet_needs

__all__ = ["MixtureOf", "log_evidence", "overlaps"]

NUM_DRAWS = 500  # of each component, for bounds and predictive densities
CHUNK = 50


@dataclass(frozen=True)
class MixtureOf(Declared):
    r"""A mixture of Gaussians: another method's, started at each member of an ensemble.

    .. math:: q(\theta) = \sum_m w_m \, N(\theta; \theta_m, \Sigma_m)

    Parameters
    ----------
    method : Method
        A Laplace approximation, a Gaussian variational method or :class:`SWAG`.
    num_members : int
        Number of components.
    weights : {"equal", "evidence", "stacking"}
        Equal; proportional to the evidence that each component estimates for its part of the posterior; or those under which the
        mixture predicts held-out rows best.
    held_out : float
        With ``weights="stacking"``: fraction of the rows that no component is fitted to.
    ensemble : Method, optional
        Finds the members, such as ``DeepEnsemble()``; its ``num_members`` is set. Default: the ``map`` of a Laplace
        approximation, ``MAP()`` for other methods.

    References
    ----------
    Eschenhagen, Daxberger, Hennig and Kristiadi (2021), Mixtures of Laplace approximations for improved post-hoc uncertainty in
    deep learning, NeurIPS workshop on Bayesian deep learning. Zobay (2014), Variational Bayesian inference with Gaussian-mixture
    approximations, Electronic Journal of Statistics 8.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> posterior = bz.fit(target.model, bz.MixtureOf(bz.Laplace(), 2, weights="evidence"), *target.data, progress=False)
    >>> posterior.weights
    tensor([0.5000, 0.5000])
    """

    method: Method = field(default_factory=SWAG)
    num_members: Count = 5
    weights: Literal["equal", "evidence", "stacking"] = "equal"
    held_out: Annotated[float, Range(0, 1, open_low=True, open_high=True)] = 0.2
    ensemble: Method | None = None

    needs: ClassVar[frozenset[Need]] = frozenset()
    parts: ClassVar[str | None] = "num_members"
    stages: ClassVar[tuple[str, ...]] = ("method", "ensemble")

    def run(self, density: LogDensity, context: FitContext) -> Mixture:
        """Find the members, fit the method around each, and weight them; see :func:`bnnzoo.fit`.

        Raises
        ------
        ValueError
            If the method cannot start at a given point, returns no Gaussian, or says nothing of the evidence.
        ModelError
            If the model lacks the network that the method needs, or has no rows to hold out.
        """
        _refuse_unsuitable(self)
        refuse_unmet_needs(self.method, density, "MixtureOf({})")
        by_rows = self.weights == "stacking"
        fit_to, held_out = split_rows(density, self.held_out, context.seed) if by_rows else (density, density)
        mode = declared(self.method).mode
        own_search = MAP() if mode is None else getattr(self.method, mode)
        search = _with_members(self.ensemble or own_search, self.num_members)
        found = run_method(search, fit_to, replace(context, checkpoint=None))
        if not found.info.complete:
            raise KeyboardInterrupt("MixtureOf was interrupted before the modes of its components were found.")
        keep = self.ensemble is None
        fits = []
        for member, theta in enumerate(found.draws()[0]):
            method = _started(self.method, theta, keep=keep)
            fit = run_method(method, fit_to, replace(context, seed=context.seed + member, checkpoint=None))
            if not isinstance(fit, Gaussian):
                raise ValueError(
                    f"MixtureOf mixes Gaussians, but {type(method).__name__} gave {type(fit).__name__}: write Laplace(), "
                    f"MeanFieldVI(), SWAG() or one like them, with a single start."
                )
            fits.append(fit)
        if self.weights == "evidence":
            log_weights = _evidence_weights(self.method, fits)
        elif by_rows:
            log_weights = stacking_log_weights(torch.stack([_predictive_density(each, held_out) for each in fits]))
            warn_of_one_member(log_weights, self.held_out)
        else:
            log_weights = None
        info = FitInfo(
            sampling="iid",
            num_gradients=found.info.num_gradients + sum(each.info.num_gradients for each in fits),
            complete=all(each.info.complete for each in fits),
            config={} if log_weights is None else {"member_weights": log_weights.softmax(0).tolist()},
            fit_stats=found.info.fit_stats,
        )
        components = tuple(replace(each, density=density, info=info) for each in fits)
        return Mixture(density, info, components, log_weights)


def log_evidence(method: Method, component: Gaussian) -> float:
    r"""Return the logarithm of the part of the evidence that a component stands for, as it estimates it.

    A Laplace approximation takes its own estimate, :math:`\log p(y, \theta^*) - \log q(\theta^*)`; for variational methods it is
    the evidence lower bound, the mean of :math:`\log p(y, \theta) - \log q(\theta)` over draws from q.
    """
    density = component.density
    theta = component.loc[None] if declared(method).mode else component.draws(NUM_DRAWS)[0]
    with torch.no_grad():
        joint = vmap(lambda row: density.log_joint(row, *density.data), chunk_size=CHUNK)(theta)
        return float((joint - component.log_prob(theta)).mean())


def overlaps(components: list[Gaussian]) -> Tensor:
    r"""Return how much components coincide ``[M, M]``: 1 for the same, 0 for distant ones.

    .. math:: \exp\left(-\tfrac1{16} (\mu_m - \mu_l)^T (\Sigma_m^{-1} + \Sigma_l^{-1}) (\mu_m - \mu_l)\right)

    For equal covariances this is the Bhattacharyya coefficient.
    """
    locs, distances = torch.stack([each.loc for each in components]), []
    for each in components:  # squared distances in its metric; infinite where parameters that it fixes differ
        away = locs - each.loc
        fixed = each.covariance.diagonal() == 0
        same = (away[:, fixed].abs() < 1e-6 * (1 + each.loc[fixed].abs())).all(1)
        distances.append(torch.where(same, each.covariance.mahalanobis(away), torch.inf))
    apart = torch.stack(distances)
    return torch.exp(-(apart + apart.mT) / 16)


def _evidence_weights(method: Method, components: list[Gaussian]) -> Tensor:
    """Return log weights ``[M]``; components that found the same mode share its weight."""
    evidence = torch.tensor([log_evidence(method, each) for each in components])
    log_weights = evidence.to(components[0].loc) - overlaps(components).sum(1).log()
    return log_weights.nan_to_num(nan=-torch.inf) - log_weights.nan_to_num(nan=-torch.inf).logsumexp(0)


def _predictive_density(component: Gaussian, held_out: LogDensity) -> Tensor:
    """Return the log density ``[H]`` of each held-out row under a component's predictive distribution."""
    density = held_out
    if component.linearize_at is not None:
        try:
            density = linearized(held_out, component.linearize_at)
        except UnreadableLikelihood:
            density = held_out
    theta = component.draws(NUM_DRAWS)[0]
    with torch.no_grad():
        rows: Tensor = vmap(lambda row: density.log_likelihood(row, *density.data), chunk_size=CHUNK)(theta)
    return rows.logsumexp(0) - math.log(len(rows))


def _started(method: Method, theta: Tensor, *, keep: bool) -> Method:
    try:
        return starting_at(method, theta, keep=keep)
    except ValueError as error:
        raise ValueError(
            f"MixtureOf({type(method).__name__}()): the method cannot start at a given point. Write Laplace(), MeanFieldVI(), "
            f"SWAG() or one like them."
        ) from error


def _with_members(search: Method, num_members: int) -> Method:
    if "num_members" not in {each.name for each in fields(search)}:  # type: ignore[arg-type]  # methods are dataclasses
        raise ValueError(
            f"MixtureOf(ensemble={type(search).__name__}()): write MAP() or DeepEnsemble(), which have members."
        )
    return replace(search, num_members=num_members)  # type: ignore[type-var]


def _refuse_unsuitable(mixture: MixtureOf) -> None:
    method = mixture.method
    if isinstance(method, MixtureOf | MultiSWAG):
        raise ValueError(
            f"MixtureOf({type(method).__name__}()) would be a mixture of mixtures: write the method inside it."
        )
    _started(method, torch.zeros(1), keep=True)
    if mixture.weights == "evidence" and isinstance(method, SWAG):
        raise ValueError(
            'MixtureOf(SWAG(), weights="evidence"): the width of SWAG\'s Gaussian is that of gradient noise and says nothing of '
            'the evidence. Write weights="equal" or "stacking".'
        )
