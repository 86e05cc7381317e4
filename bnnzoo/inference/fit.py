"""``fit``: one model, any method, one kind of result."""

import math
import warnings
from collections.abc import Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import torch

from bnnzoo.core.data.arguments import argument_names, changed_settings, positional, refuse_names_of_settings
from bnnzoo.core.data.frame_labels import columns_of, refuse_unaligned_rows
from bnnzoo.core.data.sizes import refuse_beyond_memory
from bnnzoo.core.fit_warnings import INSIDE
from bnnzoo.core.method import FitContext, Method, Need, declared, is_method, spreads
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.learnable import refuse_learnable
from bnnzoo.core.model.replay import Node
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.core.program.sites import ModelError
from bnnzoo.core.program.surroundings import usable_device
from bnnzoo.core.program.turns import one_at_a_time
from bnnzoo.core.reading.changes import remember_model
from bnnzoo.core.reading.consistency import is_small, refuse_inconsistent
from bnnzoo.core.reading.kept_graphs import keep_graphs, take_kept_graphs
from bnnzoo.core.reading.scales import warn_of_scales
from bnnzoo.core.settings import Seed, check_argument, check_settings
from bnnzoo.core.types import Data, Model, Whole
from bnnzoo.core.verdict.verdict import troubles
from bnnzoo.engine.choose import asked_for
from bnnzoo.engine.fallbacks import warned_once
from bnnzoo.engine.value_and_grad import Evaluated
from bnnzoo.inference.config import run_method
from bnnzoo.inference.optimise.streaming import read_for, refuse_checkpoint_of_loader
from bnnzoo.inference.progress import considerate, progress_for

__all__ = [
    "checked_starts",
    "fit",
    "fitted",
    "num_starts",
    "read_with_checks",
    "refuse_bad_call",
    "refuse_no_method",
    "refuse_unmet_needs",
    "warn_of_troubles",
]


@one_at_a_time
def fit(
    model: Model,
    method: Method,
    *data: Any,
    seed: Whole = 0,
    executor: Executor | None = None,
    checkpoint: str | Path | None = None,
    progress: bool = True,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    engine: str = "auto",
    **named: Any,
) -> Posterior:
    """Fit a Pyro model to data with any inference method and return its posterior over ``theta[P]``.

    Parameters
    ----------
    model : callable
        Any Pyro model, called as ``model(*data)``. Discrete latent variables of finitely many values are summed out.
    method : Method
        What to run, with all its settings: ``NUTS()``, ``MeanFieldVI()``, ``Laplace()``, ...
    *data
        Arguments of the model: tensors, numpy arrays, lists of numbers, frames and series of pandas or polars, labelled arrays of
        xarray, mappings and sequences of these, and anything else it takes. Whole numbers are converted to ``dtype`` where the
        model fails on them as they are.
        Methods that take mini-batches leave memory-mapped and zarr arrays on disk, and take a torch ``Dataset`` or
        ``DataLoader`` of tuples of the model's arguments instead.
    seed : int
        Seed of everything random. Torch's global random stream is left as it was.
    executor : concurrent.futures.Executor, optional
        Where independent chains, members and restarts run; default: in this process. The result is the same.
    checkpoint : str or Path, optional
        Folder of a store, such as ``"run.zarr"``, into which a sampler writes its draws and its state every few seconds. The
        same call goes on from there after a kill, with the draws an uninterrupted run would have. Needs zarr.
    progress : bool
        Show a progress bar where standard error is a terminal.
    device : torch.device or str, optional
        Where to compute; torch's default device unless given, which is the CPU unless you set another.
    dtype : torch.dtype, optional
        Of floating-point data and parameters; torch's default dtype unless given.
    engine : {"auto", "native", "graph", "python"}
        How arithmetic is run: as native code, as traced tensor graphs (compiled by torch where that pays), or as Python. The
        results differ by rounding only. "auto" chooses what is fastest, or what the environment variable ``BNNZOO_ENGINE``
        names.
    **named
        Arguments of the model by name, as in ``fit(model, method, x=x, y=y)``.

    Returns
    -------
    Posterior

    Raises
    ------
    ModelError
        If the model has what no method supports, or lacks what this one needs.
    DataError
        If the data are not finite numbers, do not fit the model, or come some at a time to a method that looks at all of them.
    TypeError, ValueError
        If a setting or the seed is not what it may be, or torch cannot compute on the device.

    Warns
    -----
    FitWarning
        Of what went wrong, one class for each kind: :class:`~bnnzoo.inference.DivergenceWarning`,
        :class:`~bnnzoo.inference.ChainsApartWarning`, ... Only runs that are long enough to be judged warn.

    Examples
    --------
    >>> import pyro, torch
    >>> import pyro.distributions as dist
    >>> import bnnzoo as bz
    >>> def model(y):
    ...     mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    ...     with pyro.plate("data", len(y)):
    ...         pyro.sample("y", dist.Normal(mu, 1.0), obs=y)
    >>> posterior = bz.fit(model, bz.Laplace(), torch.tensor([1.0, 2.0]), dtype=torch.float64)
    >>> round(float(posterior.loc), 6)
    1.0
    """
    given = {**locals()}
    refuse_bad_call("fit", model, method, seed, dtype)
    _refuse_wrong_executor(executor)
    _refuse_checkpoint(method, checkpoint)
    seed = int(seed)  # numpy's integers, too
    refuse_names_of_settings("fit", model, data, named, changed_settings(fit, given))
    target = usable_device(device)
    dtype = dtype or torch.get_default_dtype()
    data = positional(model, data, named)
    with warned_once():
        posterior = fitted(
            model,
            method,
            data,
            seed,
            dtype,
            target,
            executor=executor,
            checkpoint=checkpoint,
            progress=progress,
            engine=engine,
        )
        warn_of_troubles(posterior)
    return posterior


@one_at_a_time
def fitted(
    model: Model,
    method: Method,
    data: Data,
    seed: int,
    dtype: torch.dtype,
    device: torch.device,
    *,
    executor: Executor | None = None,
    checkpoint: str | Path | None = None,
    progress: bool = False,
    engine: str = "auto",
) -> Posterior:
    """Return what :func:`fit` does, of arguments that are known to be right, without a word on how good the posterior is."""
    method, density, first, columns = read_with_checks(method, model, data, dtype, device)
    refuse_checkpoint_of_loader(density, checkpoint)
    take_kept_graphs(model, method, density)
    if executor is not None and not spreads(method):
        warnings.warn(
            f"{type(method).__name__} ignores executor= and runs in this process: it has no chains, members or restarts to "
            f"spread.",
            skip_file_prefixes=INSIDE,
        )
    bar = progress_for(progress)
    bar = considerate(bar) if executor is None else bar  # workers run models, beside which no other thread may
    store = None if checkpoint is None else Path(checkpoint)
    context = FitContext(
        seed, bar, executor, store, asked_for(engine), columns, checked_starts(method, density, first, seed)
    )
    try:
        posterior = run_method(method, density, context)
    finally:
        bar.stop()
    remember_model(posterior.density)
    keep_graphs(model, method, density)
    return posterior


def warn_of_troubles(posterior: Posterior, *, evaluate: bool = True) -> None:
    """Say what went wrong in a fit, at the user's own line; without evaluations of the model, what its record tells."""
    for trouble in troubles(posterior, evaluate=evaluate):
        warnings.warn(trouble.message, trouble.kind, skip_file_prefixes=INSIDE)


def read_with_checks(
    method: Method, model: Model, data: Data, dtype: torch.dtype, device: torch.device
) -> tuple[Method, LogDensity, Mapping[str, Node], Mapping[str, tuple[str, ...]]]:
    """Return method and density as :func:`fit` uses them, the first run of the model, and the names of columns.

    Raises
    ------
    ModelError, DataError, ValueError
        As :func:`fit` does.
    """
    names = argument_names(model, len(data))
    refuse_unaligned_rows(data, names)
    method, density, first = read_for(method, model, data, dtype, device)
    refuse_unmet_needs(method, density)
    if not declared(method).learns_parameters:
        refuse_learnable(density.model)
    _refuse_beyond_memory(method, density)
    columns = columns_of(data, names)
    if density.networks:  # other posteriors are searched in units of their own
        warn_of_scales(density.data, argument_names(model, len(density.data)), columns)
    return method, density, first, columns


def num_starts(method: Method) -> int:
    """Return how many starting points a method looks for."""
    parts = declared(method).parts
    return 1 if parts is None else int(getattr(method, parts))


def checked_starts(
    method: Method, density: LogDensity, first: Mapping[str, Node], seed: int
) -> tuple[LogDensity, Evaluated] | None:
    """Refuse a model that is no function of its latent values; return what is thereby known of the method's starts."""
    starts = density.init(num_starts(method), seed)
    says = declared(method)
    one_by_one = says.in_native_code(density) and is_small(density.data)
    found = refuse_inconsistent(density, first, starts, traced=says.parts == "num_chains" and not one_by_one)
    return None if found is None else (density, found)


def refuse_no_method(method: object) -> None:
    """Refuse what is no method, such as a class in place of its object.

    Raises
    ------
    TypeError
        Saying what to write.
    """
    if isinstance(method, type):
        raise TypeError(f"The method is the class {method.__name__}, not an object. Write {method.__name__}().")
    if not is_method(method):
        found = repr(method) if isinstance(method, str | int | float | None) else f"of type {type(method).__name__}"
        raise TypeError(f"The second argument of fit is {found}, not a method. Write fit(model, NUTS(), x, y).")


def refuse_bad_call(name: str, model: object, method: Method, seed: object, dtype: object) -> None:
    """Refuse arguments of ``fit`` and its relatives that are not what they may be.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, and what to write.
    """
    refuse_no_method(method)
    _refuse_no_model(name, model)
    check_settings(method)
    check_argument(name, "seed", seed, Seed)
    _refuse_dtype(name, dtype)


def _refuse_no_model(name: str, model: object) -> None:
    if not callable(model):
        raise TypeError(
            f"The first argument of {name} is a {type(model).__name__}, not a model. Write {name}(model, NUTS(), x, y)."
        )
    if type(model).__module__.startswith("torch.nn"):
        raise TypeError(
            f"The first argument of {name} is a network of torch ({type(model).__name__}), which has no prior and no likelihood. "
            f"Write model = bnnzoo.models.supervised(net, bnnzoo.priors.fan_in(), bnnzoo.likelihoods.gaussian())."
        )


def _refuse_wrong_executor(executor: object) -> None:
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise TypeError(
            f"fit(executor={executor!r}): write an executor of concurrent.futures, such as ProcessPoolExecutor(4, "
            f"mp_context=multiprocessing.get_context('spawn'))."
        )


def _refuse_dtype(name: str, dtype: object) -> None:
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise TypeError(f"{name}(dtype={dtype!r}): write torch.float32 or torch.float64.")


def _refuse_checkpoint(method: Method, checkpoint: str | Path | None) -> None:
    if not isinstance(checkpoint, str | Path | None):
        raise TypeError(f"fit(checkpoint={checkpoint!r}): write the name of a folder, such as 'run.zarr'.")
    if checkpoint is not None and not declared(method).resumable:
        raise ValueError(
            f"{type(method).__name__} cannot go on from a checkpoint; samplers of chains can, such as NUTS. "
            f"Leave checkpoint= out."
        )


def _refuse_beyond_memory(method: Method, density: LogDensity) -> None:
    names = (declared(method).parts, "num_draws")
    counts = {name: getattr(method, name) for name in names if name is not None and hasattr(method, name)}
    asked = ", ".join(f"{name}={count}" for name, count in counts.items())
    refuse_beyond_memory(
        float(math.prod(counts.values())) * density.num_params * density.dtype.itemsize,
        f"{asked} of {density.num_params} parameters",
        "Choose fewer",
    )


def refuse_unmet_needs(method: Method, density: LogDensity, written: str = "{}") -> None:
    """Refuse a model that lacks what a method needs; ``written`` shows how the method is written in another's settings.

    Raises
    ------
    ModelError
        Saying what the model lacks, and which method does without.
    """
    name = written.format(f"{type(method).__name__}()") if written != "{}" else type(method).__name__
    if Need.NETWORK in method.needs and not density.networks:
        sites = ", ".join(site.name for site in density.sites)
        raise ModelError(
            f"{name} needs {Need.NETWORK.value}, but this model has none (latent sites: {sites}). Sample the weights with "
            f"bnnzoo.random_module(...), or use {written.format('Laplace()')}, which works with any Pyro model."
        )
    if Need.LIKELIHOOD in method.needs and not density.num_data:
        raise ModelError(
            f"{name} needs {Need.LIKELIHOOD.value}, but this model observes nothing. Give it an observed site inside a plate: "
            f"pyro.sample(..., obs=y)."
        )
