"""Running a Pyro model with its latent values given, so that nothing random or value-dependent is left in it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyro
import torch
from pyro import poutine
from pyro.distributions import ImproperUniform
from pyro.distributions.util import scale_and_mask
from pyro.poutine.messenger import Messenger
from torch import Tensor
from torch.distributions import biject_to
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from bnnzoo.core.discrete.discrete_sites import explaining_enumeration, refuse_disagreement
from bnnzoo.core.discrete.enumeration import Enumerated, enumerated, in_parallel, is_enumerated, plain, with_values
from bnnzoo.core.likelihood.broadcasting import broadcast_to_rows, broadcast_to_value
from bnnzoo.core.likelihood.unchecked import switch_validation_off
from bnnzoo.core.model.learnable import CONSTRAINT, constraint_of
from bnnzoo.core.model.summing_out import summed_out
from bnnzoo.core.program.filling import made_in_batches
from bnnzoo.core.program.network import Network, evaluating
from bnnzoo.core.program.numerics import NumericalFailure, failure_of
from bnnzoo.core.program.pyro_networks import (
    called_modules,
    mark_weights,
    refuse_layers_in_training,
    warn_of_attributes_of_rows,
)
from bnnzoo.core.program.sites import (
    ModelError,
    innermost,
    is_observation,
    is_subsample,
    refuse_no_draws,
    refuse_unknown_support,
)
from bnnzoo.core.program.statements import explained, of_impossible_value, of_name_taken_twice, refuse_statement
from bnnzoo.core.program.surroundings import GIVEN, alone, is_given, isolated, on_device
from bnnzoo.core.types import Data, Model
from bnnzoo.engine.failures import is_numerical

__all__ = [
    "call_network",
    "common_scale",
    "default_dtype",
    "discover",
    "drawn_from",
    "log_prob",
    "replay",
    "scaled_sum",
]

type Node = dict[str, Any]

MAX_TRACES = 100
"""Draws from the prior at which a model is tried; some priors reach far beyond what can be computed."""


class _Given(Messenger):
    """Give latent sites their values, and observed sites that have no data a placeholder instead of a draw.

    The placeholder keeps random numbers out of densities and moments; ``draw=True`` lets those sites be sampled.
    """

    def __init__(self, values: Mapping[str, Tensor], observed: tuple[str, ...], data: Data, draw: bool) -> None:
        super().__init__()
        self.values, self.observed, self.data, self.draw = values, observed, data, draw
        self.reached = ""

    def _pyro_sample(self, msg: Node) -> None:
        if is_subsample(msg):
            if msg["value"] is None:  # the rows are those that are given: a random choice could not be batched
                plate = msg["fn"]
                size = plate.size if plate.subsample_size is None else min(plate.size, plate.subsample_size)
                msg["value"], msg["done"] = torch.arange(size), True
            return
        self.reached = msg["name"]
        if msg["name"] in self.observed and msg["value"] is None:
            msg["fn"] = broadcast_to_rows(msg["fn"], msg["cond_indep_stack"], self.data)
        elif msg["name"] in self.observed:
            msg["fn"] = broadcast_to_value(msg["fn"], msg["value"])
        switch_validation_off(msg["fn"])
        if msg["name"] in self.values:
            msg["value"], msg["done"] = self.values[msg["name"]], True
        elif msg["name"] in self.observed and self.draw:
            msg["value"], msg["done"], msg["is_observed"] = _drawn(msg), True, False
        elif msg["name"] in self.observed and msg["value"] is None:
            msg["value"], msg["done"] = torch.zeros(msg["fn"].shape()), True
        elif not (msg["is_observed"] or msg["done"]):
            # torch draws normal numbers in place where gradients may follow, which vmap refuses
            msg["value"], msg["done"] = msg["fn"].sample(), True


def _drawn(msg: Node) -> Any:
    try:
        return msg["fn"](*msg["args"], **msg["kwargs"])
    except NotImplementedError as error:
        family = type(innermost(msg["fn"])).__name__
        raise ModelError(
            f"Observed site {msg['name']!r} has a distribution, {family}, that cannot be drawn from, and predictions are draws. "
            f"bnnzoo.to_datatree(posterior) holds what was learnt without them."
        ) from error


class _Discovery(Messenger):
    """Let latent values require a gradient, so that whatever depends on them can be told from constants.

    Improper priors cannot be drawn from: their sites get the value that is zero in unconstrained space.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.observed = "", list[Node]()

    def _pyro_sample(self, msg: Node) -> None:
        if not is_subsample(msg):
            refuse_statement(msg, self.reached)
            self.reached = msg["name"]
        if msg["is_observed"] and is_given(msg["name"]):
            msg["infer"] = {**(msg["infer"] or {}), GIVEN: True}
        if not msg["is_observed"] and isinstance(innermost(msg["fn"]), ImproperUniform):
            refuse_unknown_support(msg["name"], msg["fn"])
            transform = biject_to(msg["fn"].support)
            msg["value"], msg["done"] = transform(torch.zeros(transform.inverse_shape(msg["fn"].shape()))), True
        elif not (msg["is_observed"] or is_subsample(msg)):
            refuse_no_draws(msg["name"], msg["fn"])
        if is_observation(msg):
            msg["fn"] = broadcast_to_value(msg["fn"], msg["value"])
            self.observed.append(msg)

    def _pyro_post_param(self, msg: Node) -> None:
        msg[CONSTRAINT] = constraint_of(msg)

    def _pyro_post_sample(self, msg: Node) -> None:
        if not (msg["is_observed"] or is_subsample(msg) or is_enumerated(msg)) and msg["value"].is_floating_point():
            msg["value"] = msg["value"].detach().requires_grad_()


@contextmanager
def _batchable_layers() -> Iterator[None]:
    """Keep attention to plain operations: its fused forms have no batching rules, and some no gradients."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Let constants inside a model, such as the scale in ``Normal(0.0, 1.0)``, have the dtype of theta."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def discover(
    model: Model,
    data: Data,
    device: torch.device,
    dtype: torch.dtype | None = None,
    seed: int = 0,
    check: Callable[[Mapping[str, Node]], None] = lambda _: None,
) -> dict[str, Node]:
    """Run ``model`` with freshly drawn latents and return the nodes of its trace; draw again where it fails numerically.

    Parameters
    ----------
    model, data, device, dtype, seed
        What to run, and from which state of the random stream.
    check : callable
        Sees the nodes; where it fails numerically, latents are drawn again, too.

    Raises
    ------
    ModelError
        If the model fails numerically at every draw from its prior.
    """
    dtype = dtype or torch.get_default_dtype()
    for attempt in range(MAX_TRACES):
        found = _Discovery()
        with (
            alone(),
            default_dtype(dtype),
            isolated(seed + attempt, device),
            torch.enable_grad(),
            called_modules() as modules,
        ):
            try:
                with found:
                    nodes = _nodes(model, data)
                if own := enumerated(model):
                    nodes = _agreed(own, nodes, found, data)
                refuse_layers_in_training(nodes, modules)
                mark_weights(nodes, modules)
                check(nodes)
                warn_of_attributes_of_rows(nodes, modules)
                return nodes
            except Exception as error:
                if not is_numerical(error):
                    reason = explained(error, found.reached)
                    if reason is None:
                        raise
                    raise reason from error
                last = error
    raise of_impossible_value(found.observed) or ModelError(
        f"The model cannot be evaluated at any of {MAX_TRACES} draws from its prior: {failure_of(last, found.reached)}. Narrow "
        f"the priors before it, or check its code there: matrices to be factorised may need a larger diagonal, arguments and "
        f"observations may be outside of what the distribution allows."
    ) from last


def _agreed(own: Enumerated, single: dict[str, Node], found: _Discovery, data: Data) -> dict[str, Node]:
    """Return the nodes with discrete sites summed out, of a run with the same continuous values as that with single ones."""
    with explaining_enumeration(own, lambda: found.reached):
        with found:
            together = _nodes(with_values(own, single), data)
        refuse_disagreement(own, single, together)
        return summed_out(own, together)


def replay(
    model: Model,
    values: Mapping[str, Tensor],
    data: Data,
    observed: tuple[str, ...],
    device: torch.device,
    *,
    draw: bool = False,
    summed: bool = True,
    dtype: torch.dtype | None = None,
) -> dict[str, Node]:
    """Run ``model`` with its latent ``values`` given and return the nodes of its trace.

    Parameters
    ----------
    model, data
        The Pyro model and its arguments.
    values : mapping of str to Tensor
        Constrained values of latent sites. Latent sites left out are drawn from their prior.
    observed : tuple of str
        Names of the observed sites.
    draw : bool
        Draw the observed sites from the model, also where data is given.
    summed : bool
        Return the nodes with discrete sites summed out, and not with all of their values.
    dtype : torch.dtype, optional
        Of what the model makes itself. Default: that of the values or, without any, torch's default.

    Raises
    ------
    NumericalFailure
        If the model cannot be evaluated at these values.
    """
    dtypes = [value.dtype for value in values.values() if value.is_floating_point()]
    with (
        alone(),
        default_dtype(dtype or (dtypes[0] if dtypes else torch.get_default_dtype())),
        pyro.validation_enabled(False),
        on_device(device),
        _batchable_layers(),
        made_in_batches(plain(model), values),
    ):
        given, own = _Given(values, observed, data, draw), enumerated(model)
        try:
            if own is None or not values.keys() >= set(own.latent):
                return _nodes(given(model), data)
            # discrete sites are summed out where all others are known, and drawn with what is drawn
            nodes = _nodes(_Given(values, observed, data, draw=False)(in_parallel(own)), data)
            if summed:
                nodes = summed_out(own, nodes, observed)
            if summed and draw:
                drawn = _nodes(given(own.model), data)
                nodes |= {name: {**nodes[name], "value": drawn[name]["value"]} for name in observed}
            return nodes
        except Exception as error:
            if not is_numerical(error):
                raise
            raise NumericalFailure(failure_of(error, given.reached)) from error


def _nodes(model: Model, data: Data) -> dict[str, Node]:
    with poutine.trace() as recorder:  # and not get_trace, which puts a table of shapes behind the model's own errors
        try:
            model(*data)
        except RuntimeError as error:
            if twice := of_name_taken_twice(error):
                raise twice from None
            raise
    nodes: dict[str, Any] = dict(recorder.trace.nodes)
    return nodes


def drawn_from(nodes: Mapping[str, Node], given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the values of sites, those that are not given drawn by torch's global random stream."""
    return {
        name: given[name] if name in given else node["fn"](*node["args"], **node["kwargs"])
        for name, node in nodes.items()
    }


def log_prob(node: Node) -> Tensor:
    """Return the masked log density of a sample node, one entry for each of its batch elements, with the weight of each entry.

    A scale that is one number, such as a temperature, is not a weight of entries and is left out.
    """
    value = node["fn"].log_prob(node["value"], *node["args"], **node["kwargs"])
    weights = node["scale"] if _has_entries(node["scale"]) else 1.0
    result: Tensor = scale_and_mask(value, weights, node["mask"])
    return result


def common_scale(node: Node) -> Any:
    """Return the number by which all entries of a sample node are scaled, which `log_prob` leaves out."""
    return 1.0 if _has_entries(node["scale"]) else node["scale"]


def scaled_sum(node: Node, terms: Tensor | None = None) -> Tensor:
    """Return the log density ``[]`` that a sample node adds to its model's: masked, scaled and summed.

    ``terms`` is what `log_prob` returns, where that is known.
    """
    total: Tensor = common_scale(node) * (log_prob(node) if terms is None else terms).sum()
    return total


def _has_entries(scale: Any) -> bool:
    return isinstance(scale, Tensor) and scale.ndim > 0


def call_network(network: Network, values: Mapping[str, Tensor], x: Tensor, observed: tuple[str, ...]) -> None:
    """Call a network on ``x`` with the constrained ``values`` of latent sites as its weights, for hooks on its layers to see.

    ``observed`` are the model's observed sites, which a network of Pyro's own may hold.
    """
    if network.samples_itself:
        replay(network.module, values, (x,), observed, x.device)
    else:
        with evaluating(network.module):
            functional_call(network.module, {name: values[site] for name, site in network.sites.items()}, (x,))
