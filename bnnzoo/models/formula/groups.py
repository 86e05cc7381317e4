"""Group-level terms ``(x | g)``: effects that vary among the levels of a group, not centred, with an LKJ prior."""

import math
from dataclasses import dataclass
from itertools import combinations
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bnnzoo.core.data.conversion import DataError
from bnnzoo.models.formula.formula_sites import FormulaSite, Place, Term
from bnnzoo.models.formula.frames import Design, Levels
from bnnzoo.models.formula.linear import spread_of
from bnnzoo.models.formula.parsing import Group, plain_name, split_outside

__all__ = ["Membership", "at_levels", "grouped", "nested", "noise_of_draw"]


@dataclass(frozen=True)
class Membership:
    """Encoder of a group: codes of levels, and the covariates whose effects vary among them.

    Attributes
    ----------
    codes, covariates, new_levels : str
        Arguments of the model.
    levels : Levels
    design : Design, optional
        Of the covariates; None for an intercept alone.
    draws_new : bool
        Whether levels that the training data did not have are drawn from their distribution; else they are refused.
    """

    codes: str
    covariates: str
    new_levels: str
    levels: Levels
    design: Design | None
    draws_new: bool

    def arguments(self, frame: pd.DataFrame, *, new: bool) -> dict[str, Any]:
        """Return the codes ``[N]``, the covariates ``[N, Q]``, and for new levels a number that their name decides, 0 elsewhere.

        Raises
        ------
        DataError
            If a level is new, and new levels are not drawn.
        """
        codes, unknown = self.levels.codes(frame)
        if unknown and not (new and self.draws_new):
            raise DataError(
                f"Data refused: the group {self.levels.text!r} has the level {unknown[0]!r}, which the training data "
                f"did not have. "
                f"Write formula(..., new_levels='draw') to draw the effects of new levels from their distribution."
            )
        count = len(self.levels.known)
        found: dict[str, Any] = {self.codes: pd.Series(np.where(codes < count, codes, 0), frame.index)}
        if self.design is not None:
            found[self.covariates] = pd.DataFrame(self.design.matrix(frame), frame.index, self.design.names)
        numbers = np.array([0, *(1 + crc32(level.encode()) for level in unknown)])
        number = numbers[np.maximum(codes - count + 1, 0)]
        return found | ({self.new_levels: pd.Series(number, frame.index)} if unknown else {})


def nested(group: Group) -> list[Group]:
    """Return ``(x | a/b)`` as ``(x | a)`` and ``(x | a:b)``."""
    parts = [part.strip() for part in split_outside(group.group, "/")]
    return [Group(group.inner, ":".join(parts[: end + 1]), group.correlated, group.text) for end in range(len(parts))]


def grouped(group: Group, frame: pd.DataFrame, place: Place, *, draws_new: bool) -> Term:
    """Return the group-level effects of one term.

    Parameters
    ----------
    group : Group
        With one grouping factor.
    frame : DataFrame
        The training data.
    place : Place
    draws_new : bool
        See `Membership`.
    """
    levels, design = Levels.of(group.group, frame), Design.of(group.inner, frame)
    matrix = design.matrix(frame)
    label = place.label("group", plain_name(group.group))
    names = [plain_name(name) for name in design.names]
    spreads = np.where([name == "Intercept" for name in names], 1.0, spread_of(matrix))
    codes, covariates, new = (place.argument(f"{kind}_{label}", group.text) for kind in ("group", "covariates", "new"))
    only_intercept = names == ["Intercept"]
    encoder = Membership(codes, covariates, new, levels, None if only_intercept else design, draws_new)
    dims, coords = (label,), {label: list(levels.known)}
    effects = place.name("r", label)
    variable = place.variable(effects)
    if len(names) == 1:
        sd = place.positive("sd", label, "Exponential, mean the scale of the outcome", float(spreads[0]))
        z = _standard(place, label, (len(levels.known),))
        lines: list[FormulaSite | str] = [sd, z]
        lines.append(f"{variable} = pyro.deterministic({effects!r}, {sd.variable} * {z.variable})")
        summand = f"at_levels({variable}, {codes}, {new}, {sd.variable})"
        summand = summand if only_intercept else f"{covariates}[:, 0] * {summand}"
        names_of = (codes, new) if only_intercept else (codes, covariates, new)
        return Term(tuple(lines), (summand,), encoder, names_of, dims={effects: dims}, coords=coords)
    coefficient = f"{place.prefix}{label}_coefficient"
    coords |= {coefficient: names}
    sd = _several(place, label, names, spreads, coefficient)
    z = _standard(place, label, (len(levels.known), len(names)))
    root, lines = sd.variable, [sd, z]
    if group.correlated:
        factor = place.site("L", label, f"dist.LKJCholesky({len(names)}, 1.0)", "LKJ(1), uniform", hidden=True)
        pairs = list(combinations(range(len(names)), 2))
        pair = f"{place.prefix}{label}_pair"
        coords |= {pair: [f"{names[i]}:{names[j]}" for i, j in pairs]}
        root, correlations = place.variable(f"chol_{label}"), place.name("cor", label)
        rows, columns = [j for _, j in pairs], [i for i, _ in pairs]
        lines += [
            factor,
            f"pyro.deterministic({correlations!r}, ({factor.variable} @ {factor.variable}.mT)[{rows}, {columns}])",
            f"{root} = {sd.variable}[:, None] * {factor.variable}",
            f"{variable} = pyro.deterministic({effects!r}, {z.variable} @ {root}.mT)",
        ]
    else:
        lines.append(f"{variable} = pyro.deterministic({effects!r}, {sd.variable} * {z.variable})")
    own = {effects: (label, coefficient)} | ({correlations: (pair,)} if group.correlated else {})
    summand = f"(at_levels({variable}, {codes}, {new}, {root}) * {covariates}).sum(-1)"
    return Term(tuple(lines), (summand,), encoder, (codes, covariates, new), dims=own, coords=coords)


def at_levels(effects: Tensor, codes: Tensor, new: Tensor | None = None, root: Tensor | None = None) -> Tensor:
    """Return the effects ``[N]`` or ``[N, Q]`` of each row's level; those of new levels are drawn from their distribution.

    Parameters
    ----------
    effects : Tensor [G] or [G, Q]
    codes : Tensor [N]
        Level of each row.
    new : Tensor [N], optional
        0 for levels that have effects, and a number for each of the others, which then share theirs among rows.
    root : Tensor [], [Q] or [Q, Q]
        Standard deviations of the effects, or the root of their covariance matrix.

    Examples
    --------
    >>> at_levels(torch.tensor([0.5, -0.5]), torch.tensor([1, 0, 1]))
    tensor([-0.5000,  0.5000, -0.5000])
    """
    known = effects[codes]
    if new is None or root is None:
        return known
    size = effects.shape[1] if effects.ndim > 1 else 1
    noise, root = _NoiseOfDraw.apply(effects, new, size), root.detach()
    drawn = noise @ root.mT if root.ndim == 2 else noise * root
    return torch.where((new > 0)[:, None], drawn, known.reshape(-1, size)).reshape(known.shape)


def noise_of_draw(values: Tensor, labels: Tensor, size: int) -> Tensor:
    """Return standard normal numbers ``[N, size]`` that depend on a posterior draw and a label, and on nothing else.

    Rows with one label share their numbers, whichever call, block of rows or block of draws they are computed in; other labels
    and other draws have others. The draw itself is hashed, in any units, so no random stream is used.

    Parameters
    ----------
    values : Tensor
        Latent values that differ between draws.
    labels : Tensor [N]
        Whole numbers.
    size : int
    """
    logs = values.detach().reshape(-1).double().abs().clamp(min=1e-300).log()
    weights = torch.sin(12.9898 * torch.arange(1, logs.numel() + 1, dtype=torch.float64, device=logs.device)) + 1.5
    seed = (logs * weights).sum() / weights.square().sum().sqrt()
    columns = 37.719 * torch.arange(1, size + 1, dtype=torch.float64, device=logs.device)
    turns = (0.6180339887 * labels.double()[:, None]).frac()
    angle = 2 * math.pi * turns + columns + 161.80339887 * seed
    uniform = (torch.sin(angle) * 43758.5453123).frac().abs()
    inside = uniform.clamp(1e-12, 1 - 1e-12)
    return (math.sqrt(2) * torch.erfinv(2 * inside - 1)).to(values.dtype)


def _standard(place: Place, label: str, shape: tuple[int, ...]) -> FormulaSite:
    prior = f"dist.Normal(0.0, 1.0).expand({list(shape)}).to_event({len(shape)})"
    return place.site("z", label, prior, "standardised effects", shape=shape, hidden=True)


def _several(place: Place, label: str, names: list[str], spreads: Any, dim: str) -> FormulaSite:
    means = place.scale / spreads
    rates = ", ".join(repr(float(f"{1 / mean:.4g}")) for mean in means)
    return place.site(
        "sd",
        label,
        f"dist.Exponential(torch.tensor([{rates}])).to_event(1)",
        "Exponential, mean the scale of the outcome / standard deviation of the covariate",
        unit=(0.0, tuple(float(mean) for mean in means)),
        shape=(len(names),),
        dims=(dim,),
        coords={dim: names},
    )


class _NoiseOfDraw(torch.autograd.Function):
    """`noise_of_draw`, whose change along a tangent is that to the draw at its end.

    Linearised predictions see a draw as a tangent at the mode. Its noise is then that of the draw itself, times the spread at the
    mode: what the linear model has for an effect that is latent.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(values: Tensor, labels: Tensor, size: int) -> Tensor:
        return noise_of_draw(values, labels, size)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, int], output: Tensor) -> None:
        values, labels, ctx.size = inputs
        ctx.save_for_forward(values, labels, output)

    @staticmethod
    def jvp(ctx: Any, change: Tensor, *_: Any) -> Tensor:
        values, labels, noise = ctx.saved_tensors
        return noise_of_draw(values + change, labels, ctx.size) - noise
