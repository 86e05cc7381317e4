"""A density of some latent sites, with all others known."""

from dataclasses import dataclass, fields

from torch import Tensor

from bnnzoo.core.density import LogDensity

__all__ = ["RestrictedDensity", "restricted"]


@dataclass(frozen=True)
class RestrictedDensity(LogDensity):
    """The likelihood as a function of the entries ``index[R]`` of theta alone; no derivative runs through the others.

    Attributes
    ----------
    anchor : Tensor [P]
        Values of all entries.
    index : Tensor [R]
        Entries that vary: all those of some sites, in order.
    """

    anchor: Tensor
    index: Tensor

    def constrain(self, theta: Tensor) -> dict[str, Tensor]:
        """Return the constrained value of every latent site for the entries ``theta[R]`` that vary."""
        values, start = {}, 0
        places = set(self.index.tolist())
        for site in self.sites:
            free = self.anchor[site.span]
            if site.span.start in places:
                free, start = theta[start : start + len(free)], start + len(free)
            values[site.name] = site.transform(free.reshape(site.unconstrained_shape))
        return values


def restricted(density: LogDensity, anchor: Tensor, index: Tensor) -> RestrictedDensity:
    """Return the likelihood of a density as a function of whole sites, at the entries ``index[R]`` of ``anchor[P]``.

    Examples
    --------
    >>> import torch
    >>> from bnnzoo.core.density import build_density
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> density = build_density(target.model, *target.data)
    >>> theta = torch.ones(3)
    >>> some = restricted(density, theta, torch.arange(3))
    >>> bool(torch.equal(some.log_likelihood(theta, *target.data), density.log_likelihood(theta, *target.data)))
    True
    """
    return RestrictedDensity(**{f.name: getattr(density, f.name) for f in fields(density)}, anchor=anchor, index=index)
