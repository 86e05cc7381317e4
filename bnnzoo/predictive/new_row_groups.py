"""Groups of a tree that are about new rows, held in memory."""

from collections.abc import Sequence
from dataclasses import replace

import xarray as xr

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.program.sites import plates_of
from bnnzoo.predictive import datatree
from bnnzoo.predictive.bands import renamed
from bnnzoo.predictive.blocks import Arrays
from bnnzoo.predictive.discrete_groups import discrete_groups
from bnnzoo.predictive.kept_groups import ROW_GROUPS, KeptGroups, refuse_unknown
from bnnzoo.predictive.labels import Labels
from bnnzoo.predictive.latent import PosteriorDraws, deterministics
from bnnzoo.predictive.prepared import PreparedDraws
from bnnzoo.predictive.rows import Rows, as_groups, row_groups

__all__ = ["groups_at_draws", "groups_of_new_rows"]


def groups_at_draws(common: PreparedDraws, rows: Rows, found: Arrays, kept: KeptGroups) -> dict[str, xr.Dataset]:
    """Return values at all draws as groups, under their names for new data."""
    draws, labels = common.draws, common.labels
    about = as_groups(draws, rows, found, labels, kept)
    sites = {each.name: values for each, values in found.items() if each.group == "deterministic"}
    plates = {name: plates_of(rows.deterministic[name]) for name in sites}
    about["deterministic"] = datatree.by_draw(draws.per_draw(sites), replace(labels, plates=plates))
    return renamed({name: rows.labelled(group) for name, group in about.items()})


def groups_of_new_rows(
    draws: PosteriorDraws,
    rows: Rows,
    chunk_size: int | None,
    labels: Labels,
    densities: Sequence[LogDensity],
    kept: KeptGroups,
) -> dict[str, xr.Dataset]:
    """Return the groups about rows in memory, under their names for new data."""
    if not kept.has_any(*ROW_GROUPS):
        return {}
    for group, variables in rows.variables(draws.posterior.density).items():
        refuse_unknown(kept, group, variables)
    about = row_groups(draws, rows, chunk_size, labels, densities, kept)
    nodes = {name: node for name, node in rows.deterministic.items() if kept.has("deterministic", name)}
    values, plates = deterministics(draws, rows.data, nodes)
    wanted = {name: array for name, array in values.items() if name in nodes}
    if kept.has_any("discrete", "discrete_probs"):
        found = discrete_groups(draws.posterior.density, draws.theta, rows.data, draws.seed, labels)
        about |= {name: rows.labelled(kept.of(name, group)) for name, group in found.items()}
    about["deterministic"] = rows.labelled(datatree.by_draw(wanted, replace(labels, plates=plates)))
    return renamed(about)
