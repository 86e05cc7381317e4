"""The two dynamics that move chains whose trajectories all take the same number of steps, written for one chain.

Both take the splitting step: half a kick by the gradient, a drift along the momentum, half a kick. They differ only in the kick.
Positions are measured in units of the posterior as estimated so far: they move by ``B u``, where ``B B^T`` is its covariance.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from bnnzoo.inference.markov.hamiltonian.kernel import Matrix, applied, transposed

__all__ = ["Dynamics", "Microcanonical", "Newtonian", "Point", "drift", "second_half_kick"]


class Point(NamedTuple):
    """State of one chain: position, momentum and gradient ``[P]``, log density, and kinetic energy gained on the way ``[]``."""

    theta: Tensor
    momentum: Tensor
    gradient: Tensor
    log_density: Tensor
    work: Tensor


@runtime_checkable
class Dynamics(Protocol):
    """How a momentum is drawn, and how a force changes it.

    ``diverges`` says whether a step that is too long may gain energy without bound.
    """

    diverges: ClassVar[bool]

    def refresh(self, noise: Tensor) -> Tensor:
        """Return a momentum ``[P]`` from standard normal ``noise[P]``."""
        ...

    def kick(self, momentum: Tensor, force: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
        """Return the momentum ``[P]`` after ``force[P]`` has acted for ``time``, and the kinetic energy gained ``[]``."""
        ...

    def energy(self, start: Point, change: Tensor) -> Tensor:
        """Return the energy ``[]`` to report of a trajectory from ``start``, during which it changed by ``change[]``."""
        ...

    def quarter_period(self, num_params: int) -> float:
        """Return a quarter of the period of a typical orbit under a standard normal, after which it is at a right angle."""
        ...


@dataclass(frozen=True)
class Newtonian:
    """Hamiltonian dynamics with a unit mass: momenta are standard normal and grow by ``time * force``."""

    diverges: ClassVar[bool] = True

    def refresh(self, noise: Tensor) -> Tensor:
        """Return ``noise`` itself."""
        return noise

    def kick(self, momentum: Tensor, force: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``p + t f`` and ``t p.f + t^2 f.f / 2``."""
        impulse = time * force
        return momentum + impulse, (momentum * impulse).sum() + 0.5 * impulse.square().sum()

    def kinetic(self, momentum: Tensor) -> Tensor:
        """Return ``p.p / 2``."""
        return 0.5 * momentum.square().sum()

    def energy(self, start: Point, change: Tensor) -> Tensor:
        """Return the Hamiltonian at the end of the trajectory."""
        return self.kinetic(start.momentum) - start.log_density + change

    def quarter_period(self, num_params: int) -> float:
        """Return ``pi / 2``, whatever the number of parameters."""
        return 0.5 * math.pi


@dataclass(frozen=True)
class Microcanonical:
    """Isokinetic dynamics of microcanonical samplers: the momentum is a direction ``u`` with ``|u| = 1``.

    A force turns it: ``du/dt = (I - u u^T) f / (P - 1)``. The flow keeps the density p(theta) times the uniform one on the
    sphere, so that ``work - change of log density`` is the energy error, as in Hamiltonian dynamics.

    References
    ----------
    Robnik, De Luca, Silverstein and Seljak (2023), Microcanonical Hamiltonian Monte Carlo, JMLR 24.
    """

    diverges: ClassVar[bool] = False

    def refresh(self, noise: Tensor) -> Tensor:
        """Return a direction uniform on the sphere."""
        return noise / noise.norm()

    def kick(self, momentum: Tensor, force: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
        """Turn the direction ``u`` by the exact flow of a constant force.

        With ``e = f / |f|``, ``d = P - 1`` and ``r = t |f| / d``, ``u`` becomes
        ``(u + e (sinh r + u.e (cosh r - 1))) / (cosh r + u.e sinh r)``, and the energy gained is ``d log`` of the denominator.
        All terms are divided by ``exp(r) / 2``, so that nothing overflows.
        """
        dimension = len(force) - 1
        size = force.norm().clamp(min=torch.finfo(force.dtype).tiny)
        towards = force / size
        cosine = (momentum * towards).sum()
        angle = time * size / dimension
        decay = (-angle).exp()
        turned = 2 * decay * momentum + (1 - decay) * (1 + decay + cosine * (1 - decay)) * towards
        growth = (1 + cosine + decay.square() * (1 - cosine)).clamp(min=torch.finfo(force.dtype).tiny)
        return turned / turned.norm(), dimension * (angle + (0.5 * growth).log())

    def energy(self, start: Point, change: Tensor) -> Tensor:
        """Return the change: the speed is constant, and the total energy carries no information.

        Hamiltonian samplers' ``energy`` and the diagnostics made of it (E-BFMI, ``az.plot_energy``) would mislead.
        """
        return change

    def quarter_period(self, num_params: int) -> float:
        """Return ``sqrt(P) pi / 2``: at unit speed the sphere of typical points, of radius ``sqrt(P)``, is that wide."""
        return 0.5 * math.pi * math.sqrt(num_params)


def drift(dynamics: Dynamics, point: Point, root: Matrix, time: Tensor) -> Point:
    """Return the point after half a kick and the whole drift of a step; its gradient is still that of the old position."""
    momentum, work = dynamics.kick(point.momentum, applied(transposed(root), point.gradient), 0.5 * time)
    theta = point.theta + time * applied(root, momentum)
    return point._replace(theta=theta, momentum=momentum, work=point.work + work)


def second_half_kick(
    dynamics: Dynamics, point: Point, value: Tensor, gradient: Tensor, root: Matrix, time: Tensor
) -> Point:
    """Return the point after the other half of the kick, by the gradient at the new position."""
    momentum, work = dynamics.kick(point.momentum, applied(transposed(root), gradient), 0.5 * time)
    return Point(point.theta, momentum, gradient, value, point.work + work)
