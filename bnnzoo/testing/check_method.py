"""Conformance of an inference method: what every method owes its users."""

import dataclasses
import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyro
import torch
import xarray as xr

from bnnzoo.core.method import Method, Need
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.core.program.surroundings import usable_device
from bnnzoo.inference.fit import fit
from bnnzoo.predictive import posterior_predictive, predict
from bnnzoo.testing.isolation import leaves_no_trace
from bnnzoo.testing.monte_carlo import check_moments
from bnnzoo.testing.targets import Target, linear_gaussian, linear_network

__all__ = ["check_method"]


def check_method(
    method: Method,
    *,
    accuracy: float = 0.0,
    seed: int = 0,
    device: torch.device | str | None = None,
    target: Target | None = None,
) -> None:
    """Check an inference method against what every method of bnnzoo promises.

    It is a frozen dataclass that can be made without arguments; fits a linear-Gaussian model whose posterior
    factorises, within Monte Carlo error plus ``accuracy`` (an ensemble: every member at the mode); returns finite draws
    [C, S, P] of the dtype and on the device asked for; is reproducible by seed; leaves global random streams and Pyro's
    parameter store alone; refuses a model that lacks what it ``needs``, before running; and its trees have the log
    prior density of every site and survive netCDF.

    Parameters
    ----------
    method : Method
        With budgets that suffice for three parameters.
    accuracy : float
        Error of an approximate method beyond Monte Carlo: of means in posterior sds, of variances relative to them.
    seed : int
    device : torch.device or str, optional
        Where to fit. Default: torch's default device.
    target : Target, optional
        Model, data and the moments to recover, for a method whose optimum is known and is not the posterior. Default: the
        linear-Gaussian model.

    Raises
    ------
    AssertionError
        Naming the promise that is broken.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> check_method(bz.MAP(), accuracy=1e-3)
    """
    name = type(method).__name__
    _check_is_declarative(method)
    if target is None:
        target = linear_network(correlation=0.0) if Need.NETWORK in method.needs else linear_gaussian(correlation=0.0)
    refit = partial(fit, target.model, method, *target.data, progress=False, device=device)
    with leaves_no_trace(name):
        posterior = refit(seed=seed)
    _check_draws(name, posterior, torch.get_default_dtype(), usable_device(device))
    _check_recovery(name, posterior, target, accuracy)
    first = posterior.draws()
    torch.rand(3)  # another state of the global stream must not matter
    same = refit(seed=seed).draws()
    if not torch.equal(first, same):
        raise AssertionError(f"{name}: two fits with seed {seed} differ by up to {(first - same).abs().max():.3g}.")
    other = refit(seed=seed + 1, dtype=torch.float32)
    _check_draws(f"{name} in float32", other, torch.float32, posterior.density.device)
    if posterior.info.sampling != "ensemble" and torch.allclose(posterior.draws().float(), other.draws()):
        raise AssertionError(f"{name}: fits with seeds {seed} and {seed + 1} have the same draws.")
    guide = posterior.as_guide()
    with torch.random.fork_rng(), pyro.get_param_store().scope():
        values: dict[str, Any] = guide(*target.data)
    for site in posterior.density.sites:
        if site.name not in values or values[site.name].shape != site.shape:
            raise AssertionError(
                f"{name}: as_guide() gives no value of shape {tuple(site.shape)} for site {site.name!r}."
            )
    _check_trees(name, posterior, target)
    if Need.NETWORK in method.needs:
        plain = linear_gaussian()
        try:
            fit(plain.model, method, *plain.data, progress=False)
        except ValueError as error:
            if "random_module" not in str(error) or "w" not in str(error):
                raise AssertionError(f"{name}: the refusal names neither the site nor the way out: {error}") from None
        else:
            raise AssertionError(f"{name} needs the layers of a network but does not refuse a model without one.")


def _check_is_declarative(method: Method) -> None:
    kind = type(method)
    if not dataclasses.is_dataclass(kind) or not kind.__dataclass_params__.frozen:
        raise AssertionError(f"{kind.__name__} must be a frozen dataclass of hyperparameters.")
    required = [
        field.name
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    if required:
        raise AssertionError(
            f"{kind.__name__} has no default for {', '.join(required)}; every hyperparameter needs one."
        )
    if not all(isinstance(need, Need) for need in kind.needs):
        raise AssertionError(f"{kind.__name__}.needs must be a set of Need.")


def _check_draws(name: str, posterior: Posterior, dtype: torch.dtype, device: torch.device) -> None:
    draws, info = posterior.draws(), posterior.info
    if draws.ndim != 3 or draws.shape[2] != posterior.density.num_params:
        raise AssertionError(
            f"{name}: draws have shape {tuple(draws.shape)}, not [chain, draw, {posterior.density.num_params}]."
        )
    if draws.dtype != dtype:
        raise AssertionError(f"{name}: draws are {draws.dtype}, not {dtype}.")
    if draws.device.type != device.type:
        raise AssertionError(f"{name}: draws are on {draws.device}, not on {device}.")
    if not torch.isfinite(draws).all():
        raise AssertionError(f"{name}: some draws are not finite.")
    if info.sampling not in ("mcmc", "iid", "ensemble"):
        raise AssertionError(f"{name}: sampling is {info.sampling!r}, not 'mcmc', 'iid' or 'ensemble'.")
    if info.num_gradients < 1 or not info.seconds > 0:
        raise AssertionError(
            f"{name}: num_gradients is {info.num_gradients} and seconds {info.seconds}; both are to be counted."
        )
    json.dumps(dict(info.config))


def _check_recovery(name: str, posterior: Posterior, target: Target, accuracy: float) -> None:
    (site,) = target.mean
    values = posterior.density.constrain(posterior.draws())[site].detach().double().cpu().numpy()
    mean, sd = target.mean[site].double().numpy(), target.sd[site].double().numpy()
    if posterior.info.sampling != "ensemble":
        check_moments(f"{name}: {site}", values, mean, sd, accuracy=accuracy)
        return
    error = float((np.abs(values - mean) / sd).max())
    if error > max(accuracy, 1e-3):
        raise AssertionError(
            f"{name}: a member is {error:.3g} posterior sds off the mode (accuracy {max(accuracy, 1e-3)})."
        )


def _check_trees(name: str, posterior: Posterior, target: Target) -> None:
    train = posterior_predictive(posterior, *target.data)
    prior = train["log_prior"].to_dataset().to_dataarray("site").sum("site")
    likelihood = train["log_likelihood"]["y"].sum("obs_id")
    error = float(abs(train["sample_stats"]["lp"] - prior - likelihood).max())
    if error > 1e-3:
        raise AssertionError(f"{name}: log_prior and log_likelihood differ from lp by up to {error:.3g}.")
    for tree in (train, predict(posterior, target.data[0][:5])):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "tree.nc"
            tree.to_netcdf(path, engine="h5netcdf")
            with xr.open_datatree(path, engine="h5netcdf") as loaded:
                if not tree.identical(loaded.load()):
                    raise AssertionError(f"{name}: a tree comes back from netCDF as a different one.")
