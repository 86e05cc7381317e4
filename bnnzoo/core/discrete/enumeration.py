"""Models with discrete latent variables of finite support, which are summed out of the density exactly."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import update_wrapper
from typing import Any

import pyro.distributions as dist
from pyro import poutine
from pyro.poutine.enum_messenger import EnumMessenger
from pyro.poutine.messenger import Messenger
from torch import Tensor

from bnnzoo.core.discrete.repeated import Memory
from bnnzoo.core.program.sites import ModelError, innermost
from bnnzoo.core.types import Model

__all__ = [
    "Enumerated",
    "continuous",
    "enumerated",
    "in_parallel",
    "is_enumerated",
    "marked",
    "memory_of",
    "plain",
    "with_values",
]

type Node = dict[str, Any]

MAX_DIMS = 48
"""Dimensions of enumeration that live at once; torch's tensors have at most 64."""

SAME_VALUES = (dist.Bernoulli, dist.Binomial, dist.Categorical, dist.OneHotCategorical)
"""Families whose values are known from their number."""

MEMORY = "_bnnzoo_memory"
"""Marks a discrete site with the memory of the run that it belongs to."""


@dataclass(eq=False)
class Enumerated:
    """A model whose finite discrete latent sites are summed out wherever its density is evaluated.

    Called, it is the model itself.

    Attributes
    ----------
    model : callable
    discrete : tuple of str
        Names of the sites that are summed out.
    depth : int
        Dimensions on the right that belong to plates, or to batches of distributions outside of plates.
    latent : tuple of str
        Names of the continuous latent sites: the sum is possible where all of them are known.
    absorbed : set of str
        Observed sites and factors whose density is part of another site's term.
    dependent : set of str
        Deterministic sites that depend on discrete ones.
    """

    model: Model
    discrete: tuple[str, ...]
    depth: int
    latent: tuple[str, ...]
    absorbed: set[str] = field(default_factory=set)
    dependent: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        update_wrapper(self, self.model, updated=())  # its name and its arguments

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model."""
        return self.model(*args, **kwargs)


def enumerated(model: Model) -> Enumerated | None:
    """Return a model as one whose discrete sites are summed out; None if it has none."""
    return model if isinstance(model, Enumerated) else None


def plain(model: Model) -> Model:
    """Return the user's own model."""
    return model.model if isinstance(model, Enumerated) else model


class _InParallel(EnumMessenger):
    """Give discrete sites all of their values at once, along dimensions of their own.

    In distinction to Pyro's handler, it takes every site that is named, and reads no values where ``vmap`` forbids it.
    """

    def __init__(self, model: Enumerated) -> None:
        super().__init__(first_available_dim=-1 - model.depth)
        self.model, self.memory = model, Memory()

    def _pyro_sample(self, msg: Any) -> None:
        if msg["name"] in self.model.discrete and not msg["is_observed"]:
            msg["infer"].update(enumerate="parallel", num_samples=None, expand=False)
        super()._pyro_sample(msg)
        dim = msg["infer"].get("_enumerate_dim")
        if dim is None:
            return
        msg["infer"][MEMORY] = self.memory
        family = type(innermost(msg["fn"]))
        if family in SAME_VALUES:
            self.memory.same(msg["value"], ("values", family, tuple(msg["value"].shape)))
        if -dim - self.model.depth > MAX_DIMS:
            raise ModelError(
                f"Site {msg['name']!r} is one of more than {MAX_DIMS} discrete sites that may depend on one another, which is "
                f"2**{MAX_DIMS} joint states or more. Write independent rows as with pyro.plate('rows', n): and not as a loop, "
                f"and steps of time as for t in pyro.markov(range(n)):, each of which depends on the one before."
            )

    def _pyro_post_sample(self, msg: Any) -> None:
        value = msg["value"]
        if not isinstance(value, Tensor) or not hasattr(msg["fn"], "event_dim"):
            return
        shape = value.shape[: value.ndim - msg["fn"].event_dim]
        dim_to_id = msg["infer"].setdefault("_dim_to_id", {})
        dim_to_id.update(self._param_dims.get(msg["name"], {}))
        self._value_dims[msg["name"]] = {
            dim: number for dim, number in dim_to_id.items() if len(shape) >= -dim and shape[dim] > 1
        }


class _Same(Messenger):
    """Give the continuous latent sites the values that they had in another run."""

    def __init__(self, model: Enumerated, nodes: Mapping[str, Node]) -> None:
        super().__init__()
        self.values = {name: nodes[name]["value"] for name in model.latent}

    def _pyro_sample(self, msg: Node) -> None:
        if msg["name"] in self.values:
            msg["value"], msg["done"] = self.values[msg["name"]], True


@dataclass(frozen=True)
class _Once:
    """A model whose equal operations are carried out once."""

    model: Model
    memory: Memory

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self.memory:
            return self.model(*args, **kwargs)


def continuous(model: Model) -> Model:
    """Return a model without its discrete sites, as the guides of Pyro see it."""
    if not isinstance(model, Enumerated):
        return model
    rest: Model = poutine.block(model, hide=list(model.discrete))
    return rest


def marked(model: Model) -> Model:
    """Return a model whose discrete sites are marked for Pyro's own enumeration."""
    if not isinstance(model, Enumerated):
        return model

    def config(site: Any) -> Any:
        is_discrete = site["name"] in model.discrete and not site["is_observed"]
        return {"enumerate": "parallel", "expand": False} if is_discrete else {}

    found: Model = poutine.infer_config(model, config_fn=config)
    return found


def in_parallel(model: Enumerated) -> Model:
    """Return the model as it is run with all values of its discrete sites at once."""
    handler = _InParallel(model)
    parallel: Model = handler(_Once(model.model, handler.memory))
    return parallel


def with_values(model: Enumerated, nodes: Mapping[str, Node]) -> Model:
    """Return the model as it is run with all values of its discrete sites, and the continuous ones of another run."""
    same: Model = _Same(model, nodes)(in_parallel(model))
    return same


def is_enumerated(message: Node) -> bool:
    """Tell whether a site has all of its values at once."""
    return "_enumerate_dim" in (message["infer"] or {})


def memory_of(nodes: Mapping[str, Node]) -> Memory:
    """Return the memory of the run that left nodes behind."""
    return next(node["infer"][MEMORY] for node in nodes.values() if is_enumerated(node))
