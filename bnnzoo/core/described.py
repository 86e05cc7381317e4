"""What bnnzoo's own models say of themselves beyond being callable."""

from collections.abc import Mapping, Sequence, Set
from typing import Any

from bnnzoo.core.types import Data, Model

__all__ = ["Described", "described"]


class Described:
    """Base class of models that say more than a function can.

    A user's model is asked nothing: that its network has an attribute ``hidden`` or ``dims`` means nothing here.
    """

    observes: str | None = None
    """Name of the site without whose observation a fit is a mistake."""

    needed_at_new_rows: Sequence[str] = ()
    """Arguments without which new rows cannot be predicted, if the fit had them."""

    auxiliary: Set[str] = frozenset()
    """Latent sites that only serve to compute others."""

    dims: Mapping[str, Sequence[str]] = {}
    """Names of the dimensions of sites."""

    coords: Mapping[str, Sequence[Any]] = {}
    """Labels along dimensions."""

    levels: Sequence[Any] = ()
    """Names of the classes of an outcome, in the order of its numbers; empty if it has none."""

    takes_frames: bool = False
    """Whether a data frame may stand in place of the arguments, see `from_data`."""

    def from_data(self, data: Data, *, new: bool = False) -> Data | None:
        """Return what was passed in place of the arguments as arguments, or None where it is the arguments.

        Parameters
        ----------
        data : tuple
        new : bool
            Whether rows are to be predicted.
        """
        return None


def described(model: Model) -> Described:
    """Return what a model says of itself: nothing, unless it is one of bnnzoo's own.

    Examples
    --------
    >>> described(lambda x: None).observes is None
    True
    """
    return model if isinstance(model, Described) else Described()
