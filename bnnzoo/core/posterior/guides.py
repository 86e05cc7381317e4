"""Distributions over ``theta[P]`` as guides that Pyro's own tools take."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, ClassVar

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.replay import Node, discover
from bnnzoo.core.program.sites import Site

__all__ = ["guide_of"]

NO_SHAPE = torch.Size()


def guide_of(
    density: LogDensity, sample: Callable[[torch.Size], Tensor], log_prob: Callable[[Tensor], Tensor]
) -> Callable[..., dict[str, Tensor]]:
    """Return a Pyro guide: an auxiliary site for ``theta`` and, in the model's plates, a point mass for each site."""
    nodes = discover(density.model, density.data, density.device)

    def guide(*args: Any, **kwargs: Any) -> dict[str, Tensor]:
        theta = pyro.sample("_theta", _Vector(sample, log_prob, density.num_params), infer={"is_auxiliary": True})
        return {site.name: _sample_point_mass(site, nodes[site.name], theta) for site in density.sites}

    return guide


def _sample_point_mass(site: Site, node: Node, theta: Tensor) -> Tensor:
    """Sample a latent site at the value ``theta[..., P]`` gives it, minus the log-Jacobian of the way there.

    Plates around the whole guide, such as one over particles, have put their dimensions in front of ``theta``'s last;
    those of the site's own plates are among them, with size 1, or still to come.
    """
    event_dim = node["fn"].event_dim
    free_event_dim = event_dim + len(site.unconstrained_shape) - len(site.shape)
    lead = theta.shape[:-1] + (1,) * free_event_dim
    free = theta[..., site.span].reshape(torch.broadcast_shapes(site.unconstrained_shape, lead))
    value = site.transform(free)
    jacobian = site.transform.inv.log_abs_det_jacobian(value, free)
    event_dims = tuple(range(value.ndim - event_dim, jacobian.ndim))
    log_density = jacobian.sum(event_dims) if event_dims else jacobian
    with ExitStack() as stack:
        for frame in node["cond_indep_stack"]:
            if frame.vectorized:
                stack.enter_context(pyro.plate(frame.name, frame.size, dim=frame.dim))
        drawn: Tensor = pyro.sample(site.name, dist.Delta(value, log_density=log_density, event_dim=event_dim))
    return drawn


class _Vector(dist.TorchDistribution):
    """A distribution over ``theta[P]``, given by a function that samples and one that is its log density."""

    support = dist.constraints.real_vector
    arg_constraints: ClassVar[dict[str, Any]] = {}
    has_rsample = True

    def __init__(
        self,
        sample: Callable[[torch.Size], Tensor],
        log_prob: Callable[[Tensor], Tensor],
        num_params: int,
        batch_shape: torch.Size = NO_SHAPE,
    ) -> None:
        self._sample, self._log_prob = sample, log_prob
        super().__init__(batch_shape, torch.Size([num_params]), validate_args=False)

    def rsample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        """Return draws ``[*sample_shape, *batch_shape, P]``."""
        return self._sample(torch.Size(sample_shape) + self.batch_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log density ``[...]`` of ``value[..., P]``."""
        return self._log_prob(value)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> "_Vector":
        """Return independent copies, as plates over particles ask for."""
        return _Vector(self._sample, self._log_prob, self.event_shape[0], torch.Size(batch_shape))
