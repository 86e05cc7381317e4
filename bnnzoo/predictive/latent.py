"""The draws of a posterior as labelled arrays: latent sites, weights and statistics of the draws."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from bnnzoo.core.data.described import described
from bnnzoo.core.data.sizes import refuse_beyond_memory
from bnnzoo.core.model.prior_terms import log_jacobian, prior_terms
from bnnzoo.core.model.replay import Node
from bnnzoo.core.posterior.posterior import NUMBERS_AT_ONCE, Draws, Posterior
from bnnzoo.core.program.sites import DIMENSIONS, is_deterministic, plates_of
from bnnzoo.core.program.surroundings import refuse_handlers
from bnnzoo.core.reading.changes import warn_of_changed_model
from bnnzoo.core.reading.conditioned import PredictsGivenData
from bnnzoo.core.settings import Seed, check_argument
from bnnzoo.core.types import Data, Whole
from bnnzoo.predictive import datatree
from bnnzoo.predictive.blocks import Arrays, Function, nodes_or_nan, plan
from bnnzoo.predictive.discrete_groups import discrete_groups
from bnnzoo.predictive.labels import Labels, Plates
from bnnzoo.predictive.sweep import evaluate

__all__ = ["PosteriorDraws", "deterministic_nodes", "deterministics", "draw", "latent_groups", "numpy_arrays"]

MAX_LATENT_NUMBERS = 10_000_000  # weights and deterministic sites beyond this stay out of the tree unless asked for


NUM_FUNCTIONS = 1000
"""Functions that are drawn at a single point of the hyperparameters, unless another number is asked for."""


@runtime_checkable
class HasMembers(Protocol):
    """A posterior made of several: a mixture, or an ensemble with weights."""

    def members(self, num_draws: int | None = None, seed: Whole | None = None) -> Tensor: ...


@dataclass(frozen=True)
class PosteriorDraws:
    """Draws ``theta[C, S, P]`` of a posterior and how they came about.

    Attributes
    ----------
    posterior : Posterior
    theta : Tensor [C, S, P]
    seed : int
    members : Tensor [C, S], optional
        Component from which each draw comes, if the posterior is a mixture, or member, if it is an ensemble with weights.
    """

    posterior: Posterior
    theta: Tensor
    seed: int
    members: Tensor | None = None

    @property
    def flat(self) -> Tensor:
        """All draws in one axis ``[C * S, P]``."""
        return self.theta.flatten(0, 1)

    def per_draw(self, values: Arrays) -> Arrays:
        """Split the first axis of ``[C * S, ...]`` into chains and draws."""
        chains, draws = self.theta.shape[:2]
        return {name: array.reshape(chains, draws, *array.shape[1:]) for name, array in values.items()}


def draw(posterior: Posterior, num_draws: int | None, seed: Whole | None) -> PosteriorDraws:
    """Draw from a posterior, with the seed of its fit by default."""
    refuse_handlers()
    if seed is not None:
        check_argument("predict", "seed", seed, Seed)
    seed = posterior.info.seed if seed is None else int(seed)  # numpy's integers, too
    density = posterior.density
    warn_of_changed_model(density)
    if num_draws is not None:
        refuse_beyond_memory(
            float(num_draws) * density.num_params * density.dtype.itemsize,
            f"num_draws={num_draws} of {density.num_params} parameters",
            "Choose a smaller num_draws",
        )
    if (
        isinstance(density.model, PredictsGivenData)
        and isinstance(posterior, Draws)
        and posterior.theta.shape[:2] == (1, 1)
    ):
        # a single point of a model that predicts given its data, which draws another function each time
        posterior = replace(posterior, theta=posterior.theta.expand(1, num_draws or NUM_FUNCTIONS, -1))
    members = posterior.members(num_draws, seed) if isinstance(posterior, HasMembers) else None
    return PosteriorDraws(posterior, posterior.draws(num_draws, seed).detach(), seed, members)


def latent_groups(draws: PosteriorDraws, weights: bool | Literal["auto"], labels: Labels) -> dict[str, xr.Dataset]:
    """Return the groups ``posterior``, ``weights``, ``auxiliary``, ``log_prior``, ``sample_stats`` and ``fit_stats``.

    ``auxiliary`` holds latent sites from which a model only computes others, if it names such sites as ``hidden``.

    Parameters
    ----------
    draws : PosteriorDraws
    weights : bool or "auto"
        Whether to keep network weights; "auto" keeps up to ``MAX_LATENT_NUMBERS`` numbers.
    labels : Labels
    """
    density = draws.posterior.density
    with torch.no_grad():
        values = {name: value.cpu().numpy() for name, value in density.constrain(draws.theta).items()}
    is_weight = {site.name: site.is_weight for site in density.sites}
    known, plates = _known_deterministics(draws)
    labels = replace(labels, plates={**labels.plates, **plates})
    auxiliary = described(density.model).auxiliary
    hidden = {name: array for name, array in values.items() if name in auxiliary}
    latent = {name: array for name, array in values.items() if not (is_weight[name] or name in hidden)} | known
    latent = {name: _without_rounding(array) for name, array in latent.items()}
    discrete = discrete_groups(density, draws.theta, density.data, draws.seed, labels) if density.has_data else {}
    kept = {name: array for name, array in values.items() if is_weight[name]}
    too_many = sum(array.size for array in kept.values()) > MAX_LATENT_NUMBERS
    stats = _sample_stats(draws)
    jacobians: Arrays = {}
    if "log_q" in stats:
        jacobians = _evaluated(draws, lambda theta: {"log_jacobian": log_jacobian(density, theta)}, ())
    of_sites = datatree.by_draw(latent or _weight_norms(draws), labels)
    return {
        "posterior": of_sites.merge(discrete.pop("discrete")) if discrete else of_sites,
        **discrete,
        "weights": datatree.by_draw({} if weights is False or (weights == "auto" and too_many) else kept, labels),
        "auxiliary": datatree.by_draw(hidden, labels),
        "log_prior": datatree.by_draw(_log_priors(draws)),
        "sample_stats": datatree.by_draw(stats | jacobians),
        "fit_stats": datatree.fit_stats(numpy_arrays(draws.posterior.info.fit_stats), len(draws.theta)),
    }


def _without_rounding(values: Any) -> Any:
    """Return draws ``[C, S, ...]`` in which entries that are constant but for rounding are constant.

    The diagonal of a correlation matrix is the product of a factor with itself: plots of its density would fail.
    """
    if values.dtype.kind != "f" or not values.size:
        return values
    low, high = values.min((0, 1)), values.max((0, 1))
    rounding = 8 * np.finfo(values.dtype).eps * np.maximum(np.abs(low), np.abs(high))
    with np.errstate(invalid="ignore"):  # draws that have overflowed are not constant
        is_rounded = (low < high) & (high - low <= rounding) & np.isfinite(rounding)
    return np.where(is_rounded, np.median(values[:1], (0, 1)), values) if is_rounded.any() else values


def _weight_norms(draws: PosteriorDraws) -> Arrays:
    """Euclidean norm of each network's weights: the one thing about them that relabelling hidden units leaves alone.

    It replaces the latent sites of a model that has only weights: ArviZ takes the number of chains and draws, and loo its
    relative efficiency, from the group ``posterior`` and fails where that is empty.
    """
    density = draws.posterior.density

    def norms(theta: Tensor) -> Tensor:
        values = density.constrain(theta)
        squares = [
            torch.stack([values[site].flatten(2).square().sum(-1) for site in network.sites.values()]).sum(0)
            for network in density.networks
        ]
        return torch.stack(squares, -1).sqrt()

    found = _in_parts(norms, draws.theta).unbind(-1)
    return numpy_arrays({f"{network.name}.norm": each for network, each in zip(density.networks, found, strict=True)})


def _in_parts(function: Callable[[Tensor], Tensor], theta: Tensor) -> Tensor:
    """Return a function of draws ``theta[C, S, P]`` with values ``[C, S, ...]``, evaluated at some of many draws at a time."""
    num_draws = max(1, NUMBERS_AT_ONCE // (len(theta) * max(1, theta.shape[-1])))
    return torch.cat([function(part) for part in theta.split(num_draws, 1)], 1)


def _known_deterministics(draws: PosteriorDraws) -> tuple[Arrays, Plates]:
    """Return the deterministic sites for the training data, unless they are too large or the data are not there."""
    density = draws.posterior.density
    if not density.has_data:
        return {}, {}
    with torch.no_grad():
        nodes = deterministic_nodes(nodes_or_nan(density, draws.flat[0], *density.data))
    if sum(node["value"].numel() for node in nodes.values()) * len(draws.flat) > MAX_LATENT_NUMBERS:
        return {}, {}
    return deterministics(draws, density.data, nodes)


def deterministic_nodes(nodes: Mapping[str, Node]) -> dict[str, Node]:
    """Return the nodes of a model's deterministic sites."""
    return {name: node for name, node in nodes.items() if is_deterministic(node)}


def deterministics(draws: PosteriorDraws, data: Data, nodes: Mapping[str, Node]) -> tuple[Arrays, Plates]:
    """Return the deterministic sites of the model ``[C, S, ...]`` for some data, and the plates of their axes.

    Parameters
    ----------
    draws : PosteriorDraws
    data : tuple
        Arguments of the model.
    nodes : mapping of str to node
        Those of the deterministic sites, from a run of the model on these data.
    """
    if not nodes:
        return {}, {}
    density = draws.posterior.density
    return _evaluated(draws, density.deterministics, data), {name: plates_of(node) for name, node in nodes.items()}


def _evaluated(draws: PosteriorDraws, function: Function, data: Data) -> Arrays:
    blocks = plan(function, draws.flat[0], data, 0, splits=False, chunk_size=None)
    return draws.per_draw(evaluate(function, draws.flat, data, 0, blocks))


def _log_priors(draws: PosteriorDraws) -> Arrays:
    density = draws.posterior.density
    if not density.has_data:
        return {}
    found = _evaluated(draws, lambda theta, *_: prior_terms(density, theta), density.data)
    return {f"{name}_factor" if name in DIMENSIONS else name: values for name, values in found.items()}


def _sample_stats(draws: PosteriorDraws) -> Arrays:
    posterior = draws.posterior
    known: dict[str, Tensor] = {}
    for name, value in posterior.info.sample_stats.items():
        if isinstance(posterior, Draws) and value.shape == posterior.theta.shape[:2]:  # thinned as its draws were
            known[name] = replace(posterior, theta=value[..., None]).draws(draws.theta.shape[1])[..., 0]
        elif value.shape == draws.theta.shape[:2]:  # others do not belong to these draws
            known[name] = value
    if "lp" not in known and posterior.density.has_data:
        known |= _log_joint(draws)
    if (
        draws.members is not None and len(draws.theta) == 1 and draws.members.any()
    ):  # chains may be the members, or one all
        known["member"] = draws.members
    with torch.no_grad():
        if posterior.log_prob(draws.theta[:1, :1]) is None:
            log_q = None
        else:
            log_q = _in_parts(lambda part: posterior.log_prob(part), draws.theta)  # type: ignore[arg-type,return-value]  # it is none of None
    return numpy_arrays(known if log_q is None else known | {"log_q": log_q})


def _log_joint(draws: PosteriorDraws) -> dict[str, Tensor]:
    density = draws.posterior.density

    def function(theta: Tensor, *data: Any) -> dict[str, Tensor]:
        return {"lp": density.log_joint(theta, *data)}

    blocks = plan(function, draws.flat[0], density.data, density.num_data, splits=False, chunk_size=None)
    values = draws.per_draw(evaluate(function, draws.flat, density.data, density.num_data, blocks))
    return {name: torch.from_numpy(array) for name, array in values.items()}


def numpy_arrays(tensors: Mapping[str, Tensor]) -> Arrays:
    """Return the same numbers as numpy arrays."""
    return {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
