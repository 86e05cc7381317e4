"""Torch's compiler stays out of a process until something needs it, and is the real one from then on."""

import subprocess
import sys

import pytest

FITS = """
import sys, warnings
import pyro, torch
import pyro.distributions as dist
import bnnzoo as bz

def regression(x, y):
    b = pyro.sample("b", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    sigma = pyro.sample("sigma", dist.HalfNormal(1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(x @ b, sigma), obs=y)

x = torch.linspace(-1, 1, 30)[:, None] ** torch.arange(1, 3)
network = bz.models.supervised(bz.models.mlp(2, hidden=(4,)), bz.priors.fan_in(1.0), bz.likelihoods.gaussian(0.3))
warnings.simplefilter("ignore", bz.inference.FitWarning)
chains = {"num_chains": 2, "num_warmup": 20, "num_draws": 20}
for method in (bz.MAP(), bz.Laplace(), bz.MeanFieldVI(num_steps=500), bz.FullRankVI(num_steps=500), bz.Pathfinder(),
               bz.DeepEnsemble(num_members=2), bz.SWAG(), bz.SGHMC(**chains), bz.NUTS(**chains)):
    for model in (regression, network):
        bz.fit(model, method, x, x.sum(1) + (9 * x[:, 0]).sin(), progress=False)
slow = ("torch._dynamo", "torch._inductor", "sympy", "triton")
print(*(name for name in slow if name in sys.modules), "_dynamo" in vars(torch))
"""

REAL = """
import sys, torch
from bnnzoo.engine.deferred_compiler import compiler_deferred

with compiler_deferred():
    with compiler_deferred():
        slope = torch.func.grad(lambda x: x**3)(torch.tensor(2.0))
    assert "_dynamo" in vars(torch) and "torch._dynamo" not in sys.modules
    product = torch.func.vjp(torch.func.grad(lambda x: x**3), torch.tensor(2.0))[1](torch.tensor(1.0))[0]
assert "_dynamo" not in vars(torch)
with compiler_deferred():
    torch._dynamo.config.cache_size_limit = 9
    real = sys.modules["torch._dynamo"]
    assert torch._dynamo is real and real.config.cache_size_limit == 9
    assert torch._dynamo.compiled_autograd is sys.modules["torch._dynamo.compiled_autograd"]
    again = torch.func.grad(lambda x: x**3)(torch.tensor(2.0))
assert torch._dynamo is real
with compiler_deferred():
    assert torch._dynamo is real
assert float(slope) == float(again) == float(product) == 12.0
"""

ASKED_FOR = """
import sys, torch
from bnnzoo.engine.deferred_compiler import compiler_deferred

with compiler_deferred():
    torch._dynamo.seen = 1
    assert sys.modules["torch._dynamo"].seen == 1
with compiler_deferred():
    assert float(torch.compile(lambda x: x + 1, backend="eager")(torch.tensor(1.0))) == 2.0
"""


def _printed(program: str) -> str:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_fits_import_neither_the_compiler_nor_symbolic_algebra() -> None:
    """Each took a second longer, the first of a process."""
    assert _printed(FITS) == "False"


@pytest.mark.parametrize("program", [REAL, ASKED_FOR], ids=["imported", "asked for"])
def test_what_asks_for_the_compiler_gets_it(program: str) -> None:
    _printed(program)
