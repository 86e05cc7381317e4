"""Kronecker-factored Laplace approximation of a network's weights, layer by layer."""

import copy
import warnings
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bnnzoo.core.method import FitContext, Need
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.replay import Node
from bnnzoo.core.posterior.covariance import Kronecker
from bnnzoo.core.posterior.posterior import Gaussian
from bnnzoo.core.program.network import Network
from bnnzoo.core.program.sites import ModelError, Site
from bnnzoo.inference.ensembles.map import MAP
from bnnzoo.inference.laplace.curvature import Curvature, RowCurvature, choose_curvature, precision, root_of_node
from bnnzoo.inference.laplace.family import (
    LaplaceError,
    LaplaceSettings,
    Mode,
    best_approximation,
    find_modes,
    hierarchical_hint,
    laplace_posterior,
    refuse_reparametrised,
)
from bnnzoo.inference.laplace.hessian_products import hessian_diagonal
from bnnzoo.inference.laplace.whole_model import WholeModel

__all__ = ["KFACLaplace"]

BATCH = 1024  # rows that go through the network together


@dataclass(frozen=True)
class KFACLaplace(LaplaceSettings):
    r"""Gaussian at the mode whose precision has one Kronecker product for each weight matrix of a network.

    .. math::
        \Lambda_l = G_l \otimes A_l + \tau_l I, \qquad A_l = \frac{1}{N} \sum_n a_n a_n^T, \qquad
        G_l = \sum_n J_n^T F_n J_n

    with the layer's inputs a, the Jacobian J of the network's output with respect to the layer's outputs, the Fisher
    information F of the likelihood with respect to the network's output, and the prior precision tau, averaged within
    each weight matrix. Biases have G alone. Latent sites that are not weights, such as a noise scale, have one dense
    block each. For networks of linear and two-dimensional convolutional layers that the model calls once.

    Needs curvlinops-for-pytorch: ``pip install bnnzoo[kfac]``.

    Parameters
    ----------
    map : MAP
        How the mode is found.
    curvature : {"ggn", "empirical_fisher"} or MonteCarloFisher
        Curvature of the likelihood: F is its Fisher information, the outer product of its gradient, or that of
        gradients at drawn observations. For the exact Hessian use :class:`bnnzoo.inference.Laplace`.
    damping : float
        Added to the prior precision.

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
    curvature: RowCurvature = field(default="ggn", kw_only=True)

    needs: ClassVar[frozenset[Need]] = frozenset({Need.NETWORK})

    def run(self, density: LogDensity, context: FitContext) -> Gaussian:
        """Find the mode and the Kronecker factors there; see :func:`bnnzoo.fit`.

        Raises
        ------
        ModelError
            If the model has several networks, the network has a layer without Kronecker factors, or the likelihood
            cannot be read.
        LaplaceError
            If the prior precision is not positive.
        """
        _refuse_unsupported(density)
        refuse_reparametrised(density, "KFACLaplace")
        modes = find_modes(self, density, context)
        curvature = choose_curvature(self.curvature, density, modes[0].theta)

        def around(mode: Mode) -> Gaussian:
            blocks = _blocks(density, mode, curvature, self.damping)
            return laplace_posterior(density, mode, curvature, Kronecker(blocks))

        return best_approximation(modes, around)[1]


def _refuse_unsupported(density: LogDensity) -> None:
    if len(density.networks) != 1:
        names = ", ".join(network.name for network in density.networks)
        raise ModelError(
            f"KFACLaplace works on one network, and this model has {names}. Use DiagonalLaplace() or Laplace()."
        )
    (network,) = density.networks
    for parameter in network.sites:
        path, parametrised, _ = parameter.rpartition(".")[0].partition("parametrizations.")
        if parametrised or not isinstance(network.module.get_submodule(path), nn.Linear | nn.Conv2d):
            raise ModelError(
                f"KFACLaplace has Kronecker factors for Linear and Conv2d layers, but {parameter!r} belongs to "
                f"{_layer_of_user(network.module, path.rstrip('.'))}. Use "
                "DiagonalLaplace(), LastLayerLaplace(), LowRankLaplace() or Laplace()."
            )


def _layer_of_user(net: nn.Module, path: str) -> str:
    """Return type and name of a layer, without the classes that torch makes for parametrised weights and projections."""
    parent = net.get_submodule(path.rpartition(".")[0])
    if isinstance(parent, nn.MultiheadAttention):
        path = path.rpartition(".")[0]
    kinds = [kind.__name__ for kind in type(net.get_submodule(path)).__mro__]
    kind = next(name for name in kinds if not name.startswith("Parametrized"))
    return f"the {kind} layer {path!r}" if path else f"a {kind} layer"


def _blocks(
    density: LogDensity, mode: Mode, curvature: Curvature, damping: float
) -> tuple[tuple[Tensor, Tensor, Tensor], ...]:
    """Return for each site the eigenvectors of both Kronecker factors and the standard deviations in that basis."""
    (network,) = density.networks
    factors = _kronecker_factors(density, mode.theta, network, curvature)
    prior = -hessian_diagonal(density.log_prior, mode.theta) + damping
    return tuple(
        _weight_block(site, factors[site.name], prior[site.span])
        if site.is_weight
        else _dense_block(density, mode.theta, site, curvature, damping)
        for site in density.sites
    )


def _kronecker_factors(
    density: LogDensity, theta: Tensor, network: Network, curvature: Curvature
) -> dict[str, tuple[Tensor, Tensor | None]]:
    """Return for each weight site G ``[out, out]`` and A ``[in, in]``; None instead of A for a bias."""
    layers = copy.deepcopy(network.layers).eval().to(theta).requires_grad_(True)
    values = density.constrain(theta)
    with torch.no_grad():
        for parameter, name in network.sites.items():
            layers.get_parameter(parameter).copy_(values[name])
    module: nn.Module
    prefix = ""
    if network.samples_itself:
        module, prefix = WholeModel(density, theta, network, layers, curvature), "layers."
        call, columns = _whole_call(module, density)
    else:
        module, call = layers, _observed_call(density, theta, network)
        columns = _root_columns(density, call, curvature)
    state = _curvlinops_state(module, [layers.get_parameter(p) for p in network.sites], call, columns)
    factors = {}
    for parameter, name in network.sites.items():
        layer, _, kind = f"{prefix}{parameter}".rpartition(".")
        inputs = state["input_covariances"][layer] if kind == "weight" else None
        factors[name] = (state["gradient_covariances"][layer], inputs)
    return factors


@dataclass(frozen=True)
class _Call:
    """The one call of the network: its ``inputs[N, ...]``, its ``output[N, ...]`` as a leaf, and the observed site.

    `block` rows go through it together.
    """

    inputs: Tensor
    output: Tensor
    node: Node
    block: int = BATCH


def _observed_call(density: LogDensity, theta: Tensor, network: Network) -> _Call:
    """Run the model at theta with the network's output as a leaf variable on which the likelihood depends."""
    inputs: list[Any] = []
    leaves: list[Tensor] = []
    calls: Counter[str] = Counter()

    def cut(_: nn.Module, arguments: Any, output: Tensor) -> Tensor:
        inputs.append(arguments)
        leaves.append(output.detach().requires_grad_())
        return leaves[-1]

    def count(layer: str, *_: Any) -> None:
        calls[layer] += 1

    paths = dict.fromkeys(parameter.rpartition(".")[0] for parameter in network.sites)
    handles = [network.module.get_submodule(path).register_forward_pre_hook(partial(count, path)) for path in paths]
    handles.append(network.module.register_forward_hook(cut))
    try:
        with torch.enable_grad():
            nodes = density.nodes(theta.detach(), *density.data)
    finally:
        for handle in handles:
            handle.remove()
    if len(inputs) != 1 or len(inputs[0]) != 1 or len(density.observed) != 1:
        raise ModelError(
            f"KFACLaplace needs a model that calls its network once, on one tensor, for one observed site; this one calls it "
            f"{len(inputs)} times and observes {', '.join(density.observed) or 'nothing'}. Use DiagonalLaplace() or Laplace()."
        )
    for path, number in calls.items():
        if number > 1:
            raise ModelError(
                f"KFACLaplace needs a network that calls each layer once in a pass; this one calls "
                f"{_layer_of_user(network.module, path)} {number} times, as a recurrent one does. Use DiagonalLaplace() or "
                f"Laplace()."
            )
    return _Call(inputs[0][0], leaves[0], nodes[density.observed[0]])


def _whole_call(module: WholeModel, density: LogDensity) -> tuple[_Call, list[Tensor]]:
    """Run a whole model; its outputs are whitened already, so that the columns are unit vectors."""
    rows = torch.arange(density.num_data, device=density.device)
    with torch.enable_grad():
        output = module(rows)
    columns = torch.eye(output.shape[1], dtype=output.dtype, device=output.device)
    call = _Call(rows, output.detach(), {}, block=len(rows))
    return call, [column.expand_as(output) for column in columns]


def _root_columns(density: LogDensity, call: _Call, curvature: Curvature) -> list[Tensor]:
    """Return tensors like the network's output whose outer products sum to the curvature with respect to each row's output.

    Examples are the columns of the transposed Jacobian of the whitened outputs, and the gradient of the log likelihood.
    """
    with torch.enable_grad():
        outputs = root_of_node(density, call.node, curvature)
        columns = outputs.reshape(len(outputs), -1).sum(0)
    last = len(columns) - 1
    return [torch.autograd.grad(c, call.output, retain_graph=i < last)[0] for i, c in enumerate(columns)]


def _curvlinops_state(
    module: nn.Module, parameters: list[nn.Parameter], call: _Call, columns: list[Tensor]
) -> dict[str, Any]:
    """Return the factors that curvlinops computes when each column is the gradient of a loss with respect to the output."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of its own dependencies, at import
        try:
            from curvlinops import FisherType, KFACLinearOperator
        except ImportError as error:
            raise ImportError("KFACLaplace needs curvlinops-for-pytorch: pip install bnnzoo[kfac].") from error
        output = call.output.detach()
        if output.ndim == 1:  # where curvlinops wants a column; ``module`` is a copy of ours
            module.register_forward_hook(lambda _, arguments, output: output[:, None])
            output, columns = output[:, None], [column[:, None] for column in columns]
        # The gradient of the squared error with respect to f is 2 (f - y); y = f - g / 2 makes it any g.
        rows = [
            (call.inputs[block], (output - column / 2)[block])
            for block in torch.arange(len(call.inputs), device=call.inputs.device).split(call.block)
            for column in columns
        ]
        operator = KFACLinearOperator(
            module,
            nn.MSELoss(reduction="sum"),
            parameters,
            rows,
            fisher_type=FisherType.EMPIRICAL,
            check_deterministic=False,
            num_per_example_loss_terms=1,
            num_data=len(call.inputs) * len(columns),
        )
        operator.compute_kronecker_factors()
    state: dict[str, Any] = operator.state_dict()
    return state


def _weight_block(site: Site, factors: tuple[Tensor, Tensor | None], prior: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the eigenvectors of both factors, and one standard deviation for each product of them."""
    gradients, inputs = factors
    shift = float(prior.mean())
    if shift <= 0:
        raise LaplaceError(
            f"The prior precision of site {site.name!r} at the mode is {shift:.3g}: add damping={max(-2 * shift, 1e-6):.2g}."
        )
    left_values, left = torch.linalg.eigh(gradients)
    inputs = gradients.new_ones(1, 1) if inputs is None else inputs
    right_values, right = torch.linalg.eigh(inputs)
    products = left_values.clamp(min=0.0)[:, None] * right_values.clamp(min=0.0)
    return left, right, (products + shift).rsqrt()


def _dense_block(
    density: LogDensity, theta: Tensor, site: Site, curvature: Curvature, damping: float
) -> tuple[Tensor, Tensor, Tensor]:
    index = torch.arange(site.span.start, site.span.stop, device=theta.device)
    values, vectors = torch.linalg.eigh(precision(density, theta, curvature, index))
    values = values + damping
    smallest = float(values[0])
    if not smallest > 0:
        raise LaplaceError(
            f"The precision of site {site.name!r} at the mode is not positive: its smallest eigenvalue is {smallest:.3g}. "
            f"Give the site a proper prior, or add damping={damping + max(-2 * smallest, 1e-6):.2g}.{hierarchical_hint(density)}"
        )
    return vectors.to(theta.dtype), theta.new_ones(1, 1), values.rsqrt()[:, None].to(theta.dtype)
