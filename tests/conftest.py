"""What every test starts from: double precision, fixed seeds, checked types and, if asked for, the reference data."""

import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyro
import pytest
import torch

from tests.elsewhere import register_elsewhere
from tests.type_checks import check_types_of

REPOSITORY = Path(__file__).parents[1]
DEFAULT_DATA = REPOSITORY.parent / "shared" / "data"

# Arguments and results of these packages are checked against their annotations while testing, at no cost to users.
CHECKED = ("bnnzoo.engine", "bnnzoo.core", "bnnzoo.inference", "bnnzoo.predictive")
check_types_of(CHECKED)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the suite run in single precision or in part, and the conformance suite on another device."""
    parser.addoption("--device", default="cpu", help="where the conformance suite computes: cpu, cuda, ...")
    parser.addoption("--dtype", default="float64", choices=["float32", "float64"], help="torch's default dtype")
    parser.addoption("--part", default="0/1", help="K/N: part K, from 0 on, of N that share the tests by their names")


def pytest_configure(config: pytest.Config) -> None:
    """Set the default dtype before tests are collected, since modules may build tensors when imported."""
    torch.set_default_dtype(getattr(torch, config.getoption("dtype")))
    torch.set_num_threads(1)  # each process of the run has a core of its own
    # beside a GPU torch would take this device for the accelerator, and could not wait for the other one's streams
    if "not slow" not in config.option.markexpr and not torch.cuda.is_available():
        register_elsewhere()  # before any module is imported: autograd counts devices once, when it first needs one


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the part that was asked for."""
    number, count = (int(each) for each in config.getoption("part").split("/"))
    left_out = [item for item in items if zlib.crc32(item.nodeid.encode()) % count != number]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


def _seed() -> None:
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 - third parties draw from the global stream


def pytest_collectstart() -> None:
    """Seed the streams before a module is imported, so that its tensors do not depend on which were imported before."""
    _seed()


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup() -> None:
    """Seed them before each fixture too: those of a module are built wherever its first test happens to run."""
    _seed()


@pytest.fixture
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    """The default dtype of this run."""
    return getattr(torch, request.config.getoption("dtype"))


@pytest.fixture
def device(request: pytest.FixtureRequest) -> torch.device:
    """The device of this run."""
    return torch.device(request.config.getoption("device"))


@pytest.fixture(autouse=True)
def _fresh_start(dtype: torch.dtype) -> Iterator[None]:
    """Seed every global stream, empty Pyro's parameter store, and put the defaults back afterwards."""
    torch.set_default_dtype(dtype)
    _seed()
    pyro.clear_param_store()
    yield
    torch.set_default_dtype(dtype)


@pytest.fixture(autouse=True)
def _needs_gpu(request: pytest.FixtureRequest) -> None:
    """Skip a test marked ``gpu`` where there is none."""
    if request.node.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device, and torch finds none")


@pytest.fixture(scope="session")
def bnnzoo_data() -> Path:
    """The folder of reference data."""
    folder = Path(os.environ.get("BNNZOO_DATA", DEFAULT_DATA))
    if not folder.is_dir():
        pytest.skip(f"no reference data: {folder} is not a folder; set BNNZOO_DATA to where the data are")
    return folder
