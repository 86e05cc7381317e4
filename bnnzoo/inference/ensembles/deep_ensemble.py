"""Deep ensembles: networks trained from different starts, in different orders of the data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, ClassVar, Literal

from torch import Tensor

from bnnzoo.core.method import Declared, FitContext, Need
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.posterior import Draws
from bnnzoo.core.reading.parts import refuse_dependent_parts
from bnnzoo.core.reading.streamed import value_and_grad_over_rows
from bnnzoo.core.settings import Count, Positive, Range, check_settings
from bnnzoo.engine.lowered import Lowered
from bnnzoo.inference.ensembles.adversarial import FGSM, Adversary, VirtualAdversarial, input_space
from bnnzoo.inference.ensembles.anchors import anchors
from bnnzoo.inference.ensembles.held_out import (
    log_density_of_rows,
    refuse_no_rows,
    split_rows,
    stacking_log_weights,
    warn_of_one_member,
)
from bnnzoo.inference.ensembles.interpolation import warn_of_interpolation
from bnnzoo.inference.ensembles.repulsion import FunctionRepulsion, Repulsive
from bnnzoo.inference.ensembles.spread import warn_of_spread
from bnnzoo.inference.ensembles.weighted_members import WeightedMembers
from bnnzoo.inference.optimise.batches import AllRows, Bootstrap, MemberBatches, MiniBatches, RowBatches, StepBatch
from bnnzoo.inference.optimise.independent_members import Members, joined, trained_in_parts
from bnnzoo.inference.optimise.lbfgs import lbfgs
from bnnzoo.inference.optimise.objectives import MemberObjective, Objective, ObjectiveInputs, log_joint_objective
from bnnzoo.inference.optimise.observers import HeldOutStopping
from bnnzoo.inference.optimise.optimisers import Adam
from bnnzoo.inference.optimise.schedules import ScheduleName, schedule_named
from bnnzoo.inference.optimise.streams import MemberStreams
from bnnzoo.inference.optimise.train import train
from bnnzoo.inference.optimise.training_run import NoiseSource
from bnnzoo.inference.starts import Start, starting_points

__all__ = ["DeepEnsemble", "Weights"]

type Weights = Literal["equal", "stacking"]

ENOUGH_STEPS = 500  # shorter runs are trials

NUM_SEARCHES, POLISH_STEPS, TOLERANCE = 3, 500, 1e-9
"""Searches for the modes of anchored members, steps of each at most, and the gradient at which one ends, as in MAP."""


@dataclass(frozen=True)
class DeepEnsemble(Declared):
    r"""Members trained by Adam from starts of their own, on the data in orders of their own, all in one batch.

    .. math:: \theta_m \leftarrow \theta_m + \text{Adam}\left( \nabla \log p(\theta_m)
        + \frac{N}{B} \sum_{n \in \text{batch}_m} \nabla \log p(y_n \mid \theta_m) \right)

    Unlike those of :class:`bnnzoo.inference.MAP`, members need not reach a mode: training ends after ``num_steps``, or when
    held-out rows are no longer predicted better.

    Parameters
    ----------
    num_members : int
        Number of members.
    num_steps : int
        Steps of Adam, at most.
    learning_rate : float
        Of the first step.
    schedule : {"cosine", "constant"}
        Whether the learning rate falls to zero along half a cosine.
    batch_size : int, optional
        Rows of a mini-batch, which each member draws in an order of its own. Default: all rows at every step.
    held_out : float
        Fraction of the rows that no member is trained on. If positive, each member stops at the step that predicted them best.
    patience : int
        Number of checks without improvement after which a member is finished; training ends when all are.
    check_every : int
        Steps between two checks.
    weights : {"equal", "stacking"}
        Whether members count equally, or by the weights under which their mixture predicts the held-out rows best.
    adversarial : FGSM or VirtualAdversarial, optional
        Train on inputs moved to where the member predicts worst, too.
    bootstrap : bool
        Train each member on a bootstrap resample of the rows.
    anchored : bool
        Randomised MAP sampling: give each member a draw of its own from the prior in place of the prior mean, and noise of its
        own on observations with Gaussian noise. At the mode, members of a linear-Gaussian model are draws from its posterior, so
        members trained on all rows without another of these settings end with at most 500 steps of L-BFGS.
    repulsion : FunctionRepulsion, optional
        Keep members apart in the space of functions. Mini-batches are then shared by all members.
    init : Tensor, Posterior or Method, optional
        Starting points ``theta[num_members, P]``, or where to find them.

    References
    ----------
    Lakshminarayanan, Pritzel and Blundell (2017), Simple and scalable predictive uncertainty estimation using deep ensembles,
    NeurIPS. Pearce, Leibfried, Brintrup, Zaki and Neely (2020), Uncertainty in neural networks: approximately Bayesian
    ensembling, AISTATS. D'Angelo and Fortuin (2021), Repulsive deep ensembles are Bayesian, NeurIPS.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> posterior = bz.fit(target.model, bz.DeepEnsemble(3, num_steps=50, batch_size=10), *target.data, progress=False)
    >>> posterior.draws().shape, posterior.info.sampling
    (torch.Size([1, 3, 3]), 'ensemble')
    """

    num_members: Count = 5
    num_steps: Count = 2000
    learning_rate: Positive = 0.01
    schedule: ScheduleName = "cosine"
    batch_size: Count | None = None
    held_out: Annotated[float, Range(0, 1, open_high=True)] = 0.0
    patience: Count = 10
    check_every: Count = 20
    weights: Weights = "equal"
    adversarial: FGSM | VirtualAdversarial | None = None
    bootstrap: bool = False
    anchored: bool = False
    repulsion: FunctionRepulsion | None = None
    init: Start = None

    needs: ClassVar[frozenset[Need]] = frozenset()
    parts: ClassVar[str | None] = "num_members"
    in_batches: ClassVar[Mapping[str, object] | None] = {
        "held_out": 0.0,
        "adversarial": None,
        "anchored": False,
        "repulsion": None,
    }

    def run(self, density: LogDensity, context: FitContext) -> Draws | WeightedMembers:
        """Train the members; see :func:`bnnzoo.fit`.

        Returns
        -------
        Draws or WeightedMembers
            With ``lp`` and the Euclidean ``gradient_norm`` of every member in ``info.sample_stats``, its ``weights``, if they
            are not equal, in ``info.config``, and the loss (minus the objective) in ``info.fit_stats``.

        Raises
        ------
        ValueError, ModelError
            If settings contradict each other, or ask for what the model does not have.
        """
        train_on, held_out = self._checked(density, context.seed)
        start = starting_points(self.init, self.num_members, train_on, context, trains=True)
        team = Team(replace(self, init=None), start, range(self.num_members), context.seed)
        if held_out is not None or len(team.split()) == 1:
            found = _trained_together(team, train_on, context, held_out)
        else:
            found = joined(trained_in_parts(team, _trained_together, train_on, context))
        info = FitInfo(
            sampling="ensemble",
            num_gradients=found.trace.numel() * (2 if self.adversarial else 1) + found.num_polished,
            complete=found.complete,
            fit_stats={"loss": -found.trace},
        )
        if held_out is not None and self.weights == "stacking":
            log_weights = stacking_log_weights(log_density_of_rows(held_out)(found.theta))
            warn_of_one_member(log_weights, self.held_out)
            info = replace(info, config={"member_weights": log_weights.exp().tolist()})
            return WeightedMembers(density, info, found.theta, log_weights)
        if found.complete and self.num_steps >= ENOUGH_STEPS:
            warn_of_interpolation(train_on, found.theta[0])
            warn_of_spread(train_on, found.theta)
        value, gradient = value_and_grad_over_rows(density, found.theta)
        stats = {"lp": value[None], "gradient_norm": gradient.norm(dim=1)[None]}
        return Draws(density, replace(info, sample_stats=stats), found.theta[None])

    def _checked(self, density: LogDensity, seed: int) -> tuple[LogDensity, LogDensity | None]:
        """Return the rows to train on and those held out, if any, after refusing settings that cannot be met."""
        for part in (self.adversarial, self.repulsion):
            if part is not None:
                check_settings(part)
        if self.weights == "stacking" and not self.held_out:
            raise ValueError(
                'DeepEnsemble(weights="stacking") chooses weights by how well held-out rows are predicted: write '
                "held_out=0.2 as well."
            )
        if self.repulsion is not None and self.num_members == 1 and self.repulsion.strength > 0:
            raise ValueError("DeepEnsemble(repulsion=...) keeps members apart, but num_members=1: write 2 or more.")
        parts = split_rows(density, self.held_out, seed) if self.held_out else (density, None)
        rows = parts[0].num_data
        if self.batch_size is not None and self.batch_size > rows:
            raise ValueError(
                f"DeepEnsemble(batch_size={self.batch_size}), but there are only {rows} observations to train on: write at most "
                f"{rows}, or leave batch_size out."
            )
        if self.anchored and self.batch_size is not None:  # whose batches also hold the numbers of the rows
            refuse_dependent_parts(parts[0], self.batch_size, f"batch_size={self.batch_size}")
        if self.bootstrap:
            refuse_no_rows(parts[0], "bootstrap=True")
        return parts

    @property
    def batches(self) -> RowBatches:
        """Which rows each step sees."""
        shared = self.repulsion is not None
        rows: RowBatches = AllRows()
        if self.batch_size is not None:
            rows = MiniBatches(self.batch_size) if shared else MemberBatches(self.batch_size)
        return Bootstrap(rows) if self.bootstrap else rows


class Team(Members[DeepEnsemble]):
    """Members of a deep ensemble."""

    def split(self) -> Sequence[Members[DeepEnsemble]]:
        """Return the members one by one, except those that wait for each other."""
        return [self] if self.method.held_out or self.method.repulsion is not None else super().split()


@dataclass(frozen=True)
class TrainedTeam:
    """Where training ended: ``theta[C, P]``, the objective at every step ``trace[C, num_steps]``, and gradients of L-BFGS."""

    theta: Tensor
    trace: Tensor
    complete: bool
    num_polished: int = 0


def _trained_together(
    team: Team, density: LogDensity, context: FitContext, held_out: LogDensity | None = None
) -> TrainedTeam:
    method = team.method
    objective, of_batches, constants, noise = _objective(team, density)
    if held_out is None:
        stop = None
    else:
        log_density = log_density_of_rows(held_out)
        stop = HeldOutStopping(
            lambda theta: log_density(theta).mean(1), min(method.check_every, method.num_steps), method.patience
        )
    found = train(
        objective,
        Adam(method.learning_rate),
        schedule_named(method.schedule),
        method.batches,
        team.start,
        num_steps=method.num_steps,
        density=of_batches,
        context=context,
        members=team.members,
        constants=constants,
        noise=noise,
        observe=stop,
    )
    if stop is not None:
        return TrainedTeam(stop.params if len(stop.params) else found.params, found.trace, found.complete)
    # L-BFGS can follow the objectives of anchored members of all rows as they are
    others = (method.batch_size, method.adversarial, method.repulsion)
    ends_at_modes = method.anchored and not method.bootstrap and all(each is None for each in others)
    if ends_at_modes and found.complete and bool(found.params.isfinite().all()):
        theta, count = _at_modes(team, density, found.params)
        return TrainedTeam(theta, found.trace, found.complete, count * len(theta))
    return TrainedTeam(found.params, found.trace, found.complete)


def _at_modes(team: Team, density: LogDensity, theta: Tensor) -> tuple[Tensor, int]:
    """Return the modes ``[C, P]`` of anchored members, and the number of gradients of each.

    Noise on observations has the size that the noise scale has where the search begins; the next search takes that of its mode.
    """
    drawn, count = anchors(density, MemberStreams(team.seed, team.members)), 0
    data = drawn.numbered(density).data
    everything = StepBatch(data, (None,) * len(data))
    for _ in range(NUM_SEARCHES):
        scaled = drawn.scaled_at(theta, density)
        objective = MemberObjective(scaled.objective(log_joint_objective(density).function, density, is_scaled=True))
        inputs = ObjectiveInputs((), scaled.constants, (), everything)
        both = Lowered(objective.value_and_grad, objective.looped_value_and_grad)
        mode = lbfgs(partial(_at, both, inputs), theta, POLISH_STEPS, TOLERANCE)
        theta, count = mode.theta, count + mode.num_evaluations
    return theta, count


def _at(both: Lowered, inputs: ObjectiveInputs, theta: Tensor) -> tuple[Tensor, Tensor]:
    found: tuple[Tensor, Tensor] = both(theta, inputs)
    return found


def _objective(team: Team, density: LogDensity) -> tuple[Objective, LogDensity, tuple[Tensor, ...], NoiseSource]:
    """Return the objective, the density whose data its batches are cut from, its constants, and the noise of a step."""
    method, streams = team.method, MemberStreams(team.seed, team.members)
    plain = log_joint_objective(density)
    value: Callable[[Tensor, ObjectiveInputs], Tensor] = plain.function
    noise: NoiseSource = lambda _: ()  # noqa: E731
    of_batches = density
    constants: tuple[Tensor, ...] = ()
    if method.adversarial is not None:
        adversary: Adversary = method.adversarial
        inputs = input_space(density, f"adversarial={type(adversary).__name__}(...)")
        value = adversary.objective(value, density, inputs)
        noise = adversary.noise(streams, inputs, method.batch_size or density.num_data, density)
    if method.anchored:
        anchored = anchors(density, streams)
        value, of_batches, constants = (
            anchored.objective(value, density),
            anchored.numbered(density),
            anchored.constants,
        )
    objective: Objective = plain if value is plain.function else MemberObjective(value)
    if method.repulsion is not None:
        objective = Repulsive.of(objective, density, method.repulsion)
    return objective, of_batches, constants, noise
