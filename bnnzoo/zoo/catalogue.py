"""All cards by name."""

import builtins
from difflib import get_close_matches
from importlib import import_module

from bnnzoo.zoo.card import Card
from bnnzoo.zoo.data import ZooError

__all__ = ["NAMES", "NETWORKS", "STATISTICAL", "TEXTBOOK", "Catalogue", "list", "load"]

STATISTICAL = (
    "linear-regression",
    "logistic-regression",
    "polynomial-gap",
    "robust-regression",
    "negative-binomial-counts",
    "zero-inflated-counts",
    "beta-proportions",
    "varying-slopes",
    "item-response",
    "hilbert-gaussian-process",
    "gaussian-process-classifier",
    "smoothing-spline",
    "local-level",
    "wine-classes",
    "diabetes-shrinkage",
    "breast-cancer-logistic",
    "dose-response",
    "change-point",
    "heteroscedastic-regression",
    "growth-curves",
    "random-features",
)
"""Cards of models without a network that has hidden layers."""

TEXTBOOK = (
    "ridge-regression",
    "eight-schools",
    "arma",
    "gaussian-process-counts",
)
"""Cards of models and data of posteriordb, whose posteriors others have published."""

NETWORKS = (
    "foong-one-layer",
    "foong-two-layers",
    "neal-regression",
    "neal-binary",
    "neal-three-classes",
    "neal-outliers",
    "uci-fixed-noise",
    "uci-inferred-noise",
    "uci-heteroscedastic",
    "horseshoe-sparse",
    "cubic",
    "spiral",
    "overlapping-classes",
    "three-regions",
    "two-moons",
    "digits-mlp",
    "mnist-convnet",
    "residual-filter-response",
    "spectral-residual",
    "evidential-regression",
    "evidential-classification",
    "last-layer",
    "mixture-density",
    "recurrent",
    "laplace-prior-network",
    "student-noise-network",
    "heteroscedastic-network",
    "learnt-prior-scales",
    "negative-binomial-network",
    "wide-network",
    "deep-network",
    "ten-thousand-weights",
    "wine-network",
    "diabetes-network",
    "two-outputs",
    "residual-network",
    "digits-components",
    "additive-network",
    "poisson-counts",
    "ordinal-ratings",
    "censored-survival",
    "mixed-effects",
)
"""Cards of networks."""

NAMES = (*STATISTICAL, *TEXTBOOK, *NETWORKS)
"""Of all cards, in the order of the list: simple ones first."""


class Catalogue(tuple[Card, ...]):
    """Cards, shown one a line."""

    __slots__ = ()

    @property
    def names(self) -> builtins.list[str]:
        """Return the names of the cards."""
        return [card.name for card in self]

    def __repr__(self) -> str:
        """Return a table: name, title, and the data that the user has to bring."""
        width = max((len(name) for name in self.names), default=0)
        lines = [f"{card.name:{width}}  {card.title}{_needed(card)}" for card in self]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        rows = "".join(
            f"<tr><td><code>{card.name}</code></td><td>{card.title}{_needed(card)}</td></tr>" for card in self
        )
        return f"<table><tr><th>card</th><th>model and data</th></tr>{rows}</table>"


def list() -> Catalogue:  # noqa: A001 - bz.zoo.list() reads as it should
    """Return all cards of the zoo.

    Returns
    -------
    Catalogue
        A tuple of cards that prints as a table.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> "linear-regression" in bz.zoo.list().names
    True
    """
    return Catalogue(load(name) for name in NAMES)


def load(name: str) -> Card:
    """Return a card by name.

    Parameters
    ----------
    name : str
        As in :func:`bnnzoo.zoo.list`.

    Returns
    -------
    Card

    Raises
    ------
    ZooError
        If there is no such card; the message names the nearest ones.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> bz.zoo.load("linear-regression").title
    'Linear regression with a known noise'
    """
    if name not in NAMES:
        near = get_close_matches(str(name), NAMES, 3, 0.4)
        hint = f"the nearest names are {', '.join(near)}" if near else "bz.zoo.list() has the names"
        raise ZooError(f"There is no card {name!r} in the zoo; {hint}.")
    card: Card = import_module(f"bnnzoo.zoo.cards.{name.replace('-', '_')}").CARD
    return card


def _needed(card: Card) -> str:
    return f" [needs {card.needs}]" if card.needs else ""
