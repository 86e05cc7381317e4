"""Variational inference with a normalising flow: the best Gaussian, transformed."""

from dataclasses import KW_ONLY, dataclass, field, replace

import torch

from bnnzoo.core.method import FitContext, Method
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.posterior import Mixture
from bnnzoo.core.settings import Count, Positive
from bnnzoo.inference.optimise.pathfinder import stacked
from bnnzoo.inference.variational.elbo import InvertibleFamily
from bnnzoo.inference.variational.fit_family import GaussianVI, fit_family
from bnnzoo.inference.variational.flow import FlowPosterior, flow_over
from bnnzoo.inference.variational.frame import frame_of
from bnnzoo.inference.variational.full_rank_vi import FullRankVI
from bnnzoo.inference.variational.variational_settings import VISettings

__all__ = ["FlowVI"]

CLIP = 5.0  # usual lengths of a gradient; see Adam


@dataclass(frozen=True)
class FlowVI(VISettings):
    r"""Normalising flow over unconstrained space: the best Gaussian, transformed by coupling layers.

    .. math:: \theta = \mu + L \, T_\phi(\epsilon), \qquad \epsilon \sim N(0, I)

    For posteriors that are skewed or curved, of up to a few hundred parameters. T starts as the identity at the Gaussian
    that ``base`` finds; mean, covariance and T are then learned together. Each layer of T shifts and scales the entries and
    sets their skewness and tail weight. Where the posterior is Gaussian the gradient has no noise there, and T stays the
    identity.

    Needs zuko: ``pip install bnnzoo[flows]``.

    Parameters
    ----------
    base : FullRankVI or MeanFieldVI
        The Gaussian fitted first, with its own number of steps and learning rate.
    num_layers : int
        Number of coupling layers. The halves swap in every second one.
    num_hidden : int
        Hidden units of the network in each layer.
    num_steps, num_particles, learning_rate, schedule, num_averaged, tolerance
        Of the second fit, as for :class:`bnnzoo.inference.MeanFieldVI`.
    batch_size, num_restarts, kl_annealing, kl_weighting, temperature, init, init_scale
        Of both fits, as for :class:`bnnzoo.inference.MeanFieldVI`; the divergence is annealed in the first.
    keep : {"all", "best"}
        Which restarts are returned.

    References
    ----------
    Rezende and Mohamed (2015), Variational inference with normalizing flows, ICML. Dinh, Sohl-Dickstein and Bengio (2017),
    Density estimation using Real NVP, ICLR. Agrawal, Sheldon and Domke (2020), Advances in black-box VI, NeurIPS.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> posterior = bz.fit(target.model, FlowVI(bz.FullRankVI(num_steps=50), num_steps=50), *target.data)
    >>> posterior.draws(10).shape
    torch.Size([1, 10, 3])
    """

    base: Method = field(default_factory=lambda: FullRankVI())
    num_layers: Count = 3
    num_hidden: Count = 32
    _: KW_ONLY
    num_particles: Count = 16
    learning_rate: Positive = 0.01

    def run(self, density: LogDensity, context: FitContext) -> FlowPosterior | Mixture:
        """Fit the Gaussian, then the flow; see :func:`bnnzoo.fit`.

        Raises
        ------
        ValueError
            If ``base`` is not a method that a flow can start from.
        ImportError
            If zuko is not installed.
        KeyboardInterrupt
            If the Gaussian was interrupted: there is no flow yet.
        """
        base = self._base()
        family = base.family(density.num_params)
        if not isinstance(family, InvertibleFamily):
            raise ValueError(
                f"FlowVI(base={type(base).__name__}()): write FullRankVI() or MeanFieldVI(), whose draws can be turned back into "
                f"noise."
            )
        flow = flow_over(density, family, self.num_layers, self.num_hidden, context.seed)
        params, before = fit_family(base, family, density, context)
        if not before.complete:
            raise KeyboardInterrupt("FlowVI was interrupted before its flow was trained.")
        start, frame = torch.stack([flow.start_from(row) for row in params]), None
        if "converged" in before.config:  # the Gaussians have units, in which they stand at the origin
            frame = stacked([frame_of(*family.gaussian(row)) for row in params])
            origin = family.start(torch.zeros_like(frame.loc[0]), 1.0)
            start = torch.stack([flow.start_from(origin)] * len(params))
        flowing = replace(self, kl_annealing=0.0)
        params, info = fit_family(flowing, flow, density, context, start=start, frame=frame, clip=CLIP)
        modes = {key: before.config[key] for key in ("modes", "num_searches") if key in before.config}
        info = replace(
            info,
            num_gradients=before.num_gradients + info.num_gradients,
            config={**modes, **info.config},
        )
        components = tuple(FlowPosterior(density, info, flow, row) for row in params)
        return components[0] if len(components) == 1 else Mixture(density, info, components)

    def _base(self) -> GaussianVI:
        """Return the first fit with the settings that both share."""
        base = self.base
        if not isinstance(base, GaussianVI):
            raise ValueError(f"FlowVI(base={type(base).__name__}()): write FullRankVI() or MeanFieldVI().")
        if base.init is not None:
            raise ValueError(f"FlowVI starts at its own init: leave init out of {type(base).__name__}.")
        shared = ("batch_size", "num_restarts", "kl_annealing", "kl_weighting", "temperature", "init", "init_scale")
        return replace(base, keep="all", **{name: getattr(self, name) for name in shared})
