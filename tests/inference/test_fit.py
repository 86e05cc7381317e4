"""What ``fit`` refuses before it does anything."""

import dataclasses
import inspect
from collections.abc import Callable

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

from bnnzoo.core.method import Method
from bnnzoo.core.settings import Seed, check_argument
from bnnzoo.inference import MAMS, MAP, NUTS, SVI, FitWarning, Laplace, MeanFieldVI, SubsetVI, fit
from bnnzoo.inference.fit import (
    _refuse_checkpoint,
    _refuse_dtype,
    _refuse_no_model,
    _refuse_wrong_executor,
    refuse_no_method,
)
from bnnzoo.testing import check_method, check_model, linear_gaussian
from tests.helpers.executors import InProcess

TARGET = linear_gaussian()


def test_a_class_is_no_method() -> None:
    with pytest.raises(TypeError, match=r"The method is the class Laplace, not an object\. Write Laplace\(\)"):
        fit(TARGET.model, Laplace, *TARGET.data)  # type: ignore[arg-type]


def test_data_are_no_method() -> None:
    with pytest.raises(
        TypeError, match=r"The second argument of fit is .*, not a method\. Write fit\(model, NUTS\(\), x, y"
    ):
        refuse_no_method("y")  # by itself: the tests' own check of types would speak first


@pytest.mark.parametrize(
    "use",
    [
        lambda device: fit(TARGET.model, Laplace(), *TARGET.data, device=device),
        lambda device: check_model(TARGET.model, *TARGET.data, device=device),
        lambda device: check_method(Laplace(), device=device),
    ],
    ids=["fit", "check_model", "check_method"],
)
@pytest.mark.parametrize("device", ["gpu", "meta", "cuda:99"])
def test_a_device_on_which_nothing_can_be_computed(use: Callable[[str], object], device: str) -> None:
    with pytest.raises(
        ValueError, match=rf"device='{device}': torch cannot compute there \(.+\)\. Leave device out for the"
    ):
        use(device)


def test_a_default_device_on_which_nothing_can_be_computed() -> None:
    target = linear_gaussian()
    sentence = (
        r"torch's default device is 'meta': torch cannot compute there \(.+\)\. Write device=\"cpu\"; \"cuda\" needs"
    )
    with torch.device("meta"), pytest.raises(ValueError, match=sentence):
        fit(target.model, MAP(), *target.data)


def test_a_method_with_nothing_to_spread_says_so() -> None:
    with pytest.warns(
        UserWarning, match=r"^SVI ignores executor= and runs in this process: it has no chains, members or"
    ):
        fit(TARGET.model, SVI(num_steps=3), *TARGET.data, executor=InProcess())


@pytest.mark.parametrize(
    ("method", "num_tasks"),
    [
        (MAP(num_steps=3), 1),
        (MAP(num_members=2, num_steps=3), 2),
        (Laplace(MAP(num_members=2, num_steps=50)), 2),
        (SubsetVI(below=MAP(num_steps=3), vi=MeanFieldVI(num_steps=3, num_restarts=2)), 3),
        (MeanFieldVI(num_steps=3, init=MAP(num_steps=3)), 2),
    ],
    ids=["one member", "members", "modes of Laplace", "restarts", "start"],
)
def test_an_executor_gets_what_is_independent(method: Method, num_tasks: int) -> None:
    executor = InProcess()
    fit(TARGET.model, method, *TARGET.data, executor=executor)
    assert executor.num_tasks == num_tasks


OTHER = linear_gaussian(num_inputs=5)


def test_warnings_name_the_line_that_called_fit() -> None:
    def model(x: torch.Tensor, y: torch.Tensor) -> None:
        a, b = (pyro.sample(name, dist.Normal(0.0, 5.0)) for name in "ab")
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal((a + b) * x, 0.5), obs=y)

    x = torch.linspace(-1.0, 1.0, 20)
    with pytest.warns(FitWarning, match="The approximation is not the posterior") as caught:
        fit(model, MeanFieldVI(), x, x, progress=False)  # a and b depend on one another
    files = {each.filename for each in caught}
    with pytest.warns(UserWarning, match="ignores executor=") as caught:
        fit(model, SVI(num_steps=3), x, x, executor=InProcess(), progress=False)
    files |= {each.filename for each in caught}
    assert files <= {__file__, *(name for name in files if "@beartype" in name)}  # which checks types in tests only


@pytest.mark.parametrize("method", [MAP(num_steps=3), MeanFieldVI(num_steps=3)], ids=["MAP", "MeanFieldVI"])
def test_a_start_of_another_model_is_refused(method: Method) -> None:
    posterior = fit(OTHER.model, MAP(num_steps=3), *OTHER.data)
    with pytest.raises(
        ValueError, match=r"init is a posterior of another model: it has w\[5\], but this model has w\[3\]"
    ):
        fit(TARGET.model, dataclasses.replace(method, init=posterior), *TARGET.data)


def test_objects_of_the_wrong_kind_are_refused() -> None:
    with pytest.raises(TypeError, match=r"fit\(executor='threads'\): write an executor of concurrent\.futures"):
        _refuse_wrong_executor("threads")  # by itself: the tests' own check of types would speak first
    with pytest.raises(TypeError, match=r"The first argument of fit is a int, not a model\. Write fit\(model, NUTS"):
        _refuse_no_model("fit", 3)
    with pytest.raises(
        TypeError, match=r"is a network of torch \(Sequential\), which has no prior.*models\.supervised\(net"
    ):
        _refuse_no_model("fit", torch.nn.Sequential())
    with pytest.raises(TypeError, match="The second argument of fit is of type LinearGaussian, not a method"):
        refuse_no_method(TARGET)


def test_dtypes_and_checkpoints_of_other_kinds_are_refused() -> None:
    for dtype in ("float64", float, torch.int64):
        with pytest.raises(TypeError, match=r"fit\(dtype=.*\): write torch\.float32 or torch\.float64"):
            _refuse_dtype("fit", dtype)
    with pytest.raises(TypeError, match=r"fit\(checkpoint=3\): write the name of a folder, such as 'run\.zarr'"):
        inspect.unwrap(_refuse_checkpoint)(NUTS(), 3)


def test_a_seed_may_be_an_integer_of_numpy() -> None:
    first, second = (
        inspect.unwrap(fit)(TARGET.model, MAP(num_steps=3), *TARGET.data, seed=seed) for seed in (np.int64(3), 3)
    )
    assert torch.equal(first.theta, second.theta)


@pytest.mark.parametrize("seed", [1.5, None, "a", True, 2**70, -1])
def test_seeds_of_all_kinds_are_refused_before_anything_runs(seed: object) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^fit\(seed=.*\): write"):
        check_argument("fit", "seed", seed, Seed)


@pytest.mark.parametrize("method", [NUTS(num_draws=10**14), MAP(num_members=10**14)], ids=["NUTS", "MAP"])
def test_results_beyond_the_memory_are_refused_with_their_size(method: Method) -> None:
    with pytest.raises(
        ValueError,
        match=r"=100000000000000 of 3 parameters take [\d,]+ GB, but this machine has [\d.,]+ GB free\. Choose",
    ):
        fit(TARGET.model, method, *TARGET.data)


@pytest.mark.parametrize("method", [NUTS(num_draws=10, num_warmup=10, num_chains=2), MAMS(num_draws=10, num_warmup=10)])
def test_chains_take_their_data_from_a_dict_as_from_arguments(method) -> None:
    def model(x, clinic, y):
        a = pyro.sample("a", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(a[clinic] + x, 1.0), obs=y)

    def of_dict(data, y):
        model(data["x"], data["more"]["clinic"], y)

    x, clinic, y = torch.linspace(-1.0, 1.0, 12), torch.arange(12) % 3, torch.ones(12)
    found = fit(of_dict, method, {"x": x, "more": {"clinic": clinic}}, y, progress=False)
    expected = fit(model, method, x, clinic, y, progress=False)
    torch.testing.assert_close(found.draws(), expected.draws())
