"""Observers: averages and stopping on sequences whose answers are known."""

import torch
from torch import Tensor

from bnnzoo.inference.optimise.observers import (
    HeldOutStopping,
    IterateAverage,
    KeptIterates,
    PlateauStopping,
    StepProgress,
    all_of,
)


def run(observer, iterates: Tensor, values: Tensor | None = None) -> int:
    """Show all iterates ``[T, C, Q]`` and return the step at which the observer ends the run, or their number."""
    values = torch.zeros(len(iterates), iterates.shape[1]) if values is None else values
    for step, (params, value) in enumerate(zip(iterates, values, strict=True), start=1):
        if observer(step, params, value):
            return step
    return len(iterates)


def test_average_is_that_of_the_last_window_wherever_the_run_ends() -> None:
    iterates = torch.randn(10, 2, 3)
    for window in (1, 3, 5, 10):
        for end in range(1, 11):
            average = IterateAverage(window, num_steps=10)
            run(average, iterates[:end])
            begin = max(0, end - 1 - (end - 1 - 10) % window)  # windows end with the tenth step
            torch.testing.assert_close(average.mean, iterates[begin:end].mean(0))


def test_plateau_needs_every_member_and_whole_windows() -> None:
    falling = torch.linspace(-100.0, 0.0, 20)
    flat = torch.full((20,), 7.0)
    both = torch.stack([torch.cat([falling, flat]), torch.cat([flat, flat])], 1)
    iterates = torch.zeros(40, 2, 1)
    assert run(PlateauStopping(1e-6, window=5, num_steps=40), iterates, both) == 30  # two whole windows are flat
    assert run(PlateauStopping(1e-6, window=5, num_steps=40), iterates[:, 1:], both[:, 1:]) == 10
    assert run(PlateauStopping(1e-6, window=5, num_steps=42), iterates[:, 1:], both[:, 1:]) == 12  # windows end with 42


def test_tolerance_is_relative_above_one_and_absolute_below() -> None:
    iterates = torch.zeros(4, 1, 1)
    for level, expected in ((1000.0, 4), (0.001, 4)):
        values = torch.tensor([[level], [level], [level * 1.0009], [level * 1.0009]])
        assert run(PlateauStopping(1e-3, window=2, num_steps=4), iterates, values) == expected
    values = torch.tensor([[1000.0], [1000.0], [1002.0], [1002.0]])
    stop = PlateauStopping(1e-3, window=2, num_steps=4)
    assert [stop(step, iterates[0], value) for step, value in enumerate(values, start=1)] == [False] * 4


def test_held_out_stopping_keeps_each_members_best_and_waits_for_the_last() -> None:
    scores = torch.tensor([[0.0, 5.0], [2.0, 4.0], [1.0, 3.0], [3.0, 2.0], [0.0, 1.0], [0.0, 0.0], [9.0, 9.0]])
    iterates = scores[..., None]
    stop = HeldOutStopping(lambda params: params[:, 0], every=1, patience=2)
    assert run(stop, iterates) == 6  # the first member improved last at step 4
    assert stop.scores.tolist() == [3.0, 5.0]
    assert stop.params.flatten().tolist() == [3.0, 5.0]
    every_second = HeldOutStopping(lambda params: params[:, 0], every=2, patience=1)
    assert run(every_second, iterates) == 6
    assert every_second.scores.tolist() == [3.0, 4.0]


def test_a_score_that_is_not_finite_is_no_improvement() -> None:
    iterates = torch.tensor([1.0, float("nan"), float("nan")])[:, None, None]
    stop = HeldOutStopping(lambda params: params[:, 0], every=1, patience=2)
    assert run(stop, iterates) == 3
    assert stop.scores.tolist() == [1.0]


def test_a_first_score_that_is_not_finite_is_replaced() -> None:
    iterates = torch.tensor([float("nan"), 2.0])[:, None, None]
    stop = HeldOutStopping(lambda params: params[:, 0], every=1, patience=2)
    run(stop, iterates)
    assert stop.scores.tolist() == [2.0]


def test_kept_iterates() -> None:
    kept = KeptIterates(every=3, after=2)
    run(kept, torch.arange(1.0, 13.0)[:, None, None])
    assert [float(each) for each in kept.iterates] == [5.0, 8.0, 11.0]


def test_all_of_shows_every_observer_every_iterate() -> None:
    kept = KeptIterates()
    end = run(all_of(lambda step, *_: step == 3, None, kept), torch.zeros(9, 1, 1))
    assert end == 3
    assert len(kept.iterates) == 3


class Recorder:
    """A progress bar that writes down what it is told."""

    def __init__(self) -> None:
        self.started: list[tuple[str, int]] = []
        self.shown: list[tuple[int, dict[str, float]]] = []

    def start(self, description: str, total: int) -> None:
        self.started.append((description, total))

    def update(self, step: int, **fields: float) -> None:
        self.shown.append((step, fields))

    def stop(self) -> None:
        pass


def test_progress_is_shown_some_two_hundred_times() -> None:
    bar = Recorder()
    show = StepProgress(bar, "Optimising", 1000, "elbo")
    for step in range(1, 1001):
        show(step, torch.tensor([1.0, 3.0]))
    assert bar.started == [("Optimising", 1000)]
    assert len(bar.shown) == 200
    assert bar.shown[0] == (1, {"elbo": 2.0})
