"""The page for users of R: its code runs, and R reads the draws that Python made."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bnnzoo as bz
from bnnzoo.core.posterior.posterior import Posterior

ROOT = Path(__file__).parents[1]
PACKAGES = ("bayesplot", "jsonlite", "ncdf4", "posterior", "reticulate")


def missing() -> str:
    """Return what R lacks, empty if nothing."""
    if not (rscript := shutil.which("Rscript")):
        return "Rscript"
    asked = f"cat(setdiff(c({', '.join(map(repr, PACKAGES))}), rownames(installed.packages())))"
    return subprocess.run([rscript, "-e", asked], capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_code_of_the_page_runs_in_r(tmp_path: Path) -> None:
    if lacking := missing():
        pytest.skip(f"needs R with {lacking}")
    page = "\n".join(re.findall(r"```r\n(.*?)```", (ROOT / "docs" / "r.md").read_text(), re.DOTALL))
    last = """
found <- posterior::summarise_draws(draws_of(train), "mean", "sd")
plain <- data.frame(variable = found$variable, mean = as.numeric(found$mean), sd = as.numeric(found$sd))
write.csv(plain, "summary.csv", row.names = FALSE)
print(dim(sigma))
"""
    (tmp_path / "page.R").write_text(page + last)
    (tmp_path / "imp.py").touch()  # see the page
    here = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}",
        "RETICULATE_PYTHON": sys.executable,
    }
    run = ["Rscript", "page.R"]
    done = subprocess.run(run, cwd=tmp_path, env={**os.environ, **here}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert {"report.html", "predictions.csv", "verdicts.json", "laplace.nc"} <= {
        each.name for each in (tmp_path / "tooth").iterdir()
    }
    assert "[1] 1000    1" in done.stdout or "[1] 500   1" in done.stdout

    teeth = pd.read_csv(tmp_path / "tooth.csv")
    posterior = bz.fit(bz.formula("len ~ supp * log(dose)", teeth), bz.NUTS(), teeth, seed=1, progress=False)
    slope = posterior_mean(posterior, "b_log(dose)")
    read = pd.read_csv(tmp_path / "summary.csv", index_col="variable")
    assert read.loc["b_log(dose)", "mean"] == pytest.approx(
        slope, abs=5 * read.loc["b_log(dose)", "sd"] / np.sqrt(1000)
    )


def posterior_mean(posterior: Posterior, name: str) -> float:
    return float(bz.to_datatree(posterior)["posterior"].to_dataset()[name].mean())
