"""Selection of groups and variables of a tree."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import xarray as xr

__all__ = ["EVERYTHING", "NEW_DATA_NAMES", "ROW_GROUPS", "KeptGroups", "kept_of", "refuse_unknown"]

NEW_DATA_NAMES: Mapping[str, str] = {
    "posterior_predictive": "predictions",
    "log_likelihood": "predictions_log_likelihood",
    "observed_data": "predictions_observed_data",
    "constant_data": "predictions_constant_data",
    "deterministic": "predictions_deterministic",
    "discrete": "predictions_discrete",
    "discrete_probs": "predictions_discrete_probs",
}
"""Names of groups for new data, by those for training data."""

ROW_GROUPS = ("conditional", *NEW_DATA_NAMES.values())
LATENT_GROUPS = ("posterior", "weights", "log_prior", "sample_stats", "fit_stats")
GROUPS = (*LATENT_GROUPS, *ROW_GROUPS)
OF_OBSERVATIONS = ("predictions_log_likelihood", "predictions_observed_data")


@dataclass(frozen=True)
class KeptGroups:
    """Groups and variables that are wanted; all of them if ``names`` is None.

    Attributes
    ----------
    names : tuple of str, optional
        ``"group"`` or ``"group/variable"``, under the names for new data.
    """

    names: tuple[str, ...] | None = None

    def has(self, group: str, variable: str) -> bool:
        """Tell whether a variable of a group, under its name for training or new data, is wanted."""
        group = NEW_DATA_NAMES.get(group, group)
        return self.names is None or group in self.names or f"{group}/{variable}" in self.names

    def has_any(self, *groups: str) -> bool:
        """Tell whether anything in some groups, under their names for training or new data, is wanted."""
        named = {name.partition("/")[0] for name in self.names or ()}
        return self.names is None or any(NEW_DATA_NAMES.get(group, group) in named for group in groups)

    def of(self, group: str, dataset: xr.Dataset) -> xr.Dataset:
        """Return the variables of a group that are wanted."""
        if self.names is None:
            return dataset
        unwanted = [name for name in dataset.data_vars if not self.has(group, str(name))]
        found = dataset.drop_vars(unwanted)
        return found if found.data_vars else xr.Dataset()


EVERYTHING = KeptGroups()


def kept_of(keep: Sequence[str] | None) -> KeptGroups:
    """Return which variables are wanted.

    Raises
    ------
    ValueError
        If there is no group of a name, or ``keep`` is no tuple of names.
    """
    if keep is None:
        return EVERYTHING
    if isinstance(keep, str):
        raise ValueError(f"keep={keep!r}: write a tuple of names, keep=({keep!r},).")
    for name in keep:
        if name.partition("/")[0] not in GROUPS:
            raise ValueError(
                f"keep={tuple(keep)}: trees of new data have no group {name.partition('/')[0]!r}. Write some of "
                f'{", ".join(GROUPS)}, or a variable such as "conditional/mean".'
            )
    return KeptGroups(tuple(keep))


def refuse_unknown(kept: KeptGroups, group: str, variables: list[str]) -> None:
    """Refuse names of variables that a group, under its name for training or new data, does not have, and groups without data.

    Raises
    ------
    ValueError
        Naming the variables that there are.
    """
    group = NEW_DATA_NAMES.get(group, group)
    for name in kept.names or ():
        wanted, _, variable = name.partition("/")
        if wanted == group in OF_OBSERVATIONS and not variables:
            raise ValueError(
                f"keep has {name!r}, which needs the observations of the new rows, and there are none: pass them too, as in "
                f"predict(posterior, x, y, keep=({name!r},))."
            )
        if wanted == group and variable and variable not in variables:
            raise ValueError(
                f"keep has {name!r}, but the group {group!r} has no such variable; it has {', '.join(variables) or 'none'}."
            )
