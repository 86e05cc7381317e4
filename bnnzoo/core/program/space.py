"""The flat unconstrained space in which every method works, and the way between it and the model's own values."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from bnnzoo.core.program.sites import Site

__all__ = ["ParameterSpace"]

MAX_NAMED = 4


@dataclass(frozen=True)
class ParameterSpace:
    """Latent sites of a model laid out in one unconstrained vector ``theta[P]``.

    Attributes
    ----------
    sites : tuple of Site
        Latent sites in the order of sampling.
    num_params : int
        Length of ``theta``.
    dtype, device
        Of ``theta``.
    """

    sites: tuple[Site, ...]
    num_params: int
    dtype: torch.dtype
    device: torch.device

    def sites_in_short(self) -> str:
        """Return names and shapes of the first few sites, and how many more there are; those of a network are counted as one."""
        owned: dict[str, list[Site]] = {}
        for site in self.sites:
            owned.setdefault(site.name.partition(".")[0], []).append(site)
        named = [
            f"{owner} ({sum(site.shape.numel() for site in sites)} in {len(sites)} sites)"
            if len(sites) > 1
            else f"{sites[0].name}{list(sites[0].shape)}"
            for owner, sites in owned.items()
        ]
        more = sum(len(sites) for sites in list(owned.values())[MAX_NAMED:])
        return ", ".join(named[:MAX_NAMED]) + (f" and {more} more" if more else "")

    def constrain(self, theta: Tensor) -> dict[str, Tensor]:
        """Return the constrained value ``[..., *shape]`` of every latent site for ``theta[..., P]``."""
        free = self.unconstrained(theta)
        return {site.name: site.transform(free[site.name]) for site in self.sites}

    def unconstrained(self, theta: Tensor) -> dict[str, Tensor]:
        """Return the unconstrained value ``[..., *unconstrained_shape]`` of every latent site for ``theta[..., P]``."""
        # the derivative of one split is one concatenation, where slices would each add a vector of all P entries
        parts = theta.split([site.unconstrained_shape.numel() for site in self.sites], -1)
        return {
            s.name: p.reshape(theta.shape[:-1] + s.unconstrained_shape) for s, p in zip(self.sites, parts, strict=True)
        }

    def unconstrain(self, values: Mapping[str, Tensor]) -> Tensor:
        """Return ``theta[P]`` for one constrained value of every latent site.

        Raises
        ------
        ValueError
            If a latent site is missing or has the wrong shape.
        """
        parts = []
        for site in self.sites:
            if site.name not in values:
                raise ValueError(f"No value for latent site {site.name!r}; given are {', '.join(values) or 'none'}.")
            value = values[site.name]
            if value.shape != site.shape:
                raise ValueError(
                    f"Latent site {site.name!r} has shape {tuple(site.shape)}, but its value has {tuple(value.shape)}."
                )
            parts.append(site.transform.inv(value).reshape(-1).to(self.dtype).to(self.device))
        return torch.cat(parts)
