"""Symmetries of network weights: a canonical order of hidden units, and draws matched with a reference."""

import numpy as np
import xarray as xr
from arviz_stats.sampling_diagnostics import rhat
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from bnnzoo.diagnostics.convergence import MIN_DRAWS
from bnnzoo.diagnostics.hidden_layers import Array, Hidden, Weights, flat_weights, hidden_layers, labelled_weights
from bnnzoo.trees import SAMPLE_DIMS

__all__ = ["canonical_weights", "match_weights", "weight_rhat"]

MAX_SWEEPS = 20  # over hidden layers, whose matches depend on each other


def canonical_weights(tree: xr.DataTree) -> xr.Dataset:
    r"""Return network weights in a canonical form of each draw, in which symmetric draws are equal.

    Hidden units may be permuted without changing the function. For odd activations (tanh) the signs of a unit's incoming
    and outgoing weights may be flipped together; for ReLU the ones may be multiplied and the others divided by a positive
    number. In the canonical form, incoming weights and bias of a ReLU unit have norm one, biases of tanh units are positive, and
    units are in increasing order of their bias. The first incoming weight takes the place of a missing bias.

    Parameters
    ----------
    tree : DataTree
        With the group ``weights`` of networks whose layers the attribute ``layers`` names, as bnnzoo's trees have.

    Returns
    -------
    Dataset
        The group ``weights`` with the same variables, dims and coordinates; every draw computes the same function as before.

    Raises
    ------
    ValueError
        If there are no weights, or the layers are unknown.

    References
    ----------
    A. A. Pourzanjani, R. M. Jiang, L. R. Petzold, Improving the identifiability of neural networks for Bayesian inference,
    NeurIPS workshop on Bayesian deep learning, 2017.

    Examples
    --------
    >>> import bnnzoo as bz, torch
    >>> model = bz.models.supervised(bz.models.mlp(1, (3,), 1), bz.priors.fan_in(), bz.likelihoods.gaussian())
    >>> x = torch.linspace(-1, 1, 10)[:, None]
    >>> tree = bz.to_datatree(bz.fit(model, bz.MAP(num_members=2, num_steps=5, polish_steps=0), x, x[:, 0], progress=False))
    >>> bias = canonical_weights(tree)["net.0.bias"].values
    >>> bool((bias[..., :-1] <= bias[..., 1:]).all())
    True
    """
    layers, weights = hidden_layers(tree), flat_weights(tree)
    for layer in layers:  # from the inputs on, so that what a layer is ordered by is canonical already
        _normalise(layer, weights)
        if layer.flips:
            layer.scaled(weights, np.where(_key(layer, weights) < 0, -1.0, 1.0))
        layer.permuted(weights, np.argsort(_key(layer, weights), axis=-1, kind="stable"))
    return labelled_weights(tree, weights)


def match_weights(tree: xr.DataTree, reference: tuple[int, int] | None = None, *, rescale: bool = True) -> xr.Dataset:
    r"""Return network weights with the hidden units of each draw matched with those of a reference draw.

    Units are permuted, and flipped where the activation is odd, so that the inner product of all weights with those of the
    reference is largest: an assignment problem for each hidden layer, which is solved exactly for one hidden layer, and by
    turns for several.

    Parameters
    ----------
    tree : DataTree
        With the group ``weights`` of networks whose layers the attribute ``layers`` names, as bnnzoo's trees have.
    reference : pair of int, optional
        Positions of its chain and draw. Default: the draw with the highest log density, or the first if that is unknown.
    rescale : bool
        Whether to give ReLU units the scale of :func:`canonical_weights` first. It does not change the function, but the prior
        density.

    Returns
    -------
    Dataset
        The group ``weights`` with the same variables, dims and coordinates; every draw computes the same function as before.

    Raises
    ------
    ValueError
        If there are no weights, or the layers are unknown.

    References
    ----------
    S. K. Ainsworth, J. Hayase, S. Srinivasa, Git Re-Basin: merging models modulo permutation symmetries, ICLR 2023.

    Examples
    --------
    >>> import bnnzoo as bz, torch
    >>> model = bz.models.supervised(bz.models.mlp(1, (3,), 1), bz.priors.fan_in(), bz.likelihoods.gaussian())
    >>> x = torch.linspace(-1, 1, 10)[:, None]
    >>> tree = bz.to_datatree(bz.fit(model, bz.MAP(num_members=2, num_steps=5, polish_steps=0), x, x[:, 0], progress=False))
    >>> dict(match_weights(tree, reference=(0, 0))["net.0.weight"].sizes)
    {'chain': 1, 'draw': 2, 'net.0.weight_dim_0': 3, 'net.0.weight_dim_1': 1}
    """
    layers, weights = hidden_layers(tree), flat_weights(tree)
    for layer in layers if rescale else ():
        _normalise(layer, weights)
    if reference is None:
        stats = tree["sample_stats"].to_dataset() if "sample_stats" in tree.children else xr.Dataset()
        place = int(np.argmax(stats["lp"].transpose(*SAMPLE_DIMS).to_numpy())) if "lp" in stats else 0
    else:
        place = reference[0] * tree["weights"].sizes["draw"] + reference[1]
    target = {name: array[[place]] for name, array in weights.items()}
    for draw in range(len(next(iter(weights.values())))):
        one = {name: array[[draw]] for name, array in weights.items()}
        _match(layers, one, target)
        for name, array in one.items():
            weights[name][draw] = array[0]
    return labelled_weights(tree, weights)


def weight_rhat(tree: xr.DataTree) -> xr.Dataset:
    """R-hat of every network weight: as sampled, in canonical form, and matched with a reference draw, ``[weight]``.

    R-hat of the raw weights compares hidden units that have nothing to do with each other. If it falls near 1 when units are
    matched, the chains differ by symmetries alone; if it stays high, see the R-hat of the predictions,
    :func:`~bnnzoo.diagnostics.function_space`. Each weight takes some milliseconds.

    Parameters
    ----------
    tree : DataTree
        Of Markov chains, four draws or more in each, with the group ``weights`` and the attribute ``layers``.

    Returns
    -------
    Dataset
        ``raw``, ``canonical`` and ``matched`` ``[weight]``, with the coordinate ``site``.

    Raises
    ------
    ValueError
        If there are no weights, the layers are unknown, or there are fewer than two chains or four draws.

    References
    ----------
    A. Vehtari et al., Rank-normalization, folding, and localization: an improved R-hat, Bayesian Analysis, 2021.

    Examples
    --------
    >>> units = np.random.default_rng(0).normal([-2.0, 2.0], 0.1, (2, 50, 2))
    >>> units[1] = units[1, :, ::-1]  # the second chain has its two hidden units in the other order
    >>> weights = {"w1": (("chain", "draw", "unit", "input"), units[..., None]),
    ...            "w2": (("chain", "draw", "output", "unit_2"), 1 + 0.1 * units[:, :, None])}
    >>> tree = xr.DataTree.from_dict({"weights": xr.Dataset(weights)})
    >>> tree.attrs["layers"] = '[[{"weight": "w1", "activation": "sigmoid"}, {"weight": "w2"}]]'
    >>> found = weight_rhat(tree).max()
    >>> bool(found["raw"] > 1.5), bool(found["matched"] < 1.1)
    (True, True)
    """
    hidden_layers(tree)
    raw = tree["weights"].to_dataset().transpose(*SAMPLE_DIMS, ...)
    if raw.sizes["chain"] < 2 or raw.sizes["draw"] < MIN_DRAWS:
        raise ValueError(
            f"R-hat of weights compares chains: it needs two chains of {MIN_DRAWS} draws or more, but there are "
            f"{raw.sizes['chain']} of {raw.sizes['draw']}."
        )
    forms = {"raw": raw, "canonical": canonical_weights(tree), "matched": match_weights(tree)}
    sites = np.repeat([str(n) for n in raw], [raw[n].size // (raw.sizes["chain"] * raw.sizes["draw"]) for n in raw])
    found = {}
    for form, group in forms.items():
        flat = [group[name].to_numpy().reshape(*group[name].shape[:2], -1) for name in group]
        values = xr.DataArray(np.concatenate(flat, axis=-1), dims=(*SAMPLE_DIMS, "weight"))
        found[form] = "weight", np.asarray(rhat(values))
    return xr.Dataset(found, {"site": ("weight", sites)})


def _normalise(layer: Hidden, weights: Weights) -> None:
    """Give the incoming weights and the bias of each unit norm one, where scales do not matter."""
    if layer.scales:
        norms = np.linalg.norm(layer.incoming(weights), axis=-1)
        layer.scaled(weights, np.divide(1.0, norms, out=np.ones_like(norms), where=norms > 0))


def _key(layer: Hidden, weights: Weights) -> Array:
    """Return what units are ordered by ``[draws, units]``."""
    return weights[layer.bias] if layer.bias else weights[layer.weight][..., 0]


def _match(layers: list[Hidden], one: Weights, target: Weights) -> None:
    """Match the units of one draw, in place, layer by layer until none moves."""
    for _ in range(MAX_SWEEPS if len(layers) > 1 else 1):
        has_moved = False
        for layer in layers:
            likeness = sum(part(target)[0] @ part(one)[0].T for part in (layer.incoming, layer.outgoing))
            order: NDArray[np.integer]
            order = linear_sum_assignment(np.abs(likeness) if layer.flips else likeness, maximize=True)[1]
            layer.permuted(one, order[None])
            has_moved |= bool((order != np.arange(len(order))).any())
            if layer.flips:
                signs = np.where(likeness[np.arange(len(order)), order] < 0, -1.0, 1.0)
                layer.scaled(one, signs[None])
                has_moved |= bool((signs < 0).any())
        if not has_moved:
            return
