"""Sums of products of log factors over discrete variables in plates, by variable elimination."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from bnnzoo.core.log_sums import chain_product, log_sum_exp
from bnnzoo.core.program.sites import ModelError

__all__ = ["Eliminated", "Factor", "Variable", "aligned", "at_values", "draw_back", "eliminate"]

type Name = str | int
"""Of a dimension: a plate's name, or the number of a variable."""

MIN_CHAIN = 8
"""Variables of a chain from which on it is summed by a parallel scan."""

MAX_STATES = 2**24
"""Joint states, plates included, that a single factor may have."""


@dataclass(frozen=True)
class Variable:
    """A discrete variable: the site it belongs to, its number of values, and the plates it is in."""

    site: str
    size: int
    plates: frozenset[str]


@dataclass(frozen=True)
class Factor:
    """A log factor whose dimensions have names.

    Attributes
    ----------
    whole : Tensor
        The factor, or several like it one behind the other.
    names : tuple
        Of each dimension.
    plates : frozenset of str
        Plates it is in, also those along which it does not vary.
    sites : frozenset of str
        Sites whose densities it holds.
    place : int, optional
        Of the factor among several.
    """

    whole: Tensor
    names: tuple[Name, ...]
    plates: frozenset[str]
    sites: frozenset[str]
    place: int | None = None

    @property
    def value(self) -> Tensor:
        """The factor itself."""
        return self.whole if self.place is None else self.whole.select(0, self.place)

    @property
    def variables(self) -> frozenset[int]:
        """Numbers of the variables on which it depends."""
        return frozenset(name for name in self.names if isinstance(name, int))


@dataclass
class Eliminated:
    """What remains once variables are summed out.

    Attributes
    ----------
    factors : list of Factor
        One for each group of sites that share variables; it depends on the kept variables alone.
    steps : list
        Each variable with the factor from which it was summed out, in that order.
    """

    factors: list[Factor] = field(default_factory=list)
    steps: list[tuple[int, Factor]] = field(default_factory=list)


def aligned(factor: Factor, names: Sequence[Name]) -> Tensor:
    """Return a factor's value with dimensions in the order of ``names``, of size one where it does not vary."""
    order = [factor.names.index(name) for name in names if name in factor.names]
    value = factor.value.permute(order)
    for place, name in enumerate(names):
        if name not in factor.names:
            value = value.unsqueeze(place)
    return value


def eliminate(
    factors: Iterable[Factor],
    variables: Mapping[int, Variable],
    sizes: Mapping[str, int],
    keep: frozenset[int] = frozenset(),
    *,
    chains: bool = False,
) -> Eliminated:
    """Sum a product of factors over their variables.

    Variables are summed out from the innermost plates outwards; what depends on outer variables is then multiplied over the
    plate.

    Parameters
    ----------
    factors : iterable of Factor
    variables : mapping of int to Variable
    sizes : mapping of str to int
        Of the plates.
    keep : frozenset of int
        Variables that stay, where all factors and variables are in one set of plates.
    chains : bool
        Sum variables of which each depends on the one before by a parallel scan, which leaves no steps behind.

    Raises
    ------
    ModelError
        If there are too many joint states, or plates cross each other.

    References
    ----------
    Obermeyer et al. (2019), Tensor variable elimination for plated factor graphs, ICML.
    """
    pending, out = list(factors), Eliminated()
    while pending:
        deepest = max(pending, key=lambda factor: len(factor.plates)).plates
        group = [factor for factor in pending if factor.plates == deepest]
        pending = [factor for factor in pending if factor.plates != deepest]
        local = {v for factor in group for v in factor.variables if variables[v].plates == deepest} - keep
        left = [*_scanned(group, local, variables, sizes)] if chains and not keep else group
        left = _without(
            left, local.intersection(*[frozenset().union(*(f.variables for f in left))]), variables, sizes, out
        )
        for remaining in _joined(left) if keep else left:
            outer = remaining.variables - keep
            if not outer:
                out.factors.append(remaining)
                continue
            around = frozenset().union(*(variables[v].plates for v in outer))
            if around == deepest:
                sites = sorted({variables[v].site for v in outer})
                each = [
                    f"{variables[v].size}**{math.prod(sizes.get(p, 1) for p in variables[v].plates)}" for v in outer
                ]
                raise ModelError(
                    f"The discrete sites {', '.join(sites)} lie in plates that cross each other ({', '.join(sorted(deepest))}), "
                    f"so that all their entries depend on one another: {' x '.join(each)} joint states. Make one of the sites "
                    f"continuous, or pass it as data."
                )
            # the product of a factor over the plates that are not around it
            inner = remaining.plates - around
            dims = [place for place, name in enumerate(remaining.names) if name in inner]
            repeats = math.prod(sizes.get(plate, 1) for plate in inner if plate not in remaining.names)
            value = remaining.value.sum(dims) if dims else remaining.value
            names = tuple(name for name in remaining.names if name not in inner)
            pending.append(Factor(value * repeats if repeats != 1 else value, names, around, remaining.sites))
    return out


def _without(
    group: Iterable[Factor],
    local: set[int],
    variables: Mapping[int, Variable],
    sizes: Mapping[str, int],
    out: Eliminated,
) -> list[Factor]:
    """Sum variables out of the factors of one set of plates, each time the one that makes the smallest factor."""
    factors, about = dict(enumerate(group)), {v: set[int]() for v in local}

    def cost(variable: int) -> int:
        return _num_states({n for place in about[variable] for n in factors[place].names}, variables, sizes)

    for place, factor in factors.items():
        for variable in factor.variables & local:
            about[variable].add(place)
    costs = {variable: cost(variable) for variable in local}
    for place in range(len(factors), len(factors) + len(local)):
        chosen = min(costs, key=lambda v: (costs[v], v))
        if costs.pop(chosen) > MAX_STATES:
            involved = {name for each in about[chosen] for name in factors[each].names}
            count = cost(chosen)
            sites = [variables[name].site for name in involved if isinstance(name, int)]
            raise ModelError(
                f"The discrete sites {', '.join(sorted(sites)[:4])} depend on one another, and summing them out takes "
                f"{count:.3g} joint states at a time; {MAX_STATES:.3g} can be held. Put independent rows into pyro.plate, steps "
                f"of time into pyro.markov, or give the sites fewer values."
            )
        used = sorted(about.pop(chosen))
        product = _product([factors.pop(each) for each in used])
        out.steps.append((chosen, product))
        dim = product.names.index(chosen)
        names = (*product.names[:dim], *product.names[dim + 1 :])
        factors[place] = replace(product, whole=log_sum_exp(product.value, dim), names=names)
        for variable in product.variables & costs.keys():
            about[variable] = about[variable].difference(used) | {place}
            costs[variable] = cost(variable)
    return list(factors.values())


def _scanned(
    group: list[Factor], local: set[int], variables: Mapping[int, Variable], sizes: Mapping[str, int]
) -> Iterator[Factor]:
    """Yield the factors of one set of plates, each long chain of variables as the factor that its sum is."""
    # factors in groups that share local variables, directly or by others
    found: list[tuple[list[Factor], frozenset[int]]] = []
    for factor in group:
        own = factor.variables & local
        same = [each for each in found if each[1] & own]
        found = [each for each in found if not each[1] & own]
        joined = [f for each in same for f in each[0]]
        found.append(([*joined, factor], own.union(*(each[1] for each in same))))
    for factors, _ in found:
        order = sorted(local.intersection(*[frozenset().union(*(factor.variables for factor in factors))]))
        scanned = _chain_sum(factors, order, variables, sizes) if len(order) >= MIN_CHAIN else None
        yield from factors if scanned is None else [scanned]


def _chain_sum(
    factors: list[Factor], order: list[int], variables: Mapping[int, Variable], sizes: Mapping[str, int]
) -> Factor | None:
    """Sum out variables of which each depends on the one before; None where some do not."""
    place = {variable: t for t, variable in enumerate(order)}
    at: list[list[Factor]] = [[] for _ in order]
    for factor in factors:
        places = sorted(place.get(v, -2) for v in factor.variables)
        if not places or places[0] < 0 or places[-1] - places[0] > 1:
            return None
        at[places[-1]].append(factor)
    size = variables[order[0]].size
    plates = tuple(sorted({name for factor in factors for name in factor.names if isinstance(name, str)}))
    if any(variables[v].size != size for v in order) or not all(at):
        return None
    if _num_states(plates, variables, sizes) * size**3 * len(order) > MAX_STATES:
        return None
    if len({len(each) for each in at[1:]}) > 1:
        at = [[_product(each)] for each in at]
    steps = [_in_time(list(role), order[1:], order, plates) for role in zip(*at[1:], strict=True)]
    shape = torch.broadcast_shapes(*(step.shape for step in steps))
    matrices = sum(steps[1:], steps[0]).expand(len(order) - 1, *shape[1:-2], size, size).movedim(0, -3)
    first = aligned(_product(at[0]), (*plates, order[0]))
    start = first.expand(*first.shape[:-1], size).unsqueeze(-1)
    total = log_sum_exp(log_sum_exp(start + chain_product(matrices), -2), -1)
    sites = frozenset().union(*(factor.sites for factor in factors))
    return Factor(total, plates, factors[0].plates, sites)


def _in_time(role: list[Factor], order: list[int], every: list[int], plates: tuple[str, ...]) -> Tensor:
    """Return factors of successive steps as ``[T, *plates, K, K]``, from the variable before into the step's own."""
    starts: dict[tuple[int, bool, tuple[Name, ...]], int] = {}
    parts, places, length = [], [], 0
    for factor, (before, own) in zip(role, zip(every, order, strict=False), strict=True):
        names = tuple({before: -2, own: -1}.get(n, n) if isinstance(n, int) else n for n in factor.names)
        key = (id(factor.whole), factor.place is None, names)
        if key not in starts:
            whole = factor.whole if factor.place is not None else factor.whole[None]
            part = aligned(Factor(whole, (0, *names), factor.plates, factor.sites), (0, *plates, -2, -1))
            starts[key] = length
            parts.append(part)
            length += len(part)
        places.append(starts[key] + (factor.place or 0))
    shape = torch.broadcast_shapes(*(part.shape[1:] for part in parts))
    joined = torch.cat([part.expand(len(part), *shape) for part in parts]) if len(parts) > 1 else parts[0]
    if length == 1:
        return joined
    return joined if places == [*range(length)] else joined[torch.tensor(places, device=joined.device)]


def _joined(group: list[Factor]) -> list[Factor]:
    """Return the product of the factors that depend on variables, and the others."""
    dependent = [factor for factor in group if factor.variables]
    return [*([_product(dependent)] if dependent else []), *(factor for factor in group if not factor.variables)]


def _product(factors: Sequence[Factor]) -> Factor:
    names = tuple(dict.fromkeys(name for factor in factors for name in factor.names))
    value = aligned(factors[0], names)
    for factor in factors[1:]:
        value = value + aligned(factor, names)
    plates = frozenset().union(*(factor.plates for factor in factors))
    return Factor(value, names, plates, frozenset().union(*(factor.sites for factor in factors)))


type StatePlaces = Mapping[int, tuple[Tensor, tuple[str, ...]]]
"""Places among the values of each variable, and the plates of the dimensions."""


def draw_back(
    found: Eliminated, variables: Mapping[int, Variable], sizes: Mapping[str, int]
) -> dict[int, tuple[Tensor, tuple[str, ...]]]:
    """Draw every variable that was summed out from its distribution given all factors, by torch's global random stream.

    The last variable to be summed out is drawn first; each other one given those on which its factor depends.
    """
    drawn: dict[int, tuple[Tensor, tuple[str, ...]]] = {}
    for variable, factor in reversed(found.steps):
        value, plates = at_values(factor, drawn, sizes, but=variable)
        uniform = torch.rand(value.shape, dtype=value.dtype, device=value.device)
        tiny = torch.finfo(value.dtype).tiny
        gumbel = -(-uniform.clamp_min(tiny).log()).clamp_min(tiny).log()
        drawn[variable] = ((value + gumbel).argmax(-1), plates)
    return drawn


def at_values(
    factor: Factor, drawn: StatePlaces, sizes: Mapping[str, int], but: int | None = None
) -> tuple[Tensor, tuple[str, ...]]:
    """Return a factor at the values of its variables, and the plates of the dimensions; one variable may stay, as the last."""
    plates = tuple(sorted(p for p in factor.plates if sizes.get(p, 1) > 1))
    others = tuple(name for name in factor.names if isinstance(name, int) and name != but)
    value = aligned(factor, (*plates, *(() if but is None else (but,)), *others))
    value = value.expand(*(sizes[plate] for plate in plates), *value.shape[len(plates) :])
    for other in reversed(others):  # the last dimension is that of the last one
        index, own = drawn[other]
        index = aligned(Factor(index, own, frozenset(own), frozenset()), plates)
        index = index.reshape(*index.shape, *(1 for _ in range(value.ndim - len(plates))))
        value = value.gather(-1, index.expand(*value.shape[:-1], 1)).squeeze(-1)
    return value, plates


def _num_states(names: Iterable[Name], variables: Mapping[int, Variable], sizes: Mapping[str, int]) -> int:
    return math.prod(variables[n].size if isinstance(n, int) else max(1, sizes.get(n, 1)) for n in names)
