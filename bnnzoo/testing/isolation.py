"""Checking that a computation leaves the process as it found it."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyro
import torch

__all__ = ["leaves_no_trace"]


@contextmanager
def leaves_no_trace(what: str) -> Iterator[None]:
    """Check that the body changes neither the global random streams nor Pyro's parameter store.

    Parameters
    ----------
    what : str
        Name of the computation, for the message.

    Raises
    ------
    AssertionError
        Naming what was changed.

    Examples
    --------
    >>> with leaves_no_trace("nothing"):
    ...     pass
    """
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state(legacy=False)  # noqa: NPY002
    store = {name: value.detach().clone() for name, value in pyro.get_param_store().items()}
    yield
    if not torch.equal(torch_state, torch.get_rng_state()):
        raise AssertionError(f"{what} changed torch's global random stream.")
    if repr(numpy_state) != repr(np.random.get_state(legacy=False)):  # noqa: NPY002
        raise AssertionError(f"{what} changed numpy's global random stream.")
    after = dict(pyro.get_param_store().items())
    if store.keys() != after.keys() or any(not torch.equal(store[name], after[name]) for name in store):
        raise AssertionError(f"{what} changed Pyro's global parameter store.")
