"""``Effects``: quantities computed from predictions, with all draws of the posterior."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
import xarray as xr
from arviz_stats.visualization import hdi
from numpy.typing import NDArray

__all__ = ["Effects", "interval", "joined"]

type Array = NDArray[np.floating[Any]]

Kind = Literal["predictions", "comparisons", "slopes", "accumulated", "hypotheses"]


@dataclass(frozen=True, repr=False)
class Effects:
    """Effects with their draws, one for each row.

    Attributes
    ----------
    kind : str
        ``"predictions"``, ``"comparisons"``, ``"slopes"``, ``"accumulated"`` or ``"hypotheses"``.
    draws : ndarray [C, S, R]
        Of each effect.
    rows : DataFrame [R]
        What each effect is about: ``term``, ``contrast``, ``group`` (the class or output), and values of variables.
    aleatoric : ndarray [R], optional
        Variance of the same quantity of new outcomes given the parameters, averaged over draws.
    variables : tuple of str
        Columns of ``rows`` that were varied, or that effects are grouped by.
    """

    kind: Kind
    draws: Array
    rows: pd.DataFrame
    aleatoric: Array | None = None
    variables: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Show the first effects."""
        return f"{len(self.rows)} {self.kind}, {self.draws.shape[0]} x {self.draws.shape[1]} draws\n{self.to_frame().head(10)}"

    def _repr_html_(self) -> str:
        """Show the first effects as a table."""
        return str(self.to_frame().head(10).to_html())

    def __len__(self) -> int:
        """Return the number of effects."""
        return len(self.rows)

    def __getitem__(self, rows: Any) -> "Effects":
        """Return some of the effects, by their positions."""
        places = np.atleast_1d(np.arange(len(self.rows))[rows])
        kept = None if self.aleatoric is None else self.aleatoric[places]
        table = self.rows.iloc[places].reset_index(drop=True)
        return replace(self, draws=self.draws[..., places], rows=table, aleatoric=kept)

    def to_frame(
        self,
        prob: float = 0.95,
        kind: Literal["eti", "hdi"] = "eti",
        centre: Literal["median", "mean"] = "median",
        *,
        parts: bool = False,
    ) -> pd.DataFrame:
        """Return estimates with intervals, one row for each effect.

        Parameters
        ----------
        prob : float
            Of the interval.
        kind : {"eti", "hdi"}
            Equal-tailed, or of highest density.
        centre : {"median", "mean"}
            Of the draws, as the estimate.
        parts : bool
            Whether to add the standard deviations of new outcomes: ``epistemic``, which more data would narrow, ``aleatoric``,
            which they would not, and ``total``.

        Returns
        -------
        DataFrame
            Columns of ``rows``, ``estimate``, ``sd``, ``conf_low``, ``conf_high``, and ``prob_positive``, the posterior
            probability of a positive effect, other than for predictions.

        Raises
        ------
        ValueError
            If `prob` is not between 0 and 1, a choice is not known, or the likelihood has no variance for `parts`.
        """
        flat = self.draws.reshape(-1, self.draws.shape[-1])
        found = self.rows.reset_index(drop=True).copy()
        if centre not in ("median", "mean"):
            raise ValueError(f"centre={centre!r}: write 'median' or 'mean'.")
        found["estimate"] = np.median(flat, 0) if centre == "median" else flat.mean(0)
        found["sd"] = flat.std(0, ddof=1) if len(flat) > 1 else 0.0
        found["conf_low"], found["conf_high"] = interval(self.draws, prob, kind)
        if self.kind != "predictions":
            found["prob_positive"] = (flat > 0).mean(0)
        if parts:
            if self.aleatoric is None:
                raise ValueError("parts=True needs the variance of outcomes, which these effects do not have.")
            found["epistemic"], found["aleatoric"] = found["sd"], np.sqrt(self.aleatoric)
            found["total"] = np.sqrt(self.aleatoric + found["sd"] ** 2)
        return found

    def to_tree(self) -> xr.DataTree:
        """Return the draws as a tree with one group, named after the kind, whose rows have the variables as coordinates."""
        coords: dict[str, Any] = {
            str(name): ("effect", [each if isinstance(each, int | float) else str(each) for each in self.rows[name]])
            for name in self.rows.columns
            if name not in ("chain", "draw", "effect")
        }
        coords |= {"chain": np.arange(self.draws.shape[0]), "draw": np.arange(self.draws.shape[1])}
        array = xr.DataArray(self.draws, coords, ("chain", "draw", "effect"))
        return xr.DataTree.from_dict({self.kind: array.to_dataset(name="estimate")})


def interval(draws: Array, prob: float, kind: str) -> tuple[Array, Array]:
    """Return the ends of an interval ``[R]`` of draws ``[C, S, R]``.

    Examples
    --------
    >>> import numpy as np
    >>> low, high = interval(np.arange(101.0).reshape(1, 101, 1), 0.9, "eti")
    >>> round(float(low[0]), 1), round(float(high[0]), 1)
    (5.0, 95.0)
    """
    if not 0 < prob < 1:
        raise ValueError(f"prob={prob}: write a probability between 0 and 1, such as 0.95.")
    if kind not in ("eti", "hdi"):
        raise ValueError(f"kind={kind!r}: write 'eti' or 'hdi'.")
    flat = draws.reshape(-1, draws.shape[-1])
    if kind == "eti" or len(flat) < 2:
        low, high = np.quantile(flat, [(1 - prob) / 2, (1 + prob) / 2], axis=0)
        return low, high
    ends = np.stack([np.asarray(hdi(flat[:, row], prob=prob)) for row in range(flat.shape[1])])
    return ends[:, 0], ends[:, 1]


def joined(parts: Sequence[Effects]) -> Effects:
    """Return several effects of one kind as one."""
    aleatoric = [part.aleatoric for part in parts]
    known = [each for each in aleatoric if each is not None]
    return replace(
        parts[0],
        draws=np.concatenate([part.draws for part in parts], -1),
        rows=pd.concat([part.rows for part in parts], ignore_index=True),
        aleatoric=np.concatenate(known) if len(known) == len(parts) else None,
    )
