"""Kronecker-factored Laplace approximation of a network's weights, layer by layer."""

import copy
import time
import warnings
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from bnnzoo.core.covariance import Kronecker
from bnnzoo.core.density import LogDensity
from bnnzoo.core.network import Network
from bnnzoo.core.outputs import unwrapped
from bnnzoo.core.posterior import Gaussian
from bnnzoo.core.replay import replay
from bnnzoo.core.sites import ModelError, Site
from bnnzoo.core.types import Data, Need, Run
from bnnzoo.inference.curvature import hessian_diagonal, precision
from bnnzoo.inference.laplace import LaplaceError, best_member, laplace_info
from bnnzoo.inference.map import MAP

__all__ = ["KFACLaplace"]


@dataclass(frozen=True)
class KFACLaplace:
    r"""Gaussian at the mode whose precision has one Kronecker product for each weight matrix of a network.

    .. math::
        \Lambda_l = G_l \otimes A_l + \tau_l I, \qquad A_l = \frac{1}{N} \sum_n a_n a_n^T, \qquad
        G_l = \sum_n J_n^T F_n J_n

    with the layer's inputs a, the Jacobian J of the network's output about the layer's outputs, the Fisher
    information F of the likelihood about the network's output, and the prior's precision tau, for which the mean
    within a weight is taken. Biases have G alone. Latent sites that are no weights, such as a noise scale, have a
    dense block each. For networks of linear and two-dimensional convolutional layers whose output is the mean of a
    Gaussian with one noise scale, or the logits of a categorical or Bernoulli likelihood.

    Needs curvlinops-for-pytorch: ``pip install bnnzoo[kfac]``.

    Parameters
    ----------
    map : MAP
        How the mode is found.
    damping : float
        Added to the prior's precision.

    References
    ----------
    Martens and Grosse (2015), Optimizing neural networks with Kronecker-factored approximate
    curvature, ICML. Ritter, Botev and Barber (2018), A scalable Laplace approximation for neural networks, ICLR.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> x, y = torch.randn(20, 2), torch.randn(20)
    >>> model = bz.models.supervised(bz.models.mlp(2), bz.priors.normal(1.0), bz.likelihoods.gaussian(scale=0.5))
    >>> posterior = bz.fit(model, KFACLaplace(), x, y)
    >>> posterior.covariance.rank == posterior.density.num_params
    True
    """

    map: MAP = field(default_factory=MAP)
    damping: float = 0.0

    needs: ClassVar[frozenset[Need]] = frozenset({Need.NETWORK})

    def run(self, density: LogDensity, data: Data, run: Run) -> Gaussian:
        """Find the mode and the Kronecker factors there; see :func:`bnnzoo.fit`.

        Raises
        ------
        ModelError
            If the model has several networks, the network a layer without Kronecker factors, or the likelihood is
            another.
        LaplaceError
            If the prior's precision is not positive.
        """
        _refuse_unsupported(density)
        began = time.perf_counter()
        found = self.map.run(density, data, run)
        theta, _ = best_member(found)
        (network,) = density.networks
        factors = _kronecker_factors(density, data, theta, network)
        prior = -hessian_diagonal(density.log_prior, theta) + self.damping
        blocks = []
        for site in density.sites:
            if site.is_weight:
                blocks.append(_weight_block(site, factors[site.name], prior[site.span]))
            else:
                blocks.append(_dense_block(density, data, theta, site))
        info = laplace_info(self, found, "ggn", time.perf_counter() - began)
        return Gaussian(density, info, theta, Kronecker(tuple(blocks)))


def _refuse_unsupported(density: LogDensity) -> None:
    if len(density.networks) != 1:
        names = ", ".join(network.name for network in density.networks)
        raise ModelError(
            f"KFACLaplace works on one network, and this model has {names}. Use DiagonalLaplace() or Laplace()."
        )
    (network,) = density.networks
    for parameter in network.sites:
        layer = network.module.get_submodule(parameter.rpartition(".")[0])
        if not isinstance(layer, nn.Linear | nn.Conv2d):
            raise ModelError(
                f"KFACLaplace has Kronecker factors for Linear and Conv2d layers, but {parameter!r} belongs to "
                f"{type(layer).__name__}. Use DiagonalLaplace(), LastLayerLaplace() or Laplace()."
            )


def _kronecker_factors(
    density: LogDensity, data: Data, theta: Tensor, network: Network
) -> dict[str, tuple[Tensor, Tensor | None]]:
    """Return for each weight site G ``[out, out]`` and A ``[in, in]``; None instead of A for a bias."""
    inputs, output, site = _observed_call(density, data, theta, network)
    loss, scale = _loss_of(site["fn"], output, site["scale"])
    module = copy.deepcopy(network.module).to(theta).requires_grad_(True)
    values = density.constrain(theta)
    with torch.no_grad():
        for parameter, name in network.sites.items():
            module.get_parameter(parameter).copy_(values[name])
    target = torch.zeros_like(output) if not isinstance(loss, nn.CrossEntropyLoss) else output.argmax(-1)
    state = _curvlinops_state(module, loss, [module.get_parameter(p) for p in network.sites], inputs, target)
    factors = {}
    for parameter, name in network.sites.items():
        layer, _, kind = parameter.rpartition(".")
        gradients = scale * state["gradient_covariances"][layer]
        factors[name] = (gradients, state["input_covariances"][layer] if kind == "weight" else None)
    return factors


def _curvlinops_state(
    module: nn.Module, loss: nn.Module, parameters: list[nn.Parameter], inputs: Tensor, target: Tensor
) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of its own dependencies, at import
        try:
            from curvlinops import FisherType, KFACLinearOperator
        except ImportError as error:
            raise ImportError("KFACLaplace needs curvlinops-for-pytorch: pip install bnnzoo[kfac].") from error
        operator = KFACLinearOperator(
            module,
            loss,
            parameters,
            [(inputs, target)],
            fisher_type=FisherType.TYPE2,
            check_deterministic=False,
            num_data=len(inputs),
        )
        operator.compute_kronecker_factors()
    state: dict[str, Any] = operator.state_dict()
    return state


def _observed_call(
    density: LogDensity, data: Data, theta: Tensor, network: Network
) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Run the model at theta and return what went into the network, what came out, and the observed site."""
    calls: list[tuple[Any, Any]] = []
    handle = network.module.register_forward_hook(lambda _, args, output: calls.append((args, output)))
    try:
        with torch.no_grad():
            nodes = replay(density.model, density.constrain(theta), data, density.observed, density.device)
    finally:
        handle.remove()
    if len(calls) != 1 or len(calls[0][0]) != 1 or len(density.observed) != 1:
        raise ModelError(
            f"KFACLaplace needs a model that calls its network once, on one tensor, for one observed site; this one calls it "
            f"{len(calls)} times and observes {', '.join(density.observed) or 'nothing'}. Use DiagonalLaplace() or Laplace()."
        )
    (arguments, output), node = calls[0], nodes[density.observed[0]]
    if node["mask"] is not None and not (isinstance(node["mask"], bool) and node["mask"]):
        raise ModelError("KFACLaplace does not know masks in the likelihood. Use DiagonalLaplace() or Laplace().")
    return arguments[0], output, node


def _loss_of(distribution: Distribution, output: Tensor, site_scale: Any) -> tuple[nn.Module, float]:
    """Return the loss whose Hessian about the network's output is, times a number, the Fisher information."""
    base = unwrapped(distribution)
    factor = float(site_scale)
    if isinstance(base, torch.distributions.Normal) and _same(base.loc, output) and _is_one_number(base.scale):
        return nn.MSELoss(reduction="sum"), factor / (2 * float(base.scale.flatten()[0]) ** 2)
    if isinstance(base, torch.distributions.Categorical) and _same(base.probs, output.softmax(-1)):
        return nn.CrossEntropyLoss(reduction="sum"), factor
    if isinstance(base, torch.distributions.Bernoulli) and _same(base.logits, output):
        return nn.BCEWithLogitsLoss(reduction="sum"), factor
    raise ModelError(
        f"KFACLaplace needs the network's output to be the mean of a Gaussian with one noise scale or the logits of a "
        f"Categorical or Bernoulli likelihood; here it is something else of a {type(base).__name__}. Use DiagonalLaplace() or "
        f"Laplace()."
    )


def _same(a: Tensor, b: Tensor) -> bool:
    return a.numel() == b.numel() and torch.allclose(a.flatten(), b.flatten())


def _is_one_number(scale: Tensor) -> bool:
    return bool((scale == scale.flatten()[0]).all())


def _weight_block(site: Site, factors: tuple[Tensor, Tensor | None], prior: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the eigenvectors of both factors, and one standard deviation for each product of them."""
    gradients, inputs = factors
    shift = float(prior.mean())
    if shift <= 0:
        raise LaplaceError(
            f"The prior precision of site {site.name!r} at the mode is {shift:.3g}: add damping={-2 * shift:.2g}."
        )
    left_values, left = torch.linalg.eigh(gradients)
    inputs = gradients.new_ones(1, 1) if inputs is None else inputs
    right_values, right = torch.linalg.eigh(inputs)
    products = left_values.clamp(min=0.0)[:, None] * right_values.clamp(min=0.0)
    return left, right, (products + shift).rsqrt()


def _dense_block(density: LogDensity, data: Data, theta: Tensor, site: Site) -> tuple[Tensor, Tensor, Tensor]:
    index = torch.arange(site.span.start, site.span.stop, device=theta.device)
    values, vectors = torch.linalg.eigh(precision(density, data, theta, "ggn", index))
    if not bool((values > 0).all()):
        raise LaplaceError(
            f"The precision of site {site.name!r} at the mode has the eigenvalue {float(values[0]):.3g}."
        )
    return vectors, vectors.new_ones(1, 1), values.rsqrt()[:, None]
