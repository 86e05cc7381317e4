"""Two libraries under the same names, so that one text of a model runs in both."""

from types import SimpleNamespace
from typing import Any


def pyro_names() -> SimpleNamespace:
    """Return Pyro's primitives and the operations on tensors that models use."""
    import pyro
    import pyro.distributions as dist
    import torch

    def stack(values: Any, axis: int = 0) -> torch.Tensor:
        return torch.stack(list(values), axis)

    operations = (
        "exp",
        "log",
        "sqrt",
        "tanh",
        "sigmoid",
        "where",
        "ones",
        "zeros",
        "eye",
        "lgamma",
        "cumsum",
        "softmax",
    )
    return SimpleNamespace(
        **{name: getattr(torch, name) for name in operations},
        sample=pyro.sample,
        plate=pyro.plate,
        plate_without_size=lambda name, size: pyro.plate(name),
        factor=pyro.factor,
        deterministic=pyro.deterministic,
        mask=lambda mask: pyro.poutine.mask(mask=mask),
        dist=dist,
        stack=stack,
        concatenate=lambda values: torch.cat(list(values)),
        logsumexp=torch.logsumexp,
        cholesky=torch.linalg.cholesky,
        diag=torch.diag_embed,
    )


def numpyro_names() -> SimpleNamespace:
    """Return NumPyro's primitives and the same operations on JAX arrays."""
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    operations = ("exp", "log", "sqrt", "tanh", "where", "ones", "zeros", "eye", "cumsum", "stack", "concatenate")
    return SimpleNamespace(
        **{name: getattr(jnp, name) for name in operations},
        sigmoid=jax.nn.sigmoid,
        lgamma=jax.scipy.special.gammaln,
        softmax=jax.nn.softmax,
        sample=numpyro.sample,
        plate=numpyro.plate,
        plate_without_size=numpyro.plate,
        factor=numpyro.factor,
        deterministic=numpyro.deterministic,
        mask=lambda mask: numpyro.handlers.mask(mask=mask),
        dist=dist,
        logsumexp=jax.scipy.special.logsumexp,
        cholesky=jnp.linalg.cholesky,
        diag=jnp.diag,
    )
