"""New rows that a model does not take for new: plates of a fixed size, and latent values of the rows that were fitted."""

import warnings

import torch
from torch import Tensor

from bnnzoo.core.data.arguments import argument_names, leaves
from bnnzoo.core.data.minibatch import select
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.program.numerics import NumericalFailure
from bnnzoo.core.program.sites import ModelWarning, Site
from bnnzoo.predictive.rows import Rows

__all__ = ["check_new_rows"]


def check_new_rows(density: LogDensity, rows: Rows) -> None:
    """Refuse a model that predicts as many rows as it was fitted to, whatever it is given, and warn of latents of its rows.

    Raises
    ------
    ValueError
        If a plate has the size of the training data.

    Warns
    -----
    ModelWarning
        If each of the fitted rows has a latent value of its own, which other rows in its place would be given.
    """
    if not density.has_data:
        return
    names = argument_names(density.model, max(len(rows.data), len(density.data)))
    fitted = dict(leaf for name, value in zip(names, density.data, strict=False) for leaf in leaves(name, value))
    pairs = [
        (path, new, old)
        for name, value in zip(names, rows.data, strict=False)
        for path, new in leaves(name, value)
        if isinstance(new, Tensor) and isinstance(old := fitted.get(path), Tensor)
        if new.ndim and old.ndim and len(old) == density.num_data
    ]
    given = [
        (name, new, old)
        for name, new, old in pairs
        if not any(new.shape == y.shape and bool((new == y).all()) for y in rows.observed.values())
    ]
    lengths = {len(new) for _, new, _ in given}
    if len(lengths) == 1 and rows.num_rows == density.num_data and rows.num_rows not in lengths:
        (found,) = lengths
        raise ValueError(
            f"The model predicts {rows.num_rows} rows, as many as it was fitted to, where {given[0][0]} has {found}: the size of "
            f"a plate is a fixed number. Write pyro.plate('data', len({given[0][0]}))."
        )
    own = [site.name for site in density.sites if _is_of_rows(site, density, rows)]
    changed = [name for name, new, old in given if new.shape == old.shape and not torch.equal(new, old)]
    if own and changed:
        warnings.warn(
            f"Site {own[0]!r} has a value for each row that was fitted, and {changed[0]} differs from that of the fit: the first "
            f"row here is predicted with the value of the first row there, and so on. That is right for new outcomes of the same "
            f"units, in their order, and wrong for other units.",
            ModelWarning,
            stacklevel=3,
        )


def _is_of_rows(site: Site, density: LogDensity, rows: Rows) -> bool:
    """Tell whether a site has a value for each row: in their plate, or as a vector without which no row can be left out."""
    if set(site.plates) & set(density.row_plates):
        return True
    count = density.num_data
    if site.is_weight or count not in site.shape or count < 2 or rows.num_rows != count:
        return False
    theta = torch.zeros(density.num_params, dtype=density.dtype, device=density.device)
    try:
        density.nodes(theta, *select(rows.data, torch.arange(count - 1, device=density.device), count))
    except NumericalFailure:
        return False
    except Exception:  # the model's own code may raise anything on fewer rows
        return True
    return False
