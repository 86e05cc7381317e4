"""Verdicts in words on posteriors that are compared with a reference."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from bnnzoo.diagnostics.comparison_verdict import Finding, Verdict, Verdicts
from bnnzoo.diagnostics.contrasts import Contrast, contrast, lost_mode
from bnnzoo.diagnostics.convergence import convergence
from bnnzoo.diagnostics.function_space import function_values
from bnnzoo.diagnostics.same_rows import refuse_other_rows
from bnnzoo.diagnostics.split_distances import Array, Indices, evenly
from bnnzoo.diagnostics.verdict_evidence import Observations, evidence, of_calibration, of_weights
from bnnzoo.trees import SAMPLE_DIMS, log_mean_exp, refuse_no_trees, refuse_other_kind
from bnnzoo.trees.power import PairedComparison

__all__ = ["MIN_GAP", "verdicts"]

MAX_MARGINS = 60
"""Entries of a site, and rows, that are compared; evenly spaced where there are more."""
MAX_RHAT, MIN_ESS = 1.05, 100
"""Of a reference that can be one."""
MIN_DRAWS = 100
"""Of both, over all chains: tails are quantiles at 1% and 99%."""
MAX_NAMED = 3
MIN_GAP = 0.005
"""Mean difference of log densities, in nats, below which none is called clear: draws are finitely many."""
LARGE = np.log(10.0)
"""Logarithm of a ratio from which on it is said as a factor."""
WORDS = {
    "location": ("shifted upwards", "shifted downwards"),
    "spread": ("too wide", "too narrow"),
    "tails": ("long in the tails", "short in the tails"),
}
ADVICE = {
    "mode": "Start from several points: MixtureOf, or NUTS with more chains.",
    "spread": "Take a method that keeps the dependence between sites: FullRankVI, FlowVI or NUTS.",
    "tails": "Correct the draws by importance weights (diagnostics.psis_resample), or take FlowVI or NUTS.",
    "location": "Correct the draws by importance weights (diagnostics.psis_resample), or take FlowVI or NUTS.",
    "chains": "Run the chains longer, and look at their divergences.",
    "members": "Members are points and not draws from the posterior: judge them by their scores.",
}


def verdicts(
    trees: Mapping[str, xr.DataTree], reference: str, *, calibration: Mapping[str, pd.DataFrame] | None = None
) -> Verdicts:
    """Say of each method whether it agrees with a reference, where not, in which direction, by how much, and what to do.

    Margins of sites and of predictions are compared by their centre, the width of their central 68%, that of their central 98%,
    and their modes. A difference is said if it is material (0.15 of the reference's scale, 10% in width, 15% in the tails) and
    beyond Monte Carlo error; of equal posteriors one comparison in a thousand is told apart. Differences of margins are
    all that is looked at: dependence between sites shows in predictions, not in sites.

    Where trees hold observations with their log likelihood or replicates, differences of leave-one-out log densities, of the
    coverage of 90% intervals and of posterior predictive p-values are said as well, if they are beyond their own errors. So are
    an approximation's Pareto k, if importance weights cannot correct it, and chains of a method's own that have not converged.

    Parameters
    ----------
    trees : mapping of str to DataTree
        Predictions of each method for the same observations, from :func:`bnnzoo.predict` or
        :func:`bnnzoo.posterior_predictive`, or posteriors alone.
    reference : str
        Key of the tree to compare with, such as long NUTS chains.
    calibration : mapping of str to DataFrame, optional
        What simulation-based calibration found of some of the methods: tables of :func:`bnnzoo.validation.sbc_verdict`.

    Returns
    -------
    Verdicts
        A mapping of str to Verdict, without the reference. ``print`` shows a paragraph for each, ``to_frame`` is a table, and
        ``to_dict`` of each is for JSON.

    Raises
    ------
    ValueError
        If the reference or a name of ``calibration`` is not among the trees, or rows differ.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> def tree(scale):
    ...     mu = (("chain", "draw"), scale * rng.normal(size=(4, 500)))
    ...     return xr.DataTree.from_dict({"posterior": xr.Dataset({"mu": mu})})
    >>> print(verdicts({"nuts": tree(1.0), "mfvi": tree(0.6)}, "nuts")["mfvi"])
    mfvi differs from nuts. mu is too narrow by 40% (Monte Carlo error 4%). Take a method that keeps the dependence between \
sites: FullRankVI, FlowVI or NUTS.
    """
    refuse_no_trees("trees", trees)
    refuse_other_kind(reference, str, "reference", "the name of one of the trees")
    if reference not in trees:
        raise ValueError(f"The reference {reference!r} is not one of the trees ({', '.join(trees)}).")
    simulated = dict(calibration or {})
    if unknown := [name for name in simulated if name not in trees or name == reference]:
        raise ValueError(
            f"calibration[{unknown[0]!r}] is of no method that is compared with {reference} "
            f"({', '.join(name for name in trees if name != reference)})."
        )
    of_simulations = {name: of_calibration(name, table) for name, table in simulated.items()}
    base = _margins(trees[reference])
    doubt = _doubt(base, reference, trees[reference])
    seen = Observations(trees[reference])
    return Verdicts(
        {
            name: _verdict(name, tree, reference, trees[reference], base, doubt, seen, of_simulations.get(name, ""))
            for name, tree in trees.items()
            if name != reference
        }
    )


type Margins = dict[str, xr.DataArray]
PREDICTIONS = "its predictions"


def _margins(tree: xr.DataTree) -> Margins:
    """Return what is compared: sites and predictions, as arrays whose first dims are chain and draw."""
    found: Margins = {}
    if "posterior" in tree.children:
        sites = tree["posterior"].to_dataset().data_vars.items()
        found = {str(key): each for key, each in sites if {*SAMPLE_DIMS} <= {*each.dims} and each.dtype.kind == "f"}
    if "conditional" in tree.children and {"mean", "probs"} & {*tree["conditional"].data_vars}:
        found[PREDICTIONS] = function_values(tree)
    return {key: each.transpose(*SAMPLE_DIMS, ...) for key, each in found.items()}


def _flat(values: xr.DataArray) -> Array:
    """Return draws ``[C, S, K]`` of evenly spaced entries, of which no more are read."""
    stacked = (
        values.stack(entry=values.dims[2:], create_index=False) if values.ndim > 2 else values.expand_dims("entry", 2)
    )
    return stacked.isel(entry=_kept(stacked.sizes["entry"])).to_numpy().astype(float)


def _kept(size: int) -> Indices:
    return evenly(np.arange(size), min(size, MAX_MARGINS))


def _doubt(base: Margins, reference: str, tree: xr.DataTree) -> str:
    """Return why nothing can be held against a reference, empty if it can."""
    if lost := _not_finite(base, reference):
        return lost
    for where, values in base.items():
        count = values.sizes["chain"] * values.sizes["draw"]
        if count < MIN_DRAWS:
            return f"{reference} has {count} draws, too few to compare with (at least {MIN_DRAWS})"
        if tree.attrs.get("sampling", "mcmc") == "mcmc" and (found := _unsettled(values)):
            return f"{reference} itself has not converged ({found} for {where})"
    return ""


def _unsettled(values: xr.DataArray) -> str:
    """Return by which number chains have not converged, empty if none tells."""
    if values.sizes["draw"] < 4:
        return ""
    found = convergence(xr.DataArray(_flat(values), dims=(*SAMPLE_DIMS, "entry")))
    rhat, ess = float(found["rhat"].max()), float(found["ess_bulk"].min())
    return f"R-hat {rhat:.2f}" if rhat > MAX_RHAT else f"{ess:.0f} effective draws" if ess < MIN_ESS else ""


def _of_chains(own: Margins, tree: xr.DataTree) -> str:
    """Say if a method's own chains have not converged; empty where they have, and of draws that are no chains."""
    if tree.attrs.get("sampling") != "mcmc" or _not_finite(own, ""):
        return ""
    enough = {where: each for where, each in own.items() if each.sizes["chain"] * each.sizes["draw"] >= MIN_DRAWS}
    trouble = next((f"{found} for {where}" for where, values in enough.items() if (found := _unsettled(values))), "")
    return f"Its own chains have not converged ({trouble})." if trouble else ""


def _not_finite(margins: Margins, name: str) -> str:
    """Return which draws are NaN or infinite, empty if none is."""
    for where, values in margins.items():
        count = int((~np.isfinite(_flat(values))).any(-1).sum())
        if count:
            return f"{count} of {values.sizes['chain'] * values.sizes['draw']} draws of {where} in {name} are NaN or infinite"
    return ""


def _verdict(
    name: str,
    tree: xr.DataTree,
    reference: str,
    base_tree: xr.DataTree,
    base: Margins,
    doubt: str,
    seen: Observations,
    simulated: str,
) -> Verdict:
    own = _margins(tree)
    shared = [key for key in base if key in own and own[key].shape[2:] == base[key].shape[2:]]
    if PREDICTIONS in base and PREDICTIONS in own:
        refuse_other_rows(name, tree, own[PREDICTIONS], reference, base_tree, base[PREDICTIONS])
    few = min((own[key].sizes["chain"] * own[key].sizes["draw"] for key in shared), default=0)
    score, decision = _score(name, tree, reference, base_tree), _decision(own, base, shared, reference)
    said = (_of_chains(own, tree), of_weights(tree), *evidence(tree, reference, seen), simulated)
    said = tuple(sentence for sentence in said if sentence)
    is_ensemble = tree.attrs.get("sampling") == "ensemble"
    lost = doubt or _not_finite({key: own[key] for key in shared}, name)
    if lost or few < MIN_DRAWS:
        why = lost or (
            f"{name} has {few} draw{'s' * (few > 1)}" if shared else f"{name} and {reference} have no site in common"
        )
        advice = ADVICE["chains"] if doubt else ADVICE["members"] if is_ensemble else ""
        return Verdict(name, reference, None, (), score, decision, advice, f"{name} cannot be judged: {why}.", said)
    pairs = {key: (_flat(own[key]), _flat(base[key])) for key in shared}
    count = sum(draws.shape[-1] + 1 for draws, _ in pairs.values())
    found = [each for key, pair in pairs.items() for each in _findings(key, *pair, own[key], reference, count)]
    found.sort(key=lambda each: (each.kind != "mode", -abs(each.size)))
    if not found:
        opening = f"{name} agrees with {reference}: no difference beyond Monte Carlo error."
        return Verdict(name, reference, True, (), score, "", "", opening, said)
    named, more = found[:MAX_NAMED], len(found) - MAX_NAMED
    opening = f"{name} differs from {reference}" + (f", in {more} more ways than these:" if more > 0 else ".")
    first = found[0]
    gravest = "tails" if first.kind == "spread" and first.size > 0 else first.kind
    kind = "chains" if tree.attrs.get("sampling") == "mcmc" else "members" if is_ensemble else gravest
    return Verdict(name, reference, False, tuple(named), score, decision, ADVICE[kind], opening, said)


def _findings(
    key: str,
    draws: Array,
    base: Array,
    values: xr.DataArray,
    reference: str,
    count: int,
) -> list[Finding]:
    """Return how one site, or the predictions, differ."""
    is_rows = key == PREDICTIONS
    names = [key] * draws.shape[-1] if is_rows else _names(key, values)
    lost = [lost_mode(draws[..., k].ravel(), base[..., k].ravel()) for k in range(draws.shape[-1])]
    found = []
    places = [k for k, each in enumerate(lost) if each is not None]
    if places:
        k = max(places, key=lambda place: lost[place].share)  # type: ignore[union-attr]
        mode = lost[k]
        assert mode is not None
        found.append(
            Finding(
                "mode",
                names[k],
                mode.share,
                0.0,
                f"{_sentence_case(names[k])} {'lack' if is_rows else 'lacks'} the mode near {mode.place:.3g}, which holds "
                f"{100 * mode.share:.0f}% of {reference}'s draws.",
            )
        )
    contrasts = contrast(draws, base, average=draws.shape[-1] > 1, num_margins=count)
    for kind in () if places else WORDS:
        if is_rows:
            found.extend(_of_rows(kind, contrasts, values))
        else:
            beyond = np.flatnonzero(contrasts.beyond(kind)[: draws.shape[-1]])
            found.extend(_finding(kind, names[k], contrasts, int(k)) for k in beyond)
    return found


def _of_rows(kind: str, contrasts: Contrast, values: xr.DataArray) -> list[Finding]:
    """Return what rows have in common: the direction of most of those that differ, and their share."""
    size, error = getattr(contrasts, kind), contrasts.errors[kind]
    beyond = contrasts.beyond(kind)
    rows = beyond[:-1] if len(beyond) > 1 else beyond
    if rows.any():
        places = np.flatnonzero(rows)
        upwards = (size[places] > 0).mean() >= 0.5
        alike = places[(size[places] > 0) == upwards]
        share = len(alike) / len(rows)
        where = "its predictions" if share > 0.95 else f"{100 * share:.0f}% of its predictions"
        value, spread = float(np.median(size[alike])), float(np.median(error[alike]))
        return [_words(kind, where, value, spread, plural=True)]
    if len(beyond) > 1 and beyond[-1] and kind != "location":
        return [_words(kind, "its predictions on average", float(size[-1]), float(error[-1]), plural=True)]
    return []


def _finding(kind: str, name: str, contrasts: Contrast, k: int) -> Finding:
    return _words(kind, name, float(getattr(contrasts, kind)[k]), float(contrasts.errors[kind][k]), plural=False)


def _words(kind: str, where: str, size: float, error: float, *, plural: bool) -> Finding:
    above, below = WORDS[kind]
    if kind == "location":
        amount, floor = f"{abs(size):.2f} sd", f"{error:.2f}"
    else:
        amount = f"{100 * abs(np.expm1(size)):.0f}%" if size < LARGE else f"a factor of {np.exp(size):.3g}"
        floor = f"{100 * error:.0f}%"
    verb = "are" if plural else "is"
    text = f"{_sentence_case(where)} {verb} {above if size > 0 else below} by {amount} (Monte Carlo error {floor})."
    return Finding(kind, where, size, error, text)


def _sentence_case(text: str) -> str:
    return "Its" + text[3:] if text.startswith("its ") else text


def _names(key: str, values: xr.DataArray) -> list[str]:
    dims = values.dims[2:]
    if not dims:
        return [key]
    labels = [values[dim].to_numpy() if dim in values.coords else np.arange(values.sizes[dim]) for dim in dims]
    grid = np.stack([each.ravel() for each in np.meshgrid(*map(np.asarray, labels), indexing="ij")], -1)
    return [f"{key}[{', '.join(map(str, row))}]" for row in grid[_kept(len(grid))]]


def _score(name: str, tree: xr.DataTree, reference: str, base: xr.DataTree) -> str:
    """Say whether the log densities of observations differ."""
    group = "predictions_log_likelihood"
    if not all(group in each.children for each in (tree, base)):
        return ""
    sites = [[*each[group].data_vars.values()] for each in (tree, base)]
    if any(len(each) != 1 for each in sites) or sites[0][0].shape[2:] != sites[1][0].shape[2:]:
        return ""
    own, other = (log_mean_exp(values).to_numpy().ravel() for (values,) in sites)
    gaps = own - other
    if len(gaps) < 2:
        return ""
    found = PairedComparison.of_rows(gaps)
    if not found.is_clear(MIN_GAP):
        return f"It makes no clear difference to the log density of observations ({found.weighed(MIN_GAP)})."
    higher = "higher" if found.difference > 0 else "lower"
    return f"The log density of observations is {higher} than under {reference} ({found.weighed(MIN_GAP)})."


def _decision(own: Margins, base: Margins, shared: list[str], reference: str) -> str:
    """Say of classes how often another one is the most probable."""
    if PREDICTIONS not in shared or "class_id" not in own[PREDICTIONS].dims:
        return ""
    chosen = [_chosen(each[PREDICTIONS].mean(SAMPLE_DIMS)) for each in (own, base)]
    share = float((chosen[0] != chosen[1]).mean())
    if not share:
        return f"The most probable class is {reference}'s in every row."
    return f"The most probable class is another than {reference}'s in {100 * share:.1f}% of rows."


def _chosen(probs: xr.DataArray) -> NDArray[np.integer]:
    values = probs.transpose(..., "class_id").to_numpy()
    return (values[..., 0] > 0.5).astype(int) if values.shape[-1] == 1 else values.argmax(-1)
