"""General posteriors with means and standard deviations from long runs of another sampler."""

import json
from pathlib import Path

import numpy as np
import pytest

from bnnzoo.inference.fit import fit
from bnnzoo.inference.markov.hamiltonian.nuts import NUTS
from bnnzoo.testing.monte_carlo import check_moments
from tests.helpers.posteriordb import CASES, summaries

pytestmark = [
    pytest.mark.reference,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::bnnzoo.inference.DivergenceWarning"),  # one trajectory of 6,000 is enough
]


REFERENCE_ERROR = 0.05
"""Five standard errors of the long runs themselves, which have 10,000 draws."""


@pytest.mark.parametrize("name", CASES)
def test_moments_of_long_runs(name: str, bnnzoo_data: Path) -> None:
    model, file, columns = CASES[name]
    raw = json.loads((bnnzoo_data / "posteriordb" / "data" / f"{file}.json").read_text())
    data = columns({key: np.asarray(value) for key, value in raw.items()})
    posterior = fit(model, NUTS(num_chains=4, num_warmup=1000, num_draws=1500, target_accept=0.9), *data, seed=0)
    expected = json.loads((bnnzoo_data / "posteriordb" / "summary" / f"{name}.summary.json").read_text())["params"]
    found = summaries(posterior, data)
    assert set(expected) <= set(found)
    for parameter, moments in expected.items():
        draws = found[parameter].reshape(4, -1)
        check_moments(parameter, draws, moments["mean"], moments["sd"], accuracy=REFERENCE_ERROR)
