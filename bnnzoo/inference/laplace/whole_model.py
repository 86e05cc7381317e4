"""A whole Pyro model as one module of torch, for networks that sample their own weights."""

from contextlib import ExitStack
from typing import Any

from torch import Tensor, nn

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.program.network import Network
from bnnzoo.core.program.sites import ModelError
from bnnzoo.inference.laplace.curvature import Curvature, root_of_node

__all__ = ["WholeModel"]


class WholeModel(nn.Module):
    """Module that maps the model's data to ``outputs[N, K]``, a root of the likelihood's curvature.

    Such a network may sample other sites, too, so its output cannot be told from the rest of the model. Here the whole model
    runs, and what its layers compute is replaced by the outputs of `layers`, whose parameters are variables.

    Parameters
    ----------
    density : LogDensity
    theta : Tensor [P]
        Values of all other sites.
    network : Network
    layers : torch.nn.Module
        A copy of ``network.layers`` with the weights at theta.
    curvature : Curvature
    """

    def __init__(
        self, density: LogDensity, theta: Tensor, network: Network, layers: nn.Module, curvature: Curvature
    ) -> None:
        super().__init__()
        self.layers = layers
        self._known = density, theta.detach(), network, curvature
        self._paths = list(dict.fromkeys(parameter.rpartition(".")[0] for parameter in network.sites))

    def forward(self, _: Tensor) -> Tensor:
        """Return the outputs ``[N, K]``; the argument is ignored, since a density holds its data."""
        density, theta, network, curvature = self._known
        calls: list[str] = []
        with ExitStack() as stack:
            for path in self._paths:

                def instead(_: nn.Module, arguments: Any, __: Tensor, path: str = path) -> Tensor:
                    calls.append(path)
                    found: Tensor = self.layers.get_submodule(path)(*arguments)
                    return found

                stack.callback(network.module.get_submodule(path).register_forward_hook(instead).remove)
            nodes = density.nodes(theta, *density.data)
        if sorted(calls) != sorted(self._paths) or len(density.observed) != 1:
            counts = ", ".join(f"{path or 'the network'} {calls.count(path)} times" for path in self._paths)
            raise ModelError(
                f"KFACLaplace needs a model that calls each layer of its network once, for one observed site; this one calls "
                f"{counts} and observes {', '.join(density.observed) or 'nothing'}. Use DiagonalLaplace() or Laplace()."
            )
        outputs = root_of_node(density, nodes[density.observed[0]], curvature)
        return outputs.reshape(len(outputs), -1)
