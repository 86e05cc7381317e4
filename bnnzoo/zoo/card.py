"""A card of the zoo: a model, its data, its prior, and the methods that fit it."""

import textwrap
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
import xarray as xr

from bnnzoo.core.method import Method
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.core.types import Model
from bnnzoo.inference.fit import fit
from bnnzoo.predictive import predict, prior_predictive
from bnnzoo.zoo.budgets import smoke as smaller
from bnnzoo.zoo.data import CardData, ZooError, data_folder
from bnnzoo.zoo.prior_scale import prior_spread

__all__ = ["Card", "PriorChoice"]

WIDTH = 100
PRIOR_ROWS = 100  # enough for the prior predictive; images take time


@dataclass(frozen=True)
class PriorChoice:
    """Which prior a card has, and why.

    Parameters
    ----------
    scale : str
        The prior and its scale.
    why : str
        What the prior predictive says about it.
    spread : float
        Read off the prior predictive, see :meth:`Card.prior_spread`.
    """

    scale: str
    why: str
    spread: float


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Card:
    """A named, versioned model with its data and the methods that fit it.

    Parameters
    ----------
    name : str
        In lower case with hyphens; its file in ``bnnzoo/zoo/cards`` has underscores instead.
    version : int
        Changes with the model, its prior or its data, and so with the posterior.
    title, description : str
        A line and a paragraph.
    references : tuple of str
        Where the problem comes from.
    prior : PriorChoice
        The scale of the prior, and why.
    model : callable
        Makes the Pyro model.
    source : callable
        Makes the data; it receives the path of what the card ``needs``, if it needs any.
    methods : mapping of str to Method
        By name, with budgets in which they converge. The first one is what the card recommends.
    needs : str, optional
        File or folder of the user's data that the card reads. Default: none; data are simulated or part of scikit-learn.
    long_run : Method, optional
        The exact sampler that makes the card's reference posterior.
    dtype : torch.dtype
        Of the fit. Default: double precision.
    data_licence : str, optional
        SPDX identifier of the licence of data of others that come with the package; the pages and the export of the card
        have its notice. Default: none; data are simulated, part of scikit-learn or the user's.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> card = bz.zoo.load("linear-regression")
    >>> posterior = card.fit("laplace", progress=False)
    >>> card.predict(posterior, num_draws=20)["conditional"]["mean"].sizes["draw"]
    20
    """

    name: str
    version: int = 1
    title: str
    description: str
    references: tuple[str, ...] = ()
    prior: PriorChoice
    model: Callable[[], Model]
    source: Callable[..., CardData]
    methods: Mapping[str, Method]
    needs: str | None = None
    long_run: Method | None = None
    dtype: torch.dtype = torch.float64
    data_licence: str | None = None

    def data(self, folder: str | Path | None = None) -> CardData:
        """Return the card's data.

        Parameters
        ----------
        folder : str or Path, optional
            The user's folder of data, for cards that need it. Default: that in the environment variable BNNZOO_DATA.

        Raises
        ------
        ZooError
            If the card needs data that are not there.
        """
        return self.source() if self.needs is None else self.source(data_folder(self.name, self.needs, folder))

    def method(self, name: str, smoke: bool = False) -> Method:
        """Return one of the card's methods, with a budget in which it converges or with a smoke budget.

        Raises
        ------
        ZooError
            If the card has no such method.
        """
        if name not in self.methods:
            near = get_close_matches(name, self.methods, 1)
            raise ZooError(
                f"Card {self.name!r} has no method {name!r}{f', but {near[0]!r}' if near else ''}; its methods are "
                f"{', '.join(self.methods)}."
            )
        return smaller(self.methods[name]) if smoke else self.methods[name]

    def fit(
        self,
        method: str | Method | None = None,
        *,
        seed: int = 0,
        smoke: bool = False,
        folder: str | Path | None = None,
        executor: Executor | None = None,
        progress: bool = True,
    ) -> Posterior:
        """Fit the card's model to its training data.

        Parameters
        ----------
        method : str or Method, optional
            One of the card's methods by name, or any other method. Default: the card's first.
        seed, executor, progress
            As for :func:`bnnzoo.fit`.
        smoke : bool
            Take a budget so small that the fit ends in about a second, converged or not.
        folder : str or Path, optional
            As for `data`.
        """
        chosen = next(iter(self.methods)) if method is None else method
        used = self.method(chosen, smoke) if isinstance(chosen, str) else smaller(chosen) if smoke else chosen
        train = self.data(folder).train.values()
        return fit(self.model(), used, *train, seed=seed, executor=executor, progress=progress, dtype=self.dtype)

    def predict(self, posterior: Posterior, *, folder: str | Path | None = None, **options: Any) -> xr.DataTree:
        """Return predictions for the card's test rows, see :func:`bnnzoo.predict`.

        Parameters
        ----------
        posterior : Posterior
            Of a fit of the card's model.
        folder : str or Path, optional
            As for `data`.
        **options
            Such as ``num_draws=200``; see :func:`bnnzoo.predict`.
        """
        arguments: dict[str, Any] = {**options, **self.data(folder).test}
        tree = predict(posterior, **arguments)
        tree.attrs |= {"card": self.name, "card_version": self.version}
        return tree

    def prior_predictive(self, *, num_draws: int = 200, seed: int = 0, folder: str | Path | None = None) -> xr.DataTree:
        """Return draws from the prior and their predictions for the first rows, up to 100, of the card's training data."""
        train = [values[:PRIOR_ROWS] for values in self.data(folder).train.values()]
        return prior_predictive(self.model(), *train, num_draws=num_draws, seed=seed, dtype=self.dtype)

    def prior_spread(self, *, num_draws: int = 400, seed: int = 0, folder: str | Path | None = None) -> float:
        """Return how much the prior predictive spreads, which ``prior.spread`` states.

        For real outcomes: half the width of the central 68% of the draws of E[y | x, theta], as the median over rows; for
        classes: the mean of the largest class probability.
        """
        return prior_spread(self.prior_predictive(num_draws=num_draws, seed=seed, folder=folder))

    def __repr__(self) -> str:
        """Describe the card in a few lines."""
        methods = ", ".join(self.methods)
        own = f"part of bnnzoo, {self.data_licence}" if self.data_licence else "simulated or part of scikit-learn"
        data = own if self.needs is None else f"{self.needs} in your folder of data"
        parts = [
            f"{self.name} (version {self.version}): {self.title}",
            self.description,
            f"Prior: {self.prior.scale}. {self.prior.why}",
            f"Methods: {methods}",
            f"Data: {data}",
            *(f"Reference: {each}" for each in self.references),
        ]
        return "\n".join(textwrap.fill(part, WIDTH, subsequent_indent="  ") for part in parts)
