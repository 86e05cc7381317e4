"""``load``: a posterior back from its file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from bnnzoo.core.data.arguments import positional
from bnnzoo.core.posterior.covariance import Dense, Diagonal, Embedded, Kronecker, LowRankPlusDiagonal, LowRankPrecision
from bnnzoo.core.posterior.posterior import Draws, Gaussian, Mixture, Posterior
from bnnzoo.core.posterior.saving import open_fit
from bnnzoo.core.posterior.stored import Stored
from bnnzoo.core.program.surroundings import usable_device
from bnnzoo.core.program.turns import one_at_a_time
from bnnzoo.core.reading.changes import remember_model
from bnnzoo.core.types import Model
from bnnzoo.inference.ensembles.weighted import WeightedMembers
from bnnzoo.inference.variational.dropout import DropoutPosterior
from bnnzoo.inference.variational.flow import FlowPosterior
from bnnzoo.inference.variational.full_rank_vi import FullRank
from bnnzoo.inference.variational.mean_field_vi import MeanField
from bnnzoo.inference.variational.pathfinder import Resampled
from bnnzoo.inference.variational.svi import GuidePosterior

__all__ = ["KINDS", "load"]

KINDS: tuple[type[Stored], ...] = (
    Draws,
    Gaussian,
    Mixture,
    Resampled,
    WeightedMembers,
    DropoutPosterior,
    FlowPosterior,
    GuidePosterior,
    Dense,
    Diagonal,
    Embedded,
    Kronecker,
    LowRankPlusDiagonal,
    LowRankPrecision,
    MeanField,
    FullRank,
)
"""What a file may hold, by the names of the classes: a file never says what to import."""


@one_at_a_time
def load(
    path: str | Path,
    model: Model,
    *data: Any,
    guide: Callable[..., Any] | None = None,
    device: torch.device | str | None = None,
    **named: Any,
) -> Posterior:
    """Return a posterior that was saved by ``posterior.save(path)``; it predicts what it predicted then, bit by bit.

    The file holds neither the model nor the data: pass the model of the fit and its training data, which are compared with
    the file's fingerprint. Leave the data out to predict new rows only: the posterior then draws and predicts as before,
    and whatever needs the training data (:func:`bnnzoo.posterior_predictive`, ``lp`` and deterministic sites in a tree)
    is refused or left out.

    Parameters
    ----------
    path : str or Path
        A file written by ``posterior.save(path)``.
    model : callable
        The Pyro model that was fitted.
    *data
        The data that it was fitted to, observations included; or nothing.
    guide : callable, optional
        The guide of a fit by :class:`bnnzoo.SVI`, as it was passed to it. Not needed for Pyro's autoguide classes.
    device : torch.device or str, optional
        Where to compute. Default: torch's default device.
    **named
        Arguments of the model by name, as they were passed to the fit.

    Returns
    -------
    Posterior
        Of the class that was saved, with its statistics, settings and seed.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is damaged, has a newer format, or holds the fit of another model or of other data; the message says
        what differs.

    Examples
    --------
    >>> import tempfile
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> posterior = bz.fit(target.model, bz.Laplace(), *target.data, progress=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     posterior.save(f"{folder}/laplace.bnn")
    ...     loaded = bz.load(f"{folder}/laplace.bnn", target.model)
    >>> bool((bz.predict(loaded, target.data[0])["conditional"] == bz.predict(posterior, target.data[0])["conditional"]).all())
    True
    """
    fit = open_fit(Path(path))
    given = positional(model, data, named) if data or named else ()  # a file may be loaded without its data
    density = fit.density(model, given, usable_device(device))
    remember_model(density)
    found: Posterior = fit.posterior(density, KINDS, guide)
    return found
