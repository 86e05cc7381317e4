"""Recording what a function does on a GPU as a CUDA graph: a call then launches one graph, not a kernel after the other."""

import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.autograd.graph import increment_version
from torch.fx import GraphModule

from bnnzoo.engine.reports import EngineLog, first_line
from bnnzoo.engine.simplify import is_random
from bnnzoo.engine.torch_private import LoweringWarning, version_of

__all__ = ["Recording", "are_on_gpu", "carried_on", "record"]

Function = Callable[..., Sequence[Tensor]]

WARM_UP = 3
"""Calls before recording: libraries choose their kernels and set up their workspaces in the first ones."""

ROUNDING = 1e-3
"""Relative difference between two runs of the same kernels, some of which add up in any order."""


class Recording:
    """A function of flat tensors whose kernels were recorded once, and are replayed on the memory of that call.

    Parameters
    ----------
    replay : callable
        Runs the kernels again.
    inputs, outputs : sequence of Tensor
        The memory that they read and write.
    num_carried : int
        How many of the first results are written over the first arguments, whose memory is returned: a loop that passes them
        on has nothing to copy.
    function : callable, optional
        What was recorded, whose constants the kernels read: it lives as long as the recording.
    """

    def __init__(
        self,
        replay: Callable[[], None],
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        num_carried: int = 0,
        function: Function | None = None,
    ) -> None:
        self.function = function
        self._replay, self._inputs, self._num_carried = replay, inputs, num_carried
        self._outputs = outputs[num_carried:]
        self._last: list[tuple[Tensor, object] | None] = [None] * len(inputs)

    def __call__(self, *tensors: Tensor) -> list[Tensor]:
        """Evaluate at other values, and return tensors that the next call leaves alone, but for those that are carried."""
        for place, tensor in enumerate(tensors):
            self._take(place, tensor)
        self._replay()
        carried = self._inputs[: self._num_carried]
        increment_version(carried)  # a replay writes unseen by torch, and others may have read them
        return [*carried, *(output.clone() for output in self._outputs)]

    def _take(self, place: int, tensor: Tensor) -> None:
        """Copy an argument, unless it is the one of the last call and nothing was written into it since: data stay."""
        if tensor is self._inputs[place]:
            return
        last = self._last[place]
        if place < self._num_carried:
            self._inputs[place].copy_(tensor)
        elif last is None or last[0] is not tensor or last[1] != version_of(tensor):
            self._inputs[place].copy_(tensor)
            self._last[place] = (tensor, version_of(tensor))


def record(
    function: Function, graph: GraphModule, inputs: list[Tensor], log: EngineLog | None = None, num_carried: int = 0
) -> Function:
    """Return ``function`` as a recording where that can be done, else as it is.

    Parameters
    ----------
    function : callable
        Pure function of flat tensors of fixed shapes.
    graph : GraphModule
        What it computes.
    inputs : list of Tensor
        Example arguments, whose memory the recording keeps.
    log : EngineLog
    num_carried : int
        As in :class:`Recording`.
    """
    if not are_on_gpu(inputs):
        return function
    if any(is_random(node.target) for node in graph.graph.nodes):  # replayed, noise would not follow later seeds
        return function
    try:
        expected = [output.clone() for output in function(*inputs)]
        before = [each.clone() for each in inputs[:num_carried]]
        recording = Recording(*_captured(function, inputs, num_carried), num_carried, function)
        is_alike = all(map(_alike, recording(*inputs), expected))
    except RuntimeError as error:  # an operation that waits for the GPU, or chooses its work by values
        return _unrecorded(function, first_line(error), log)
    for carried, value in zip(inputs, before, strict=False):
        carried.copy_(value)
    return recording if is_alike else _unrecorded(function, "replayed, it gave other numbers", log)


def _captured(
    function: Function, inputs: list[Tensor], num_carried: int
) -> tuple[Callable[[], None], list[Tensor], Sequence[Tensor]]:
    """Record one call of ``function``; return how to replay it, and the memory that it reads and writes."""
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.device(inputs[0].device):
        aside = torch.cuda.Stream()  # recording is not possible on the stream of everything else
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARM_UP):
                function(*inputs)
        torch.cuda.current_stream().wait_stream(aside)
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # other threads may go on using the GPU
            outputs = carried_on(function(*inputs), inputs[:num_carried])
    return graph.replay, inputs, outputs


def carried_on(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> list[Tensor]:
    """Write the first results over the first arguments, and return all of them as they were before."""
    memory = {each.untyped_storage().data_ptr() for each in inputs}
    outputs = [each.clone() if each.untyped_storage().data_ptr() in memory else each for each in outputs]
    for carried, output in zip(inputs, outputs, strict=False):
        carried.copy_(output)
    return outputs


def are_on_gpu(tensors: list[Tensor]) -> bool:
    """Tell whether a function of these tensors runs on a GPU."""
    return bool(tensors) and all(tensor.is_cuda for tensor in tensors)


def _alike(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=ROUNDING, atol=ROUNDING, equal_nan=True)


def _unrecorded(function: Function, reason: str, log: EngineLog | None) -> Function:
    message = "A step could not be recorded as a CUDA graph, and launches its kernels one by one, which is slower"
    warnings.warn(f"{message} ({reason}).", LoweringWarning, stacklevel=5)
    (log or EngineLog()).refused("CUDA graph", reason)
    return function
