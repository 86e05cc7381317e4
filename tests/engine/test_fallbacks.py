"""Fits on a machine without a compiler: one warning, no second compiler tried, and the numbers of traced graphs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FITS = """
import json, sys, warnings
import torch
import bnnzoo as bz
from bnnzoo.engine.fallbacks import warned_once
from bnnzoo.engine.lowered import LoopStep
from bnnzoo.testing import linear_gaussian

target = linear_gaussian()

def fitted(method, **how):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        posterior = bz.fit(target.model, method, *target.data, progress=False, **how)
    return posterior, [str(each.message) for each in told if each.category.__name__ == "LoweringWarning"]

found, told = fitted(bz.NUTS(num_chains=2, num_warmup=60, num_draws=10))
graph, graph_told = fitted(bz.NUTS(num_chains=2, num_warmup=60, num_draws=10), engine="graph")
_, native_told = fitted(bz.NUTS(num_chains=2, num_warmup=20, num_draws=10), engine="native")
trained, trained_told = fitted(bz.MAP(num_steps=450, polish_steps=0))
many = [(target.data[0], target.data[1] + i) for i in range(3)]
with warnings.catch_warnings(record=True) as many_told:
    warnings.simplefilter("always")
    posteriors = list(bz.fit_many(target.model, bz.NUTS(num_chains=2, num_warmup=30, num_draws=10), many))
with warnings.catch_warnings(record=True) as loops_told, warned_once():
    warnings.simplefilter("always")
    loops = [LoopStep(lambda x: (x.sin(), x.sum()), torch.zeros(4), at_least=10**9) for _ in range(2)]
    for each in loops:
        each(torch.zeros(4))
print(json.dumps({
    "auto": told, "graph": graph_told, "native": native_told, "trained": trained_told,
    "many": [str(each.message) for each in many_told if each.category.__name__ == "LoweringWarning"],
    "loops": [str(each.message) for each in loops_told], "how": [each.how for each in loops],
    "engines": [each.info.engine.engine for each in (found, graph, trained, *posteriors)],
    "reasons": found.info.engine.reasons,
    "same": torch.equal(found.draws(), graph.draws()),
    "imported": [name for name in ("torch._inductor.compile_fx", "torch._inductor.cpp_builder") if name in sys.modules],
}))
"""


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What fits of a process without a compiler tell."""
    return told_by(FITS, tmp_path_factory.mktemp("cache"))


def told_by(program: str, cache: Path) -> dict[str, list[str]]:
    environment = {**os.environ, "CXX": "/bin/false", "XDG_CACHE_HOME": str(cache)}
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, env=environment)
    found: dict[str, list[str]] = json.loads(run.stdout.splitlines()[-1])
    return found


def test_one_warning_a_fit(hidden: dict[str, list[str]]) -> None:
    reason = "as traced graphs, several times slower: {}: NoCompiler: /bin/false: it ends with status 1."
    native, torchs = reason.format("native code"), reason.format("torch's compiler")
    assert hidden["auto"] == [f"The fit runs {native}"]
    assert hidden["graph"] == []  # which is what was asked for, and too short to be compiled
    assert hidden["loops"] == [f"A model runs {torchs}"] and hidden["how"] == ["traced", "traced"]
    assert hidden["native"] == [f"engine='native' runs {native}"]
    assert hidden["trained"] == [f"Training runs {native}"]
    assert hidden["many"] == [f"The fit runs {native}"]
    assert set(hidden["engines"]) == {"graph"}
    assert hidden["reasons"] == ["native code: NoCompiler: /bin/false: it ends with status 1"]


def test_torchs_compiler_is_not_tried(hidden: dict[str, list[str]]) -> None:
    assert hidden["imported"] == []


def test_the_draws_are_those_of_traced_graphs(hidden: dict[str, list[str]]) -> None:
    assert hidden["same"] is True
