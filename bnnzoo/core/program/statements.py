"""Statements of a model that torch or Pyro refuse in words of their own: one sentence that names the site."""

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from pyro.distributions import Distribution
from torch import Tensor
from torch.distributions import constraints

from bnnzoo.core.program.sites import ModelError, innermost

__all__ = [
    "explained",
    "impossible_parameters",
    "of_impossible_parameter",
    "of_impossible_value",
    "of_name_taken_twice",
    "of_overwriting",
    "refuse_statement",
]

OVERWRITTEN = "modified by an inplace operation"

TWICE = re.compile(r"Multiple (?:sample|param) sites named '(.*?)'")
"""What Pyro says of two sites with one name."""


def refuse_statement(message: dict[str, Any], before: str) -> None:
    """Refuse a sample statement without a name, or with a distribution that is not Pyro's.

    Parameters
    ----------
    message : dict
        What Pyro's handlers see of the statement.
    before : str
        The site before it.

    Raises
    ------
    ModelError
        Saying what to write instead.
    """
    name, distribution = message["name"], message["fn"]
    if not isinstance(name, str):
        place = f"after site {before!r}" if before else "at its first site"
        raise ModelError(
            f"The model names a site by an object of type {type(name).__name__}, {place}. The first argument of pyro.sample is "
            f"the name of the site, such as pyro.sample('y', ...)."
        )
    if not isinstance(distribution, Distribution):
        kind = type(distribution)
        raise ModelError(
            f"Site {name!r} has a distribution of {kind.__module__.split('.')[0]}, {kind.__name__}, and not one of Pyro: write "
            f"pyro.distributions.{kind.__name__}, or derive your own from pyro.distributions.TorchDistribution."
        )


def explained(error: Exception, reached: str) -> ModelError | None:
    """Return an error that names the last site and says what to write, None where it is not known."""
    said, place = str(error), f"after site {reached!r}" if reached else "before its first site"
    if "Can't call numpy() on Tensor" in said:
        return ModelError(
            f"The model calls .numpy() on a latent value, {place}, where gradients stop. Compute it with torch operations."
        )
    if "is being used in an in-place operation" in said:
        return ModelError(
            f"The model changes a latent value in place, {place}, and with it what the prior is evaluated at. Write into a copy: "
            f"value = value.clone()."
        )
    return None


def of_impossible_value(messages: Iterable[dict[str, Any]]) -> ModelError | None:
    """Return which observation no draw from the prior allows; None if all are within the supports of their distributions.

    Parameters
    ----------
    messages : iterable of dict
        What Pyro's handlers see of observed sites.
    """
    for message in messages:
        name, distribution, value = message["name"], message["fn"], message["value"]
        with suppress(NotImplementedError, RuntimeError):  # some have no support, or one for values of other shapes
            is_possible = distribution.support.check(value)
            if bool(is_possible.all()):
                continue
            place = tuple((~is_possible).nonzero()[0].tolist())
            found = value[place]
            said = f"{found.item():.6g}" if found.numel() == 1 else str(found.tolist())
            hint = " (labels count from 0)" if distribution.support.is_discrete else ""
            return ModelError(
                f"Site {name!r} observes {said}{_in_row(place)}, which {type(innermost(distribution)).__name__} does not "
                f"allow: its support is {_at(distribution.support, place)}. Correct the observation{hint}, or choose another "
                f"distribution."
            )
    return None


def impossible_parameters(distribution: Any) -> dict[str, Tensor]:
    """Return where a parameter of a distribution, by name, is a number that it does not allow; zero and NaN may be rounding.

    Examples
    --------
    >>> import torch
    >>> counts = torch.distributions.Binomial(torch.tensor([8.0, 2.5, -1.0]), probs=0.5, validate_args=False)
    >>> {name: where.tolist() for name, where in impossible_parameters(counts).items()}
    {'total_count': [False, True, True]}
    """
    inside, found = _with_parameters(distribution), {}
    try:
        allowed = inside.arg_constraints
    except NotImplementedError:  # of a distribution of the user's own
        return {}
    for name, constraint in allowed.items():
        value = vars(inside).get(name)
        if not isinstance(value, Tensor) or constraint.event_dim or constraints.is_dependent(constraint):
            continue
        where = ~constraint.check(value) & value.isfinite() & (value != 0)
        if bool(where.any()):
            found[name] = where
    return found


def of_impossible_parameter(site: str, distribution: Any, name: str, where: Tensor) -> ModelError:
    """Return which number in which row is none that a distribution allows.

    Parameters
    ----------
    site : str
    distribution : pyro distribution
    name : str
        Of the parameter.
    where : Tensor
        True where it is not allowed.
    """
    found, place = _with_parameters(distribution), tuple(where.nonzero()[0].tolist())
    value = getattr(found, name)[place].item()
    row = place[max(0, len(place) - len(distribution.batch_shape)) :]  # components lie on the left
    return ModelError(
        f"Site {site!r} has a {name} of {value:.6g}{_in_row(row)}, which {type(found).__name__} does not allow: its "
        f"constraint is {_at(found.arg_constraints[name], place)}. Correct the data of the row, or the model."
    )


def _with_parameters(distribution: Any) -> Any:
    """Return the distribution of which the parameters are: the components', where discrete values are summed out."""
    return innermost(getattr(distribution, "component", distribution))


def _in_row(place: tuple[int, ...]) -> str:
    return f" in row {', '.join(map(str, place))}" if place else ""


def _at(constraint: Any, place: tuple[int, ...]) -> str:
    """Return a constraint in words, with the bounds at one place where these are a tensor."""
    bounds = vars(constraint)
    if not any(isinstance(bound, Tensor) and bound.ndim for bound in bounds.values()):
        return str(constraint)
    said = [
        f"{name}={bound[place[-bound.ndim :]].item() if isinstance(bound, Tensor) and bound.ndim else bound:.6g}"
        for name, bound in bounds.items()
    ]
    return f"{type(constraint).__name__.strip('_')}({', '.join(said)})"


def of_overwriting(error: Exception) -> ModelError | None:
    """Return what to write where a model writes into a tensor with which it has computed; None for other errors."""
    if OVERWRITTEN not in str(error):
        return None
    return ModelError(
        "The model writes into a tensor with which it has computed before, as m[t] = a * m[t - 1] may, so that torch cannot "
        "differentiate it. Collect the values in a list, and join them with torch.stack(values)."
    )


def of_name_taken_twice(error: Exception) -> ModelError | None:
    """Return what to write where two sites have one name; None for other errors."""
    found = TWICE.search(str(error))
    if found is None:
        return None
    name, prefix = found[1], found[1].split(".")[0]
    network = f", or {prefix!r} of two networks, where it is the name of a weight" if "." in name else ""
    return ModelError(
        f"Two sites of the model are named {name!r}: give each its own name, in a loop such as f'{prefix}_{{i}}'{network}."
    )
