"""What tells one model, and one set of data, from another."""

import hashlib
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bnnzoo.core.density import LogDensity
from bnnzoo.core.space import ParameterSpace
from bnnzoo.core.types import Data

__all__ = ["Fingerprint", "different_data", "different_model", "digest", "fingerprint", "sites_of"]

type Fingerprint = dict[str, Any]
"""Plain values by name, ready for JSON."""

LOG_DENSITY = "log density at a fixed point"
RELATIVE_ERROR = 1e-4  # of a log density: another machine adds up in another order, in single precision


def fingerprint(density: LogDensity) -> Fingerprint:
    """Return what identifies a model and its data: sites, supports, a digest of the data, the log density at one point.

    Examples
    --------
    >>> from bnnzoo.core.density import build_density
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> found = fingerprint(build_density(target.model, *target.data))
    >>> found["latent sites"], found["observed sites"]
    ({'w': '[3] Real'}, ['y'])
    """
    return {
        "latent sites": sites_of(density),
        "observed sites": _observed(density),
        "data": [digest(value) for value in density.data],
        LOG_DENSITY: _log_density(density),
    }


def sites_of(space: ParameterSpace) -> dict[str, str]:
    """Return the shape and the support of every latent site, as text."""
    return {site.name: f"{list(site.shape)} {_name_of(site.support)}" for site in space.sites}


def digest(value: Any) -> str:
    """Return an argument of a model as text: the kind, shape and a digest of a tensor, or what Python prints."""
    if not isinstance(value, Tensor):
        return type(value).__name__ if " at 0x" in repr(value) else repr(value)
    data = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)} {hashlib.sha256(data).hexdigest()[:16]}"


def different_data(saved: Fingerprint, data: Data) -> str | None:
    """Return how the data differ from those of a fingerprint, as part of a sentence; None if they do not."""
    before, now = saved["data"], [digest(value) for value in data]
    if len(before) != len(now):
        return f"the model was fitted to {len(before)} arguments, and {len(now)} are given"
    for place, (old, new) in enumerate(zip(before, now, strict=True)):
        if old != new:
            return f"argument {place + 1} of the model was {old} (kind, shape, digest), and {new} is given"
    return None


def different_model(saved: Fingerprint, density: LogDensity) -> str | None:
    """Return how a model differs from that of a fingerprint, as part of a sentence; None if it does not."""
    found = (
        _different_sites(saved["latent sites"], sites_of(density)),
        _different("the observed sites are", saved["observed sites"], _observed(density)),
    )
    for sentence in found:
        if sentence:
            return sentence
    return _different_density(saved[LOG_DENSITY], density) if density.has_data else None


def _observed(density: LogDensity) -> list[str]:
    return [*density.observed, *density.factors]


def _log_density(density: LogDensity) -> float:
    theta = torch.full((density.num_params,), 0.1, dtype=density.dtype, device=density.device)
    with torch.no_grad():
        return float(density.log_joint(theta, *density.data))


def _name_of(support: Any) -> str:
    """Name a constraint without its bounds, which the log density tells apart, and without the dims of an event."""
    inner = getattr(support, "base_constraint", None)
    return type(support).__name__.removeprefix("_") if inner is None else _name_of(inner)


def _different_sites(saved: Mapping[str, str], found: Mapping[str, str]) -> str | None:
    for name in saved:
        if name not in found:
            return f"it has a latent site {name!r}, which this model lacks"
    for name in found:
        if name not in saved:
            return f"this model has a latent site {name!r}, which the file lacks"
    changed = [name for name in saved if saved[name] != found[name]]
    if changed:
        return f"latent site {changed[0]!r} is {saved[changed[0]]} in the file and {found[changed[0]]} in this model"
    return _different("the latent sites are, in order,", list(saved), list(found))


def _different_density(saved: float, density: LogDensity) -> str | None:
    found = _log_density(density)
    if math.isclose(saved, found, rel_tol=RELATIVE_ERROR, abs_tol=RELATIVE_ERROR) or (
        math.isnan(saved) and math.isnan(found)
    ):
        return None
    return f"the model's log density at a fixed point was {saved:.6g} and is {found:.6g}, so a prior or the likelihood differs"


def _different(what: str, saved: list[str], found: list[str]) -> str | None:
    return None if saved == found else f"{what} {', '.join(saved)} in the file and {', '.join(found)} in this model"
