"""Rounding errors of a log density in single precision at the draws of a posterior."""

import torch

from bnnzoo.core.fit_warnings import PrecisionWarning, Trouble
from bnnzoo.core.model.hessian import in_double
from bnnzoo.core.model.log_joints import log_joint_at
from bnnzoo.core.posterior.posterior import Draws, Posterior
from bnnzoo.core.program.surroundings import isolated

__all__ = ["of_rounding"]

NUM_DRAWS = 40
LARGEST_ERROR = 0.5  # of the log density, in nats: a proposal's chance of being kept is then a matter of rounding
LARGEST_SHARE = 0.05  # of draws that single precision cannot evaluate, or not to that error
NEARBY = 1e-5  # as parts of the parameters: a hundred times what single precision tells apart
EVALUATIONS = 4_000_000  # draws times observations; a larger model has fewer draws


def of_rounding(posterior: Posterior) -> Trouble | None:
    """Return whether the log density at draws of a posterior in single precision is that of double precision, up to a constant.

    Where it is not, every other sign of trouble may be one of rounding.

    Parameters
    ----------
    posterior : Posterior
        Chains, members or an approximation.
    """
    density = posterior.density
    double = in_double(density)
    count = min(NUM_DRAWS, EVALUATIONS // max(1, density.num_data))
    if density.dtype is torch.float64 or double is density or count < 1 / LARGEST_SHARE:
        return None
    with torch.no_grad(), isolated(0, density.device):
        every = posterior.draws(None if isinstance(posterior, Draws) else count).flatten(0, 1)
        theta = every[torch.linspace(0, len(every) - 1, count).long()]  # of all chains, members or components alike
        noise = torch.randn(theta.shape, generator=torch.Generator().manual_seed(0)).to(theta)
        theta = theta * (1 + NEARBY * noise)  # a chain that stands still does so where there is a value
        try:
            single, exact = log_joint_at(density, theta).double(), log_joint_at(double, theta.double())
        except Exception:  # a model may name a type of its own, or hold tensors that it does not convert
            return None
    known = exact.isfinite()
    failed = known & ~single.isfinite()
    error = (single - exact)[known & ~failed]
    error = (error - error.median()).abs() if len(error) else error
    large = int((error > LARGEST_ERROR).sum())
    if int(failed.sum()) + large <= LARGEST_SHARE * int(known.sum()):
        return None
    cannot = f"cannot be computed at {int(failed.sum())} of {len(theta)} draws" if bool(failed.any()) else ""
    moved = f"is off by up to {float(error.max()):.2g} nats" if large else ""
    return Trouble(
        PrecisionWarning,
        f"Single precision does not hold this posterior: because of rounding, its log density "
        f"{' and '.join(filter(None, (cannot, moved)))}. Write fit(..., dtype=torch.float64) before anything else.",
    )
