"""Expected outcomes of the rows of a frame, for each draw of a posterior."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bnnzoo.core.data.arguments import argument_names
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.core.types import Whole
from bnnzoo.models.formula.model import Formula
from bnnzoo.predictive import predict

__all__ = ["Expected", "Subject", "frame_of"]

type Array = NDArray[np.floating[Any]]
type Encode = Callable[[pd.DataFrame], tuple[Any, ...]]


@dataclass(frozen=True)
class Expected:
    """Expected outcomes ``[C, S, N, K]`` and variances of the outcomes given the parameters; ``groups`` names the K.

    With one group, ``groups`` is empty.
    """

    mean: Array
    variance: Array | None
    groups: tuple[str, ...]


@dataclass(frozen=True)
class Subject:
    """What effects are computed of: a posterior, the frame of its training data, and how its draws are taken."""

    posterior: Posterior
    frame: pd.DataFrame
    num_draws: int | None = None
    seed: Whole | None = None
    encode: Encode | None = None

    @classmethod
    def of(
        cls, posterior: Posterior, num_draws: int | None, seed: Whole | None, newdata: Any, encode: Encode | None = None
    ) -> "Subject":
        """Return the subject; ``newdata`` stands for the training frame of a posterior that has none."""
        known = frame_of(posterior)
        if known is None and not isinstance(newdata, pd.DataFrame):
            raise ValueError(
                "This posterior was not fitted to a frame with named columns, so there is nothing that effects could name. Fit a "
                "formula, or a frame as the first argument of the model, or pass newdata=frame."
            )
        return cls(posterior, newdata if known is None else known, num_draws, seed, encode)

    def expected(self, frame: pd.DataFrame) -> Expected:
        """Return the expected outcome of each row of a frame."""
        rows = frame.reset_index(drop=True)
        arguments = (rows,) if self.encode is None else self.encode(rows)
        tree = predict(
            self.posterior, *arguments, num_draws=self.num_draws, seed=self.seed, keep=("conditional",), weights=False
        )
        moments = tree["conditional"].to_dataset()
        if "probs" in moments:
            values = moments["probs"].to_numpy()
            spread = values * (1 - values)
            model = self.posterior.density.model
            levels = model.levels if isinstance(model, Formula) else ()
            count = values.shape[-1]
            if count == 2:
                return Expected(values[..., 1:], spread[..., 1:], ())
            names = levels if len(levels) == count else range(count)
            return Expected(values, spread, tuple(str(name) for name in names))
        if "mean" not in moments:
            raise ValueError(
                f"Effects need the mean of the outcome or the probabilities of classes, and the likelihood has "
                f"{', '.join(map(str, moments.data_vars)) or 'neither'}."
            )
        mean = moments["mean"].to_numpy()
        variance = moments["variance"].to_numpy() if "variance" in moments else None
        if mean.ndim > 3:
            model = self.posterior.density.model
            names = model.outcome.texts if isinstance(model, Formula) else tuple(map(str, range(mean.shape[3])))
            return Expected(mean, variance, names)
        return Expected(mean[..., None], None if variance is None else variance[..., None], ())


def frame_of(posterior: Posterior) -> pd.DataFrame | None:
    """Return the frame of the training data: that of a formula, or the first argument of the model if it was a frame."""
    density = posterior.density
    if isinstance(density.model, Formula):
        return density.model.frame
    names = argument_names(density.model, len(density.data))
    if not names or names[0] not in posterior.info.columns or not density.has_data:
        return None
    values = density.data[0].detach().cpu().numpy()
    return pd.DataFrame(values, columns=list(posterior.info.columns[names[0]]))
