"""Blocks of draws and rows as graphs, in native code where that pays; what they draw does not depend on how they run."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import vmap
from torch.fx import GraphModule

from bnnzoo.core.program.batched_noise import batchable_draws, refuse_unsafe_warnings
from bnnzoo.core.program.numerics import NumericalFailure
from bnnzoo.core.program.surroundings import isolated
from bnnzoo.engine import pytree
from bnnzoo.engine.agreement import alike
from bnnzoo.engine.choose import NATIVE_PAYS_FROM_SECONDS, Engine, estimated_seconds
from bnnzoo.engine.compiling import for_compiling, torchs_random_numbers
from bnnzoo.engine.cpp.translate import for_native
from bnnzoo.engine.failures import rescued
from bnnzoo.engine.graphs import lift_constants, literal, trace
from bnnzoo.engine.lowered import Lowered, clones, flattened, tensors_of
from bnnzoo.engine.random_graphs import draws_from_generator, split_at_random
from bnnzoo.engine.runs import NativeRuns
from bnnzoo.engine.simplify import is_random
from bnnzoo.engine.torch_private import DispatchMode, known_random_operations
from bnnzoo.predictive.blocks import Function, vmapped

__all__ = ["BlockGraph", "block_graph"]


class BlockGraph(NamedTuple):
    """A function of a block.

    Attributes
    ----------
    run : callable
        ``(generator, places, theta[S, P], *data) -> {name: Tensor [S, B, ...]}``, where ``places`` are tensors by name that
        some values may be written to: these are returned then.
    draws_from_generator : bool
        Whether the random numbers come from the generator, so that blocks run side by side; else from torch's global one.
    """

    run: Callable[..., dict[Any, Tensor]]
    draws_from_generator: bool


def block_graph(
    function: Function, args: tuple[Any, ...], num_blocks: int, engine: Engine = "auto"
) -> BlockGraph | None:
    """Return a function that draws random numbers as a graph for blocks.

    None where it cannot be traced, or its numbers might not be independent.

    Parameters
    ----------
    function : callable
        ``(theta[P], *data) -> {name: Tensor [B, ...]}``.
    args : tuple
        Arguments of a block, ``theta[S, P]`` first.
    num_blocks : int
        How often it will run: decides whether compiling pays; 0 where the function's operations are wanted as they are.
    engine : {"auto", "native", "graph"}
        "auto" takes native code where it pays.
    """

    def single(*args: Any) -> dict[Any, Tensor]:
        with batchable_draws():
            return function(*args)

    def batched(*args: Any) -> dict[Any, Tensor]:
        with batchable_draws():
            return vmapped(function, len(args) - 1, "different")(*args)

    device = args[0].device
    try:
        with warnings.catch_warnings(), isolated(0, device), torch.no_grad(), _Operations() as seen:
            refuse_unsafe_warnings()
            expected = batched(*args)
    except (RuntimeError, UserWarning, NumericalFailure):
        return None
    with isolated(0, device), torch.no_grad():
        if not num_blocks:
            # torch's operations, none of them changed
            flat, spec_of = flattened(batched, args)
            try:
                graph = literal(flat, clones(args))
            except (RuntimeError, UserWarning, NumericalFailure):
                return None
            if args[0].device.type != "cpu" or not draws_from_generator(graph):
                return None
            run = rescued(graph, graph)
            return BlockGraph(
                lambda generator, places, *args: pytree.tree_unflatten(
                    list(run(generator, *tensors_of(args))), spec_of[0]
                ),
                True,
            )
        pays = engine == "native" or (engine == "auto" and num_blocks * seen.seconds() > NATIVE_PAYS_FROM_SECONDS)
        if device.type == "cpu" and pays:
            native = _native(single, args)
            if native is not None and _agrees(native, args, expected):
                return native
        return _traced(batched, args, num_blocks, seen.random)


class _Operations(DispatchMode):
    """Record how many operations there are, the elements of their results, and which of them draw random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.random: set[Any] = set()
        self._number, self._elements = 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_random(func):
            self.random.add(func.overloadpacket)
        result = func(*args, **(kwargs or {}))
        self._number += 1
        self._elements += sum(leaf.numel() for leaf in tensors_of(result))
        return result

    def seconds(self) -> float:
        """Return roughly how long they take."""
        return estimated_seconds(self._number, self._elements)


def _traced(
    batched: Callable[..., dict[Any, Tensor]], args: tuple[Any, ...], num_blocks: int, random: set[Any]
) -> BlockGraph | None:
    """Return the function of a block as torch's operations, compiled by torch where that pays."""
    try:
        with warnings.catch_warnings():
            refuse_unsafe_warnings()
            step = Lowered(batched).specialize(*args)
    except (RuntimeError, UserWarning, NumericalFailure):
        return None
    if num_blocks > step.worth_compiling_after and random <= known_random_operations():
        with torchs_random_numbers():
            compiled = step.compiled(clones(args))
        return BlockGraph(lambda generator, places, *args: compiled(*args), False)
    if args[0].device.type != "cpu" or step.graph is None or not draws_from_generator(step.graph):
        return BlockGraph(lambda generator, places, *args: step(*args), False)
    flat = rescued(step.graph, step.graph)
    return BlockGraph(lambda generator, places, *args: step.tree(flat(generator, *tensors_of(args))), True)


def _agrees(found: BlockGraph, args: tuple[Any, ...], expected: dict[Any, Tensor]) -> bool:
    """Tell whether a graph gives what was expected from the stream that begins at 0, but for rounding."""
    try:
        values = found.run(torch.Generator().manual_seed(0), {}, *args)
    except Exception:  # whatever fails here would fail in every block
        return False
    same_kinds = all(values[name].dtype == expected[name].dtype for name in expected)
    return same_kinds and all(
        values[name].shape == expected[name].shape and alike(values[name], expected[name]) for name in expected
    )


def _native(single: Function, args: tuple[Any, ...]) -> BlockGraph | None:
    """Return the function of a block with native code for all that comes before its random numbers, None if that cannot be."""
    at_first = (args[0][0], *args[1:])
    try:
        flat, spec_of = flattened(single, at_first)
        graph, _ = trace(flat, clones(at_first), for_native())
        for_compiling(graph)
        constants = lift_constants(graph)
        split = split_at_random(graph)
        runs = NativeRuns(split.before, [*constants, *tensors_of(at_first)], {len(constants)})
        border = runs(*constants, *tensors_of(args))[sum(split.is_known) :]
        after = _drawing(split.after, constants, tensors_of(args), border)
    except Exception:  # models and compilers fail in many ways, and torch's operations do the same work
        return None
    names = list(pytree.tree_unflatten(list(split.is_known), spec_of[0]))
    return BlockGraph(_NativeBlock(runs, after, constants, names, split.is_known), True)


@dataclass(frozen=True)
class _NativeBlock:
    """Native code, and torch's operations from the random numbers on."""

    runs: NativeRuns
    after: Callable[..., Sequence[Tensor]] | None
    constants: Sequence[Tensor]
    names: Sequence[Any]
    is_known: Sequence[bool]

    def __call__(self, generator: torch.Generator, places: Mapping[Any, Tensor], *args: Any) -> dict[Any, Tensor]:
        """Return the values of a block by name."""
        inputs = [*self.constants, *tensors_of(args)]
        known = [name for name, is_known in zip(self.names, self.is_known, strict=True) if is_known]
        wanted = [places.get(name) for name in known]
        into = [each if each is not None and self.runs.fits(i, each) else None for i, each in enumerate(wanted)]
        values = self.runs(*inputs, into=into)
        found = dict(zip(known, values, strict=False))
        if self.after is not None:
            drawn = self.after(generator, *inputs, *values[len(known) :])
            found |= zip((name for name in self.names if name not in found), drawn, strict=True)
        return {name: found[name] for name in self.names}


def _drawing(
    after: GraphModule | None, constants: Sequence[Tensor], inputs: Sequence[Tensor], border: Sequence[Tensor]
) -> Callable[..., Sequence[Tensor]] | None:
    """Return what comes after the random numbers, them included, for a block: a graph whose first argument is a generator."""
    if after is None:
        return None
    theta, *data = inputs
    in_dims = (*(None for _ in constants), 0, *(None for _ in data), *(0 for _ in border))
    batched = vmap(after, in_dims=in_dims, randomness="different")
    graph, _ = trace(batched, clones([*constants, theta, *data, *border]))
    if not draws_from_generator(graph):
        raise NotImplementedError("random numbers that a generator cannot draw")
    return rescued(graph, graph)
