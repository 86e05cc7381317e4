"""Adversarial training: inputs moved, within a small box or ball, to where a member predicts worst."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution, Independent, kl_divergence
from torch.func import grad
from torch.nn.functional import softplus

from bnnzoo.core.data.minibatch import has_rows
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.program.sites import ModelError
from bnnzoo.core.reading.outcomes import observed_places
from bnnzoo.core.settings import Count, NonNegative, Positive
from bnnzoo.core.types import Data
from bnnzoo.inference.ensembles.held_out import refuse_no_rows
from bnnzoo.inference.optimise.objectives import ObjectiveInputs
from bnnzoo.inference.optimise.streams import MemberStreams
from bnnzoo.inference.optimise.training_run import NoiseSource

__all__ = ["FGSM", "Adversary", "InputSpace", "VirtualAdversarial", "input_space"]

type MemberFunction = Callable[[Tensor, ObjectiveInputs], Tensor]


@dataclass(frozen=True)
class InputSpace:
    """The inputs of a model: which of its arguments they are, and the range of each of their entries over the data.

    Attributes
    ----------
    places : tuple of int
        Places of the floating-point arguments with rows that are not observed.
    ranges : tuple of Tensor
        Largest minus smallest value of each entry of a row, one tensor for each place.
    """

    places: tuple[int, ...]
    ranges: tuple[Tensor, ...]

    def of(self, data: Data) -> tuple[Tensor, ...]:
        """Return the inputs among the arguments of the model."""
        return tuple(data[place] for place in self.places)

    def moved(self, data: Data, steps: tuple[Tensor, ...]) -> Data:
        """Return the arguments with the inputs moved by ``steps``, each relative to the range of its entry."""
        found = list(data)
        for place, width, step in zip(self.places, self.ranges, steps, strict=True):
            found[place] = found[place] + width * step
        return tuple(found)


@runtime_checkable
class Adversary(Protocol):
    """A way of training on moved inputs as well: it turns one objective of a member into another."""

    def objective(self, base: MemberFunction, density: LogDensity, inputs: InputSpace) -> MemberFunction:
        """Return the objective that is maximised instead of ``base``."""
        ...

    def noise(self, streams: MemberStreams, inputs: InputSpace, num_rows: int, density: LogDensity) -> NoiseSource:
        """Return where the random numbers of a step come from."""
        ...


@dataclass(frozen=True)
class FGSM:
    r"""Fast gradient sign method: each input moves by a fixed fraction of its range, in the direction that lowers the likelihood.

    .. math::
        x' = x - \epsilon \, (\max x - \min x) \, \mathrm{sign}\, \nabla_x \log p(y \mid x, \theta), \qquad
        \tfrac12 \log p(y, \theta \mid x) + \tfrac12 \log p(y, \theta \mid x')

    Parameters
    ----------
    epsilon : float
        Length of the step, relative to the range of each input over the data.

    References
    ----------
    Goodfellow, Shlens and Szegedy (2015), Explaining and harnessing adversarial examples, ICLR. Lakshminarayanan, Pritzel and
    Blundell (2017), Simple and scalable predictive uncertainty estimation using deep ensembles, NeurIPS.
    """

    epsilon: NonNegative = 0.01

    def objective(self, base: MemberFunction, density: LogDensity, inputs: InputSpace) -> MemberFunction:
        """Return the mean of the objective at the data and at the moved inputs."""

        def value(theta: Tensor, step: ObjectiveInputs) -> Tensor:
            moved = self._moved(theta.detach(), step.batch.data, density, inputs)
            there = step._replace(batch=step.batch._replace(data=moved))
            return 0.5 * base(theta, step) + 0.5 * base(theta, there)

        return value

    def noise(self, streams: MemberStreams, inputs: InputSpace, num_rows: int, density: LogDensity) -> NoiseSource:
        """Return no random numbers."""
        return lambda _: ()

    def _moved(self, theta: Tensor, batch: Data, density: LogDensity, inputs: InputSpace) -> Data:
        zeros = tuple(torch.zeros_like(value) for value in inputs.of(batch))
        uphill = grad(lambda steps: density.log_likelihood(theta, *inputs.moved(batch, steps)).sum())(zeros)
        return inputs.moved(batch, tuple(-self.epsilon * slope.detach().sign() for slope in uphill))


@dataclass(frozen=True)
class VirtualAdversarial:
    r"""Virtual adversarial training: predictions are to change little in the direction in which they change most.

    .. math::
        \log p(y, \theta \mid x) - \lambda \frac{N}{B} \sum_n KL(p(y \mid x_n, \hat\theta) \,\|\, p(y \mid x_n + r_n, \theta)),
        \qquad r_n = \arg\max_{\|r\| \le \epsilon} KL

    Inputs are measured in units of their range over the data. The direction comes from a power iteration, and the first
    prediction counts as constant. Unlike :class:`FGSM` the direction does not depend on the observation.

    Parameters
    ----------
    epsilon : float
        Length of the step.
    strength : float
        :math:`\lambda`.
    num_iterations : int
        Steps of the power iteration.
    probe : float
        Length of the step from which the power iteration takes its gradients, relative to ``epsilon``.

    References
    ----------
    Miyato, Maeda, Koyama, Nakae and Ishii (2016), Distributional smoothing with virtual adversarial training, ICLR.
    """

    epsilon: NonNegative = 0.05
    strength: NonNegative = 1.0
    num_iterations: Count = 1
    probe: Positive = 0.1

    def objective(self, base: MemberFunction, density: LogDensity, inputs: InputSpace) -> MemberFunction:
        """Return the objective minus the divergence between the predictions at the data and at the moved inputs.

        Raises
        ------
        ModelError
            If the divergence of the likelihood from itself is not known.
        """
        origin = torch.zeros(density.num_params, dtype=density.dtype, device=density.device)
        for name, fn in zip(density.observed, _predictions(density, origin, density.data), strict=True):
            try:
                _divergence_of(fn, fn)
            except NotImplementedError:
                raise ModelError(
                    f"VirtualAdversarial needs the Kullback-Leibler divergence of the likelihood, which torch does not know for "
                    f"site {name!r} ({type(fn).__name__}). Use adversarial=FGSM(), which needs its density alone."
                ) from None

        def value(theta: Tensor, step: ObjectiveInputs) -> Tensor:
            data, starts = step.batch.data, step.noise
            here = _predictions(density, theta.detach(), data)

            def divergence(theta: Tensor, steps: tuple[Tensor, ...]) -> Tensor:
                terms = [
                    _divergence_of(p, q)
                    for p, q in zip(here, _predictions(density, theta, inputs.moved(data, steps)), strict=True)
                ]
                return torch.stack([term.reshape(len(term), -1).sum(1) for term in terms]).sum(0)

            steps = self._steps(lambda steps: divergence(theta.detach(), steps).sum(), starts)
            apart = divergence(theta, steps)
            return base(theta, step) - self.strength * density.num_data / len(apart) * apart.sum()

        return value

    def noise(self, streams: MemberStreams, inputs: InputSpace, num_rows: int, density: LogDensity) -> NoiseSource:
        """Return where the directions come from at which the power iteration starts: ``[C, B, ...]`` for each input."""
        generators = streams.own("virtual adversarial")
        shapes = [(num_rows, *width.shape) for width in inputs.ranges]

        def draw(_: torch.Generator) -> tuple[Tensor, ...]:
            each = [torch.stack([torch.randn(s, generator=g, dtype=density.dtype) for g in generators]) for s in shapes]
            return tuple(noise.to(density.device) for noise in each)

        return draw

    def _steps(self, apart: Callable[[tuple[Tensor, ...]], Tensor], starts: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        direction = _unit(starts)
        for _ in range(self.num_iterations):
            slope = grad(apart)(tuple(self.probe * self.epsilon * each for each in direction))
            direction = _unit(tuple(each.detach() for each in slope))
        return tuple(self.epsilon * each for each in direction)


def input_space(density: LogDensity, setting: str) -> InputSpace:
    """Return the inputs of a model; ``setting`` is what needs them.

    Raises
    ------
    ModelError
        If no argument is an input with rows.
    """
    refuse_no_rows(density, setting)
    observed = observed_places(density)
    places = tuple(
        place
        for place, value in enumerate(density.data)
        if has_rows(value, density.num_data) and value.is_floating_point() and place not in observed
    )
    if not places:
        raise ModelError(
            f"{setting} moves inputs, but no argument of the model is a floating-point input with one row for each observation. "
            f"Leave it out, or pass the inputs as floats."
        )
    values = [density.data[place] for place in places]
    return InputSpace(places, tuple(value.amax(0) - value.amin(0) for value in values))


def _unit(directions: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Scale the directions of each row to length one, over all inputs together."""
    squares = sum(each.reshape(len(each), -1).square().sum(1) for each in directions)
    assert isinstance(squares, Tensor)
    length = squares.sqrt().clamp(min=torch.finfo(squares.dtype).tiny ** 0.5)
    return tuple(each / length.reshape(-1, *(1 for _ in each.shape[1:])) for each in directions)


def _predictions(density: LogDensity, theta: Tensor, batch: Data) -> list[Distribution]:
    nodes = density.observed_nodes(theta, *batch)
    return [nodes[name]["fn"] for name in density.observed]


def _divergence_of(p: Distribution, q: Distribution) -> Tensor:
    """Return KL(p || q) ``[...]``; torch's for classes looks for probabilities of zero, which cannot be batched."""
    if isinstance(p, Independent) and isinstance(q, Independent):
        terms = _divergence_of(p.base_dist, q.base_dist)
        return terms.flatten(terms.ndim - p.reinterpreted_batch_ndims).sum(-1) if p.reinterpreted_batch_ndims else terms
    if isinstance(p, Bernoulli) and isinstance(q, Bernoulli):
        return p.probs * (p.logits - q.logits) + softplus(q.logits) - softplus(p.logits)
    if isinstance(p, Categorical) and isinstance(q, Categorical):
        return (p.probs * (p.logits - q.logits)).sum(-1)
    return kl_divergence(p, q)
