"""Quantities by which an approximation is compared with the posterior: latent sites, of networks functions for weights."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.outputs import linearized
from bnnzoo.core.posterior.posterior import Mixture, Posterior
from bnnzoo.core.program.surroundings import isolated

__all__ = ["MANY_ROWS", "SMALL_PROBABILITY", "Quantities", "quantities_of", "site_values"]

MANY_FUNCTIONS = 100
"""Rows, or rows and classes, at which functions are compared, evenly spaced over the data."""

MANY_ROWS, MANY_PARAMS = 50_000, 1000
"""Observations and parameters beyond which latent sites are not compared."""

ROWS, ENTRIES = 5000, 250_000
"""Observations, and observations times weights, beyond which functions are not compared."""

FEW_DRAWS, VALUES_AT_A_TIME = 256, 2**24
"""Draws at which functions are evaluated together at least, and draws times observations times weights up to which more are."""

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

    def chosen(self, which: Tensor) -> "Quantities":
        """Return some of the D numbers, those where ``which[D]`` is true."""
        names = tuple(name for name, is_chosen in zip(self.names, which.tolist(), strict=True) if is_chosen)
        return Quantities(
            lambda theta: self.own(theta)[:, which],
            lambda theta: self.exact(theta)[:, which],
            names,
            self.resolution[which],
        )


def quantities_of(posterior: Posterior) -> Quantities | None:
    """Return what of a posterior is compared; None where it is too large, or a network's functions cannot be had in a batch.

    Weights of hidden units can be exchanged, and their signs flipped: no Gaussian comes near their posterior, which says
    nothing of predictions. Compared are the expected outcomes of the training rows, or their class probabilities, and
    latent sites that are no weights.

    Parameters
    ----------
    posterior : Posterior
    """
    density = posterior.density
    if not density.has_data:
        return None
    if not density.networks:
        if density.num_data > MANY_ROWS or density.num_params > MANY_PARAMS:
            return None
        names = tuple(_site_names(density, True))
        sites = partial(site_values, density)
        return Quantities(sites, sites, names, torch.zeros(len(names), dtype=torch.float64))
    anchor = getattr(posterior, "linearize_at", None)
    is_mixed = isinstance(posterior, Mixture) and any(
        getattr(each, "linearize_at", None) is not None for each in posterior.components
    )
    if is_mixed or density.num_data > ROWS or density.num_data * density.num_params > ENTRIES:
        return None
    try:
        own = density if anchor is None else linearized(density, anchor)
        with torch.no_grad(), isolated(0, density.device):
            shapes = {key: value.shape for key, value in _functions(own, posterior.draws(1)[0, 0]).items()}
    except Exception:  # the model's own code may raise anything where its functions cannot be had
        return None
    together = max(FEW_DRAWS, VALUES_AT_A_TIME // max(1, density.num_data * density.num_params))
    every = {key: max(1, -(-shape.numel() // MANY_FUNCTIONS)) for key, shape in shapes.items()}
    places = [(key, place) for key, shape in shapes.items() for place in range(0, shape.numel(), every[key])]
    if not places:
        return None
    functions = [_function_name(key, place, shapes[key][1:]) for key, place in places]
    resolution = [SMALL_PROBABILITY if key.rpartition(".")[2] == "probs" else 0.0 for key, _ in places]
    others = tuple(_site_names(density, False))

    def of(one: LogDensity) -> Callable[[Tensor], Tensor]:
        def chosen(row: Tensor) -> Tensor:
            return torch.cat([value.reshape(-1)[:: every[key]] for key, value in _functions(one, row).items()])

        def values(theta: Tensor) -> Tensor:
            with torch.no_grad(), isolated(0, density.device):
                found: Tensor = vmap(chosen, chunk_size=together)(theta)
            return torch.cat([found.cpu().double(), site_values(density, theta, False)], 1)

        return values

    resolved = torch.tensor(resolution + [0.0] * len(others), dtype=torch.float64)
    return Quantities(of(own), of(density), (*functions, *others), resolved)


def site_values(density: LogDensity, theta: Tensor, weights: bool = True) -> Tensor:
    """Return the values ``[S, D]`` of the latent sites at ``theta[S, P]``, as the model has them, with weights or without."""
    values = density.constrain(theta)
    chosen = [values[site.name].reshape(len(theta), -1) for site in density.sites if weights or not site.is_weight]
    return torch.cat([theta[:, :0], *chosen], 1).cpu().double()


def weights_vary(density: LogDensity, theta: Tensor) -> bool:
    """Tell whether all weights of networks differ between ``theta[S, P]``, where a method may leave some at their mode."""
    values = density.constrain(theta)
    return all(bool((values[site.name].std(0) > 0).all()) for site in density.sites if site.is_weight)


def _functions(density: LogDensity, theta: Tensor) -> dict[str, Tensor]:
    """Return means and class probabilities ``[N, ...]`` of the training rows."""
    found = density.conditional(theta, *density.data)
    return {key: value for key, value in found.items() if key.rpartition(".")[2] in MOMENTS}


def _function_name(key: str, place: int, shape: torch.Size) -> str:
    site, _, moment = key.rpartition(".")
    row, inner = divmod(place, max(1, shape.numel()))
    index = "" if not shape else f"[{', '.join(str(int(i)) for i in np.unravel_index(inner, shape))}]"
    what = f"the probability of class {inner}" if moment == "probs" else f"the expected outcome{index}"
    return f"{what}{f' of {site!r}' if site else ''} at observation {row}"


def _site_names(density: LogDensity, weights: bool) -> Iterator[str]:
    for site in density.sites:
        if site.is_weight and not weights:
            continue
        size = site.shape.numel()
        for place in range(size):
            index = [int(i) for i in np.unravel_index(place, site.shape)] if size > 1 else []
            yield repr(site.name) + (str(index) if index else "")
