"""Members that train independently of each other: in one batch in this process, or one by one on an executor."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from bnnzoo.core.executors import run_on
from bnnzoo.core.method import FitContext
from bnnzoo.core.model.density import LogDensity
from bnnzoo.engine.choose import Engine
from bnnzoo.engine.lowered import untraced

__all__ = ["Members", "joined", "trained_in_parts"]


@dataclass(frozen=True)
class Members[Method]:
    """Some of the members of a fit: everything their training needs besides the density, so that it can be sent to a worker.

    Attributes
    ----------
    method : Method
        Without ``init``: the starts are found.
    start : Tensor [C, Q]
        Or anything else that can be cut into members.
    members : range
        Their numbers among all members of the fit, on which their random streams depend.
    seed : int
    """

    method: Method
    start: Any
    members: range
    seed: int

    def split(self) -> Sequence["Members[Method]"]:
        """Return the members one by one."""
        return [replace(self, start=self.start[m : m + 1], members=range(m, m + 1)) for m in self.members]


def trained_in_parts[Part: Members[Any], Found](
    whole: Part,
    train: Callable[[Part, LogDensity, FitContext], Found],
    density: LogDensity,
    context: FitContext,
    what: str = "members",
) -> list[Found]:
    """Return what ``train`` finds for all members together, or for each part of them on the context's executor.

    Parameters
    ----------
    whole : Members
        All members of the fit.
    train : callable
    density, context
        As in ``Method.run``.
    what : str
        What the members are, for error messages.
    """
    if context.executor is None:
        return [train(whole, density, context)]
    run = partial(_in_worker, train, context.engine)
    parts = cast(Sequence[Part], whole.split())
    return run_on(context.executor, run, parts, density, f"{len(whole.members)} {what}")


def _in_worker[Part: Members[Any], Found](
    train: Callable[[Part, LogDensity, FitContext], Found], engine: Engine, part: Part, density: LogDensity
) -> Found:
    with untraced(engine == "python"):
        return train(part, density, FitContext(part.seed, engine=engine))


def joined[Found](parts: Sequence[Found]) -> Found:
    """Return the results of several parts, dataclasses of tensors ``[C, ...]``, counts and flags, as one.

    Members follow each other, counts are added, and a flag holds if it holds of all.

    Examples
    --------
    >>> from bnnzoo.engine.value_and_grad import Evaluated
    >>> halves = [Evaluated(torch.ones(1, 2), torch.ones(1), torch.ones(1, 2)) for _ in range(2)]
    >>> joined(halves).theta.shape
    torch.Size([2, 2])
    """
    values = {each.name: [getattr(part, each.name) for part in parts] for each in fields(parts[0])}  # type: ignore[arg-type]
    return replace(parts[0], **{name: _joined(several) for name, several in values.items()})  # type: ignore[type-var]


def _joined(values: list[Any]) -> Any:
    if isinstance(values[0], Tensor):
        return torch.cat(values)
    return all(values) if isinstance(values[0], bool) else sum(values)
