"""Updates against torch.optim on the same gradients, and members that do not touch each other."""

import pytest
import torch
from torch import Tensor

from bnnzoo.core.settings import check_settings
from bnnzoo.inference.optimise.optimisers import SGD, Adam, Optimiser
from bnnzoo.inference.optimise.schedules import Cosine

NUM_STEPS = 60


def gradients() -> Tensor:
    """Return gradients ``[T, C, Q]`` of many sizes."""
    generator = torch.Generator().manual_seed(0)
    sizes = torch.logspace(-3, 2, NUM_STEPS)[:, None, None]
    return sizes * torch.randn(NUM_STEPS, 3, 4, generator=generator)


def moved(optimiser: Optimiser, given: Tensor, factors: Tensor | None = None) -> Tensor:
    """Return parameters after all steps from zero."""
    params = torch.zeros_like(given[0])
    state = optimiser.start(params)
    table = optimiser.scalars(torch.ones(len(given), dtype=torch.float64) if factors is None else factors)
    for gradient, row in zip(given, table.to(params), strict=True):
        move, state = optimiser.move(gradient, state, row.unbind())
        params = params + move
    return params


def torchs(make, given: Tensor, factors: Tensor | None = None) -> Tensor:
    """Return what torch's optimiser makes of the same gradients."""
    params = torch.zeros_like(given[0]).requires_grad_()
    optimiser = make([params])
    rate = optimiser.param_groups[0]["lr"]
    for step, gradient in enumerate(given):
        optimiser.param_groups[0]["lr"] = rate * (1.0 if factors is None else float(factors[step]))
        params.grad = gradient.clone()
        optimiser.step()
    return params.detach()


@pytest.mark.parametrize("factors", [None, Cosine().factors(NUM_STEPS)])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Adam(0.03), lambda p: torch.optim.Adam(p, lr=0.03, maximize=True)),
        (Adam(0.1, 0.5, 0.9, 1e-3), lambda p: torch.optim.Adam(p, lr=0.1, betas=(0.5, 0.9), eps=1e-3, maximize=True)),
        (SGD(0.03, momentum=0.0), lambda p: torch.optim.SGD(p, lr=0.03, maximize=True)),
        (SGD(0.03), lambda p: torch.optim.SGD(p, lr=0.03, momentum=0.9, maximize=True)),
        (SGD(0.03, nesterov=True), lambda p: torch.optim.SGD(p, 0.03, momentum=0.9, nesterov=True, maximize=True)),
    ],
    ids=["adam", "adam_settings", "sgd", "heavy_ball", "nesterov"],
)
def test_updates_are_torchs(ours: Optimiser, theirs, factors: Tensor | None) -> None:
    torch.testing.assert_close(
        moved(ours, gradients(), factors), torchs(theirs, gradients(), factors), rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize("optimiser", [Adam(0.1), Adam(0.1, clip=2.0), SGD(0.1), SGD(0.1, nesterov=True)])
def test_a_member_moves_as_it_does_alone(optimiser: Optimiser) -> None:
    together = moved(optimiser, gradients())
    for member in range(3):
        alone = moved(optimiser, gradients()[:, member : member + 1])
        torch.testing.assert_close(together[member : member + 1], alone, rtol=1e-13, atol=1e-15)


def test_clipping_shortens_to_a_multiple_of_the_usual_length_and_keeps_the_direction() -> None:
    usual = torch.tensor([[3.0, 4.0]])
    plain, clipped = Adam(0.1), Adam(0.1, clip=2.0)
    given = torch.stack([usual, usual, 100 * usual])
    length = 2 * ((1 - 0.999**2) / (1 - 0.999**3)) ** 0.5  # the moments before a step, corrected as after it
    shortened = torch.stack([usual, usual, length * usual])
    torch.testing.assert_close(moved(clipped, given), moved(plain, shortened))
    assert torch.equal(moved(clipped, shortened[:2]), moved(plain, shortened[:2]))
    assert torch.equal(moved(clipped, 1e9 * usual[None]), moved(plain, 1e9 * usual[None]))  # the first is not clipped


@pytest.mark.parametrize(
    ("optimiser", "sentence"),
    [
        (Adam(0.0), r"Adam\(learning_rate=0.0\): write a positive number"),
        (Adam(momentum=1.0), r"Adam\(momentum=1.0\): write a number from 0 to 1, not 1 itself"),
        (Adam(clip=-1.0), r"Adam\(clip=-1.0\): write a positive number or None"),
        (SGD(-0.1), r"SGD\(learning_rate=-0.1\): write a positive number"),
        (SGD(momentum=1.5), r"SGD\(momentum=1.5\): write a number from 0 to 1"),
    ],
)
def test_refusals(optimiser: Optimiser, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        check_settings(optimiser)
