"""Cards of posteriordb: their references are the posteriors that it publishes, and their data come with a licence."""

import json
import tomllib
from importlib.resources import files
from pathlib import Path

import numpy as np
import pyro
import pytest
import torch
import xarray as xr
from arviz_stats import mcse

import bnnzoo as bz
from bnnzoo.zoo.card_pages import card_page
from bnnzoo.zoo.cards.arma import AutoregressiveMovingAverage
from bnnzoo.zoo.catalogue import NAMES, NETWORKS, STATISTICAL, TEXTBOOK
from bnnzoo.zoo.export import export
from bnnzoo.zoo.posteriordb_data import LICENCE_OF_DATA, NOTICE, posteriordb_data

DATA = files("bnnzoo.zoo") / "posteriordb"
FILES = {
    "arma": "arma",
    "eight-schools": "eight_schools",
    "gaussian-process-counts": "gp_pois_regr",
    "ridge-regression": "sblri",
}

PUBLISHED = {
    ("ridge-regression", "beta"): (
        [0.999466, 1.00023, 1.00042, 1.00115, 1.00156],
        [0.000974, 0.001154, 0.0009581, 0.00106, 0.001048],
    ),
    ("ridge-regression", "sigma"): ([0.962633], [0.07118]),
    ("eight-schools", "theta"): (
        [6.1505, 4.93958, 3.90591, 4.79602, 3.61444, 4.05115, 6.31717, 4.884],
        [5.616, 4.646, 5.281, 4.771, 4.615, 4.796, 5.003, 5.318],
    ),
    ("eight-schools", "mu"): ([4.41052], [3.309]),
    ("eight-schools", "tau"): ([3.60206], [3.198]),
    ("arma", "mu"): ([0.00691486], [0.01144]),
    ("arma", "phi"): ([0.957013], [0.02286]),
    ("arma", "theta"): ([-0.033696], [0.05993]),
    ("arma", "sigma"): ([0.166482], [0.008477]),
    ("gaussian-process-counts", "rho"): ([5.66653], [0.679]),
    ("gaussian-process-counts", "alpha"): ([2.92134], [0.7928]),
    ("gaussian-process-counts", "f"): (
        [3.63574, 3.68861, 3.25467, 2.40917, 1.56153, 1.29526, 1.9312, 3.17961, 4.25292, 4.4151, 3.50682],
        [0.1521, 0.1263, 0.1432, 0.197, 0.2469, 0.2662, 0.2246, 0.1439, 0.09607, 0.09162, 0.1631],
    ),
}
"""Means and standard deviations of 10,000 draws of Stan's, as posteriordb publishes them, of all parameters and effects."""

PUBLISHED_DRAWS = 10_000
ERRORS = 4.0  # Monte Carlo standard errors; 33 means and as many sds are compared


def drawn(card: str, site: str) -> xr.DataArray:
    """Return draws ``[chain, draw, ...]`` of a parameter in a reference; the process is the logarithm of its rate."""
    tree = bz.zoo.reference(card)
    return np.log(tree["conditional"]["mean"]) if site == "f" else tree["posterior"][site]


@pytest.mark.parametrize(("card", "site"), PUBLISHED)
def test_references_agree_with_what_posteriordb_publishes(card: str, site: str) -> None:
    values = drawn(card, site)
    for moment, found, known in (
        ("mean", values.mean(("chain", "draw")), PUBLISHED[card, site][0]),
        ("sd", values.std(("chain", "draw")), PUBLISHED[card, site][1]),
    ):
        own = np.atleast_1d(mcse(values, method=moment).to_numpy())
        effective = values.sizes["chain"] * values.sizes["draw"]
        theirs = own * np.sqrt(effective / PUBLISHED_DRAWS)  # independent draws have the same shape
        z = (np.atleast_1d(found.to_numpy()) - np.array(known)) / np.hypot(own, theirs)
        assert np.abs(z).max() < ERRORS, (moment, z)


def test_every_published_parameter_is_compared() -> None:
    assert {card for card, _ in PUBLISHED} == {*TEXTBOOK}
    assert sum(len(means) for means, _ in PUBLISHED.values()) == 33


@pytest.mark.reference
@pytest.mark.parametrize("name", FILES.values())
def test_data_are_those_of_posteriordb(name: str, bnnzoo_data: Path) -> None:
    theirs = bnnzoo_data / "posteriordb" / "data" / f"{name}.json"
    assert (DATA / f"{name}.json").read_text() == theirs.read_text()


def test_a_card_is_of_one_kind() -> None:
    assert len({*STATISTICAL, *TEXTBOOK, *NETWORKS}) == len(STATISTICAL) + len(TEXTBOOK) + len(NETWORKS) == len(NAMES)
    assert {name for name in NAMES if bz.zoo.load(name).data_licence} == {*TEXTBOOK}


def test_data_are_small_and_their_licence_lies_beside_them() -> None:
    sizes = {path.name: len(path.read_bytes()) for path in DATA.iterdir()}
    assert {*sizes} == {NOTICE, *(f"{name}.json" for name in FILES.values())} and sum(sizes.values()) < 100_000
    notice = (DATA / NOTICE).read_text()
    assert all(f"`{name}.json`" in notice for name in FILES.values())
    assert "Copyright (c) 2011-2024, Stan Developers and their Assignees" in notice
    assert "Redistributions in binary form must reproduce the above copyright notice" in notice


def test_the_package_declares_both_licences() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["license"] == f"Apache-2.0 AND {LICENCE_OF_DATA}"
    assert project["license-files"] == ["LICENSE", f"bnnzoo/zoo/posteriordb/{NOTICE}"]


@pytest.mark.parametrize("name", TEXTBOOK)
def test_a_card_and_its_page_name_the_licence_of_the_data(name: str) -> None:
    card = bz.zoo.load(name)
    assert card.data_licence == LICENCE_OF_DATA and "posteriordb" in card.data().recipe
    assert f"under the licence {LICENCE_OF_DATA}: its notice is `bnnzoo/zoo/posteriordb/{NOTICE}`." in card_page(card)
    assert f"Data: part of bnnzoo, {LICENCE_OF_DATA}" in repr(card)


def test_an_export_has_the_licence_of_the_data(tmp_path: Path) -> None:
    export(tmp_path / "set", cards=["arma", "two-moons"])
    export(tmp_path / "without", cards=["two-moons", "foong-one-layer"])
    described = {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("*/cards/*.json")}
    assert described["arma"]["data_licence"] == LICENCE_OF_DATA and described["arma"]["licence"] == "Apache-2.0"
    assert described["two-moons"]["data_licence"] == "Apache-2.0"
    assert described["foong-one-layer"]["data_licence"] is None
    assert (tmp_path / "set" / "data" / NOTICE).read_text() == (DATA / NOTICE).read_text()
    assert f"  data/{NOTICE}\n" in (tmp_path / "set" / "checksums.sha256").read_text()
    assert not (tmp_path / "without" / "data" / NOTICE).exists()
    assert json.loads((tmp_path / "set" / "data" / "arma.json").read_text())["train"]["y"] == list(
        posteriordb_data("arma")["y"]
    )


def test_errors_of_the_series_are_those_of_the_recursion() -> None:
    series = torch.as_tensor(posteriordb_data("arma")["y"])
    mu, phi, theta = (torch.tensor(value, dtype=torch.float64) for value in (0.3, 0.9, -0.6))
    errors, before = [series[0] - mu - phi * mu], series[0]
    for now in series[1:]:
        errors.append(now - mu - phi * before - theta * errors[-1])
        before = now
    found = AutoregressiveMovingAverage(series).errors(mu, phi, theta)
    torch.testing.assert_close(found, torch.stack(errors), rtol=0, atol=1e-13)


def test_times_of_the_series_may_be_any_and_the_one_after_it() -> None:
    """Expected values do not depend on which times are asked for, as in minibatches, nor on later observations."""
    series = torch.as_tensor(posteriordb_data("arma")["y"])
    given = {"mu": 0.3, "phi": 0.9, "theta": -0.6, "sigma": 0.2}

    def expected(past: torch.Tensor, time: list[int]) -> torch.Tensor:
        model = pyro.condition(
            AutoregressiveMovingAverage(past), {k: torch.tensor(v).double() for k, v in given.items()}
        )
        trace = pyro.poutine.trace(model).get_trace(torch.tensor(time))
        return trace.nodes["y"]["fn"].mean

    whole = expected(series, [*range(201)])
    assert torch.equal(expected(series, [200, 7]), whole[[200, 7]])
    torch.testing.assert_close(expected(series[:50], [50, 49]), whole[[50, 49]])
    errors = AutoregressiveMovingAverage(series).errors(
        *(torch.tensor(given[k]).double() for k in ("mu", "phi", "theta"))
    )
    torch.testing.assert_close(series - whole[:200], errors)
    torch.testing.assert_close(whole[200], 0.3 + 0.9 * series[-1] - 0.6 * errors[-1])
