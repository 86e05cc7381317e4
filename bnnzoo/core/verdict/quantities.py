"""What of a posterior is compared with an approximation: latent sites, and of networks the functions in place of weights."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import vmap

from bnnzoo.core.likelihood.readout import UnreadableLikelihood
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.outputs import linearized
from bnnzoo.core.posterior.posterior import Mixture, Posterior

__all__ = ["Quantities", "quantities_of", "site_values"]

MANY_FUNCTIONS = 100
"""Rows, or rows and classes, at which functions are compared, evenly spaced over the data."""

ROWS, ENTRIES = 5000, 250_000
"""Observations, and observations times weights, beyond which functions are not compared."""

DRAWS_AT_A_TIME = 256

SMALL_PROBABILITY = 0.01
"""By which a probability may be off: where it is near zero or one, its standard deviation says nothing that matters."""

MOMENTS = ("mean", "probs")


@dataclass(frozen=True)
class Quantities:
    """Numbers by which an approximation is compared with the posterior.

    Attributes
    ----------
    own, exact : callable
        ``theta[S, P] -> [S, D]``: the approximation's, whose outputs may be linearised, and the model's.
    names : tuple of str
        Of the D numbers, for sentences.
    resolution : Tensor [D]
        Differences that do not matter, which are added to standard deviations: 0.01 of probabilities, nothing of others.
    """

    own: Callable[[Tensor], Tensor]
    exact: Callable[[Tensor], Tensor]
    names: tuple[str, ...]
    resolution: Tensor


def quantities_of(posterior: Posterior) -> Quantities | None:
    """Return what of a posterior is compared; None where networks are too large, or their functions cannot be had in a batch.

    Weights of hidden units can be exchanged, and their signs flipped: no Gaussian comes near their posterior, which says
    nothing of predictions. Compared are the expected outcomes of the training rows, or their class probabilities, and
    latent sites that are no weights.

    Parameters
    ----------
    posterior : Posterior
    """
    density = posterior.density
    if not density.networks:
        names = tuple(_site_names(density, True))
        return Quantities(_sites_of(density), _sites_of(density), names, torch.zeros(len(names), dtype=torch.float64))
    anchor = getattr(posterior, "linearize_at", None)
    is_mixed = isinstance(posterior, Mixture) and any(
        getattr(each, "linearize_at", None) is not None for each in posterior.components
    )
    if is_mixed or density.num_data > ROWS or density.num_data * density.num_params > ENTRIES:
        return None
    try:
        own = density if anchor is None else linearized(density, anchor)
        with torch.no_grad():
            found = _functions(density, posterior.draws(1)[0, :1])
    except (UnreadableLikelihood, RuntimeError, ValueError):  # a model that cannot be run in a batch
        return None
    functions, every, resolution = [], {}, []
    for key, values in found.items():
        every[key] = max(1, -(-values[0].numel() // MANY_FUNCTIONS))
        places = range(0, values[0].numel(), every[key])
        functions += [_function_name(key, place, values.shape[2:]) for place in places]
        resolution += [SMALL_PROBABILITY if key.rpartition(".")[2] == "probs" else 0.0] * len(places)
    if not functions:
        return None
    others = tuple(_site_names(density, False))

    def of(one: LogDensity) -> Callable[[Tensor], Tensor]:
        def values(theta: Tensor) -> Tensor:
            with torch.no_grad():
                parts = [each.flatten(1)[:, :: every[key]] for key, each in _functions(one, theta).items()]
            return torch.cat([*(part.cpu().double() for part in parts), site_values(density, theta, False)], 1)

        return values

    resolved = torch.tensor(resolution + [0.0] * len(others), dtype=torch.float64)
    return Quantities(of(own), of(density), (*functions, *others), resolved)


def site_values(density: LogDensity, theta: Tensor, weights: bool = True) -> Tensor:
    """Return the values ``[S, D]`` of the latent sites at ``theta[S, P]``, as the model has them, with weights or without."""
    values = density.constrain(theta)
    chosen = [values[site.name].reshape(len(theta), -1) for site in density.sites if weights or not site.is_weight]
    return torch.cat([theta[:, :0], *chosen], 1).cpu().double()


def _sites_of(density: LogDensity) -> Callable[[Tensor], Tensor]:
    return lambda theta: site_values(density, theta)


def _functions(density: LogDensity, theta: Tensor) -> dict[str, Tensor]:
    """Return means and class probabilities ``[S, N, ...]`` of the training rows."""

    def one(row: Tensor) -> dict[str, Tensor]:
        found = density.conditional(row, *density.data)
        return {key: value for key, value in found.items() if key.rpartition(".")[2] in MOMENTS}

    found: dict[str, Tensor] = vmap(one, chunk_size=DRAWS_AT_A_TIME)(theta)
    return found


def _function_name(key: str, place: int, shape: torch.Size) -> str:
    site, _, moment = key.rpartition(".")
    row, inner = divmod(place, max(1, shape.numel()))
    index = "" if not shape else f"[{', '.join(str(int(i)) for i in torch.unravel_index(torch.tensor(inner), shape))}]"
    what = f"the probability of class {inner}" if moment == "probs" else f"the expected outcome{index}"
    return f"{what}{f' of {site!r}' if site else ''} at observation {row}"


def _site_names(density: LogDensity, weights: bool) -> Iterator[str]:
    for site in density.sites:
        if site.is_weight and not weights:
            continue
        size = site.shape.numel()
        for place in range(size):
            index = [int(i) for i in torch.unravel_index(torch.tensor(place), site.shape)] if size > 1 else []
            yield repr(site.name) + (str(index) if index else "")
