"""Continuation of a finished run with its step size and scales, and fresh random streams."""

import zlib
from collections.abc import Mapping
from typing import cast

from torch import Tensor

from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.inference.markov.chain_settings import ChainSettings
from bnnzoo.inference.starts import places_of_starts

__all__ = ["continued_seed", "refuse_other_tuning", "tuning_to_go_on"]

OF_WARM_UP = frozenset({"num_warmup", "target_accept"})
"""What a run says about its warm-up, and chains do without that go on as they are."""


def tuning_to_go_on(settings: ChainSettings, theta: Tensor) -> dict[str, Tensor]:
    """Return the rows ``[C, ...]`` of what the run in ``settings.init`` tuned, of the chain from which each new one starts.

    Parameters
    ----------
    settings : ChainSettings
    theta : Tensor
        Starting points ``[C, P]``.
    """
    posterior = cast(Posterior, settings.init)  # goes_on(settings) holds
    chains, _ = places_of_starts(posterior.draws(), len(theta))
    return {name: value[chains].to(theta.device) for name, value in posterior.info.tuning.items()}


def continued_seed(seed: int, theta: Tensor) -> int:
    """Return a seed that depends on the starting points ``[C, P]``.

    With those of the run before, chains of one target would follow its path: they are the same map applied to another start.
    """
    return (seed + (zlib.crc32(theta.detach().cpu().numpy().tobytes()) << 20)) % 2**63


def refuse_other_tuning(found: Mapping[str, Tensor], needed: Mapping[str, Tensor]) -> None:
    """Refuse what another sampler tuned, or this one with another kind of mass matrix.

    Raises
    ------
    ValueError
    """
    shapes, wanted = (
        {name: list(value.shape) for name, value in each.items() if name not in OF_WARM_UP} for each in (found, needed)
    )
    if shapes != wanted:
        raise ValueError(
            f"With num_warmup=0 chains go on as the run in init was tuned, and that run tuned {_listed(shapes)} where this "
            f"sampler has {_listed(wanted)}. Use the method and the mass matrix of that run, or warm up: num_warmup=1000."
        )


def _listed(shapes: Mapping[str, list[int]]) -> str:
    return ", ".join(f"{name} {shape}" for name, shape in shapes.items())
