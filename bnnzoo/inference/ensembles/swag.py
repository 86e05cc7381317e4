"""SWAG: a Gaussian with the moments of stochastic gradient descent's iterates."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Annotated, ClassVar

import torch
from torch import Tensor, nn

from bnnzoo.core.method import Declared, FitContext, Need
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.covariance import LowRankPlusDiagonal
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.posterior import Gaussian, Mixture
from bnnzoo.core.program.sites import ModelError
from bnnzoo.core.reading.parts import refuse_dependent_parts
from bnnzoo.core.settings import Count, Fraction, Positive, Range
from bnnzoo.inference.ensembles.gradient_noise import default_rate
from bnnzoo.inference.ensembles.held_out import refuse_no_rows
from bnnzoo.inference.ensembles.map import MAP
from bnnzoo.inference.ensembles.moments import IterateMoments
from bnnzoo.inference.optimise.batches import IndependentBatches
from bnnzoo.inference.optimise.independent_members import Members, joined, trained_in_parts
from bnnzoo.inference.optimise.objectives import log_joint_objective
from bnnzoo.inference.optimise.optimisers import SGD
from bnnzoo.inference.optimise.schedules import DecayToConstant
from bnnzoo.inference.optimise.train import train
from bnnzoo.inference.starts import Start, starting_points

__all__ = ["SWAG", "MultiSWAG"]

MAX_BATCH = 128


@dataclass(frozen=True)
class SWAG(Declared):
    r"""Gaussian with the mean and covariance of SGD's iterates: its noise explores the mode, and costs one training run.

    With mean :math:`\bar\theta` and variances v of all iterates that count, and D the deviations of the last K of them,

    .. math:: q(\theta) = N\left(\bar\theta, \; s^2 \left( \tfrac12 \mathrm{diag}(v) + \tfrac12 \frac{D D^T}{K - 1} \right)\right)

    One draw takes one vector of noise for the parameters of all layers, so that covariances between layers are kept. Width and
    shape of the Gaussian are those of the gradient noise. The default ``learning_rate`` matches the width to the posterior's on
    average over the directions that the data inform; the shape stays that of the noise, so tune ``scale`` on held-out
    observations if calibration matters.

    Parameters
    ----------
    num_steps : int
        Steps of SGD, burn-in included.
    learning_rate : float, optional
        Of the loss per observation, as usual for SGD: minus the log joint density divided by the number of observations. Default:
        the rate at which the iterates lose as much log likelihood as draws from the posterior would (Mandt et al. 2017), and at
        most a quarter of the largest rate at which descent with this momentum is stable near the start. It is in
        ``posterior.info.config``.
    momentum : float
        Of SGD.
    batch_size : int, optional
        Rows of a mini-batch, drawn with replacement; fewer than there are, since iterates do not vary without gradient noise.
        Default: a quarter of the rows, at most 128.
    burn_in : float
        Fraction of the steps before the first iterate counts.
    start_rate : float, optional
        Learning rate at the beginning of burn-in. It is kept for half of burn-in and falls linearly to ``learning_rate``, which
        it reaches after nine tenths. Default: ``learning_rate`` throughout, since training starts at a mode.
    every : int, optional
        Steps between two iterates that count. Default: one pass over the data.
    rank : int
        K, the number of last iterates in the low-rank part.
    scale : float
        s, a factor of all standard deviations.
    diagonal : float
        Weight of the diagonal part, one half in the paper; the low-rank part has the rest. Covariances between parameters are
        therefore shrunk by ``1 - diagonal``.
    init : Tensor, Posterior or Method, optional
        Where SGD starts. Default: the mode.

    References
    ----------
    Maddox, Garipov, Izmailov, Vetrov and Wilson (2019), A simple baseline for Bayesian uncertainty in deep learning, NeurIPS.
    Mandt, Hoffman and Blei (2017), Stochastic gradient descent as approximate Bayesian inference, JMLR 18.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> posterior = bz.fit(target.model, bz.SWAG(num_steps=200, batch_size=10), *target.data, progress=False)
    >>> posterior.covariance.factor.shape, posterior.info.config["num_iterates"]
    (torch.Size([3, 20]), 37)
    """

    num_steps: Count = 2000
    learning_rate: Positive | None = None
    momentum: Annotated[float, Range(0, 1, open_high=True)] = 0.9
    batch_size: Count | None = None
    burn_in: Annotated[float, Range(0, 1, open_high=True)] = 0.25
    start_rate: Positive | None = None
    every: Count | None = None
    rank: Annotated[int, Range(2)] = 20
    scale: Positive = 1.0
    diagonal: Fraction = 0.5
    init: Start = field(default_factory=MAP)

    needs: ClassVar[frozenset[Need]] = frozenset({Need.LIKELIHOOD})
    in_batches: ClassVar[Mapping[str, object] | None] = {}
    always_in_batches: ClassVar[bool] = True

    def run(self, density: LogDensity, context: FitContext) -> Gaussian:
        """Run SGD and collect the moments of its iterates; see :func:`bnnzoo.fit`.

        Raises
        ------
        ValueError
            If settings leave no gradient noise or fewer than two iterates, SGD starts at a spike, or it diverges.
        ModelError
            If the model has no rows, or its network has BatchNorm.
        """
        return gaussians(self, 1, density, context)[0]


@dataclass(frozen=True)
class MultiSWAG(Declared):
    """Equally weighted mixture of SWAG's Gaussians around several modes, all trained in one batch.

    Parameters
    ----------
    num_members : int
        Number of modes.
    swag : SWAG
        How each Gaussian is found. If its ``init`` is a method with members, as many are fitted as are needed.

    References
    ----------
    Wilson and Izmailov (2020), Bayesian deep learning and a probabilistic perspective of generalization, NeurIPS.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> method = bz.MultiSWAG(2, bz.SWAG(num_steps=200, batch_size=10))
    >>> bz.fit(target.model, method, *target.data, progress=False).draws(50).shape
    torch.Size([2, 50, 3])
    """

    num_members: Count = 5
    swag: SWAG = field(default_factory=SWAG)

    needs: ClassVar[frozenset[Need]] = SWAG.needs
    parts: ClassVar[str | None] = "num_members"
    stages: ClassVar[tuple[str, ...]] = ("swag",)

    def reads_all_rows(self) -> str | None:
        """Return what to write so that each SWAG looks at mini-batches only; None if it does."""
        return self.swag.reads_all_rows()

    def run(self, density: LogDensity, context: FitContext) -> Gaussian | Mixture:
        """Run SGD from every mode; see :func:`bnnzoo.fit`.

        Raises
        ------
        ValueError, ModelError
            As :meth:`SWAG.run`.
        """
        components = gaussians(self.swag, self.num_members, density, context)
        return components[0] if len(components) == 1 else Mixture(density, components[0].info, components)


@dataclass(frozen=True)
class Explored:
    """What SGD found: moments of its iterates, and the objective at every step ``trace[C, num_steps]``."""

    loc: Tensor
    factors: Tensor
    scales: Tensor
    trace: Tensor
    num_iterates: int
    complete: bool


def gaussians(swag: SWAG, num_members: int, density: LogDensity, context: FitContext) -> tuple[Gaussian, ...]:
    """Return SWAG's Gaussian for each member."""
    for network in density.networks:
        for name, layer in network.module.named_modules():
            if isinstance(layer, nn.modules.batchnorm._BatchNorm):
                raise ModelError(
                    f"SWAG averages weights, but layer {name!r} of network {network.name!r} is {type(layer).__name__}, whose "
                    f"running statistics belong to other weights and would have to be computed again for every draw. Replace it "
                    f"with GroupNorm or LayerNorm, or use Laplace() or DeepEnsemble()."
                )
    refuse_no_rows(density, "SWAG")
    method = _completed(swag, density.num_data)
    if swag.batch_size is None:  # a number that the user has not written
        assert method.batch_size is not None
        refuse_dependent_parts(
            density, method.batch_size, f"SWAG, whose default is batch_size={method.batch_size} here,"
        )
    start = starting_points(_with_members(swag.init, num_members), num_members, density, context, trains=True)
    if method.learning_rate is None:
        assert method.batch_size is not None
        rate = default_rate(density, start, method.batch_size, method.momentum, context.seed)
        method = replace(method, learning_rate=rate)
    descent = Members(replace(method, init=None), start, range(num_members), context.seed)
    parts = trained_in_parts(descent, _explored_together, density, context)
    found = replace(joined(parts), num_iterates=parts[0].num_iterates)
    info = FitInfo(
        sampling="iid",
        num_gradients=found.trace.numel(),
        complete=found.complete,
        config={
            "batch_size": method.batch_size,
            "every": method.every,
            "learning_rate": method.learning_rate,
            "num_iterates": found.num_iterates,
        },
        fit_stats={"loss": -found.trace},
    )
    moments = zip(found.loc, found.factors, found.scales, strict=True)
    return tuple(Gaussian(density, info, loc, LowRankPlusDiagonal(factor, scale)) for loc, factor, scale in moments)


def _completed(method: SWAG, num_data: int) -> SWAG:
    """Fill in what depends on the number of rows, and refuse what cannot work with it."""
    size = max(1, min(MAX_BATCH, num_data // 4)) if method.batch_size is None else method.batch_size
    if size >= num_data:
        raise ValueError(
            f"SWAG(batch_size={size}), but the model has {num_data} observations: without gradient noise the iterates of SGD do "
            f"not vary. Write less than {num_data}."
        )
    every = num_data // size if method.every is None else method.every
    num_kept = (method.num_steps - _num_burnt(method)) // every
    if num_kept < 2:
        raise ValueError(
            f"SWAG(num_steps={method.num_steps}, every={every}) leaves {num_kept} iterates after burn-in, and a covariance needs "
            f"two at least, better {method.rank} or more: raise num_steps or lower every."
        )
    return replace(method, batch_size=size, every=every)


def _num_burnt(method: SWAG) -> int:
    return round(method.burn_in * method.num_steps)


def _with_members(init: Start, num_members: int) -> Start:
    """Let a method that finds starting points find as many as are needed."""
    if is_dataclass(init) and "num_members" in {each.name for each in fields(init)}:
        return replace(init, num_members=num_members)  # it has this field
    return init


def _explored_together(descent: Members[SWAG], density: LogDensity, context: FitContext) -> Explored:
    method = descent.method
    assert method.batch_size is not None
    assert method.every is not None
    assert method.learning_rate is not None
    moments = IterateMoments(method.every, _num_burnt(method), method.rank)
    found = train(
        log_joint_objective(density),
        SGD(method.learning_rate / density.num_data, method.momentum),
        DecayToConstant((method.start_rate or method.learning_rate) / method.learning_rate, method.burn_in),
        IndependentBatches(method.batch_size),
        descent.start,
        num_steps=method.num_steps,
        density=density,
        context=context,
        members=descent.members,
        observe=moments,
    )
    if moments.num_iterates < 2:
        raise KeyboardInterrupt("SWAG was interrupted before it had two iterates.")
    fine = found.trace[:, -1].isfinite() & moments.mean.isfinite().all(1) & moments.variance.isfinite().all(1)
    if not bool(fine.all()):
        raise ValueError(
            f"SWAG(learning_rate={method.learning_rate}): SGD diverged (member {int((~fine).nonzero()[0])} has a log density of "
            f"{float(found.trace[~fine][0, -1]):.3g} at its last iterate). Lower learning_rate."
        )
    covariances = moments.covariances(method.scale, method.diagonal)
    return Explored(
        loc=moments.mean,
        factors=torch.stack([each.factor for each in covariances]),
        scales=torch.stack([each.scale for each in covariances]),
        trace=found.trace,
        num_iterates=moments.num_iterates,
        complete=found.complete,
    )
