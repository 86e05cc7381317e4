"""What ``fit`` refuses before it does anything."""

from collections.abc import Callable

import pytest

from bnnzoo.inference import Laplace, fit
from bnnzoo.inference.fit import _refuse_class
from bnnzoo.testing import check_method, check_model, linear_gaussian

TARGET = linear_gaussian()


def test_a_class_is_no_method() -> None:
    with pytest.raises(TypeError, match=r"The method is the class Laplace, not an object\. Write Laplace\(\)"):
        fit(TARGET.model, Laplace, *TARGET.data)  # type: ignore[arg-type]


def test_data_are_no_method() -> None:
    with pytest.raises(
        TypeError, match=r"The second argument of fit is .*, not a method\. Write fit\(model, NUTS\(\), x, y"
    ):
        _refuse_class("y")  # by itself: the tests' own check of types would speak first


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
