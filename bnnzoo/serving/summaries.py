"""Summaries of what thousands of draws say of each row, and how far two halves of the draws differ in them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from bnnzoo.diagnostics.floor import chain_halves
from bnnzoo.trees import companion, first_moment, moment, num_draws, plogp

__all__ = ["ROUNDING", "Summaries", "errors", "moments_of_chains"]

type Array = NDArray[np.floating]
type Summary = Mapping[str, Array]

ROUNDING = 1e-5
"""Smallest floor: of what does not depend on the draws, such as a known noise, halves differ by rounding only."""

STRETCHES, FEWEST_DRAWS = 6, 4
SMALLEST = 1e-12
"""Smallest variance, as a fraction of the largest, of which a logarithm is taken."""


def moments_of_chains(tree: xr.DataTree) -> xr.Dataset:
    """Return moments ``[obs_id, chain, ...]`` over the draws of each chain; a single one is cut into up to six blocks.

    ``first`` is the mean of E[y | x, theta] or of the class probabilities, ``second`` that of the variance or entropy of
    p(y | x, theta), ``spread`` the variance of E[y | x, theta].
    """
    name = first_moment(tree, "probs", "mean")
    values = {"first": moment(tree, name)}
    second = companion(tree, name, "entropy" if name == "probs" else "variance")
    if second is None and name == "probs":
        second = -xr.apply_ufunc(plogp, values["first"]).sum("class_id")
    if second is None:
        raise ValueError("distil needs the variance of p(y | x, theta), and the likelihood of this model has none.")
    values["second"] = second
    if (number := num_draws(values["first"])) < FEWEST_DRAWS:
        raise ValueError(
            f"distil compares halves of the draws, and there {'is' if number == 1 else 'are'} {number}: fit by a method with at "
            f"least {FEWEST_DRAWS} draws or members."
        )
    values = {key: each.drop_vars(["chain", "draw"], errors="ignore") for key, each in values.items()}
    if values["first"].sizes["chain"] == 1:
        # one pair of halves would do by chance, where there are few parameters: six blocks make ten pairs
        number = min(STRETCHES, values["first"].sizes["draw"] // 2)
        length = values["first"].sizes["draw"] // number
        blocks = [slice(place * length, (place + 1) * length) for place in range(number)]
        values = {key: xr.concat([each.isel(draw=one) for one in blocks], "chain") for key, each in values.items()}
    spread = {"spread": values["first"].var("draw")} if name == "mean" else {}
    found = xr.Dataset({key: each.mean("draw") for key, each in values.items()} | spread)
    return found.transpose("obs_id", "chain", ...)


@dataclass(frozen=True)
class Summaries:
    """The summaries of all draws, and of halves of them.

    Attributes
    ----------
    whole : mapping of str to ndarray [M, ...]
        ``mean``, ``aleatoric`` and ``epistemic`` variance; or ``probs`` and ``epistemic``, the mutual information.
    halves : sequence of pair of such mappings
        Of whole chains, if there are several, in up to ten ways.
    """

    whole: Summary
    halves: Sequence[tuple[Summary, Summary]]

    @classmethod
    def of(cls, moments: xr.Dataset) -> "Summaries":
        """Return the summaries, given the moments of each chain."""
        first, second = (np.moveaxis(moments[name].to_numpy().astype(float), 1, 0) for name in ("first", "second"))
        spread = np.moveaxis(moments["spread"].to_numpy().astype(float), 1, 0) if "spread" in moments else None

        def summary(chains: NDArray[np.integer]) -> Summary:
            mean, inner = first[chains].mean(0), second[chains].mean(0)
            if spread is None:
                return {"probs": mean, "epistemic": np.maximum(-plogp(mean).sum(-1) - inner, 0.0)}
            epistemic = spread[chains].mean(0) + first[chains].var(0)
            least = SMALLEST * max(float((inner + epistemic).max()), np.finfo(float).tiny)
            return {"mean": mean, "aleatoric": np.maximum(inner, least), "epistemic": np.maximum(epistemic, least)}

        chains = np.arange(len(first))
        halves = [(summary(one), summary(other)) for one, other in chain_halves(len(first), 1)]
        return cls(summary(chains), halves)

    def floors(self) -> dict[str, Array]:
        """Return how far halves are apart ``[M]``, on average."""
        each = [errors(*pair, self.whole) for pair in self.halves]
        return {name: np.mean([found[name] for found in each], 0) for name in each[0]}


def differences(
    one: Mapping[str, Tensor], other: Mapping[str, Tensor], whole: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return the signed differences of two summaries of real predictions ``[M, ...]`` of which :func:`errors` are the sizes."""
    log_sd = {
        "log_sd": ((one["aleatoric"] + one["epistemic"]) / (other["aleatoric"] + other["epistemic"])).log() / 2,
        **{f"log_sd_{part}": (one[part] / other[part]).log() / 2 for part in ("aleatoric", "epistemic")},
    }
    return {"mean": (one["mean"] - other["mean"]) / whole["epistemic"].sqrt(), **log_sd}


def errors(one: Summary, other: Summary, whole: Summary) -> dict[str, Array]:
    """Return how far two summaries are apart ``[M]``, averaged over outputs.

    Of real predictions ``mean``, in epistemic standard deviations of ``whole``, and the logarithms ``log_sd`` of the total
    standard deviation, ``log_sd_aleatoric`` and ``log_sd_epistemic``. Of classes ``probs``, the total variation, and
    ``mutual_information`` in nats.
    """
    if "probs" in whole:
        found = {
            "probs": abs(one["probs"] - other["probs"]).sum(-1) / 2,
            "mutual_information": abs(one["epistemic"] - other["epistemic"]),
        }
    else:
        tensors = ({name: torch.as_tensor(values) for name, values in each.items()} for each in (one, other, whole))
        found = {name: values.abs().numpy() for name, values in differences(*tensors).items()}
    return {name: values.reshape(len(values), -1).mean(1) for name, values in found.items()}
