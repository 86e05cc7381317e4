"""What observations say in verdicts: of draws that were distorted on purpose, and nothing of equal ones."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.stats import norm

from bnnzoo.diagnostics import verdicts
from bnnzoo.diagnostics.verdict_evidence import Observations, evidence, of_weights

ROWS = 150


def said_of(tree: xr.DataTree, base: xr.DataTree) -> tuple[str, ...]:
    return evidence(tree, "nuts", Observations(base))


def tree_of(seed: int, *, spread: float = 1.0, shift: float = 0.0, floor: float = -np.inf) -> xr.DataTree:
    """Return 1,000 draws of a normal mean and of replicates, with another noise, another centre, or a tail that is cut."""
    y = np.random.default_rng(99).normal(size=ROWS)
    rng = np.random.default_rng(seed)
    mu = y.mean() + shift + rng.normal(size=(4, 250)) / np.sqrt(ROWS)
    replicates = np.maximum(mu[..., None] + spread * rng.normal(size=(4, 250, ROWS)), floor)
    dims = ("chain", "draw", "obs_id")
    groups = {
        "posterior": xr.Dataset({"mu": (dims[:2], mu)}),
        "log_likelihood": xr.Dataset({"y": (dims, norm.logpdf(y, mu[..., None], spread))}),
        "posterior_predictive": xr.Dataset({"y": (dims, replicates)}),
        "observed_data": xr.Dataset({"y": (dims[2:], y)}),
    }
    tree = xr.DataTree.from_dict(groups)
    tree.attrs["sampling"] = "mcmc"
    return tree


def without(tree: xr.DataTree, *names: str) -> xr.DataTree:
    return xr.DataTree.from_dict({name: each.to_dataset() for name, each in tree.children.items() if name not in names})


def test_equal_posteriors_give_no_evidence() -> None:
    base = tree_of(0)
    assert [said_of(tree_of(seed), base) for seed in range(1, 6)] == [()] * 5
    assert said_of(base, base) == ()


@pytest.mark.slow
def test_of_200_equal_posteriors_none_gives_evidence() -> None:
    assert [seed for seed in range(200) if said_of(tree_of(2 * seed), tree_of(2 * seed + 1))] == []


def test_noise_that_is_too_small_is_said_three_times() -> None:
    leave_out, coverage, replicates = said_of(tree_of(1, spread=0.5), tree_of(0))
    assert leave_out.startswith("Its leave-one-out log density is lower than under nuts by ")
    assert leave_out.endswith(f", {ROWS} observations).")
    assert coverage.startswith("Its 90% intervals hold 6") or coverage.startswith("Its 90% intervals hold 5")
    assert f"% of {ROWS} observations, those of nuts " in coverage
    assert "replicates is above that of the observations in" in replicates and "of draws, under nuts in" in replicates


def test_the_difference_of_leave_one_out_densities_is_that_of_the_closed_form() -> None:
    """For a normal mean with a flat prior, y_i given the others is normal about their mean."""
    own, base = tree_of(1, spread=1.6), tree_of(0)
    y = base["observed_data"]["y"].to_numpy()
    others = (y.sum() - y) / (ROWS - 1)
    sentence = said_of(without(own, "posterior_predictive"), base)[0]
    exact = norm.logpdf(y, others, np.hypot(1.6, 1 / np.sqrt(ROWS))) - norm.logpdf(
        y, others, np.hypot(1, 1 / np.sqrt(ROWS))
    )
    said, error = (float(sentence.split(word)[1].split()[0].rstrip(",")) for word in (" by ", "standard error "))
    assert said == pytest.approx(-exact.sum(), abs=0.4) and error == pytest.approx(
        exact.std(ddof=1) * np.sqrt(ROWS), rel=0.1
    )


def test_tails_that_are_cut_are_said_of_replicates_only() -> None:
    cut = without(tree_of(1, floor=-1.2), "log_likelihood")
    (sentence,) = said_of(cut, tree_of(0))
    assert sentence.startswith(
        "The smallest value of its replicates is above that of the observations in 100% of draws"
    )


def test_weights_that_cannot_be_trusted_classes_and_other_rows_are_left_out() -> None:
    base = tree_of(0)
    wild = tree_of(1, spread=0.5)
    heavy = wild["log_likelihood"].to_dataset()
    wild["log_likelihood"] = heavy.assign(y=heavy["y"] * np.random.default_rng(3).exponential(size=heavy["y"].shape))
    assert not any("leave-one-out" in each for each in said_of(wild, base))
    rows = [tree_of(1, spread=0.5).isel(obs_id=slice(100)), base]
    assert said_of(rows[0], rows[1]) == ()
    probs = xr.Dataset({"probs": (("chain", "draw", "obs_id", "class_id"), np.full((4, 250, ROWS, 2), 0.5))})
    classes = without(tree_of(1, spread=0.5), "log_likelihood")
    classes["conditional"] = probs
    assert said_of(classes, base) == ()


def test_verdicts_say_it_and_keep_it_for_json() -> None:
    found = verdicts({"nuts": tree_of(0), "own": tree_of(1, spread=0.5)}, "nuts")["own"]
    assert len(found.evidence) == 3
    assert all(sentence in str(found) for sentence in found.evidence)
    assert found.to_dict()["evidence"] == found.evidence
    own = tree_of(1, spread=0.5)
    other_site = own["posterior"].to_dataset().rename(mu="nu")
    unjudged = without(own, "posterior")
    unjudged["posterior"] = other_site
    found = verdicts({"nuts": tree_of(0), "own": unjudged}, "nuts")["own"]
    assert found.agrees is None and len(found.evidence) == 3


def approximation(scale: float, seed: int = 0) -> xr.DataTree:
    """Return 1,000 independent draws of N(0, scale^2) in ten dimensions, which approximate N(0, 1)."""
    theta = scale * np.random.default_rng(seed).normal(size=(1, 1000, 10))
    stats = {"lp": norm.logpdf(theta).sum(-1), "log_q": norm.logpdf(theta, scale=scale).sum(-1)}
    groups = {
        "posterior": xr.Dataset({"theta": (("chain", "draw", "k"), theta)}),
        "sample_stats": xr.Dataset({name: (("chain", "draw"), value) for name, value in stats.items()}),
    }
    tree = xr.DataTree.from_dict(groups)
    tree.attrs["sampling"] = "iid"
    return tree


def test_a_high_pareto_k_is_said_of_approximations() -> None:
    assert of_weights(approximation(1.0)) == of_weights(approximation(1.3)) == of_weights(tree_of(0)) == ""
    said = of_weights(approximation(0.5))
    assert said.startswith("Its importance weights have Pareto k ")
    assert said.endswith(", above 0.67: it misses a part of the posterior.")
    found = verdicts({"exact": approximation(1.0, seed=1), "vi": approximation(0.5)}, "exact")["vi"]
    assert found.evidence == (said,)


@pytest.mark.slow
def test_of_200_exact_approximations_none_has_a_high_pareto_k() -> None:
    assert [seed for seed in range(200) if of_weights(approximation(1.0, seed))] == []


def test_simulation_based_calibration_is_heard_if_passed() -> None:
    trees = {"nuts": tree_of(0), "vi": tree_of(1)}
    table = pd.DataFrame(
        {"p": [0.4, 1e-6, 1e-8, 1e-9, 1e-7], "uniform": [True, *[False] * 4]}, index=["mu", "a", "b", "c", "d"]
    )
    table["finding"] = ["none", "draws too low", "draws too narrow", "draws too narrow", "draws too wide"]
    (said,) = verdicts(trees, "nuts", calibration={"vi": table})["vi"].evidence
    assert said == (
        "Over data sets that the model makes, its draws are too narrow for c (p = 1e-09), too narrow for b (p = 1e-08), too wide "
        "for d (p = 1e-07), and off for 1 more quantity."
    )
    (said,) = verdicts(trees, "nuts", calibration={"vi": table[:1]})["vi"].evidence
    assert said == "Simulation-based calibration finds nothing wrong with it (1 quantity)."
    with pytest.raises(
        ValueError, match=r"^calibration\['nuts'\] is of no method that is compared with nuts \(vi\)\.$"
    ):
        verdicts(trees, "nuts", calibration={"nuts": table})
    with pytest.raises(
        ValueError, match=r"^calibration\['vi'\] has no column 'uniform': pass the table of bnnzoo.validation.sbc"
    ):
        verdicts(trees, "nuts", calibration={"vi": table[["p", "finding"]]})
    with pytest.raises(TypeError, match=r"calibration\['vi'\].*a table of bnnzoo.validation.sbc_verdict\(ranks\)"):
        verdicts(trees, "nuts", calibration={"vi": trees["vi"]})  # type: ignore[dict-item]
