"""Models whose rows depend on one another: predictions need the rows that the model was fitted to."""

from dataclasses import dataclass, fields
from typing import Literal, Protocol, runtime_checkable

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.types import Data, Model

__all__ = ["PredictiveDensity", "PredictsGivenData", "predictive_density", "refuse_dependent_rows"]

type Rows = Literal["prior", "training", "new"]


@runtime_checkable
class PredictsGivenData(Protocol):
    """A model that predicts by another one: conditioned on the training data, or on none.

    The other model has the same latent sites and arguments. It may sample further sites, such as the values of a random
    function, which are drawn anew for each draw of the parameters; its observed sites are distributed given those.
    """

    def predicting(self, data: Data, rows: Rows) -> Model:
        """Return the model of the training rows or new ones given ``data``, or of any rows before data were seen."""
        ...


@dataclass(frozen=True, repr=False)
class PredictiveDensity(LogDensity):
    """A density for predictions whose moments are random: every run of the model draws a function."""


def predictive_density(density: LogDensity, rows: Rows) -> LogDensity:
    """Return the density by which rows are predicted: that of the fit, but for models that predict given their data.

    Raises
    ------
    ValueError
        If the training data are needed and are not there.
    """
    if not isinstance(density.model, PredictsGivenData):
        return density
    if rows != "prior" and not density.has_data:
        raise ValueError(
            "This model predicts given the training data, and the posterior was loaded without them. Load it with them: "
            "bnnzoo.load(path, model, *data)."
        )
    values = {field.name: getattr(density, field.name) for field in fields(LogDensity)}
    return PredictiveDensity(**values | {"model": density.model.predicting(density.data, rows)})


def refuse_dependent_rows(density: LogDensity, batch_size: int) -> None:
    """Refuse mini-batches of a model whose rows depend on one another.

    Raises
    ------
    ValueError
        Saying what to write instead.
    """
    if batch_size < density.num_data and isinstance(density.model, PredictsGivenData):
        raise ValueError(
            f"batch_size={batch_size}: the rows of this model depend on one another, so some of the {density.num_data} rows say "
            f"nothing of the density of all. Take all rows, or a method without mini-batches; a sparse Gaussian process takes "
            f"them."
        )
