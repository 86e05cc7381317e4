"""Short Markov chains that start at an approximation's draws: where it is right, their moments stay as they are."""

import math
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import vmap

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.verdict.importance import Shift, WeightedDraws
from bnnzoo.core.verdict.quantities import Quantities
from bnnzoo.engine.cores import one_arithmetic_thread
from bnnzoo.engine.failures import FailuresAsNaN
from bnnzoo.engine.points import Points
from bnnzoo.engine.torch_private import LoweringWarning
from bnnzoo.engine.value_and_grad import single_value_and_grad, value_and_grad_of

__all__ = ["FEW_CHAINS", "Moved", "moves", "shift_by_chains"]

NUM_CHAINS, FEW_CHAINS = 256, 64
ROWS_OF_ALL = 50_000  # rows times chains, as long as there are FEW_CHAINS
NUM_TRAJECTORIES = 18  # after half as many, chains have not reached the tail of a hierarchy's scale
MOST_TRAJECTORIES = 72
STILL = 1e-12  # standard deviation of parameters that have none
LENGTH = 1.5  # of a trajectory, in standard deviations of the approximation
LARGEST_STEP, SMALL_STEP, MAX_LEAPFROG_STEPS = 0.8, 1.2, 8
LOW, HIGH, FACTOR_BELOW, FACTOR_ABOVE = 0.6, 0.9, 0.6, 1.2  # acceptance rates, and what steps are then multiplied by


class Moved(NamedTuple):
    """Positions ``[T, M, P]`` of the chains after each trajectory, and the mean acceptance rate of the last third."""

    theta: Tensor
    acceptance: float


class _State(NamedTuple):
    z: Tensor
    value: Tensor
    gradient: Tensor


def moves(density: LogDensity, drawn: WeightedDraws, shrunk: float = 1.0) -> Iterator[Moved]:
    """Run Hamiltonian Monte Carlo from draws of an approximation, in units in which they are uncorrelated.

    Draws where the posterior has much less mass than the approximation, from which chains would not come back, start fewer of
    them. All chains take a step in one batch, those of a network being few. Steps are shortened and lengthened as they are
    accepted, by all chains alike. Chains start on the way from the mean to a draw, ``shrunk`` of it.

    Yields
    ------
    Moved
        After 18, 36 and 72 trajectories: one who is certain earlier need not go on.

    References
    ----------
    Wang, Kasprzak and Huggins (2023), A targeted accuracy diagnostic for variational approximations, AISTATS.
    """
    theta = drawn.theta
    centre, root = theta.mean(0), _root(theta)
    generator = torch.Generator().manual_seed(0)
    most = FEW_CHAINS if density.networks else NUM_CHAINS
    count = max(FEW_CHAINS, min(most, ROWS_OF_ALL // max(1, density.num_data)))
    share = (drawn.log_ratios - drawn.log_ratios.median()).clamp(max=0.0).exp()
    first = share.multinomial(min(count, len(share)), generator=generator)
    start = theta[first.to(theta.device)] - centre
    count = len(start)
    z = shrunk * torch.linalg.solve_triangular(root, start.mT, upper=False).mT
    value_and_grad = _value_and_grad(density).repeated(compiles=False)

    def at(z: Tensor) -> _State:
        value, gradient = value_and_grad(centre + _product(z, root.mT), *density.data)
        gradient = _product(gradient, root)
        fails = ~(value.isfinite() & gradient.isfinite().all(1))
        return _State(z, value.masked_fill(fails, -math.inf), gradient.masked_fill(fails[:, None], 0.0))

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(theta)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LoweringWarning)  # of a model that cannot be traced the fit has warned
        state = at(z)
    step = min(LARGEST_STEP, SMALL_STEP / theta.shape[1] ** 0.25)
    path, rates = [], []
    for number in range(1, MOST_TRAJECTORIES + 1):
        momentum = noise(*z.shape)
        energy = state.value - 0.5 * momentum.square().sum(1)
        size = step * (1 + 0.2 * noise(count, 1).clamp(-1, 1))
        end = state
        for _ in range(max(1, min(MAX_LEAPFROG_STEPS, math.ceil(LENGTH / step)))):
            momentum = momentum + 0.5 * size * end.gradient
            end = at(end.z + size * momentum)
            momentum = momentum + 0.5 * size * end.gradient
        change = (end.value - 0.5 * momentum.square().sum(1) - energy).nan_to_num(-math.inf)
        accepted = torch.rand(count, generator=generator, dtype=torch.float64).to(theta).log() < change
        state = _State(
            *(torch.where(accepted.reshape(-1, *[1] * (a.ndim - 1)), a, b) for a, b in zip(end, state, strict=True))
        )
        rates.append(float(change.clamp(max=0.0).exp().mean()))
        step *= FACTOR_BELOW if rates[-1] < LOW else FACTOR_ABOVE if rates[-1] > HIGH else 1.0
        path.append(centre + _product(state.z, root.mT))
        if number in (NUM_TRAJECTORIES, 2 * NUM_TRAJECTORIES, MOST_TRAJECTORIES):
            yield Moved(torch.stack(path), sum(rates[-number // 3 :]) / (number // 3))


def _value_and_grad(density: LogDensity) -> Points:
    """Return ``(theta[M, P], *data) -> ([M], [M, P])``, log joint density and gradient, traced so that the model runs once."""
    if density.is_one_of_many:
        return density.value_and_grad

    def batched(theta: Tensor, *data: Any) -> tuple[Tensor, Tensor]:
        return value_and_grad_of(vmap(lambda row: density.log_joint(row, *data)), theta)

    def eagerly(theta: Tensor, *data: Any) -> tuple[Tensor, Tensor]:
        with FailuresAsNaN():  # points that fail are rejected one by one
            return batched(theta, *data)

    alone = single_value_and_grad(density.log_joint)
    return density.shared(
        "short chains", lambda: Points(alone, batched, NUM_TRAJECTORIES * MAX_LEAPFROG_STEPS, eagerly)
    )


def _product(few: Tensor, root: Tensor) -> Tensor:
    """Return a product that is too small for torch's threads: on a busy machine they wait for each other ten times as long."""
    with one_arithmetic_thread():
        return few @ root


def _root(theta: Tensor) -> Tensor:
    """Return a root ``[P, P]`` of the covariance of draws; of their variances alone, if there are not many times as many.

    Parameters that are the same in all draws hardly move.
    """
    moving = theta.std(0) > 0
    if not bool(moving.all()):
        root = (STILL * torch.ones_like(theta[0])).diag()
        places = moving.nonzero()[:, 0]
        root[places[:, None], places] = _root(theta[:, moving])
        return root
    covariance = torch.atleast_2d(torch.cov(theta.mT))
    if len(theta) > 4 * theta.shape[1]:
        root, failed = torch.linalg.cholesky_ex(covariance)
        if not int(failed):
            return root
    return covariance.diagonal().sqrt().diag()


def shift_by_chains(quantities: Quantities, values: Tensor, found: Moved) -> Shift:
    """Return how far an approximation with ``values[S, D]`` is from where short chains went in their second half."""
    half = found.theta[len(found.theta) // 2 :]
    after = quantities.exact(half.flatten(0, 1)).reshape(*half.shape[:2], -1)
    centre = after.mean((0, 1))
    apart = (after - centre).square()
    small = quantities.resolution.square()
    variance = apart.mean((0, 1)) + small
    chains = after.shape[1] ** 0.5
    return Shift(
        (values.mean(0) - centre) / variance.sqrt(),
        after.mean(0).std(0) / chains / variance.sqrt(),
        0.5 * ((values.var(0) + small).log() - variance.log()),
        0.5 * apart.mean(0).std(0) / chains / variance,
    )
