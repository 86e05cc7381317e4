"""The units of a model's networks that can be dropped, and the entries of ``theta`` that are zero when one is."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count as counting
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.program.network import Network
from bnnzoo.core.program.sites import ModelError, Site
from bnnzoo.inference.variational.layer_calls import LayerCall, calls_of, is_weighted, rate_of, source_of, targets_of
from bnnzoo.inference.variational.noisy_layers import is_unconstrained

__all__ = ["HiddenUnits", "dropped", "hidden_units"]


@dataclass(frozen=True)
class DroppedUnits:
    """Hidden units that are dropped at one rate: where they are, and which entries of theta they multiply.

    Attributes
    ----------
    name : str
        Of the dropout layer, or of the layer whose inputs they are, with the network's name.
    rate : float or None
        That of the dropout layer; None if there is none.
    count : int
        Number of units.
    entries : tuple of (slice, Tensor)
        Spans of theta, and the unit of each of their entries.
    call : LayerCall
        Of the layer whose output (a dropout layer) or input is multiplied.
    axis : int
        Of the units in that output.
    """

    name: str
    rate: float | None
    count: int
    entries: tuple[tuple[slice, Tensor], ...]
    call: LayerCall
    axis: int


@dataclass(frozen=True)
class HiddenUnits:
    """All hidden units U of a model that can be dropped, in the order of their places L.

    Attributes
    ----------
    places : tuple of DroppedUnits
    units : Tensor [2, P]
        Units that multiply each entry of theta; U for none. A weight may have one at its input and one at its output.
    """

    places: tuple[DroppedUnits, ...]
    units: Tensor

    @property
    def counts(self) -> list[int]:
        """Number of units at each place."""
        return [place.count for place in self.places]

    def per_unit(self, values: Tensor) -> Tensor:
        """Return the value ``[U]`` of every unit, given those ``[L]`` of the places."""
        return values.repeat_interleave(torch.tensor(self.counts, device=values.device), output_size=sum(self.counts))

    def by_place(self, rates: Tensor) -> dict[str, float]:
        """Return the rates ``[L]`` by the names of the places."""
        return {place.name: round(float(rate), 6) for place, rate in zip(self.places, rates, strict=True)}


def hidden_units(density: LogDensity, *, given: bool, method: str) -> HiddenUnits:
    """Find the hidden units of a model's networks.

    They are the inputs, or the outputs, of layers with weights at the networks' own dropout layers. Where there are none and
    rates are ``given``, they are the inputs of every layer with weights but the first. In convolutions a unit is a channel.

    Parameters
    ----------
    density : LogDensity
    given : bool
        Whether rates are known without dropout layers.
    method : str
        Name of the method, for messages.

    Raises
    ------
    ModelError
        If there are none, or dropping them is not the same as multiplying weights.
    """
    calls = calls_of(density)
    own = [call for call in calls if rate_of(call.layer) > 0]
    if own:
        places = [_of_dropout(call, calls, density) for call in own]
    elif given:
        places = [place for network in density.networks for place in _before_layers(network, calls, density)]
    else:
        raise ModelError(
            f"{method}() takes its rates from the network's dropout layers, and {_named(density)} has none. Write "
            f"{method}(rate=0.1), or put torch.nn.Dropout layers into the network."
        )
    if not places:
        raise ModelError(
            f"{method} drops hidden units, and {_named(density)} has none: no layer with weights follows another. Add a hidden "
            f"layer, or put torch.nn.Dropout before the layer whose inputs are to be dropped."
        )
    found = HiddenUnits(tuple(places), _units(places, density.num_params, density.device))
    if own:
        _refuse_if_different(found, density)
    return found


def _of_dropout(call: LayerCall, calls: list[LayerCall], density: LogDensity) -> DroppedUnits:
    """Return the units of a dropout layer: inputs of the layer with weights after it, or outputs of that before it."""
    name, rate = call.name, rate_of(call.layer)
    if rate >= 1:
        raise ModelError(
            f"Dropout layer {name!r} has rate {rate:g}, which drops every unit in every draw: write a rate below 1."
        )
    after = targets_of(call, calls)
    sites = [_site(each, "weight", density) for each in after]
    if after and all(sites):
        # features, or channels that a later layer flattens
        is_last = isinstance(after[0].layer, nn.Linear) and after[0].input.ndim == call.output.ndim != 2
        axis = -1 if is_last else 1
        count = call.output.shape[axis]
        pairs = zip(after, sites, strict=True)
        entries = tuple((site.span, _input_units(each.layer, site, count)) for each, site in pairs if site)
        return DroppedUnits(name, rate, count, entries, call, axis)
    before = source_of(call, calls)
    if before and (site := _site(before, "weight", density)):
        axis = -1 if isinstance(before.layer, nn.Linear) else 1
        return DroppedUnits(name, rate, call.output.shape[axis], _outputs(before, site, density), call, axis)
    raise ModelError(
        f"Dropout layer {name!r} neither follows nor precedes a linear or convolutional layer with random weights, so its masks "
        f"are not masks of weights. Move it next to one, or call net.eval() and use another method."
    )


def _before_layers(network: Network, calls: list[LayerCall], density: LogDensity) -> Iterator[DroppedUnits]:
    """Yield the inputs of every layer with weights but the first, each layer once."""
    weighted = [call for call in calls if call.network is network and is_weighted(call.layer)]
    firsts = {call.path: call for call in reversed(weighted)}
    for before, call in pairwise(weighted):
        site = _site(call, "weight", density)
        if firsts[call.path] is call and site:
            axis = -1 if isinstance(call.layer, nn.Linear) else 1
            count, channels = call.input.shape[axis], before.output.shape[1]
            if axis == -1 and not isinstance(before.layer, nn.Linear) and count % channels == 0:
                count = channels  # of a convolution whose output is flattened
            yield DroppedUnits(call.name, None, count, ((site.span, _input_units(call.layer, site, count)),), call, 1)


def _site(call: LayerCall, kind: str, density: LogDensity) -> Site | None:
    """Return the latent site of a layer's parameter, None if it has no such parameter or it is fixed."""
    name = call.network.sites.get(f"{call.path}.{kind}" if call.path else kind)
    site = next((site for site in density.sites if site.name == name), None)
    if site is not None and not is_unconstrained(site):
        raise ModelError(
            f"Dropping units sets weights to zero, but site {site.name!r} has the support {site.support}. Give it a prior on "
            f"the whole line."
        )
    return site


def _input_units(layer: nn.Module, site: Site, count: int) -> Tensor:
    """Return the unit at the input of each entry of a weight, of whose columns each unit has as many as the others."""
    groups = getattr(layer, "groups", 1)
    columns = site.shape[1] * groups
    unit = torch.arange(count).repeat_interleave(columns // count).reshape(groups, 1, site.shape[1])
    per_group = unit.expand(groups, site.shape[0] // groups, site.shape[1]).reshape(site.shape[:2])
    return per_group.reshape(*site.shape[:2], *(1 for _ in site.shape[2:])).expand(site.shape).reshape(-1)


def _outputs(before: LayerCall, site: Site, density: LogDensity) -> tuple[tuple[slice, Tensor], ...]:
    """Return the entries of weight and bias that make each output of a layer."""
    unit = torch.arange(site.shape[0]).reshape(-1, *(1 for _ in site.shape[1:])).expand(site.shape).reshape(-1)
    bias = _site(before, "bias", density)
    return ((site.span, unit), *(((bias.span, torch.arange(site.shape[0])),) if bias else ()))


def _units(places: list[DroppedUnits], num_params: int, device: torch.device) -> Tensor:
    total = sum(place.count for place in places)
    units, first = torch.full((2, num_params), total), 0
    for place in places:
        for span, unit in place.entries:
            free = 0 if bool((units[0, span] == total).all()) else 1
            if not bool((units[free, span] == total).all()):
                raise ModelError(f"Dropout layer {place.name!r} is the third that acts on the same weights: remove it.")
            units[free, span] = unit + first
        first += place.count
    return units.to(device)


@contextmanager
def dropped(found: HiddenUnits, factors: Tensor) -> Iterator[None]:
    """Within this context the networks' dropout layers multiply their outputs by ``factors[U]``, the same for all rows."""
    with ExitStack() as stack:
        for place, part in zip(found.places, factors.split(found.counts), strict=True):
            stack.callback(place.call.layer.register_forward_hook(_multiplier(place, part)).remove)
        yield


def _multiplier(place: DroppedUnits, factors: Tensor) -> Any:
    calls = counting()

    def hook(_: nn.Module, __: object, output: Tensor) -> Tensor | None:
        if next(calls) != place.call.number:
            return None
        shape = [1] * output.ndim
        shape[place.axis] = -1
        return output * factors.reshape(shape).to(output)

    return hook


def _refuse_if_different(found: HiddenUnits, density: LogDensity) -> None:
    """Compare one set of masks on the weights with the same masks in the dropout layers."""
    generator = torch.Generator().manual_seed(0)
    theta = 0.3 * torch.randn(density.num_params, generator=generator, dtype=torch.float64)
    factors = 0.5 + torch.rand(sum(found.counts), generator=generator, dtype=torch.float64)
    theta, factors = (each.to(dtype=density.dtype, device=density.device) for each in (theta, factors))
    of_units = torch.cat([factors, factors.new_ones(1)])[found.units].prod(0)
    with torch.no_grad():
        masked = density.log_likelihood(theta * of_units, *density.data)
        with dropped(found, factors):
            inside = density.log_likelihood(theta, *density.data)
    if not torch.allclose(masked, inside, rtol=1e-3, atol=1e-4, equal_nan=True):
        names = ", ".join(repr(place.name) for place in found.places)
        raise ModelError(
            f"Masks in the dropout layers {names} are not masks of the weights beside them: the network uses a dropped output "
            f"in more than one place, or transforms it first. Put each dropout layer right before the layer that it feeds."
        )


def _named(density: LogDensity) -> str:
    names = [f"network {network.name!r}" for network in density.networks]
    return names[0] if len(names) == 1 else f"this model ({', '.join(names)})"
