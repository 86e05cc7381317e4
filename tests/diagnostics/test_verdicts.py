"""Verdicts in words: posteriors that were distorted on purpose get the right sentence, equal ones none."""

import json
import re

import numpy as np
import pytest
import xarray as xr

from bnnzoo.diagnostics import verdicts
from bnnzoo.diagnostics.contrasts import contrast

ROWS = 12


def draws_of(rng: np.random.Generator, kind: str, distorted: bool, shape=(4, 1000), phi: float = 0.4) -> np.ndarray:
    """Return draws ``[C, S]`` of a margin from autocorrelated chains, as they should be or distorted in one way."""
    noise = rng.normal(size=shape)
    z = np.empty(shape)
    z[:, 0] = noise[:, 0]
    for i in range(1, shape[1]):
        z[:, i] = phi * z[:, i - 1] + np.sqrt(1 - phi**2) * noise[:, i]
    if kind == "mode":
        apart = np.where(rng.random(shape) < (0.0 if distorted else rng.uniform(0.2, 0.5)), 3.5, -3.5)
        return z + apart
    if kind == "tails":
        heavy = z / np.sqrt(rng.chisquare(3, shape) / 3)
        return np.where(np.abs(heavy) > 2.2, rng.uniform(-2.2, 2.2, shape), heavy) if distorted else heavy
    return {"narrow": 0.7 * z, "shift": z + 0.5, "same": z}[kind] if distorted else z


def tree_of(rng: np.random.Generator, kind: str, distorted: bool, scale: float, *, iid: bool = False) -> xr.DataTree:
    shape, phi = ((1, 1000), 0.0) if iid else ((4, 1000), 0.4)
    mu, tau = (scale * draws_of(rng, each, distorted, shape, phi) for each in (kind, "same"))
    x = np.linspace(-1.0, 1.0, ROWS)
    groups = {
        "posterior": xr.Dataset({"mu": (("chain", "draw"), mu), "tau": (("chain", "draw"), tau)}),
        "conditional": xr.Dataset({"mean": (("chain", "draw", "obs_id"), mu[..., None] + tau[..., None] * x)}),
    }
    tree = xr.DataTree.from_dict(groups)
    tree.attrs["sampling"] = "iid" if iid else "mcmc"
    return tree


SENTENCES = {
    "narrow": "mu is too narrow by",
    "shift": "mu is shifted upwards by",
    "mode": "mu lacks the mode near 3",
    "tails": "mu is short in the tails by",
}


def right_sentences(kind: str, number: int) -> int:
    found = 0
    for seed in range(number):
        rng = np.random.default_rng([seed, *map(ord, kind)])
        trees = {"nuts": tree_of(rng, kind, False, 1.0), "vi": tree_of(rng, kind, True, 1.0, iid=True)}
        text = str(verdicts(trees, "nuts")["vi"])
        found += SENTENCES[kind] in text and "tau" not in text
    return found


@pytest.mark.parametrize("kind", SENTENCES)
def test_a_distortion_is_said(kind: str) -> None:
    assert right_sentences(kind, 3) == 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", SENTENCES)
def test_a_distortion_is_said_in_95_of_100(kind: str) -> None:
    assert right_sentences(kind, 50) >= 48


def test_equal_posteriors_are_not_told_apart() -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        kind = ("same", "mode", "tails")[seed % 3]
        trees = {name: tree_of(rng, kind, False, 1.0, iid=name == "b") for name in ("a", "b")}
        if kind == "mode":  # of one posterior, whose weights are random otherwise
            trees["b"] = trees["a"]
        found = verdicts(trees, "a")["b"]
        assert found.agrees, str(found)
        assert str(found) == "b agrees with a: no difference beyond Monte Carlo error."


@pytest.mark.slow
def test_of_200_equal_posteriors_at_most_a_few_are_told_apart() -> None:
    told = 0
    for seed in range(200):
        rng = np.random.default_rng([seed, 1])
        trees = {name: tree_of(rng, "same", False, 1.0, iid=name == "b") for name in ("a", "b")}
        told += not verdicts(trees, "a")["b"].agrees
    assert told <= 1  # 0.2 to be expected


def test_a_reference_that_has_not_converged_is_no_reference() -> None:
    rng = np.random.default_rng(0)
    trees = {name: tree_of(rng, "same", False, 1.0) for name in ("nuts", "vi")}
    trees["nuts"]["posterior"] = (
        trees["nuts"]["posterior"]
        .to_dataset()
        .assign(mu=lambda group: group.mu + xr.DataArray([0.0, 0.0, 3.0, 3.0], dims="chain"))
    )
    found = verdicts(trees, "nuts")["vi"]
    assert found.agrees is None
    assert str(found).startswith("vi cannot be judged: nuts itself has not converged (R-hat 1.")
    assert str(found).endswith("for mu). Run the chains longer, and look at their divergences.")


def test_too_few_draws_and_unlike_sites_are_said() -> None:
    rng = np.random.default_rng(0)
    tree = tree_of(rng, "same", False, 1.0)
    few = tree.isel(chain=[0], draw=slice(20))
    assert str(verdicts({"a": tree, "b": few}, "a")["b"]) == "b cannot be judged: b has 20 draws."
    other = xr.DataTree.from_dict({"posterior": tree["posterior"].to_dataset().rename(mu="nu")[["nu"]]})
    assert str(verdicts({"a": tree, "b": other}, "a")["b"]) == "b cannot be judged: b and a have no site in common."
    with pytest.raises(ValueError, match=r"^The reference 'c' is not one of the trees \(a, b\)\.$"):
        verdicts({"a": tree, "b": tree}, "c")


def test_chains_of_a_methods_own_that_disagree_are_said() -> None:
    rng = np.random.default_rng(0)
    trees = {name: tree_of(rng, "same", False, 1.0) for name in ("nuts", "hmc")}
    apart = xr.DataArray([0.0, 0.0, 3.0, 3.0], dims="chain")
    trees["hmc"]["posterior"] = trees["hmc"]["posterior"].to_dataset().assign(mu=lambda group: group.mu + apart)
    found = verdicts(trees, "nuts")["hmc"]
    assert found.evidence[0].startswith("Its own chains have not converged (R-hat 1.")
    assert found.evidence[0].endswith(" for mu).")
    assert verdicts(trees, "nuts")["hmc"].agrees is False


def test_verdicts_print_as_paragraphs_and_show_as_a_table_that_unfolds() -> None:
    rng = np.random.default_rng(0)
    trees = {
        "a": tree_of(rng, "narrow", False, 1.0),
        "b": tree_of(rng, "narrow", True, 1.0),
        "c": tree_of(rng, "same", False, 1.0),
    }
    found = verdicts(trees, "a")
    assert str(found) == "\n\n".join(map(str, found.values()))
    table = found.to_frame()
    assert table["agrees"].to_dict() == {"b": False, "c": True}
    assert table.loc["b", ["where", "kind"]].tolist() == ["mu", "spread"]
    assert np.exp(table.loc["b", "size"]) == pytest.approx(0.7, abs=4 * table.loc["b", "error"])
    assert repr(found) == table.to_string()
    assert repr(found["b"]) == str(found["b"])
    assert found._repr_html_().count("<details><summary>") == 2
    assert "too narrow by" in found["b"]._repr_html_()
    assert repr(verdicts({"a": trees["a"]}, "a")) == "no other method than the reference"


def test_scores_and_decisions_are_weighed() -> None:
    rng = np.random.default_rng(0)

    def tree(sharpness: float, level: float) -> xr.DataTree:
        odds = sharpness * np.linspace(-2, 2, 40) + 0.1 * rng.normal(size=(4, 100, 40))
        p = 1 / (1 + np.exp(-odds))
        probs = xr.DataArray(np.stack([1 - p, p], -1), dims=("chain", "draw", "obs_id", "class_id"))
        logs = xr.DataArray(level + 0.01 * rng.normal(size=(4, 100, 40)), dims=("chain", "draw", "obs_id"))
        groups = {"conditional": xr.Dataset({"probs": probs}), "predictions_log_likelihood": xr.Dataset({"y": logs})}
        return xr.DataTree.from_dict(groups)

    found = verdicts({"a": tree(1.0, -0.5), "b": tree(3.0, -0.7), "c": tree(1.0, -0.5)}, "a")
    assert "its predictions" in str(found["b"]).lower()
    assert "The log density of observations is lower than under a (-0.200, standard error 0.000; 40" in found["b"].score
    assert found["b"].decision == "The most probable class is a's in every row."
    assert re.fullmatch(
        r"It makes no clear difference to the log density of observations \([+-]0\.\d{3}, standard error 0\.\d{3}; "
        r"40 observations show differences from 0\.005 on\)\.",
        found["c"].score,
    )
    assert json.loads(json.dumps(found["b"].to_dict()))["text"] == str(found["b"])


def test_draws_that_are_all_alike_are_too_narrow() -> None:
    rng = np.random.default_rng(0)

    def tree(mu: np.ndarray) -> xr.DataTree:
        return xr.DataTree.from_dict({"posterior": xr.Dataset({"mu": (("chain", "draw"), mu)})})

    moving, still = tree(rng.normal(size=(4, 500))), tree(np.zeros((4, 500)))
    assert "mu is too narrow by 100% (Monte Carlo error" in str(verdicts({"a": moving, "b": still}, "a")["b"])
    wide = tree(20 * rng.normal(size=(4, 500)))
    assert "mu is too wide by a factor of" in str(verdicts({"a": moving, "b": wide}, "a")["b"])
    assert verdicts({"a": moving, "b": moving}, "a")["b"].agrees


def test_draws_that_are_not_finite_are_no_agreement() -> None:
    rng = np.random.default_rng(0)
    trees = {name: tree_of(rng, "same", False, 1.0) for name in ("a", "b")}
    for value in (np.nan, np.inf):
        damaged = trees["b"]["posterior"].to_dataset().copy(deep=True)
        damaged["mu"][0, 3] = value
        other = {**trees, "b": xr.DataTree.from_dict({"posterior": damaged})}
        found = verdicts(other, "a")["b"]
        assert found.agrees is None
        assert str(found) == "b cannot be judged: 1 of 4000 draws of mu in b are NaN or infinite."
        assert "1 of 4000 draws of mu in b are NaN or infinite" in str(verdicts(other, "b")["a"])


def test_contrasts_are_what_was_done_to_the_draws() -> None:
    rng = np.random.default_rng(0)
    base = rng.normal(size=(4, 250, 2))
    found = contrast(0.7 * base + 0.3, base)
    np.testing.assert_allclose(found.spread, np.log(0.7), atol=1e-12)
    np.testing.assert_allclose(found.tails, 0.0, atol=1e-12)  # narrower, and not shorter in the tails than that
    low, middle, high = np.quantile(base, [0.16, 0.5, 0.84], axis=(0, 1))
    shift = (0.3 - 0.3 * (low + middle + high) / 3) / ((high - low) / 2)
    np.testing.assert_allclose(found.location, shift, atol=1e-12)


def test_standard_errors_of_contrasts_are_right() -> None:
    rng = np.random.default_rng(1)
    found = contrast(rng.normal(size=(1, 1000, 300)), rng.normal(size=(4, 250, 300)))
    for name in ("location", "spread", "tails"):
        scores = getattr(found, name) / found.errors[name]
        assert 0.8 < scores.std() < 1.25, name


def test_entries_keep_their_names_where_some_are_compared() -> None:
    rng = np.random.default_rng(2)
    values = rng.normal(size=(4, 200, 90))
    shifted = values.copy()
    shifted[..., 89] += 2.0

    def tree(draws: np.ndarray) -> xr.DataTree:
        return xr.DataTree.from_dict({"posterior": xr.Dataset({"b": (("chain", "draw", "place"), draws)})})

    assert "b[89] is shifted upwards by" in str(verdicts({"a": tree(values), "b": tree(shifted)}, "a")["b"])
