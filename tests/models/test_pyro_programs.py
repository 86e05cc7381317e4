"""Models of Pyro's examples and tutorials: their densities are Pyro's own, and each is fitted or refused as the docs say."""

import re
import warnings
from collections import defaultdict
from pathlib import Path

import pyro
import pytest
import torch
from pyro.infer.mcmc.util import initialize_model

import bnnzoo as bz
from bnnzoo.core.discrete.enumeration import enumerated
from bnnzoo.core.model.density import first_run
from bnnzoo.core.program.sites import ModelError
from tests.helpers.pyro_density import pyro_log_joint
from tests.helpers.pyro_programs import PROGRAMS

PAGE = Path(__file__).parents[2] / "docs" / "pyro_examples.md"
FITTED = [name for name, each in PROGRAMS.items() if not each.sentence]
REFUSED = [name for name, each in PROGRAMS.items() if each.sentence]
METHODS = {"NUTS": "NUTS", "SVI": "SVI", "MAP": "flat priors"}


@pytest.fixture(autouse=True)
def _forget_parameters():
    pyro.clear_param_store()
    yield
    pyro.clear_param_store()


@pytest.mark.parametrize("name", [name for name in FITTED if PROGRAMS[name].with_values])
def test_the_density_is_pyros(name: str) -> None:
    program = PROGRAMS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        density, _ = first_run(program.model, *program.data)
    theta = 0.3 * torch.randn(3, density.num_params, generator=torch.Generator().manual_seed(1))
    found = torch.stack([density.log_joint(point, *density.data) for point in theta])
    if (own := enumerated(density.model)) is None:
        expected = torch.stack([pyro_log_joint(density, point) for point in theta])
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
        return
    marked = pyro.infer.config_enumerate(program.model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, potential, *_ = initialize_model(marked, program.data, max_plate_nesting=own.depth)
    gaps = [float(value + potential(density.unconstrained(point))) for value, point in zip(found, theta, strict=True)]
    if bool(found.isfinite().all()):
        assert max(gaps) - min(gaps) <= 1e-9 * (1 + max(map(abs, gaps)))  # Pyro leaves a constant out


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True")
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_fitted_is_refused_with_what_to_write(name: str) -> None:
    program = PROGRAMS[name]
    with pytest.raises(ModelError, match=re.compile(program.sentence, re.DOTALL)):
        bz.fit(program.model, program.method, *program.data, progress=False)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of chains of ten draws
@pytest.mark.parametrize("name", FITTED)
def test_it_is_fitted_by_the_method_of_its_page(name: str) -> None:
    program = PROGRAMS[name]
    posterior = bz.fit(program.model, program.method, *program.data, progress=False)
    assert bool(posterior.draws()[0].isfinite().all())
    num_draws = 10 if isinstance(program.method, bz.SVI) else None
    draws = (posterior, *program.data)
    drawn = name != "ekf"  # whose distribution has no draws
    tree = bz.posterior_predictive(*draws, num_draws=num_draws) if drawn else bz.to_datatree(posterior)
    for values in tree["posterior"].data_vars.values():
        assert bool(torch.as_tensor(values.to_numpy()).isfinite().all())


def _rows() -> dict[str, list[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    return {line.split("`")[1]: re.split(r"\s*\|\s*", line)[2:4] for line in lines}


def test_the_table_of_the_docs_is_this_one() -> None:
    expected: dict[str, list[list[str]]] = defaultdict(lambda: [[], []])
    for program in PROGRAMS.values():
        entry = f"{program.name or 'the model'} ({METHODS[type(program.method).__name__]})"
        if program.sentence:
            expected[program.page][1].append(program.name or "the model")
        else:
            expected[program.page][0].append(entry)
    rows = _rows()
    assert [*rows] == sorted(expected)
    for page, (fitted, refused) in expected.items():
        assert rows[page][0].split("; ") == (fitted or [""])
        for name in refused:
            assert re.search(rf"(^|; ){re.escape(name)}: ", rows[page][1])


def test_the_share_of_the_docs_is_that_of_the_table() -> None:
    rows = _rows().values()
    whole, some = sum(bool(row[0]) and not row[1] for row in rows), sum(bool(row[0]) for row in rows)
    sentence = re.search(r"(\d+) of the (\d+) pages .*?(\d+) more", PAGE.read_text(), re.DOTALL)
    assert sentence is not None
    assert [int(each) for each in sentence.groups()] == [whole, len([*rows]), some - whole]
