"""NUTS on twenty posteriors of posteriordb, held against 10,000 draws of Stan's."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import bnnzoo as bz
from benchmarks.posteriordb import POSTERIORS, arguments_of, file_of, scalars
from benchmarks.posteriordb_methods import judged, summary

pytestmark = [pytest.mark.reference, pytest.mark.slow]


@pytest.mark.parametrize("name", POSTERIORS)
def test_nuts_as_typed_agrees_or_warns(name: str, bnnzoo_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Means are within 0.1 sd and sds within 7%, beyond Monte Carlo error, unless the fit says that something is wrong."""
    monkeypatch.setenv("BNNZOO_DATA", str(bnnzoo_data))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        posterior = bz.fit(POSTERIORS[name].model, bz.NUTS(), *arguments_of(name), dtype=torch.float64, progress=False)
    said = sorted({each.category.__name__ for each in caught if each.category.__module__.startswith("bnnzoo")})
    tree, known = bz.to_datatree(posterior)["posterior"], file_of(f"summary/{name}.summary.json")["params"]
    draws = scalars({str(site): np.asarray(tree[site], float) for site in tree.data_vars})
    fit = {"model": name, "method": "NUTS", "warnings": said}
    row = judged(fit | {"scalars": {scalar: summary(draws[scalar], is_of_chains=True) for scalar in known}}, known)
    print(row)
    assert row["within_the_narrow_limits"] or row["verdict"].endswith("warned"), row
