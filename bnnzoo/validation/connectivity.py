"""The log density along the line between two draws: whether two modes of a network are connected, up to symmetry."""

import json
from collections.abc import Mapping

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.core.program.layer_chain import layer_chain
from bnnzoo.diagnostics import match_weights
from bnnzoo.trees import refuse_other_kind

__all__ = ["mode_connectivity"]


def mode_connectivity(
    posterior: Posterior, first: tuple[int, int], second: tuple[int, int], *, num_points: int = 21
) -> xr.Dataset:
    r"""Log density of the training data along the line between two draws, as they are and with hidden units matched.

    .. math:: \log p(y, (1 - t)\, \theta_1 + t\, \theta_2), \qquad 0 \le t \le 1

    Two members of an ensemble usually have a barrier between them. If it goes away when the units of the second are matched
    with those of the first, the two are one mode up to symmetry.

    Parameters
    ----------
    posterior : Posterior
        From :func:`bnnzoo.fit`, with its data.
    first, second : pair of int
        Positions of chain and draw. Members of an ensemble are the draws of chain 0.
    num_points : int
        Points of the line, both ends included.

    Returns
    -------
    Dataset
        ``raw`` and ``matched`` ``[fraction]``, log densities in nats, and ``raw_barrier`` and ``matched_barrier``, how far the
        lowest point of each falls below the straight line between its ends.

    Raises
    ------
    ValueError
        If a draw does not exist, there are fewer than three points, or the layers of the network are unknown.

    References
    ----------
    J. Frankle et al., Linear mode connectivity and the lottery ticket hypothesis, ICML 2020; S. K. Ainsworth, J. Hayase,
    S. Srinivasa, Git Re-Basin: merging models modulo permutation symmetries, ICLR 2023.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> model = bz.models.supervised(bz.models.mlp(1, (3,), 1), bz.priors.fan_in(), bz.likelihoods.gaussian())
    >>> x = torch.linspace(-1, 1, 10)[:, None]
    >>> members = bz.fit(model, bz.MAP(num_members=2, num_steps=50), x, x[:, 0], progress=False)
    >>> path = bz.validation.mode_connectivity(members, (0, 0), (0, 1), num_points=5)
    >>> dict(path["matched"].sizes)
    {'fraction': 5}
    """
    refuse_other_kind(posterior, Posterior, "posterior", "what bnnzoo.fit returns")
    if num_points < 3:
        raise ValueError(f"num_points={num_points}: write 3 or more.")
    theta = posterior.draws().detach()
    for chain, draw in (first, second):
        if not (0 <= chain < theta.shape[0] and 0 <= draw < theta.shape[1]):
            raise ValueError(f"There is no draw {draw} in chain {chain}: the draws are {tuple(theta.shape[:2])}.")
    density = posterior.density
    ends = torch.stack([theta[first], theta[second]])
    weights = match_weights(_weights(density, ends), (0, 0), rescale=False)
    constrained: Mapping[str, Tensor] = density.constrain(ends)
    new = {str(name): torch.as_tensor(np.array(array[0]), dtype=ends.dtype) for name, array in weights.items()}
    merged = {
        name: new[name].to(value.device).reshape(value.shape) if name in new else value
        for name, value in constrained.items()
    }
    matched = torch.stack([density.unconstrain({name: value[i] for name, value in merged.items()}) for i in range(2)])
    fractions = np.linspace(0, 1, num_points)
    paths = {"raw": _along(density, ends, fractions), "matched": _along(density, matched, fractions)}
    found = {name: ("fraction", values, {"units": "nats"}) for name, values in paths.items()}
    barriers = {f"{name}_barrier": _barrier(values, fractions) for name, values in paths.items()}
    return xr.Dataset(found | barriers, {"fraction": fractions})


def _weights(density: LogDensity, theta: Tensor) -> xr.DataTree:
    """Return the network weights of draws ``theta[S, P]`` as one chain, with what is known of their layers."""
    values = density.constrain(theta)
    sites = [site for network in density.networks for site in network.sites.values()]
    arrays = {site: values[site].cpu().numpy()[None] for site in sites}
    group = {n: (("chain", "draw", *(f"{n}_dim_{i}" for i in range(a.ndim - 2))), a) for n, a in arrays.items()}
    tree = xr.DataTree.from_dict({"weights": xr.Dataset(group)})
    tree.attrs["layers"] = json.dumps([chain for network in density.networks if (chain := layer_chain(network))])
    return tree


def _along(density: LogDensity, ends: Tensor, fractions: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        points = [torch.lerp(ends[0], ends[1], float(t)) for t in fractions]
        return np.array([float(density.log_joint(point, *density.data)) for point in points])


def _barrier(values: np.ndarray, fractions: np.ndarray) -> float:
    line = (1 - fractions) * values[0] + fractions * values[-1]
    return float((line - values).max())
