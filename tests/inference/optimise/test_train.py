"""The one loop: what it maximises, what its parts see, and how it ends."""

import itertools
import json
from collections.abc import Iterator

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from bnnzoo.core.method import FitContext
from bnnzoo.core.model.density import LogDensity, build_density
from bnnzoo.inference.optimise.batches import AllRows, Bootstrap, MemberBatches, MiniBatches, StepBatch
from bnnzoo.inference.optimise.objectives import MemberObjective, ObjectiveInputs, log_joint_objective
from bnnzoo.inference.optimise.observers import HeldOutStopping, KeptIterates
from bnnzoo.inference.optimise.optimisers import SGD, Adam
from bnnzoo.inference.optimise.schedules import Constant, Cosine, Cyclical, LinearWarmup
from bnnzoo.inference.optimise.streams import MemberStreams
from bnnzoo.inference.optimise.train import train
from tests.helpers.counting import Counting
from tests.helpers.training import START, TARGET, trained


def density() -> LogDensity:
    return build_density(TARGET.model, *TARGET.data)


def parabola(params: Tensor, inputs: ObjectiveInputs) -> Tensor:
    return -0.5 * ((params - 1) ** 2).sum()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Adam(0.03), lambda p: torch.optim.Adam(p, lr=0.03, maximize=True)),
        (SGD(1e-4, momentum=0.9), lambda p: torch.optim.SGD(p, lr=1e-4, momentum=0.9, maximize=True)),
        (SGD(1e-4, nesterov=True), lambda p: torch.optim.SGD(p, 1e-4, momentum=0.9, nesterov=True, maximize=True)),
    ],
    ids=["adam", "heavy_ball", "nesterov"],
)
def test_steps_are_those_of_torch_on_the_density(ours, theirs) -> None:
    found = trained(optimiser=ours, schedule=Constant(), start=START[:1])
    params = START[0].clone().requires_grad_()
    optimiser, values = theirs([params]), []
    for _ in range(50):
        optimiser.zero_grad()
        value = density().log_joint(params, *TARGET.data)
        value.backward()
        values.append(value.detach())
        optimiser.step()
    torch.testing.assert_close(found.params[0], params.detach(), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(found.trace[0], torch.stack(values), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "batches", [AllRows(), MiniBatches(8), MemberBatches(8), Bootstrap(), Bootstrap(MemberBatches(8))]
)
@pytest.mark.parametrize("optimiser", [Adam(0.03), pytest.param(SGD(1e-3), marks=pytest.mark.slow)])
def test_a_member_trains_as_it_does_alone(batches, optimiser) -> None:
    together = trained(optimiser=optimiser, batches=batches)
    for member in range(3):
        alone = trained(
            optimiser=optimiser, batches=batches, start=START[member : member + 1], members=range(member, member + 1)
        )
        torch.testing.assert_close(together.params[member : member + 1], alone.params, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(together.trace[member : member + 1], alone.trace, rtol=1e-10, atol=1e-12)


def test_bootstrapped_members_end_at_weighted_least_squares() -> None:
    own = density()
    found = trained(optimiser=Adam(0.05), batches=Bootstrap(), num_steps=3000)
    x, y = TARGET.data
    weights = Bootstrap().row_weights(len(y), _streams())
    joint = log_joint_objective(own)
    for member, row in enumerate(found.params):
        inputs = ObjectiveInputs((), (), (), StepBatch((x, y), (None, None), weights[member : member + 1]))
        _, gradient = joint.value_and_grad(row[None], inputs)
        assert gradient.abs().max() < 1e-6
    assert not torch.allclose(found.params[0], found.params[1])


def _streams() -> MemberStreams:
    return MemberStreams(3, range(3))


def test_anchored_members_end_between_their_anchors_and_the_data() -> None:
    anchors = torch.randn(3, 3)

    def anchored(params: Tensor, inputs: ObjectiveInputs) -> Tensor:
        (anchor,) = inputs.constants
        return parabola(params, inputs) - 0.5 * 3.0 * ((params - anchor) ** 2).sum()

    found = trained(MemberObjective(anchored), Adam(0.05), constants=(anchors,), num_steps=2000)
    torch.testing.assert_close(found.params, 0.25 + 0.75 * anchors, rtol=0, atol=1e-6)


def test_scalars_change_from_step_to_step() -> None:
    scalars = torch.tensor([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])

    def objective(params: Tensor, inputs: ObjectiveInputs) -> Tensor:
        first, second = inputs.scalars
        return first + 10 * second + 0 * params.sum()

    found = trained(MemberObjective(objective), scalars=scalars, num_steps=3)
    assert found.trace[0].tolist() == [10.0, 32.0, 54.0]


def test_langevin_dynamics_need_no_loop_of_their_own() -> None:
    """Stochastic gradient Langevin dynamics: noise of variance 2/rate added to the gradient of plain steps."""
    rate, num_chains, num_steps = 0.02, 500, 400
    generator = torch.Generator().manual_seed(5)

    def noisy(params: Tensor, inputs: ObjectiveInputs) -> Tensor:
        (noise,) = inputs.noise
        return -0.5 * (params**2).sum() + (2 / rate) ** 0.5 * (noise * params).sum()

    kept = KeptIterates(every=100, after=100)
    trained(
        MemberObjective(noisy),
        SGD(rate, momentum=0.0),
        Constant(),
        start=torch.zeros(num_chains, 2),
        noise=lambda _: (torch.randn(num_chains, 2, generator=generator),),
        observe=kept,
        num_steps=num_steps,
    )
    draws = torch.cat(kept.iterates).flatten()
    expected = 1 / (1 - rate / 2)  # the discretised chain's own variance
    mcse = expected * (2 / len(draws)) ** 0.5
    assert abs(draws.var() - expected) < 5 * mcse
    assert abs(draws.mean()) < 5 * (expected / len(draws)) ** 0.5


def test_snapshots_at_the_ends_of_cycles() -> None:
    kept = KeptIterates(every=25)
    trained(schedule=LinearWarmup(0.04, Cyclical(2)), observe=kept)
    assert [tuple(each.shape) for each in kept.iterates] == [(3, 3), (3, 3)]


def test_observers_see_the_iterate_after_a_step_and_the_value_before_it() -> None:
    seen = []
    found = trained(num_steps=4, observe=lambda step, params, value: seen.append((step, params, value)))
    assert [step for step, _, _ in seen] == [1, 2, 3, 4]
    assert torch.equal(seen[-1][1], found.params)
    assert torch.equal(torch.stack([value for _, _, value in seen], 1), found.trace)
    torch.testing.assert_close(found.trace[:, 0], density().value_and_grad(START, *TARGET.data)[0])


def test_an_observer_ends_the_run() -> None:
    found = trained(observe=lambda step, *_: step == 7)
    assert found.num_steps == 7
    assert found.complete


@pytest.mark.slow
def test_early_stopping_on_held_out_rows() -> None:
    x, y = TARGET.data
    own = build_density(TARGET.model, x[:20], y[:20])
    stop = HeldOutStopping(lambda params: density().value_and_grad(params, x[20:], y[20:])[0], every=5, patience=4)
    found = train(
        log_joint_objective(own), Adam(0.05), Constant(), AllRows(), START,
        num_steps=5000, density=own, context=FitContext(), observe=stop,
    )  # fmt: skip
    assert found.num_steps < 5000
    scores = density().value_and_grad(found.params, x[20:], y[20:])[0]
    assert (stop.scores >= scores).all()


def test_a_member_whose_gradient_is_not_finite_stays_for_that_step() -> None:
    bad = torch.zeros(4, 1)
    bad[1] = float("nan")

    def objective(params: Tensor, inputs: ObjectiveInputs) -> Tensor:
        (spoilt,) = inputs.scalars
        return parabola(params, inputs) + (params[0] < 0) * spoilt * params.sum()

    kept, start = KeptIterates(), torch.tensor([[-5.0, 0.0], [5.0, 0.0]])
    trained(
        MemberObjective(objective),
        SGD(0.1, momentum=0.0),
        Constant(),
        start=start,
        scalars=bad,
        num_steps=4,
        observe=kept,
    )
    moved = (torch.stack(kept.iterates).diff(dim=0) != 0).all(2)
    assert moved[:, 0].tolist() == [False, True, True]
    assert torch.stack(kept.iterates).isfinite().all()


def test_a_member_that_has_stepped_over_a_border_comes_back() -> None:
    def objective(params: Tensor, inputs: ObjectiveInputs) -> Tensor:
        return -((params - 1.0) ** 2).sum() + 0.0 * (1.5 - params[0]).sqrt()

    found = trained(
        MemberObjective(objective), SGD(0.9, momentum=0.0), Constant(), start=torch.tensor([[-1.0]]), num_steps=200
    )
    assert found.num_rejected > 0  # the first step, from -1 to 2.6, is over the border
    assert float(found.params[0, 0]) == pytest.approx(1.0, abs=1e-6)


def test_one_huge_gradient_does_not_keep_steps_short_where_gradients_are_clipped() -> None:
    def objective(params: Tensor, inputs: ObjectiveInputs) -> Tensor:
        """Return a parabola with its top at 1, whose gradient is another one once."""
        (spike,) = inputs.scalars
        return parabola(params, inputs) + spike * params.sum()

    spikes = torch.zeros(300, 1)
    spikes[50] = -1e6
    start = torch.zeros(1, 2)
    found = {
        clip: trained(
            MemberObjective(objective), Adam(0.02, clip=clip), Constant(), start=start, scalars=spikes, num_steps=300
        ).params
        for clip in (None, 5.0)
    }
    assert (found[5.0] - 1).abs().max() < 0.05
    assert (found[None] - 1).abs().max() > 0.2


def test_interrupted_it_keeps_what_there_is() -> None:
    kept = KeptIterates()

    def interrupting(step: int, params: Tensor, value: Tensor) -> None:
        if step == 6:
            raise KeyboardInterrupt
        kept(step, params, value)

    found = trained(observe=interrupting)
    assert not found.complete
    assert found.num_steps == 5
    whole = trained(num_steps=50)
    assert torch.equal(found.trace, whole.trace[:, :5])
    assert torch.equal(found.params, kept.iterates[-1])


def test_interrupted_before_the_first_step_there_is_nothing() -> None:
    def interrupted(_: torch.Generator) -> tuple[Tensor, ...]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(noise=interrupted)


def test_the_model_is_not_called_once_a_step() -> None:
    model = Counting(TARGET.model)
    own = build_density(model, *TARGET.data)
    trained(log_joint_objective(own), density=own, num_steps=500)
    assert model.calls <= 2


def test_a_model_that_cannot_be_traced_is_trained_in_loops() -> None:
    def model(y: Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        scale = 1.0 if float(mu.detach()) < 1e9 else 2.0
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(mu, scale), obs=y)

    own = build_density(model, torch.tensor([1.0, 2.0]))
    for batches in (AllRows(), Bootstrap(MemberBatches(1))):
        with pytest.warns(UserWarning, match="could not be traced"):
            found = train(
                log_joint_objective(own), Adam(0.1), Cosine(), batches, torch.zeros(2, 1),
                num_steps=200, density=own, context=FitContext(),
            )  # fmt: skip
        assert found.params.isfinite().all()
        if isinstance(batches, AllRows):
            torch.testing.assert_close(found.params, torch.ones(2, 1), rtol=0, atol=0.02)


def test_arguments_that_are_no_tensors_or_hold_them() -> None:
    def model(data: dict[str, Tensor], name: str) -> None:
        mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        with pyro.plate(name, len(data["y"])):
            pyro.sample("y", dist.Normal(mu, 1.0), obs=data["y"])

    own = build_density(model, {"y": torch.tensor([1.0, 2.0])}, "rows")
    found = trained(log_joint_objective(own), Adam(0.1), density=own, start=torch.zeros(1, 1), num_steps=300)
    torch.testing.assert_close(found.params, torch.ones(1, 1), rtol=0, atol=0.01)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"optimiser": Adam(-1.0)}, r"Adam\(learning_rate=-1.0\): write a positive number"),
        ({"schedule": Cyclical(0)}, r"Cyclical\(num_cycles=0\): write 1 or more"),
        ({"schedule": LinearWarmup(0.1, Cosine(2.0))}, r"Cosine\(final=2.0\): write a number from 0 to 1"),
        ({"batches": Bootstrap(MiniBatches(0))}, r"MiniBatches\(size=0\): write 1 or more"),
        ({"batches": MiniBatches(0)}, r"MiniBatches\(size=0\): write 1 or more"),
    ],
)
def test_refuses_impossible_parts(settings, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        trained(**settings)


class Stream:
    """Batches that come from elsewhere, such as a loader of data on disk: no dataclass and no rows by index."""

    def __init__(self, size: int) -> None:
        self._size = size

    def stream(self, density: LogDensity, streams: MemberStreams) -> Iterator[StepBatch]:
        for first in itertools.cycle(range(0, 40, self._size)):
            rows = slice(first, first + self._size)
            yield StepBatch(tuple(part[rows] for part in TARGET.data), (None, None))


def test_batches_may_come_from_elsewhere() -> None:
    found = trained(batches=Stream(10), num_steps=2000)
    assert ((found.params - TARGET.mean["w"]).abs() < TARGET.sd["w"]).all()


def test_parts_print_as_they_are_written() -> None:
    assert repr(Bootstrap(MemberBatches(8))) == "Bootstrap(of=MemberBatches(size=8))"
    json.dumps(vars(Adam(0.1)))
