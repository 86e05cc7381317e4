"""Arguments of a prediction, checked and in the order of the fit."""

from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral
from typing import Any, Literal

import torch
from torch import Tensor

from bnnzoo.core.data.arguments import argument_names, refuse_names_of_settings
from bnnzoo.core.data.described import described
from bnnzoo.core.data.frame_labels import in_fitted_order, refuse_unaligned_rows
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.core.program.sites import plates_of
from bnnzoo.core.program.surroundings import isolated
from bnnzoo.core.settings import check_argument
from bnnzoo.core.types import Data

__all__ = [
    "PREDICTION",
    "in_order",
    "most_rows",
    "plates_of_rows",
    "refuse_factors_alone",
    "refuse_no_posterior",
    "refuse_not_positive",
    "refuse_other_data",
    "refuse_settings",
    "refuse_words",
]


PREDICTION = """What functions that predict take.

Parameters
----------
posterior : Posterior
    From :func:`bnnzoo.fit`.
num_draws : int, optional
    Draws a chain: all there are, or 1000 of an approximation that can be drawn from at will.
seed : int, optional
    Of the draws. Default: that of the fit. The global random stream is neither used nor changed.
weights : bool or "auto"
    Whether to keep the network weights, as group ``weights``; "auto" keeps up to ten million numbers.
chunk_size : int, optional
    Draws x rows that are evaluated together. Bounds the memory in use and does not change the draws. Default: chosen
    from the size of the model's tensors.
linearized : bool or "auto"
    Whether to predict with the model's outputs linearised at the posterior's mean; "auto" does for a Laplace
    approximation with Gauss-Newton curvature, see :func:`bnnzoo.predictive.row_density`.
dims : mapping of str to list of str, optional
    Names of the dimensions of latent sites, deterministic sites and inputs, without chain and draw. Default: the names
    of their plates, ``obs_id`` for that of the rows, and ``<site>_dim_<i>``.
coords : mapping of str to array_like, optional
    Labels along dimensions. Default: the index and the column names of data frames, and numbers.
**named
    Arguments of the model by name.
"""


def refuse_no_posterior(function: str, posterior: object, call: str = "posterior, x") -> None:
    """Refuse what is no posterior, such as a model; ``function`` is what it was passed to, ``call`` the arguments it takes."""
    if not hasattr(posterior, "density") or not hasattr(posterior, "draws"):
        raise TypeError(
            f"{function} takes the posterior that bnnzoo.fit returned, but its first argument is of type "
            f"{type(posterior).__name__}. Write {function}({call}), with posterior = bnnzoo.fit(model, method, x, y)."
        )


def refuse_factors_alone(density: LogDensity) -> None:
    """Refuse a likelihood from which no outcome can be drawn."""
    if density.factors and not density.observed:
        raise ValueError(
            f"predict has no outcome to draw: the likelihood is the pyro.factor site {density.factors[0]!r}, which is a "
            f"number and no distribution. Observe a site, with pyro.poutine.mask(mask=seen) around "
            f"pyro.sample('t', ..., obs=t), and keep the factor for the rows that are not seen, such as censored ones."
        )


def refuse_not_positive(name: str, value: object) -> None:
    """Refuse what is no count of at least one, if there is a value."""
    if isinstance(value, bool) or not isinstance(value, Integral | None):
        raise TypeError(f"{name}={value!r}: write a whole number.")
    if value is not None and int(value) < 1:
        raise ValueError(f"{name}={value}; write a positive number.")


def refuse_settings(
    posterior: Posterior, data: Data, named: Mapping[str, Any], function: str, **settings: object
) -> None:
    """Refuse a call in which a setting of the function may be meant for an argument of the model."""
    changed = {name: not (value is None or isinstance(value, str)) for name, value in settings.items()}
    refuse_names_of_settings(function, posterior.density.model, data, named, changed)


def in_order(posterior: Posterior, data: Data) -> Data:
    """Return arguments by position with the columns of data frames in the order of the fit."""
    model = posterior.density.model
    names = argument_names(model, len(data))
    refuse_unaligned_rows(data, names)
    # refuse rows without an argument that the fit had, and without which the model means something else
    needed = described(posterior.density.model).needed_at_new_rows
    for place, name in enumerate(argument_names(posterior.density.model, len(posterior.density.data))):
        is_there = place < len(data) and data[place] is not None
        if name in needed and posterior.density.data[place] is not None and not is_there:
            raise ValueError(
                f"The model was fitted with {name}=, and these rows have none: pass {name}= for them, one number for each row, "
                f"or one for all, such as {name}=0.0."
            )
    return in_fitted_order(data, posterior.info.columns, names)


def refuse_words(owner: str, **values: object) -> None:
    """Refuse values other than True, False and ``"auto"``."""
    for name, value in values.items():
        check_argument(owner, name, value, bool | Literal["auto"])


def most_rows(data: Data) -> int:
    """Return the largest number of rows of an argument."""
    shapes: list[tuple[int, ...]] = [getattr(value, "shape", ()) for value in data]
    return max((shape[0] for shape in shapes if shape), default=0)


def plates_of_rows(density: LogDensity) -> dict[str, str]:
    """Return the plate of the rows of each observed site, where there are several such plates; nothing otherwise."""
    if len(density.row_plates) < 2:
        return {}
    with isolated(0, density.device):
        nodes = density.nodes(
            torch.zeros(density.num_params, dtype=density.dtype, device=density.device), *density.data
        )
    found = {name: plates_of(nodes[name])[:1] for name in density.observed}
    return {name: first[0] for name, first in found.items() if first and first[0] is not None}


def refuse_other_data(density: LogDensity, given: Data) -> None:
    """Refuse rows that the model was not fitted to: leave-one-out cross-validation of a test set means nothing."""
    names = argument_names(density.model, len(given))
    for name, new, fitted in _tensors_in_both(names, given, density.data):
        if new.shape == fitted.shape and not bool(_differ(new, fitted).any()):
            continue
        if new.shape != fitted.shape:
            difference = f"shape {tuple(new.shape)}, and {tuple(fitted.shape)} at the fit"
        else:
            rows = _differ(new, fitted).reshape(len(new), -1).any(1) if new.ndim else _differ(new, fitted)[None]
            difference = f"in {int(rows.sum())} of {len(rows)} rows, first in row {int(rows.int().argmax())}"
        raise ValueError(
            f"posterior_predictive is about the data of the fit, but argument {name!r} differs from what the fit got "
            f"({difference}). Use predict(posterior, ...) for other rows: leave-one-out cross-validation "
            f"(az.loo) of rows that were not fitted means nothing."
        )


def _tensors_in_both(
    names: Sequence[str], given: Sequence[Any], fitted: Sequence[Any]
) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield the tensors in two sets of arguments, those within mappings and sequences, too, and how they are called."""
    for name, new, old in zip(names, given, fitted, strict=False):
        if isinstance(new, Tensor) and isinstance(old, Tensor):
            yield name, new, old
        elif isinstance(new, Mapping) and isinstance(old, Mapping):
            keys = [key for key in new if key in old]
            yield from _tensors_in_both(
                [f"{name}[{key!r}]" for key in keys], [new[k] for k in keys], [old[k] for k in keys]
            )
        elif isinstance(new, list | tuple) and isinstance(old, list | tuple):
            yield from _tensors_in_both([f"{name}[{i}]" for i in range(len(new))], new, old)


def _differ(new: Tensor, fitted: Tensor) -> Tensor:
    """Return where values differ; those that are missing in both do not."""
    return (new != fitted) & ~((new != new) & (fitted != fitted))
