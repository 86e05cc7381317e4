"""The list of models of Pyro's examples and tutorials, written anew in their structure and made small."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import bnnzoo as bz

__all__ = ["PROGRAMS", "Program", "learnt", "normal", "program", "refused", "sampled", "svi"]

type Model = Callable[..., Any]


@dataclass(frozen=True)
class Program:
    """A model, what it is called with, and the method by which its users fit it.

    Attributes
    ----------
    page : str
        The example or tutorial, as Pyro's own list has it.
    name : str
        Of the model, where the page has several.
    model, data, method
        What ``bnnzoo.fit`` takes.
    sentence : str
        Of the refusal; empty where the model is fitted.
    with_values : bool
        Whether its log density is compared with Pyro's own.
    """

    page: str
    name: str
    model: Model
    data: tuple[Any, ...]
    method: Any
    sentence: str = ""
    with_values: bool = True


PROGRAMS: dict[str, Program] = {}
SHORT = bz.NUTS(num_chains=1, num_warmup=20, num_draws=10, max_tree_depth=4)
POINT = bz.MAP(num_steps=20, polish_steps=0)


def _enter(found: Program) -> None:
    key = f"{found.page}, {found.name}" if found.name else found.page
    if key in PROGRAMS:
        raise ValueError(f"There are two programs with the name {key!r}.")
    PROGRAMS[key] = found


def program[Found: Model](
    page: str, name: str, method: Any, *data: Any, with_values: bool = True
) -> Callable[[Found], Found]:
    """Enter a model that is fitted as it stands."""

    def enter(model: Found) -> Found:
        _enter(Program(page, name, model, data, method, with_values=with_values))
        return model

    return enter


def sampled[Found: Model](page: str, name: str, *data: Any, with_values: bool = True) -> Callable[[Found], Found]:
    """Enter a model that is sampled by NUTS."""
    return program(page, name, SHORT, *data, with_values=with_values)


def learnt[Found: Model](page: str, name: str, *data: Any) -> Callable[[Found], Found]:
    """Enter a model without latent sites, whose parameters are those of a posterior with flat priors."""

    def enter(model: Found) -> Found:
        _enter(Program(page, name, bz.models.flat_priors(model), data, POINT, with_values=False))
        return model

    return enter


def svi[Found: Model](
    page: str, name: str, guide: Any, *data: Any, elbo: Any = None, **settings: Any
) -> Callable[[Found], Found]:
    """Enter a model that is fitted with its own guide."""
    method = bz.SVI(guide=guide, elbo=elbo, num_steps=3, **settings)
    return program(page, name, method, *data, with_values=False)


def refused[Found: Model](
    page: str, name: str, sentence: str, *data: Any, method: Any = POINT
) -> Callable[[Found], Found]:
    """Enter a model that is refused."""

    def enter(model: Found) -> Found:
        _enter(Program(page, name, model, data, method, sentence, with_values=False))
        return model

    return enter


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Return standard normal numbers of a stream of their own."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
