"""Observers of a training run: they see every iterate, keep what they are there for, and may end the run."""

from collections import deque
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from bnnzoo.core.method import Progress, Silent

__all__ = [
    "HeldOutStopping",
    "IterateAverage",
    "KeptIterates",
    "Observer",
    "PlateauStopping",
    "SeesChunks",
    "StepProgress",
    "all_of",
]

MAX_KEPT = 2000  # numbers of an iterate up to which a whole window of them is kept
REPORTS = 200  # how often a run updates its progress bar


@runtime_checkable
class Observer(Protocol):
    """Called after every step; returns True to end training."""

    def __call__(self, step: int, params: Tensor, value: Tensor) -> bool | None:
        """See the number of steps taken, ``params[C, Q]`` after the last and the objective ``value[C]`` before it."""
        ...


@runtime_checkable
class SeesChunks(Observer, Protocol):
    """An observer that ends no run, and sees the iterates of many steps at once where they are there."""

    def see(self, step: int, iterates: Tensor) -> None:
        """See the number of the first of n steps, and ``iterates[C, n, Q]`` after each of them."""
        ...


def all_of(*observers: Observer | None) -> Observer:
    """Return an observer that calls all of these, and ends training as soon as one of them does; a single one as it is.

    Examples
    --------
    >>> kept = KeptIterates(every=2)
    >>> both = all_of(kept, lambda step, params, value: step == 4)
    >>> [both(step, torch.zeros(1, 1), torch.zeros(1)) for step in (1, 2, 3, 4)], len(kept.iterates)
    ([False, False, False, True], 2)
    """
    present = [each for each in observers if each is not None]
    if len(present) == 1:
        return present[0]

    def observe(step: int, params: Tensor, value: Tensor) -> bool:
        verdicts = [each(step, params, value) for each in present]  # every one of them sees the iterate
        return any(verdicts)

    return observe


class IterateAverage:
    """The mean of the last ``window`` iterates.

    Windows follow each other without a gap and the last one ends with the last step, so that a run that ends early
    at the end of a window has a whole one.

    Parameters
    ----------
    window, num_steps : int

    References
    ----------
    Polyak and Juditsky (1992), Acceleration of stochastic approximation by averaging, SIAM Journal on Control and
    Optimization 30.

    Examples
    --------
    >>> average = IterateAverage(window=2, num_steps=4)
    >>> for step in (1, 2, 3, 4):
    ...     average(step, torch.tensor([[float(step)]]), torch.zeros(1))
    >>> average.mean.item()
    3.5
    """

    def __init__(self, window: int, num_steps: int) -> None:
        self._window, self._num_steps = window, num_steps
        self._total, self._count = torch.zeros(()), 0
        self._chunks: list[Tensor] = []

    def __call__(self, step: int, params: Tensor, value: Tensor) -> None:
        """Add an iterate to the mean; the first of a window begins it anew."""
        if self._count == 0 or self._begins(step):
            self._total, self._count = torch.zeros_like(params), 0
        self._total, self._count = self._total + params, self._count + 1

    def see(self, step: int, iterates: Tensor) -> None:
        """Add the iterates of several steps; however many come at a time, the sum is the same to the last bit."""
        if iterates[:, 0].numel() > MAX_KEPT:
            for place, params in enumerate(iterates.unbind(1)):
                self(step + place, params, params)
            return
        begins = [place for place in range(iterates.shape[1]) if self._begins(step + place)]
        if begins:
            self._chunks, iterates = [], iterates[:, begins[-1] :]
        self._chunks.append(iterates.clone())

    @property
    def mean(self) -> Tensor:
        """The mean ``[C, Q]`` of the iterates of the last window, as far as it has come."""
        if self._chunks:
            return torch.cat(self._chunks, 1).mean(1)
        return self._total / self._count

    def _begins(self, step: int) -> bool:
        return (self._num_steps - step + 1) % self._window == 0


class PlateauStopping:
    """End training where the mean value over a window barely differs from that over the window before.

    Parameters
    ----------
    tolerance : float
        Largest difference, relative to ``max(1, |value|)``, at which every member counts as settled.
    window, num_steps : int
        As for :class:`IterateAverage`; only the ends of windows are looked at.

    Examples
    --------
    >>> stop = PlateauStopping(1e-3, window=2, num_steps=6)
    >>> [stop(step, torch.zeros(1, 1), torch.ones(1)) for step in range(1, 5)]
    [False, False, False, True]
    """

    def __init__(self, tolerance: float, window: int, num_steps: int) -> None:
        self._tolerance, self._window, self._num_steps = tolerance, window, num_steps
        self._values: deque[Tensor] = deque(maxlen=2 * window)

    def __call__(self, step: int, params: Tensor, value: Tensor) -> bool:
        """Tell whether every member's mean value has settled."""
        size = self._window
        self._values.append(value)
        if len(self._values) < 2 * size or (self._num_steps - step) % size:
            return False
        values = list(self._values)
        before, now = (torch.stack(window).nanmean(0) for window in (values[:size], values[size:]))
        return bool(((now - before).abs() <= self._tolerance * now.abs().clamp(min=1.0)).all())


class HeldOutStopping:
    """Keep each member's best iterate by a held-out score, and end training when no member has improved for a while.

    Parameters
    ----------
    score : callable
        ``params[C, Q] -> [C]``, higher is better, such as the log density of held-out rows.
    every : int
        Steps between two evaluations.
    patience : int
        Number of evaluations without improvement after which a member is finished.

    References
    ----------
    Prechelt (1998), Early stopping - but when?, Neural networks: tricks of the trade.

    Examples
    --------
    >>> stop = HeldOutStopping(lambda params: -params[:, 0].abs(), every=1, patience=2)
    >>> [stop(step, torch.tensor([[x]]), torch.zeros(1)) for step, x in enumerate((3.0, 1.0, 2.0, 4.0), start=1)]
    [False, False, False, True]
    >>> stop.params.item(), stop.scores.item()
    (1.0, -1.0)
    """

    def __init__(self, score: Callable[[Tensor], Tensor], every: int = 10, patience: int = 10) -> None:
        self._score, self._every, self._patience = score, every, patience
        self._idle: Tensor | None = None
        self.params, self.scores = torch.empty(0), torch.empty(0)

    def __call__(self, step: int, params: Tensor, value: Tensor) -> bool:
        """Tell whether no member has improved for ``patience`` evaluations."""
        if step % self._every:
            return False
        scores = self._score(params)
        if self._idle is None:
            self.params, self.scores, self._idle = params, scores, torch.zeros_like(scores)
            return False
        better = (scores > self.scores) | (self.scores.isnan() & ~scores.isnan())
        self.params = torch.where(better[:, None], params, self.params)
        self.scores = torch.where(better, scores, self.scores)
        self._idle = torch.where(better, 0.0, self._idle + 1)
        return bool((self._idle >= self._patience).all())


class KeptIterates:
    """Every so many-th iterate: traces, snapshots at the end of cycles, the draws of a stochastic sampler.

    Parameters
    ----------
    every : int
        Steps between two iterates that are kept.
    after : int
        Steps before the first of them.

    Attributes
    ----------
    iterates : list of Tensor [C, Q]
    """

    def __init__(self, every: int = 1, after: int = 0) -> None:
        self._every, self._after = every, after
        self.iterates: list[Tensor] = []

    def __call__(self, step: int, params: Tensor, value: Tensor) -> None:
        """Keep the iterate if it is due."""
        if step > self._after and (step - self._after) % self._every == 0:
            self.iterates.append(params)


class StepProgress:
    """Shows on a progress bar, now and then, how many steps are done and the mean value of the members.

    Parameters
    ----------
    progress : Progress
    description : str
        What is under way.
    num_steps : int
    name : str
        What the bar calls the value.

    Attributes
    ----------
    due : int
        The next step that is shown; after the last where nobody is shown any.
    """

    def __init__(self, progress: Progress, description: str, num_steps: int, name: str) -> None:
        self._progress, self._name = progress, name
        silent = type(progress) is Silent  # a bar made of it may show something
        self._every, self.due = max(1, num_steps // REPORTS), num_steps + 1 if silent else 1
        progress.start(description, num_steps)

    def __call__(self, step: int, value: Tensor | float) -> None:
        """Show the value after ``step`` steps if it is due."""
        if step >= self.due:
            self.due = step + self._every
            shown = float(value.nanmean()) if isinstance(value, Tensor) else value
            self._progress.update(step, **{self._name: shown})
