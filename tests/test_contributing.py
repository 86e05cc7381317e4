"""The skeleton in CONTRIBUTING.md is a method that works."""

import re
from pathlib import Path
from typing import Any

import torch

from bnnzoo.inference.fit import fit
from bnnzoo.testing import linear_gaussian

CONTRIBUTING = Path(__file__).parents[1] / "CONTRIBUTING.md"


def test_the_skeleton_of_a_method_runs() -> None:
    (source,) = re.findall(r"```python\n(.*?)```", CONTRIBUTING.read_text(), re.DOTALL)
    namespace: dict[str, Any] = {"__name__": "random_search"}
    exec(source, namespace)
    target = linear_gaussian()
    few, many = (
        fit(target.model, namespace["RandomSearch"](num_candidates=n), *target.data, progress=False) for n in (1, 1000)
    )
    log_joint = [posterior.density.log_joint(posterior.draws()[0, 0], *target.data) for posterior in (few, many)]
    assert many.draws().shape == (1, 1, many.density.num_params)
    assert many.info.config == {"num_candidates": 1000}
    assert torch.isfinite(log_joint[0])
    assert log_joint[1] > log_joint[0]
