"""Terms of one run of a model: log densities and moments of observed sites, priors, networks."""

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

from bnnzoo.core.likelihood.conditional import moments
from bnnzoo.core.likelihood.general_readout import UnreadableLikelihood
from bnnzoo.core.likelihood.readout import read
from bnnzoo.core.likelihood.unchecked import switch_validation_off
from bnnzoo.core.model.replay import Node, log_prob, scaled_sum
from bnnzoo.core.program.network import NETWORK_KEY, Network
from bnnzoo.core.program.numerics import Failure, NumericalFailure
from bnnzoo.core.program.sites import is_deterministic, is_factor, is_observation, is_point_density, is_subsample
from bnnzoo.core.program.space import ParameterSpace
from bnnzoo.core.program.surroundings import GIVEN
from bnnzoo.engine.failures import is_numerical
from bnnzoo.engine.reports import first_line

__all__ = [
    "active_coordinates",
    "first_failure",
    "is_constant",
    "log_prior_of",
    "moments_of",
    "networks_of",
    "pointwise_of",
    "prior_factors",
    "scaled_likelihood_of",
    "scales_itself",
    "static_priors",
    "summed_by_row",
]

_PRIOR_KEYS = ("name", "type", "fn", "scale", "mask", "args", "kwargs", "is_observed")


def moments_of(nodes: Mapping[str, Node], observed: tuple[str, ...]) -> dict[str, Tensor]:
    """Return the moments of p(y | x, theta), such as ``mean[B, ...]``, named ``"<site>.mean"`` if sites are several."""
    if len(observed) == 1:
        return moments(nodes[observed[0]]["fn"])
    return {f"{site}.{key}": value for site in observed for key, value in moments(nodes[site]["fn"]).items()}


def pointwise_of(nodes: Mapping[str, Node], names: Iterable[str]) -> dict[str, Tensor]:
    """Return the masked log density ``[B, ...]`` of each named site, weighted where entries have weights."""
    return {name: log_prob(nodes[name]) for name in names}


def scaled_likelihood_of(nodes: Mapping[str, Node], names: Iterable[str], num_data: int, like: Tensor) -> Tensor:
    """Return the log likelihood ``[]`` of the named sites, scaled up from the B rows seen to all ``num_data``.

    Sites that their plate's ``subsample_size`` scales up are not scaled again.
    """
    terms = pointwise_of(nodes, names)
    num_rows = summed_by_row(list(terms.values()), like).numel()
    factor = num_data / num_rows if num_rows else 1.0
    scaled = [
        (1.0 if scales_itself(nodes[name]) else factor) * scaled_sum(nodes[name], value)
        for name, value in terms.items()
    ]
    return sum(scaled, like.new_zeros(()))


def scales_itself(node: Node) -> bool:
    """Tell whether a plate scales a site up from some rows to all, by Pyro's ``subsample_size``."""
    return any(frame.full_size not in (None, frame.size) for frame in node["cond_indep_stack"])


def log_prior_of(
    space: ParameterSpace, theta: Tensor, nodes: Mapping[str, Node], likelihood: tuple[str, ...]
) -> Tensor:
    """Return the log prior density ``[]`` at ``theta[P]``, with the factors that are not named as likelihood terms."""
    total = theta.new_zeros(())
    free = space.unconstrained(theta)
    for site in space.sites:
        jacobian = site.transform.log_abs_det_jacobian(free[site.name], nodes[site.name]["value"])
        total = total + jacobian.sum() + scaled_sum(nodes[site.name])
    others = [nodes[name] for name in prior_factors(nodes, likelihood)]
    return sum((scaled_sum(node) for node in others), total)


def prior_factors(nodes: Mapping[str, Node], likelihood: tuple[str, ...]) -> list[str]:
    """Return the sites that add to the prior and are not latent: factors, points that have a density, and constants."""
    samples = {name: node for name, node in nodes.items() if node["type"] == "sample" and name not in likelihood}
    return [name for name, node in samples.items() if is_factor(node) or is_point_density(node) or is_observation(node)]


def is_constant(node: Node, nodes: Iterable[Node]) -> bool:
    """Tell whether an observed site is a constant that ``poutine.condition`` gives, and no outcome.

    It is where its distribution depends on no latent value, and where it is a single number beside outcomes that the model
    itself observes. ``nodes`` are those of the first run, in which latent values require a gradient.
    """
    if not _is_given(node):
        return False
    others = (each for each in nodes if is_observation(each) and not _is_given(each))
    return not log_prob(node).requires_grad or (not node["fn"].batch_shape and any(True for _ in others))


def _is_given(node: Node) -> bool:
    """Tell whether a handler gave an observed site its value in the first run of a model."""
    return bool((node["infer"] or {}).get(GIVEN))


def summed_by_row(terms: list[Tensor], like: Tensor) -> Tensor:
    """Sum likelihood terms of one shape row by row; string terms of different shapes one after another."""
    if not terms:
        return like.new_zeros(0)
    if all(term.shape == terms[0].shape for term in terms):
        return torch.stack(terms).sum(0).reshape(-1)
    return torch.cat([term.reshape(-1) for term in terms])


def first_failure(run: Callable[[], Mapping[str, Node]]) -> Failure | None:
    """Return how a run of the model fails, or the first site whose log probability is not finite; None if all is well."""
    try:
        nodes = run()
    except NumericalFailure as error:
        return error.failure
    for name, node in nodes.items():
        if node["type"] == "sample" and not is_subsample(node):
            try:
                value = log_prob(node).sum()
            except Exception as error:
                if not is_numerical(error):
                    raise
                return Failure(name, f"the log probability of site {name!r} fails with {first_line(error).rstrip('.')}")
            if not bool(value.isfinite()):
                return Failure(name, f"site {name!r} has log probability {float(value)}")
    return None


def active_coordinates(node: Node) -> tuple[bool, ...]:
    """Tell for each coordinate of an observed site's readout whether it has a gradient.

    Raises
    ------
    UnreadableLikelihood
        If the site's family is not known, or what it observes depends on latent sites.
    """
    if node["value"].requires_grad:
        raise UnreadableLikelihood(
            f"The likelihood of site {node['name']!r} cannot be read: its value depends on latents."
        )
    try:
        return tuple(block.requires_grad for block in read(node["fn"]).coordinates)
    except UnreadableLikelihood as error:
        raise UnreadableLikelihood(f"The likelihood of site {node['name']!r} cannot be read: {error}.") from None


def static_priors(nodes: list[Node]) -> dict[str, Node] | None:
    """Return the nodes of latent sites if no prior depends on a latent value, else None; None also with factors."""
    found = {}
    for node in nodes:
        if is_factor(node) or is_point_density(node) or is_observation(node):
            return None
        if is_subsample(node) or is_deterministic(node):
            continue
        # first: rounding puts draws outside their support, such as ordered values that become equal
        switch_validation_off(node["fn"])
        if scaled_sum({**node, "value": node["value"].detach()}).requires_grad:
            return None
        found[node["name"]] = {key: node[key] for key in _PRIOR_KEYS}
    return found


def networks_of(nodes: list[Node]) -> tuple[Network, ...]:
    """Return the records that networks left in the trace, once each."""
    records = [node["infer"][NETWORK_KEY] for node in nodes if NETWORK_KEY in (node["infer"] or {})]
    return tuple({id(record): record for record in records}.values())
