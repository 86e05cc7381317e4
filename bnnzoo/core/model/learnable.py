"""Parameters without a prior, as pyro.param and modules make them: found, held at a value, or turned into latent sites."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import update_wrapper
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro.poutine.messenger import Messenger
from torch import Tensor
from torch.distributions import biject_to

from bnnzoo.core.data.gaps import WithGaps
from bnnzoo.core.discrete.enumeration import Enumerated
from bnnzoo.core.program.filling import FillingModel
from bnnzoo.core.program.sites import ModelError
from bnnzoo.core.types import Model

__all__ = [
    "CONSTRAINT",
    "FlatPriors",
    "Learnable",
    "constraint_of",
    "learning",
    "refuse_learnable",
    "refuse_shared_names",
    "trainable",
    "with_learned",
    "with_reference",
]

type Node = dict[str, Any]

CONSTRAINT = "bnnzoo_constraint"
"""Marks a parameter with its constraint, which the parameter store knows while the model runs."""

OF_MODULE = "$$$"
"""What Pyro puts between the name of a module and that of its parameter, where the module is called as it is."""


@dataclass(eq=False)
class Learnable:
    """A model whose learnable parameters have given values.

    Attributes
    ----------
    model : callable
    values : mapping of str to Tensor
        Constrained values of the parameters.
    constraints : mapping of str to Constraint
    """

    model: Model
    values: Mapping[str, Tensor]
    constraints: Mapping[str, Any]

    def __post_init__(self) -> None:
        update_wrapper(self, self.model, updated=())  # its name and its arguments

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model with the values."""
        with pyro.get_param_store().scope():
            return _Held(self.values)(self.model)(*args, **kwargs)


class _Held(Messenger):
    """Give learnable parameters their values; those of a module, which computes with its own tensors, within these."""

    def __init__(self, values: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.values = values

    def _pyro_param(self, msg: Node) -> None:
        value = self.values.get(msg["name"])
        if value is None:
            return
        if OF_MODULE in msg["name"]:
            own = msg["args"][1]
            with torch.no_grad():
                if not torch.equal(own, value):
                    own.copy_(value)
            value = own
        msg["value"], msg["done"] = value, True


def learning(model: Model, nodes: Iterable[Node]) -> Model:
    """Return a model with the learnable parameters that the trace of a run holds; the model itself if it holds none."""
    found = [node for node in nodes if node["type"] == "param"]
    if not found or names_of(model):
        return model
    constraints = {node["name"]: node.get(CONSTRAINT, dist.constraints.real) for node in found}
    return Learnable(model, {node["name"]: node["value"].detach().clone() for node in found}, constraints)


def constraint_of(node: Node) -> Any:
    """Return the constraint of a parameter, which Pyro's modules give to the parameter store only."""
    stored = pyro.get_param_store()._constraints.get(node["name"], dist.constraints.real)
    return node["kwargs"].get("constraint", stored) if len(node["args"]) > 1 else stored


def with_reference(model: Model) -> Model:
    """Return a model whose learnable parameters have values that depend on nothing but their names, shapes and constraints."""

    def at_reference(own: Learnable) -> Learnable:
        return replace(own, values={name: _reference(own.constraints[name], v) for name, v in own.values.items()})

    return _rebuilt(model, at_reference)


def _reference(constraint: Any, like: Tensor) -> Tensor:
    transform = biject_to(constraint)
    shape = transform.inverse_shape(like.shape)
    free = 0.1 * torch.arange(1, shape.numel() + 1, dtype=like.dtype, device=like.device).sin().reshape(shape)
    value: Tensor = transform(free)
    return value


def _rebuilt(model: Model, change: Any) -> Model:
    """Return a model with another one in place of the parameters' holder, within the wrappers around it."""
    if isinstance(model, Learnable):
        found: Model = change(model)
        return found
    if isinstance(model, Enumerated | FillingModel | WithGaps):
        return replace(model, model=_rebuilt(model.model, change))
    return model


def trainable(model: Model) -> Model:
    """Return a model whose learnable parameters are those of the parameter store."""
    return _rebuilt(model, lambda own: own.model)


def with_learned(model: Model, store: Mapping[str, Tensor]) -> Model:
    """Return a model whose learnable parameters have the values of a parameter store."""
    return _rebuilt(model, lambda own: replace(own, values={name: store[name].detach().clone() for name in own.values}))


def refuse_shared_names(model: Model, store: Mapping[str, Tensor]) -> None:
    """Refuse a model one of whose parameters has the name of another one in the parameter store, such as the guide's.

    Raises
    ------
    ModelError
        Saying how modules get names of their own.
    """
    for name, value in _held(model).items():
        if name in store and store[name].shape != value.shape:
            raise ModelError(
                f"The parameter {name!r} has shape {list(value.shape)} in the model and {list(store[name].shape)} in the guide: "
                f"two modules share one name, so that Pyro learns one of them only. Make them parts of one module, which names "
                f"them apart: both = pyro.nn.PyroModule('both'); both.model, both.guide = model, guide."
            )


def names_of(model: Model) -> tuple[str, ...]:
    """Return the names of a model's learnable parameters."""
    return tuple(_held(model))


def _held(model: Model) -> Mapping[str, Tensor]:
    while isinstance(model, Enumerated | FillingModel | WithGaps):
        model = model.model
    return model.values if isinstance(model, Learnable) else {}


def refuse_learnable(model: Model) -> None:
    """Refuse a model with parameters that have no prior, which few methods learn.

    Raises
    ------
    ModelError
        Saying what to write instead.
    """
    names = names_of(model)
    if not names:
        return
    name = names[0]
    if name.endswith("_centered"):
        raise ModelError(
            f"The model holds the learnable parameter {name!r} of a reparametrisation. Write LocScaleReparam(centered=0.0) or "
            f"AutoReparam(centered=0.0), or fit with SVI(), which learns it."
        )
    if OF_MODULE in name:
        module, _, weight = name.partition(OF_MODULE)
        raise ModelError(
            f"The parameter {weight!r} of the network that pyro.module({module!r}, ...) registers has no prior. Write "
            f"net = bnnzoo.random_module({module!r}, net, prior) and call net(x), or fit with SVI(), which trains the network."
        )
    raise ModelError(
        f"The model holds the learnable parameter {name!r} (pyro.param or an nn.Parameter of a PyroModule), which has no "
        f"prior. Give it one with pyro.sample({name!r}, ...), or, where it belongs to a module m such as those of "
        f"pyro.contrib.gp, m.{name} = pyro.nn.PyroSample(...); sample a whole network with bnnzoo.random_module(...), or fix its "
        f"value as a buffer. SVI() learns such parameters with those of the guide; MAP(), Laplace() and others take them as "
        f"latent sites with a flat prior if the model is bnnzoo.models.flat_priors(model)."
    )


@dataclass(eq=False)
class FlatPriors:
    """A model whose learnable parameters are latent sites with a flat prior on their constraint."""

    model: Model

    def __post_init__(self) -> None:
        update_wrapper(self, self.model, updated=())  # its name and its arguments

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model."""
        with pyro.get_param_store().scope():
            return _Flat()(self.model)(*args, **kwargs)


class _Flat(Messenger):
    """Sample a parameter where it is first read, and return its value where it is read again."""

    def __enter__(self) -> Any:
        self.known: dict[str, Tensor | None] = {}
        return super().__enter__()

    def _pyro_post_sample(self, msg: Node) -> None:
        if msg["name"] in self.known:
            self.known[msg["name"]] = msg["value"]

    def _pyro_param(self, msg: Node) -> None:
        name = msg["name"]
        if name in self.known:
            msg.update(value=self.known[name], done=True, stop=True)
            return
        self.known[name] = None
        if OF_MODULE in name:
            module, _, weight = name.partition(OF_MODULE)
            raise ModelError(
                f"The parameter {weight!r} belongs to the module {module!r}, which computes with its own tensors, so that it "
                f"cannot be a latent site. Write net = bnnzoo.random_module({module!r}, net, prior) and call net(x)."
            )
        if len(msg["args"]) < 2 and name not in pyro.get_param_store():
            raise ModelError(
                f"The parameter {name!r} is read and has no start here: write pyro.param({name!r}, start) where the model first "
                f"uses it."
            )
        start = msg["args"][1] if len(msg["args"]) > 1 else pyro.get_param_store()[name].detach()
        start = torch.as_tensor(start() if callable(start) else start)
        constraint = constraint_of(msg)
        shape = start.shape[start.ndim - constraint.event_dim :] if constraint.event_dim else torch.Size()
        prior = dist.ImproperUniform(constraint, start.shape[: start.ndim - len(shape)], shape)
        msg.update(type="sample", fn=prior.to_event(len(prior.batch_shape)), args=(), kwargs={}, is_observed=False)
        msg.update(infer={}, value=None, done=False, scale=1.0, mask=None, cond_indep_stack=())
