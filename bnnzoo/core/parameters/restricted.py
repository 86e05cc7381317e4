"""A density of some latent sites, with all others known."""

from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.program.sites import Site

__all__ = ["RestrictedDensity", "restricted"]


@dataclass(frozen=True, repr=False)
class RestrictedDensity(LogDensity):
    """The likelihood as a function of the entries ``index[R]`` of theta alone; no derivative runs through other sites.

    Attributes
    ----------
    anchor : Tensor [P]
        Values of all entries.
    index : Tensor [R]
        Entries that vary, in ascending order.
    """

    anchor: Tensor
    index: Tensor

    def constrain(self, theta: Tensor) -> dict[str, Tensor]:
        """Return the constrained value of every latent site for the entries ``theta[R]`` that vary."""
        values = {}
        for site, varying, places in self._parts:
            free = self.anchor[site.span]
            if len(places) == len(free):
                free = theta[varying]
            elif len(places):
                free = free.index_copy(0, places, theta[varying])
            values[site.name] = site.transform(free.reshape(site.unconstrained_shape))
        return values

    @cached_property
    def _parts(self) -> list[tuple[Site, slice, Tensor]]:
        """For each site, which entries of ``index`` are its own, and their places in it."""
        starts = torch.tensor(
            [*(site.span.start for site in self.sites), self.anchor.numel()], device=self.index.device
        )
        bounds = torch.searchsorted(self.index, starts).tolist()
        spans = [slice(*ends) for ends in pairwise(bounds)]
        return [(s, span, self.index[span] - s.span.start) for s, span in zip(self.sites, spans, strict=True)]


def restricted(density: LogDensity, anchor: Tensor, index: Tensor) -> RestrictedDensity:
    """Return the likelihood of a density as a function of some entries ``index[R]`` of theta, at ``anchor[P]``.

    Raises
    ------
    ValueError
        If the index is not in ascending order.

    Examples
    --------
    >>> import torch
    >>> from bnnzoo.core.model.density import build_density
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> density = build_density(target.model, *target.data)
    >>> theta = torch.ones(3)
    >>> some = restricted(density, theta, torch.arange(3))
    >>> bool(torch.equal(some.log_likelihood(theta, *target.data), density.log_likelihood(theta, *target.data)))
    True
    """
    if bool((index.diff() <= 0).any()):
        raise ValueError(f"index={index.tolist()}: write each entry of theta that varies once, in ascending order.")
    return RestrictedDensity(**{f.name: getattr(density, f.name) for f in fields(density)}, anchor=anchor, index=index)
