"""Fits of posteriordb in double precision: they are in it, and they are counted by themselves."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bnnzoo as bz
from benchmarks import posteriordb_methods
from benchmarks.posteriordb import POSTERIORS
from benchmarks.posteriordb_methods import DOUBLE, METHODS, by_method, fitted


def row(method: str, verdict: str) -> dict[str, Any]:
    costs = {"gradients": 10, "cpu_seconds": 1.0}
    errors = {"mean": 0.01, "log_sd": 0.0, "quantiles": 0.0, "within_the_narrow_limits": True}
    return {"model": "m", "method": method, "verdict": verdict} | costs | errors


def test_they_are_not_among_all() -> None:
    found = by_method([row("NUTS", "off, warned"), row("MAMS", "right, silent"), row("NUTS, double", "right, silent")])
    assert {name: each["fits"] for name, each in found.items()} == {"NUTS": 1, "MAMS": 1, "all": 2, "NUTS, double": 1}
    assert found["all"]["off, warned"] == 1 and found["NUTS, double"]["off, warned"] == 0


@pytest.mark.parametrize(("method", "dtype"), [("NUTS", torch.float32), ("NUTS, double", torch.float64)])
def test_their_draws_are(method: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = "eight_schools-eight_schools_noncentered"
    textbook, seen = POSTERIORS[name], []
    schools = {"J": 8, "y": [28, 8, -3, 7, -1, 1, 18, 12], "sigma": [15, 10, 16, 11, 9, 11, 10, 18]}
    (tmp_path / "posteriordb" / "data").mkdir(parents=True)
    (tmp_path / "posteriordb" / "summary").mkdir()
    (tmp_path / "posteriordb" / "data" / f"{textbook.data}.json").write_text(json.dumps(schools))
    (tmp_path / "posteriordb" / "summary" / f"{name}.summary.json").write_text(json.dumps({"params": {}}))
    monkeypatch.setenv("BNNZOO_DATA", str(tmp_path))

    def fit(*arguments: Any, **options: Any) -> Any:
        posterior = whole(*arguments, **options)
        seen.append(posterior.theta.dtype)
        return posterior

    whole, quick = bz.fit, bz.NUTS(num_chains=2, num_warmup=20, num_draws=20)
    monkeypatch.setattr(posteriordb_methods.bz, "fit", fit)
    monkeypatch.setitem(METHODS, "NUTS", lambda: quick)
    monkeypatch.setitem(DOUBLE, "NUTS, double", lambda: quick)
    found = fitted(name, method)
    assert "error" not in found and found["gradients"] > 0
    assert seen == [dtype] and np.isfinite(found["cpu_seconds"])
